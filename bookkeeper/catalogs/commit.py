"""
Tables as a catalog has them, and commits to them: the one place that calls a catalog and translates its errors.

Nothing here retries. pyiceberg's own retry re-applies an append on a new base and commits it twice, so
`transaction()` is never used: the caller of `commit` gives the requirements and decides about another try.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from pyiceberg.catalog import Catalog as IcebergCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
)
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate

from bookkeeper.catalogs.answers import meaning, retry_after, shown
from bookkeeper.catalogs.deadline import within
from bookkeeper.catalogs.file_io import stay_below
from bookkeeper.catalogs.prepared import PreparedCommit
from bookkeeper.catalogs.sqlite_file import file_of, identity
from bookkeeper.catalogs.statistics_kinds import with_any_statistics
from bookkeeper.config.extras import extra_missing
from bookkeeper.errors import (
    BookkeeperError,
    CatalogMissing,
    CatalogUnavailable,
    CommitConflict,
    CommitUnknown,
    ConfigInvalid,
    ExtraMissing,
    StorageUnavailable,
    TableMissing,
    TableUnusable,
)

T = TypeVar("T")
#: of a catalog on a server: how long a call may take
BOUND = "_bookkeeper_patience"
#: in the errors of SQLite and Postgres for a catalog that was never set up
_NO_TABLES = ("no such table", "does not exist")
_OTHER = {
    True: "Upgrade it with Spark: ALTER TABLE ... SET TBLPROPERTIES('format-version'='2').",
    False: "No table goes back to version 2: make one of another name with `bookkeeper init` and copy the rows, "
    "such as by Spark's INSERT INTO new SELECT * FROM old. Or drop it, and make it again.",
}
_MOVED = (
    "Is its disk mounted? Was the lake moved? A table names its files by absolute URL: give the new place its old name "
    'again (docs/operate.md, "Move a lake").'
)

#: what SQLite, an operating system and a database say of a disk without room
_NO_ROOM = ("database or disk is full", "disk I/O error", "No space left on device")
_FULL = (
    "The disk of the catalog is full, or fails: see df, df -i and the kernel's log. Make room: nothing is torn, and "
    "everything goes on by itself."
)


@contextmanager
def asked(what: str) -> Iterator[None]:
    """
    Translates a catalog client's exceptions to CatalogUnavailable, TableMissing or ExtraMissing.
    """
    try:
        yield
    except (NoSuchTableError, NoSuchNamespaceError) as exc:
        raise TableMissing(f"{what}: {exc}") from exc
    except (TableUnusable, CatalogUnavailable, ExtraMissing, ConfigInvalid):
        raise
    except ModuleNotFoundError as exc:
        raise extra_missing(exc, what) from exc
    except NotInstalledError as exc:  # its text ends with the pip line
        text, _, pip = str(exc).partition(": ")
        raise ExtraMissing(f"{what}: {text}", hint=f"Run: {pip}" if pip else ExtraMissing.hint) from exc
    except FileNotFoundError as exc:
        raise CatalogUnavailable(f"{what}: {shown(exc)}", hint=_MOVED) from exc
    except StorageUnavailable as exc:
        raise CatalogUnavailable(f"{what}: {exc}", hint=exc.hint) from exc
    except Exception as exc:
        # Drivers and HTTP clients have no common root of errors; a read changes nothing, so any error may be retried.
        if "iceberg_tables" in str(exc) and any(text in str(exc) for text in _NO_TABLES):
            raise TableMissing(f"{what}: the catalog is empty, no table was created in it") from exc
        said, hint = meaning(exc)
        error = CatalogUnavailable(f"{what}: {said or shown(exc)}", hint=hint or _disk_hint(exc))
        error.pause = retry_after(exc)
        raise error from exc


def load_table(catalog: IcebergCatalog, identifier: str, for_commit: bool = False) -> Table:
    """
    The table as it is now; raises CatalogUnavailable, TableUnusable (dropped, or not format v2).

    `for_commit`: the caller changes it by commits alone, so a commit that is not over yet may be missing.
    """
    load = getattr(catalog, "load_for_commit", catalog.load_table) if for_commit else catalog.load_table
    with asked(f"load table {identifier}"):
        table = with_any_statistics(lambda: _bounded(catalog, lambda: load(identifier)))
    version = table.metadata.format_version
    if version != 2:
        raise TableUnusable(f"{identifier} has format version {version}; only 2 is supported", hint=_OTHER[version < 2])
    stay_below(table)
    return table


def commit(
    table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
) -> CommitTableResponse:
    """
    Sends one commit, once.

    Raises CommitConflict (refused) or CommitUnknown (anything else: it may have been applied, or may be later).
    After either, the caller loads the table again and reads the marks.
    """
    return _send(table, lambda: table.catalog.commit_table(table, requirements, updates))


def prepare(
    table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
) -> PreparedCommit:
    """
    The same commit in two parts, for a caller that has more to write: its `swap` raises like `commit`.

    Its `writes` raise StorageUnavailable. Raises CommitConflict when the commit cannot be made on this table; nothing
    was sent then. Catalogs other than ours write their metadata themselves, so their commit has nothing to write.
    """
    catalog: Any = table.catalog
    make = getattr(catalog, "prepare_commit", None)
    if make is None:
        return PreparedCommit((), lambda: commit(table, requirements, updates))
    try:
        made: PreparedCommit = make(table, requirements, updates)
    except CommitFailedException as exc:
        raise CommitConflict(f"{'.'.join(table.name())}: {exc}") from exc
    except Exception as exc:
        raise CommitConflict(f"{'.'.join(table.name())}: {shown(exc)}") from exc
    return PreparedCommit([partial(_write, write) for write in made.writes], lambda: _send(table, made.swap))


def _write(write: Callable[[], None]) -> None:
    try:
        write()
    except BookkeeperError:
        raise
    except Exception as exc:  # of a FileIO, which shares no root of errors with the others
        raise StorageUnavailable(f"the table's metadata file: {shown(exc)}") from exc


def replace_metadata(table: Table, metadata: TableMetadata) -> CommitTableResponse:
    """
    Replaces the table's metadata, once; only our own catalogs can. Raises like `commit`.
    """
    catalog: Any = table.catalog
    return _send(table, lambda: catalog.replace_metadata(table, metadata))


def _send(table: Table, act: Callable[[], CommitTableResponse]) -> CommitTableResponse:
    try:
        path = file_of(table.catalog)
        before = identity(path) if path else None
        done = _bounded(table.catalog, act)
        if path and identity(path) != before:
            raise CatalogMissing(f"the catalog {path} was replaced during the commit")
        return done
    except CommitFailedException as exc:
        raise CommitConflict(f"{'.'.join(table.name())}: {exc}") from exc
    except Exception as exc:
        # No exception of a driver or an HTTP client proves that the commit was not applied.
        said, hint = meaning(exc)
        hint = hint or getattr(exc, "hint", "") or _disk_hint(exc) or _clock_hint(exc)
        error = CommitUnknown(f"{'.'.join(table.name())}: {said or shown(exc)}", hint=hint)
        error.pause = retry_after(exc)
        raise error from exc


def _bounded(catalog: IcebergCatalog, act: Callable[[], T]) -> T:
    """Calls a server; raises TimeoutError after the catalog's patience, and uses no open connection again then."""
    patience = getattr(catalog, BOUND, None)
    if patience is None:
        return act()
    try:
        return within(patience, act)
    except TimeoutError:
        if (engine := getattr(catalog, "engine", None)) is not None:
            engine.dispose(close=False)
        raise


def _disk_hint(exc: Exception) -> str:
    return _FULL if any(text in str(exc) for text in _NO_ROOM) else ""


def _clock_hint(exc: Exception) -> str:
    """A REST catalog compares the snapshot's time with its own clock, and answers 400."""
    text = str(exc)
    if "Invalid update timestamp" not in text and "Invalid snapshot timestamp" not in text:
        return ""
    return "The clocks of this machine and of the catalog differ by more than a minute. Synchronise both (NTP)."
