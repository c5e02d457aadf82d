"""
Objects that a commit will create, kept until it sends all of them at once.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from bookkeeper.errors import BookkeeperError
from bookkeeper.stores.store import Most, Store, create_once


class Unsent:
    """
    Takes objects to be created, under keys that no other process uses, and keeps them until the commit sends them.

    It is read like the store that they will be in; `others` are more objects that the same commit sends. A crash leaves
    files that no snapshot names; the orphan sweep deletes them. Nothing here does, because a refused attempt may have
    been sent twice.
    """

    def __init__(self, store: Store, others: Mapping[str, bytes] | None = None) -> None:
        self.store, self.url, self.at_once, self.others = store, store.url, store.at_once, others or {}
        self.objects: dict[str, bytes] = {}

    @property
    def writes(self) -> list[Callable[[], None]]:
        """The calls that make the objects durable; safe to repeat when a reply was lost."""
        return [partial(create_once, self.store, key, data) for key, data in self.objects.items()]

    def create(self, key: str, data: bytes) -> None:
        """Keeps the object until the commit sends it."""
        self.objects[key] = data

    def read_many(self, keys: Sequence[str], most: Most = None) -> Mapping[str, bytes | BookkeeperError]:
        """As in Store."""
        here = {key: data for key, data in (*self.others.items(), *self.objects.items()) if key in keys}
        return {**self.store.read_many([key for key in keys if key not in here], most), **here}
