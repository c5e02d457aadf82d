"""
The Iceberg catalog, opened from pyiceberg's own keys; `commit` loads tables from it and changes them.
"""

import os
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any

from pyiceberg.catalog import Catalog as IcebergCatalog
from pyiceberg.catalog import CatalogType, load_catalog

from bookkeeper.catalogs.commit import BOUND, asked
from bookkeeper.catalogs.deadline import within
from bookkeeper.catalogs.file_io import ignore_table_properties
from bookkeeper.catalogs.sql_server import LIBPQ, bound_transactions, share, with_deadlines
from bookkeeper.catalogs.sqlite_file import (
    SQLITE,
    prepare_file,
    sqlite_path,
    watch_file,
    write_ahead,
)
from bookkeeper.config.extras import extra_missing
from bookkeeper.config.settings import Catalog
from bookkeeper.errors import (
    ConfigInvalid,
)
from bookkeeper.stores.locations import local_path

CHECKED_REST = "bookkeeper.catalogs.rest.CheckedRestCatalog"
FLAT_SQL = "bookkeeper.catalogs.sql.FlatSqlCatalog"
DISK_FIRST = "bookkeeper.catalogs.file_io.DiskFirst"
STORAGE = "bookkeeper.catalogs.storage.StorageCatalog"
_PATIENCE = timedelta(seconds=60)


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
    setattr(catalog, BOUND, patience)
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


def _make_warehouse(location: str) -> None:
    path = local_path(location)
    if path is not None:
        os.makedirs(path, exist_ok=True)
