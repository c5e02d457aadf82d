"""
One table and its surroundings during one run of the reaper.
"""

from dataclasses import dataclass, field
from datetime import datetime

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from bookkeeper.catalogs import commit as catalogs
from bookkeeper.catalogs.handed_out import stores_of
from bookkeeper.config.maintained import is_by_catalog, refuse_keys
from bookkeeper.config.settings import Table as TableSettings
from bookkeeper.contract.keyed import PROPERTY as KEYED
from bookkeeper.contract.marks import PROPERTY as MARKS
from bookkeeper.contract.txlog_folder import CONFIGURED, Folder, folder_url
from bookkeeper.stores.locations import local_path
from bookkeeper.stores.store import Store
from reaper.consumer_guard import Floor, Guard, no_floor
from reaper.files.live_paths import LivePaths
from reaper.files.manifest_reader import ManifestReader
from reaper.files.storage import OpenStore, Pace, Storage


@dataclass(frozen=True, slots=True)
class ReaperContext:
    """A table's settings, catalog, txlog folder, own storage, manifests, live files and consumers."""

    settings: TableSettings
    catalog: Catalog
    folder: Store
    storage: Storage
    reader: ManifestReader
    live_paths: LivePaths
    guard: Guard
    #: of the last two loads, by location: a metadata file never changes
    metadata: dict[str, TableMetadata] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        settings: TableSettings,
        catalog: Catalog,
        open_store: OpenStore | None,
        now: datetime,
        floor: Floor = no_floor,
        pace: Pace | None = None,
    ) -> "ReaperContext":
        """The table as it is configured; raises Retry, TableUnusable, WrongFolder where there is no txlog folder."""
        open_store = open_store or stores_of(catalog, settings.identifier)
        table = catalogs.load_table(catalog, settings.identifier)
        if KEYED in table.metadata.properties:
            refuse_keys(settings)
        url = folder_url(settings, table.metadata.location)
        storage = Storage(table.metadata, url, open_store, pace or Pace())
        folder = Folder(open_store(url))
        if local_path(url) is None or MARKS in table.metadata.properties:
            # Elsewhere than on a disk the lease would be written where there is no folder. On a disk there may be the
            # empty directory of one that is not mounted.
            folder.check(str(table.metadata.table_uuid), CONFIGURED)
        guard = Guard.of(folder.store, settings, now, open_store, floor)
        reader = ManifestReader(table.io, storage.read_together)
        return cls(settings, catalog, folder.store, storage, reader, LivePaths(folder.store, reader), guard)

    @property
    def name(self) -> str:
        """The table's name in the configuration."""
        return self.settings.name or self.settings.identifier

    @property
    def deletes(self) -> bool:
        """Whether the reaper deletes the table's files; else the catalog's service does."""
        return not is_by_catalog(self.settings)

    def load(self) -> Table:
        """The table as it is now; raises CatalogUnavailable, TableUnusable."""
        table = catalogs.load_table(self.catalog, self.settings.identifier)
        self.metadata.pop(table.metadata_location, None)
        self.metadata[table.metadata_location] = table.metadata
        if len(self.metadata) > 2:
            self.metadata.pop(next(iter(self.metadata)))
        return table
