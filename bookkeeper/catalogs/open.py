"""
The Iceberg catalog: opened from pyiceberg's own keys, and called in one place that translates its errors.

Nothing here retries. pyiceberg's own retry re-applies an append on a new base and commits it twice, so
`transaction()` is never used: the caller of `commit` gives the requirements and decides about another try.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import quote

from pyiceberg.catalog import Catalog as IcebergCatalog
from pyiceberg.catalog import CatalogType, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
)
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate

from bookkeeper.catalogs.deadline import within
from bookkeeper.catalogs.prepared import PreparedCommit
from bookkeeper.config.extras import extra_missing
from bookkeeper.config.settings import Catalog
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
from bookkeeper.stores.locations import local_path

T = TypeVar("T")
SQLITE = "sqlite:///"
FLAT_SQL = "bookkeeper.catalogs.sql.FlatSqlCatalog"
DISK_FIRST = "bookkeeper.catalogs.file_io.DiskFirst"
STORAGE = "bookkeeper.catalogs.storage.StorageCatalog"
_BUSY_SECONDS = 20
_PATIENCE = timedelta(seconds=60)
_BOUND = "_bookkeeper_patience"
#: of a catalog that is a file: its path
_FILE = "_bookkeeper_file"
#: device and inode of a file
Identity = tuple[int, int]
_OPENING, _engines = threading.Lock(), dict[Any, Any]()
_NO_DIRECTORY = "Is its disk mounted? If the directory was deleted with the catalog, make it, then try again."
#: in the errors of SQLite and Postgres for a catalog that was never set up
_NO_TABLES = ("no such table", "does not exist")
_LIBPQ = ("postgresql", "postgresql+psycopg2", "postgresql+psycopg")


def open_catalog(
    settings: Catalog,
    create: bool = False,
    patience: timedelta = _PATIENCE,
    scans: bool = True,
    shared: bool = False,
) -> IcebergCatalog:
    """
    The catalog of `[catalog]`. Only `create` makes a missing one, with the directory of its file or local warehouse.

    `shared` catalogs of one SQL server use the same few connections: a server allows about a hundred, and a daemon
    may have more tables. Without `scans` pyarrow is not loaded for tables on local disk; pyiceberg cannot scan them.

    A call to a server that does not answer ends after `patience`, now and later. Every use of a SQLite catalog checks
    that its file was not moved or replaced. Raises CatalogUnavailable, CatalogMissing, ConfigInvalid, ExtraMissing.
    """
    given = _checked(settings.properties)
    properties = given if scans else {"py-io-impl": DISK_FIRST, **given}
    uri = properties.get("uri", "")
    if properties.get("type") == "sql" or uri.startswith(SQLITE):
        properties.setdefault("init_catalog_tables", str(create).lower())
    if uri.startswith(SQLITE):
        properties["uri"] = _prepare_sqlite(uri, create)
    elif create and properties.get("py-catalog-impl") == STORAGE:
        _make_warehouse(properties.get("warehouse", ""))
    if properties.get("type") == "sql":
        # The same catalog with a flat commit; pyiceberg imports it by name.
        del properties["type"]
        properties["py-catalog-impl"] = FLAT_SQL
    with asked("open the catalog"):
        if uri.partition("://")[0] in _LIBPQ:
            properties["uri"] = _with_deadlines(uri, patience)
        catalog = _load(settings.name, properties, None if uri.startswith(SQLITE) else patience)
        if uri.startswith(SQLITE):
            _watch_file(catalog, sqlite_path(uri))
            _write_ahead(catalog)
        elif shared:
            _share(catalog, patience)
        elif uri.partition("://")[0] in _LIBPQ and (engine := getattr(catalog, "engine", None)) is not None:
            _bound_transactions(engine, patience)
            engine.dispose()  # opening made a connection without these bounds
    if (session := getattr(catalog, "_session", None)) is not None:
        # pyiceberg's REST client has no timeout: the tick would wait for ever with it.
        session.request = partial(session.request, timeout=patience.total_seconds())
    return catalog


def _checked(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties; raises ConfigInvalid for those that no catalog accepts, as they are no outage."""
    kind, uri = properties.get("type"), properties.get("uri", "")
    known = sorted(item.value for item in CatalogType)
    if kind is not None and kind.lower() not in known:
        raise ConfigInvalid(f"catalog.type = {kind!r}: one of {', '.join(known)} is allowed")
    # Not the URI itself: a password is in it.
    if kind == "sql" and "://" not in uri:
        raise ConfigInvalid(
            "catalog.uri: a URL of SQLAlchemy such as sqlite:////path or postgresql://host/db is allowed"
        )
    return dict(properties)


