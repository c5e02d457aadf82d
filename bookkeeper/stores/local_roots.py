"""
Which stores on a local disk never create their root, and which follow no link below a location.
"""

from bookkeeper.stores.local import LocalStore
from bookkeeper.stores.locations import local_path
from bookkeeper.stores.store import Store


def kept(store: Store) -> Store:
    """
    The store of a txlog folder: on a local disk its root is never created.
    """
    if isinstance(store, LocalStore):
        store.keep_root()
    return store


def of_table(store: Store, location: str, *places: str) -> Store:
    """
    The store of a table's files, at its location, or below or above it: on a local disk no link below the location is
    followed, also where the store begins below it. `places` are where data or metadata lie.

    There, a link that a place lies behind is StorageUnavailable, because no single object is at fault then.
    """
    if isinstance(store, LocalStore) and (base := local_path(location)) is not None:
        store.keep_below(base, [path for path in map(local_path, places) if path is not None])
    return store
