"""
How the writers of a configuration reach storage: with its keys, or with those that the catalog hands out with a table.

Nothing of a catalog is imported until a table says `credentials = "catalog"`.
"""

import copyreg
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from bookkeeper.config.settings import Catalog, Settings, Table
from bookkeeper.errors import PathRefused
from bookkeeper.stores.locations import inside, join, normal
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store

if TYPE_CHECKING:
    from bookkeeper.catalogs.table_stores import TableStores

CATALOG = "catalog"
_Key = tuple[str, tuple[tuple[str, str], ...], str]
_LOCK = Lock()
#: by catalog and table: what was loaded in this process, which keeps it: each task brings a Reach of its own
_LOADED: dict[_Key, "TableStores"] = {}
_DEFAULT = "/_bookkeeper"


@dataclass(frozen=True)
class Reach:
    """
    Opens the stores of all tables of a configuration; it can be pickled, and asks the catalog anew elsewhere.

    `used` are the identifiers of tables that the process which pickled it had loaded: a task begins with their data.
    """

    settings: Settings
    used: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[type["Reach"], tuple[Settings, tuple[str, ...]]]:
        return Reach, (self.settings, tuple(table.identifier for table in self._loaded()))

    def _loaded(self) -> list[Table]:
        """Tables with keys of the catalog that this process, or the one that pickled this, has loaded."""
        tables = [table for table in self.settings.tables.values() if table.credentials == CATALOG]
        return [table for table in tables if table.identifier in self.used or self._key(table) in _LOADED]

    def __call__(self, url: str) -> Store:
        """Raises like `open_store`, and for tables of which the catalog has the keys like `table_stores`."""
        made = self._of(url)
        return open_store(url, self.settings.storage) if made is None else made(url)

    def location(self, table: Table) -> str:
        """Where the catalog says that the table is; raises like `table_stores`."""
        return self._made(table).location

    def _of(self, url: str) -> "TableStores | None":
        """The stores of the table that what is at `url` belongs to; None where the configuration has the keys."""
        tables = self.settings.tables.values()
        placed = next((table for table in tables if _is_at(url, _place(table))), None)
        if placed is not None:
            return self._made(placed) if placed.credentials == CATALOG else None
        governed = [table for table in tables if table.credentials == CATALOG]
        known = [self._made(table) for table in self._loaded()]
        if not known and url.endswith(_DEFAULT):  # of which table, only the catalog says
            known = [self._made(table) for table in governed if not _place(table)]
        made = max(known, key=lambda stores: stores.covers(url), default=None)
        is_own = made is not None and (made.covers(url) or len(governed) == len(tables))
        return made if is_own else None

    def _made(self, table: Table) -> "TableStores":
        return _table_stores(self._key(table))

    def _key(self, table: Table) -> "_Key":
        return _key(self.settings.catalog, table.identifier)


def stores_of_catalog(properties: Mapping[str, str], table: str) -> "TableStores":
    """
    Opens stores with the keys that the REST catalog of these properties (pyiceberg's) hands out with `namespace.name`,
    for `Writer.open(..., stores=...)`.

    Raises StorageUnavailable where the catalog does not answer, NotPossible where it has no such table or hands out no
    keys for its data, ConfigInvalid, ExtraMissing.
    """
    return _table_stores(_key(Catalog(properties=dict(properties)), table))


def _key(catalog: Catalog, identifier: str) -> _Key:
    return catalog.name, tuple(sorted(catalog.properties.items())), identifier


def _table_stores(key: _Key) -> "TableStores":
    with _LOCK:  # or two threads load a table at once
        if key not in _LOADED:
            from bookkeeper.catalogs.table_stores import TableStores, table_stores

            copyreg.pickle(TableStores, _in_pickle)
            name, properties, identifier = key
            _LOADED[key] = table_stores(Catalog(name, dict(properties)), identifier)
        return _LOADED[key]


def _in_pickle(stores: "TableStores") -> tuple[Callable[[_Key], "TableStores"], tuple[_Key]]:
    """Without keys: another process asks the catalog, once for each table."""
    return _table_stores, (_key(stores.settings, stores.identifier),)


def _place(table: Table) -> str:
    """The table's txlog folder, as the configuration says; empty where it does not."""
    return table.folder or (join(table.location, "_bookkeeper") if table.location else "")


def _is_at(url: str, folder: str) -> bool:
    try:
        return bool(folder) and (normal(url) == normal(folder) or inside(url, folder))
    except PathRefused:
        return False