def _load(name: str, properties: dict[str, str], patience: timedelta | None) -> IcebergCatalog:
    _check_installed(properties)
    if patience is None:
        return load_catalog(name, **properties)
    catalog = within(patience, partial(load_catalog, name, **properties))
    setattr(catalog, _BOUND, patience)
    return catalog


def _check_installed(properties: Mapping[str, str]) -> None:
    """Raises ExtraMissing for a missing module; pyiceberg's own error reads like that of a catalog that is down."""
    implementation = properties.get("py-catalog-impl", "")
    try:
        if implementation:
            import_module(implementation.rpartition(".")[0])
        if implementation == FLAT_SQL:
            _import_driver(properties.get("uri", ""))
    except ModuleNotFoundError as exc:
        if exc.name and f"{implementation}.".startswith(f"{exc.name}."):
            raise ConfigInvalid(
                f"catalog.py-catalog-impl = {implementation!r}: there is no module {exc.name}",
                hint="Is the package with that class installed here? Is its name right?",
            ) from exc
        raise extra_missing(exc, "the catalog that [catalog] names") from exc


def _import_driver(uri: str) -> None:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        make_url(uri).get_dialect().import_dbapi()
    except ArgumentError as exc:
        raise ConfigInvalid(f"catalog.uri: SQLAlchemy has no dialect for {uri.partition(':')[0]!r}") from exc


def _share(catalog: Any, patience: timedelta) -> None:
    own = getattr(catalog, "engine", None)
    if own is not None:
        catalog.engine = _engine(own.url, own.pool._pre_ping, os.getpid(), patience)
        own.dispose()


def _engine(url: Any, pre_ping: bool, process: int, patience: timedelta) -> Any:
    """The one engine of this URL and process: a fork must not use its parent's connections."""
    from sqlalchemy import create_engine

    key = (url.render_as_string(hide_password=False), pre_ping, process)
    with _OPENING:
        if key not in _engines:
            bounds = {"pool_size": 10, "max_overflow": 20, "pool_timeout": patience.total_seconds()}
            _engines[key] = create_engine(url, pool_pre_ping=pre_ping, **bounds)
            if url.drivername in _LIBPQ:
                _bound_transactions(_engines[key], patience)
        return _engines[key]


