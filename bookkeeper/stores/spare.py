"""
Room that is kept on a local disk: what makes room by deletes writes a little first, and on a full disk it could not.
"""

import os
from collections.abc import Callable
from contextlib import suppress

from bookkeeper.errors import Missing, StorageUnavailable, Unfit
from bookkeeper.stores.locations import local_path
from bookkeeper.stores.store import Store, is_full


class Spare:
    """
    The file `key` of so many bytes, given up once the disk is full; on object stores there is none.

    A crash behind that leaves a disk with a little room, and `keep` makes the file again once there is more.
    """

    def __init__(self, store: Store, key: str, size: int) -> None:
        self._store, self._key, self._size = store, key, size
        self._is_there = False

    def keep(self) -> None:
        """Makes the file, if it is not there and there is room."""
        if self._is_there or local_path(self._store.url) is None:
            return
        with suppress(StorageUnavailable, Unfit):  # no room yet, or another's
            try:
                self._store.size(self._key)
            except Missing:
                self._store.replace(self._key, os.urandom(self._size))
            self._is_there = True

    def use(self, act: Callable[[], object]) -> None:
        """Does what writes a little, in the room of the file where the disk is full; raises what that raises."""
        try:
            act()
        except StorageUnavailable as exc:
            if not is_full(exc):
                raise
            self._store.delete_many([self._key])
            self._is_there = False
            act()
