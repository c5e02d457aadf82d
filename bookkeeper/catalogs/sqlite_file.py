"""
A catalog that is an SQLite file: made, and watched, because SQLite goes on with a file that was moved away.
"""

import os
from typing import Any
from urllib.parse import quote

from pyiceberg.catalog import Catalog as IcebergCatalog

from bookkeeper.config.settings import Catalog
from bookkeeper.errors import CatalogMissing, CatalogUnavailable

SQLITE = "sqlite:///"
_BUSY_SECONDS = 20
#: of a catalog that is a file: its path
_FILE = "_bookkeeper_file"
#: device and inode of a file
Identity = tuple[int, int]
_NO_DIRECTORY = "Is its disk mounted? If the directory was deleted with the catalog, make it, then try again."


def sqlite_path(uri: str) -> str | None:
    """
    The path of a SQLite catalog's file; None for other catalogs, and for one in memory.
    """
    if not uri.startswith(SQLITE):
        return None
    name = uri.removeprefix(SQLITE).split("?")[0]
    return None if name in ("", ":memory:") or name.startswith("file:") else os.path.abspath(name)


def is_lost(settings: Catalog) -> bool:
    """
    Whether the catalog is a SQLite file that does not exist.
    """
    path = sqlite_path(settings.properties.get("uri", ""))
    return path is not None and not os.path.exists(path)


def prepare_file(uri: str, create: bool) -> str:
    """
    The URI to open the file with, created here if at all: with it, no later connection creates an empty one.
    """
    path, (where, _, query) = sqlite_path(uri), uri.partition("?")
    named = [item for item in query.split("&") if item]
    if not any(item.startswith("timeout=") for item in named):
        named.append(f"timeout={_BUSY_SECONDS}")
    if path is not None:
        parent = os.path.dirname(path)
        if create:
            os.makedirs(parent, exist_ok=True)
            if not os.path.exists(path):
                # Never of one that is there: to close it gives up the locks that this process has on it (POSIX), and
                # the next process to close the catalog deletes the write-ahead log that this one works on.
                open(path, "ab").close()
        elif not os.path.isdir(parent):
            raise CatalogMissing(f"the directory of the catalog {path} is not there", hint=_NO_DIRECTORY)
        identity(path)
        where, named = f"{SQLITE}file:{quote(path)}", [*named, "mode=rw", "uri=true"]
    return f"{where}?{'&'.join(named)}"


def identity(path: str) -> Identity:
    """
    The identity (device, inode) of the file at this path; raises CatalogMissing.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise CatalogMissing(f"the catalog {path} is not there") from exc
    return found.st_dev, found.st_ino


def file_of(catalog: Any) -> str | None:
    """
    The path of a catalog whose file is watched.
    """
    path: str | None = getattr(catalog, _FILE, None)
    return path


def watch_file(catalog: Any, path: str | None) -> None:
    """
    Checks, before each use of a connection, that the file it has open is still the file at `path`.

    SQLite goes on working on a file that was moved away or deleted, and commits to that file are lost.
    """
    if path is None:
        return
    from sqlalchemy import event
    from sqlalchemy.exc import DisconnectionError

    def begin(*_: Any) -> None:
        identity(path)

    def use(_: Any, record: Any, __: Any) -> None:
        now = identity(path)
        if record.info.setdefault(_FILE, now) != now:
            raise DisconnectionError(f"another file is at {path} now")

    setattr(catalog, _FILE, path)
    event.listen(catalog.engine, "do_connect", begin)
    event.listen(catalog.engine, "connect", lambda _, record: record.info.update({_FILE: identity(path)}))
    event.listen(catalog.engine, "checkout", use)


def write_ahead(catalog: IcebergCatalog) -> None:
    """
    Lets readers (Spark) go on while this process holds the write lock; the mode is kept in the file.

    Raises CatalogUnavailable where the file system cannot do it.
    """
    with catalog.engine.connect() as connection:  # type: ignore[attr-defined]
        mode = connection.exec_driver_sql("PRAGMA journal_mode=WAL").scalar()
    if mode not in ("wal", "memory"):
        raise CatalogUnavailable(
            f"SQLite cannot use its write-ahead log there: its journal mode stays {mode!r}",
            hint="Does another process hold it open? Network file systems cannot do it: use a local disk, or Postgres.",
        )