def _bound_transactions(engine: Any, patience: timedelta) -> None:
    """
    Makes Postgres end the transactions that this process leaves behind, on every connection made from now on.

    Without it, a client that vanishes between UPDATE and COMMIT keeps its table's row locked for good, and one that
    stops waiting for such a lock leaves its backend waiting. Both now end before `patience` does. Bounds that the URL,
    the role, the database or the server sets stay.
    """
    from sqlalchemy import event

    most = max(2, int(patience.total_seconds() * 1000))
    bounds = {"lock_timeout": most // 2, "idle_in_transaction_session_timeout": most // 2, "statement_timeout": most}
    rows = ", ".join(f"('{name}', '{milliseconds}')" for name, milliseconds in bounds.items())
    # By a query and not in the startup packet: PgBouncer refuses parameters there that it does not know.
    query = (
        f"SELECT set_config(pg_settings.name, bounds.value, false) FROM (VALUES {rows}) AS bounds (name, value) "
        "JOIN pg_settings ON pg_settings.name = bounds.name WHERE pg_settings.source = 'default'"
    )

    def bound(connection: Any, record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(query)
        connection.commit()

    event.listen(engine, "connect", bound)


def _bounded(catalog: IcebergCatalog, act: Callable[[], T]) -> T:
    """Calls a server; raises TimeoutError after the catalog's patience, and uses no open connection again then."""
    patience = getattr(catalog, _BOUND, None)
    if patience is None:
        return act()
    try:
        return within(patience, act)
    except TimeoutError:
        if (engine := getattr(catalog, "engine", None)) is not None:
            engine.dispose(close=False)
        raise


def _with_deadlines(uri: str, patience: timedelta) -> str:
    """Without these bounds libpq notices after minutes to hours that a host is gone; those in the URL stay."""
    from sqlalchemy import make_url

    seconds = max(2, int(patience.total_seconds()))
    url = make_url(uri)
    wanted: dict[str, Any] = {
        "connect_timeout": str(seconds),
        "keepalives_idle": str(seconds // 2),
        "keepalives_interval": str(max(1, seconds // 6)),
        "keepalives_count": "3",
        "tcp_user_timeout": str(seconds * 1000),
    }
    named = url.update_query_dict({key: value for key, value in wanted.items() if key not in url.query})
    return named.render_as_string(hide_password=False)


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


def _prepare_sqlite(uri: str, create: bool) -> str:
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
            open(path, "ab").close()
        elif not os.path.isdir(parent):
            raise CatalogMissing(f"the directory of the catalog {path} is not there", hint=_NO_DIRECTORY)
        _identity(path)
        where, named = f"{SQLITE}file:{quote(path)}", [*named, "mode=rw", "uri=true"]
    return f"{where}?{'&'.join(named)}"


def _identity(path: str) -> Identity:
    """Which file is at this path; raises CatalogMissing."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise CatalogMissing(f"the catalog {path} is not there") from exc
    return found.st_dev, found.st_ino


def _watch_file(catalog: Any, path: str | None) -> None:
    """
    Checks, before each use of a connection, that the file it has open is still the file at `path`.

    SQLite goes on working on a file that was moved away or deleted, and commits to that file are lost.
    """
    if path is None:
        return
    from sqlalchemy import event
    from sqlalchemy.exc import DisconnectionError

    def begin(*_: Any) -> None:
        _identity(path)

    def use(_: Any, record: Any, __: Any) -> None:
        now = _identity(path)
        if record.info.setdefault(_FILE, now) != now:
            raise DisconnectionError(f"another file is at {path} now")

    setattr(catalog, _FILE, path)
    event.listen(catalog.engine, "do_connect", begin)
    event.listen(catalog.engine, "connect", lambda _, record: record.info.update({_FILE: _identity(path)}))
    event.listen(catalog.engine, "checkout", use)


def _make_warehouse(location: str) -> None:
    path = local_path(location)
    if path is not None:
        os.makedirs(path, exist_ok=True)


def _write_ahead(catalog: IcebergCatalog) -> None:
    # Readers (Spark) must not fail while this process holds the write lock; the mode is kept in the file.
    with catalog.engine.connect() as connection:  # type: ignore[attr-defined]
        mode = connection.exec_driver_sql("PRAGMA journal_mode=WAL").scalar()
    if mode not in ("wal", "memory"):
        raise CatalogUnavailable(
            f"SQLite cannot use its write-ahead log there: its journal mode stays {mode!r}",
            hint="Does another process hold it open? Network file systems cannot do it: use a local disk, or Postgres.",
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
    except Exception as exc:
        # Drivers and HTTP clients have no common root of errors; a read changes nothing, so any error may be retried.
        if "iceberg_tables" in str(exc) and any(text in str(exc) for text in _NO_TABLES):
            raise TableMissing(f"{what}: the catalog is empty, no table was created in it") from exc
        raise CatalogUnavailable(f"{what}: {_first_line(exc)}") from exc


def load_table(catalog: IcebergCatalog, identifier: str) -> Table:
    """
    The table as it is now; raises CatalogUnavailable, TableUnusable (dropped, or not format v2).
    """
    with asked(f"load table {identifier}"):
        table = _bounded(catalog, lambda: catalog.load_table(identifier))
    if table.metadata.format_version != 2:
        raise TableUnusable(
            f"{identifier} has format version {table.metadata.format_version}; only 2 is supported",
            hint="Upgrade a v1 table with Spark: ALTER TABLE ... SET TBLPROPERTIES('format-version'='2').",
        )
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
        raise CommitConflict(f"{'.'.join(table.name())}: {_first_line(exc)}") from exc
    return PreparedCommit([partial(_write, write) for write in made.writes], lambda: _send(table, made.swap))


def _write(write: Callable[[], None]) -> None:
    try:
        write()
    except BookkeeperError:
        raise
    except Exception as exc:  # of a FileIO, which shares no root of errors with the others
        raise StorageUnavailable(f"the table's metadata file: {_first_line(exc)}") from exc


def replace_metadata(table: Table, metadata: TableMetadata) -> CommitTableResponse:
    """
    Replaces the table's metadata, once; only our own catalogs can. Raises like `commit`.
    """
    catalog: Any = table.catalog
    return _send(table, lambda: catalog.replace_metadata(table, metadata))


def _send(table: Table, act: Callable[[], CommitTableResponse]) -> CommitTableResponse:
    try:
        path = getattr(table.catalog, _FILE, None)
        before = _identity(path) if path else None
        done = _bounded(table.catalog, act)
        if path and _identity(path) != before:
            raise CatalogMissing(f"the catalog {path} was replaced during the commit")
        return done
    except CommitFailedException as exc:
        raise CommitConflict(f"{'.'.join(table.name())}: {exc}") from exc
    except Exception as exc:
        # No exception of a driver or an HTTP client proves that the commit was not applied.
        raise CommitUnknown(f"{'.'.join(table.name())}: {_first_line(exc)}", hint=_clock_hint(exc)) from exc


def _clock_hint(exc: Exception) -> str:
    """A REST catalog compares the snapshot's time with its own clock, and answers 400."""
    text = str(exc)
    if "Invalid update timestamp" not in text and "Invalid snapshot timestamp" not in text:
        return ""
    return "The clocks of this machine and of the catalog differ by more than a minute. Synchronise both (NTP)."


def _first_line(exc: Exception) -> str:
    """A driver's message without background and SQL."""
    return f"{type(exc).__name__}: {str(exc).partition(chr(10))[0]}"
