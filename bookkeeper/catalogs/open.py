"""
The Iceberg catalog: opened from pyiceberg's own keys, and called in one place that translates its errors.

Nothing here retries. pyiceberg's own retry re-applies an append on a new base and commits it twice, so
`transaction()` is never used: the caller of `commit` gives the requirements and decides about another try.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

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

from bookkeeper.catalogs.answers import meaning, retry_after, shown
from bookkeeper.catalogs.deadline import within
from bookkeeper.catalogs.file_io import ignore_table_properties, stay_below
from bookkeeper.catalogs.prepared import PreparedCommit
from bookkeeper.catalogs.sql_server import LIBPQ, bound_transactions, share, with_deadlines
from bookkeeper.catalogs.sqlite_file import (
    SQLITE,
    file_of,
    identity,
    prepare_file,
    sqlite_path,
    watch_file,
    write_ahead,
)
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
CHECKED_REST = "bookkeeper.catalogs.rest.CheckedRestCatalog"
FLAT_SQL = "bookkeeper.catalogs.sql.FlatSqlCatalog"
DISK_FIRST = "bookkeeper.catalogs.file_io.DiskFirst"
STORAGE = "bookkeeper.catalogs.storage.StorageCatalog"
_PATIENCE = timedelta(seconds=60)
_BOUND = "_bookkeeper_patience"
#: in the errors of SQLite and Postgres for a catalog that was never set up
_NO_TABLES = ("no such table", "does not exist")


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
    given: dict[str, Any] = _checked(settings.properties)
    properties = given if scans else {"py-io-impl": DISK_FIRST, **given}
    uri = properties.get("uri", "")
    if properties.get("type") == "sql" or uri.startswith(SQLITE):
        properties.setdefault("init_catalog_tables", str(create).lower())
    if uri.startswith(SQLITE):
        properties["uri"] = prepare_file(uri, create)
    elif create and properties.get("py-catalog-impl") == STORAGE:
        _make_warehouse(properties.get("warehouse", ""))
    properties = _with_ours(properties)
    with asked("open the catalog"):
        if uri.partition("://")[0] in LIBPQ:
            properties["uri"] = with_deadlines(uri, patience)
        catalog = _load(settings.name, properties, None if uri.startswith(SQLITE) else patience)
        ignore_table_properties(catalog)
        if uri.startswith(SQLITE):
            watch_file(catalog, sqlite_path(uri))
            write_ahead(catalog)
        elif shared:
            share(catalog, patience)
        elif uri.partition("://")[0] in LIBPQ and (engine := getattr(catalog, "engine", None)) is not None:
            bound_transactions(engine, patience)
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


def _with_ours(properties: dict[str, Any]) -> dict[str, Any]:
    """The properties with our own class for the same catalog, which pyiceberg imports by name."""
    if properties.get("type") == "sql":
        ours = {"py-catalog-impl": FLAT_SQL}
    elif is_rest(properties):
        from bookkeeper.catalogs.rest import rest_properties

        properties, ours = rest_properties(properties), {"py-catalog-impl": CHECKED_REST}
    else:
        return properties
    return {**{key: value for key, value in properties.items() if key != "type"}, **ours}


def is_rest(properties: Mapping[str, str]) -> bool:
    """
    Whether these properties of pyiceberg's name a REST catalog.
    """
    kind = properties.get("type", "").lower()
    return kind == "rest" or (
        not kind and "py-catalog-impl" not in properties and properties.get("uri", "").startswith(("http:", "https:"))
    )


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


def _make_warehouse(location: str) -> None:
    path = local_path(location)
    if path is not None:
        os.makedirs(path, exist_ok=True)


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
        table = _bounded(catalog, lambda: load(identifier))
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


def _disk_hint(exc: Exception) -> str:
    return _FULL if any(text in str(exc) for text in _NO_ROOM) else ""


def _clock_hint(exc: Exception) -> str:
    """A REST catalog compares the snapshot's time with its own clock, and answers 400."""
    text = str(exc)
    if "Invalid update timestamp" not in text and "Invalid snapshot timestamp" not in text:
        return ""
    return "The clocks of this machine and of the catalog differ by more than a minute. Synchronise both (NTP)."
