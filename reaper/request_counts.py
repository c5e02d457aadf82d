"""
Counts what a run asks of the storage, by kind: what it costs on an object store.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from bookkeeper.stores.store import Listed, Store

_ACTS = ("read", "read_many", "read_tagged", "create", "replace", "size", "sizes", "list", "delete_many")


class Counted:
    """A store that notes each operation in `tally`; one that takes many keys counts once."""

    def __init__(self, inner: Store, tally: Counter[str]) -> None:
        self._inner, self._tally = inner, tally

    def __getattr__(self, name: str) -> Any:
        if name in _ACTS:
            self._tally[name] += 1
        return getattr(self._inner, name)

    def list(self, prefix: str) -> Iterator[Listed]:
        """As the store lists it."""
        self._tally["list"] += 1
        return self._inner.list(prefix)


def counting(open_store: Callable[[str], Store], tally: Counter[str]) -> Callable[[str], Store]:
    """
    `open_store`, with every store counted in `tally`.
    """
    return lambda url: Counted(open_store(url), tally)  # type: ignore[return-value]
