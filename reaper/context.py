"""
One table and all that is around it, as a run of the reaper sees it.
"""

from dataclasses import dataclass
from datetime import datetime

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from bookkeeper.catalogs import open as catalogs
from bookkeeper.config.settings import Table as TableSettings
from bookkeeper.core.folder import Folder, folder_url
from bookkeeper.stores.locations import local_path
from bookkeeper.stores.store import Store
from reaper.consumer_guard import Floor, Guard, no_floor
from reaper.files.manifest_reader import Reader
from reaper.files.storage import OpenStore, Pace, Storage


@dataclass(frozen=True, slots=True)
class ReaperContext:
    """A table's settings, catalog, txlog folder, own storage and manifests."""

    settings: TableSettings
    catalog: Catalog
    folder: Store
    storage: Storage
    reader: Reader
    guard: Guard

    @classmethod
    def of(
        cls,
        settings: TableSettings,
        catalog: Catalog,
        open_store: OpenStore,
        now: datetime,
        floor: Floor = no_floor,
        pace: Pace | None = None,
    ) -> "ReaperContext":
        """The table as it is configured; raises Retry, TableUnusable, WrongFolder where no txlog folder is."""
        table = catalogs.load_table(catalog, settings.identifier)
        folder = folder_url(settings, table.metadata.location)
        storage = Storage(table.metadata, folder, open_store, pace or Pace())
        store = Folder(open_store(folder)).store
        if local_path(folder) is None:
            # On a disk it is a directory. Elsewhere the lease, and all else, would be written where no folder is.
            Folder(store).check()
        guard = Guard.of(store, settings, now, open_store, floor)
        return cls(settings, catalog, store, storage, Reader(table.io), guard)

    @property
    def name(self) -> str:
        """The table's name in the configuration."""
        return self.settings.name or self.settings.identifier

    def load(self) -> Table:
        """The table as it is now; raises CatalogUnavailable, TableUnusable."""
        return catalogs.load_table(self.catalog, self.settings.identifier)
