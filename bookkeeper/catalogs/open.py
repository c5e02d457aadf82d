"""
The Iceberg catalog: opened from pyiceberg's own keys, asked in one place, its errors translated once.

Nothing here retries. pyiceberg's own retry re-applies an append on a new base and commits it twice, so
`transaction()` is never used: whoever commits calls `commit` with its own requirements and owns the loop.
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
from bookkeeper.config.extras import extra_missing
from bookkeeper.config.settings import Catalog
from bookkeeper.errors import (
    CatalogMissing,
    CatalogUnavailable,
    CommitConflict,
    CommitUnknown,
    ConfigInvalid,
    ExtraMissing,
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
#: how SQLite and Postgres say that a catalog was never set up
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
    The catalog of `[catalog]`; it is made only with `create`, with the directory of its file or its local warehouse.

    Of an SQL server, those that are `shared` use the same few connections: it has a hundred, a daemon more tables.
    Without `scans` pyarrow is not loaded for a table on local disk, and pyiceberg cannot scan it.

    A server that does not answer, frozen or gone, is given up after `patience`, now and in every later call. A file
    that is moved or exchanged later is noticed at every use. Raises CatalogUnavailable, CatalogMissing.
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
        # The same catalog with a flat commit; named, not imported, for it lies on a floor above.
        del properties["type"]
        properties["py-catalog-impl"] = FLAT_SQL
    with asked("open the catalog"):
        if uri.partition("://")[0] in _LIBPQ:
            properties["uri"] = _with_deadlines(uri, patience)
        catalog = _opened(settings.name, properties, None if uri.startswith(SQLITE) else patience)
        if uri.startswith(SQLITE):
            _watch_file(catalog, sqlite_path(uri))
            _write_ahead(catalog)
        elif shared:
            _share(catalog, patience)
        elif uri.partition("://")[0] in _LIBPQ and (engine := getattr(catalog, "engine", None)) is not None:
            _bound_transactions(engine, patience)
            engine.dispose()  # opening has made a connection without these bounds
    if (session := getattr(catalog, "_session", None)) is not None:
        # pyiceberg's REST client would wait for ever, and the tick with it.
        session.request = partial(session.request, timeout=patience.total_seconds())
    return catalog


def _checked(properties: Mapping[str, str]) -> dict[str, str]:
    """What no catalog ever answers to is a mistake in the configuration, and not one that is down."""
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


def _opened(name: str, properties: dict[str, str], patience: timedelta | None) -> IcebergCatalog:
    _check_installed(properties)
    return load_catalog(name, **properties) if patience is None else _within(patience, name, properties)


def _check_installed(properties: Mapping[str, str]) -> None:
    """pyiceberg does not say which module it misses: it says that a catalog cannot be initialised, as of one down."""
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
        raise ConfigInvalid(f"catalog.uri: SQLAlchemy has nothing for {uri.partition(':')[0]!r}") from exc


def _within(patience: timedelta, name: str, properties: dict[str, str]) -> IcebergCatalog:
    catalog = within(patience, partial(load_catalog, name, **properties))
    setattr(catalog, _BOUND, patience)
    return catalog


def _share(catalog: Any, patience: timedelta) -> None:
    own = getattr(catalog, "engine", None)
    if own is not None:
        catalog.engine = _engine(own.url, own.pool._pre_ping, os.getpid(), patience)
        own.dispose()


def _engine(url: Any, pre_ping: bool, process: int, patience: timedelta) -> Any:
    """The one engine of this URL and process: a fork must not use what its parent opened."""
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
    Has Postgres itself end what this process leaves behind, on every connection made from now on.

    A client that vanishes between UPDATE and COMMIT would keep the row of its table locked for good; one that gives
    up waiting for such a lock would leave its backend waiting. Both end before anyone's patience does. What the URL,
    the role, the database or the server sets stays.
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
    """A call to a server, given up when it takes too long; its connections are not used again then."""
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
    """libpq would find out after minutes to hours that a host is gone; what the user named stays."""
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
    The path of the file that is this SQLite catalog; None for any other, and for one in memory.
    """
    if not uri.startswith(SQLITE):
        return None
    name = uri.removeprefix(SQLITE).split("?")[0]
    return None if name in ("", ":memory:") or name.startswith("file:") else os.path.abspath(name)


def is_lost(settings: Catalog) -> bool:
    """
    Whether the catalog is a file that is not there.
    """
    path = sqlite_path(settings.properties.get("uri", ""))
    return path is not None and not os.path.exists(path)


def _prepare_sqlite(uri: str, create: bool) -> str:
    """
    The URI by which SQLite opens its file, which is made here or never: else any later connection would make it.
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
    Looks, before each use of a connection, whether the file it has open is still the one at `path`.

    A connection goes on working on a file that was moved away or deleted, and what it commits there is lost.
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
    # Readers (Spark) must not fail while we hold the write lock; the mode is kept in the file.
    with catalog.engine.connect() as connection:  # type: ignore[attr-defined]
        mode = connection.exec_driver_sql("PRAGMA journal_mode=WAL").scalar()
    if mode not in ("wal", "memory"):
        raise CatalogUnavailable(
            f"SQLite cannot write ahead there: its journal mode stays {mode!r}",
            hint="Does somebody hold it open? A network file system cannot: use a local disk, or Postgres.",
        )


@contextmanager
def asked(what: str) -> Iterator[None]:
    """
    Turns what a catalog client raises into CatalogUnavailable or TableUnusable (TableMissing).
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
        # Drivers and HTTP clients share no root of errors; whatever it was, nothing was changed by asking.
        if "iceberg_tables" in str(exc) and any(text in str(exc) for text in _NO_TABLES):
            raise TableMissing(f"{what}: the catalog is empty, nobody has made a table in it") from exc
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
    After either the caller loads the table again and looks at the marks.
    """
    return _sent(table, lambda: table.catalog.commit_table(table, requirements, updates))


def replace_metadata(table: Table, metadata: TableMetadata) -> CommitTableResponse:
    """
    Puts `metadata` in the place of the table's, once; for a catalog of ours only. Raises like `commit`.
    """
    catalog: Any = table.catalog
    return _sent(table, lambda: catalog.replace_metadata(table, metadata))


def _sent(table: Table, act: Callable[[], CommitTableResponse]) -> CommitTableResponse:
    try:
        path = getattr(table.catalog, _FILE, None)
        before = _identity(path) if path else None
        done = _bounded(table.catalog, act)
        if path and _identity(path) != before:
            raise CatalogMissing(f"the catalog {path} was exchanged during the commit")
        return done
    except CommitFailedException as exc:
        raise CommitConflict(f"{'.'.join(table.name())}: {exc}") from exc
    except Exception as exc:
        # No exception of a driver or an HTTP client proves that the commit was not applied.
        raise CommitUnknown(f"{'.'.join(table.name())}: {_first_line(exc)}", hint=_clock_hint(exc)) from exc


def _clock_hint(exc: Exception) -> str:
    """A REST catalog holds the snapshot's time against a clock of its own, and says so in a 400."""
    text = str(exc)
    if "Invalid update timestamp" not in text and "Invalid snapshot timestamp" not in text:
        return ""
    return "The clocks of this machine and of the catalog differ by more than a minute. Synchronise both (NTP)."


def _first_line(exc: Exception) -> str:
    """What a driver says, without its background and its SQL."""
    return f"{type(exc).__name__}: {str(exc).partition(chr(10))[0]}"
