"""
Stores for a program that loads a table and commits nothing: with the keys that the catalog hands out with the table.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from bookkeeper.catalogs.commit import load_table
from bookkeeper.catalogs.handed_out import covers, stores_of
from bookkeeper.catalogs.open import is_rest, open_catalog
from bookkeeper.config.settings import Catalog
from bookkeeper.errors import CatalogUnavailable, ConfigInvalid, NotPossible, StorageUnavailable, TableMissing
from bookkeeper.stores.locations import join
from bookkeeper.stores.open import names_keys
from bookkeeper.stores.store import Store

#: a table with many snapshots answers with those that branches and tags name
_FEW_SNAPSHOTS = {"snapshot-loading-mode": "refs"}
_NO_TABLE = "Is `identifier` in [tables.NAME] right? `bookkeeper init` makes the table."
_NOT_REST = "Take `credentials` out of [tables.NAME], and give writers keys in [storage]."
_NONE = (
    "Let its warehouse hand out keys (vended credentials), and give the role the right to write the table's data; or "
    "take `credentials` out, and give writers keys in [storage]."
)


@dataclass(frozen=True)
class TableStores:
    """
    Opens the stores of the table at `location`: those of paths that the catalog handed out keys for with these keys,
    others with the keys that the configuration names for their bucket or container.
    """

    settings: Catalog
    identifier: str
    location: str
    catalog: Any

    def covers(self, url: str) -> int:
        """The length of the longest prefix with keys that the folder at `url` lies below; 0 of none."""
        return covers(self.catalog, self.identifier, url)

    def __call__(self, url: str) -> Store:
        """Raises ConfigInvalid where neither catalog nor configuration has keys for what is there."""
        if not self.covers(url) and not names_keys(url, self.settings.properties):
            self._check_anew(url)
        store: Store = stores_of(self.catalog, self.identifier)(url)
        return store

    def _check_anew(self, url: str) -> None:
        """The table's data path may be another one since its keys were handed out."""
        with _of_storage(self.identifier):
            load_table(self.catalog, self.identifier)
        if not self.covers(url):
            raise ConfigInvalid(
                f"{url}: the catalog hands out no keys for it with {self.identifier}, and the configuration names none",
                hint="Give the txlog folder a place below the table's location; or name keys of its own bucket, such "
                'as "s3.bucket.NAME.access-key-id" in [storage]: docs/stores.md.',
            )


def table_stores(settings: Catalog, identifier: str) -> TableStores:
    """
    Loads the table `namespace.name` once; later only for new keys.

    Raises StorageUnavailable where the catalog does not answer, NotPossible where it has no such table or hands out no
    keys for its data, ConfigInvalid, ExtraMissing, TableUnusable.
    """
    if not is_rest(settings.properties):
        raise ConfigInvalid(
            f'credentials = "catalog" of {identifier}: only a REST catalog hands out keys', hint=_NOT_REST
        )
    with _of_storage(identifier):
        asked = replace(settings, properties={**_FEW_SNAPSHOTS, **settings.properties})
        catalog = open_catalog(asked, scans=False)
        metadata = load_table(catalog, identifier).metadata
    data = metadata.properties.get("write.data.path") or join(metadata.location, "data")
    if not covers(catalog, identifier, data):
        raise NotPossible(f"the catalog hands out no keys for {data} with {identifier}", hint=_NONE)
    return TableStores(settings, identifier, metadata.location, catalog)


@contextmanager
def _of_storage(identifier: str) -> Iterator[None]:
    """To a writer a catalog that does not answer is a storage without keys."""
    try:
        yield
    except CatalogUnavailable as exc:
        error = StorageUnavailable(f"no keys of {identifier} from the catalog: {exc}", hint=exc.hint)
        error.pause = exc.pause
        raise error from exc
    except TableMissing as exc:
        raise NotPossible(str(exc), hint=_NO_TABLE) from exc
