"""
Time that counts round trips: a request takes one unit, and requests that are sent at once take it together.

Nothing runs in parallel here: `together` does one task after the other, each from the moment at which all of them
began. So the figures are the same on every machine.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bookkeeper.stores.object_store import AT_ONCE, WRITES_AT_ONCE
from tests.support.wrapped import COMMIT, LOAD, WrappedCatalog, WrappedStore


@dataclass
class Trips:
    """The time now, in round trips, and the requests: when each was answered, and what it was."""

    now: int = 0
    requests: list[tuple[int, str]] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.Lock)

    def request(self, what: str, many: int = 1) -> None:
        """So many requests at once; those of a deletion in the background take no time of the tick's."""
        with self._lock:
            if not threading.current_thread().name.startswith("delete "):
                self.now += max(1, -(-many // AT_ONCE))
            self.requests += [(self.now, what)] * many

    def together(self, tasks: Sequence[Callable[[], object]], at_once: int) -> None:
        """In the place of `bookkeeper.stores.together.together`."""
        began, ended, errors = self.now, self.now, list[BaseException]()
        for number, task in enumerate(tasks):
            if number % at_once == 0:
                began = ended
            self.now = began
            try:
                task()
            except BaseException as error:  # noqa: BLE001 - as the real one does
                errors.append(error)
            ended = max(ended, self.now)
        self.now = ended
        if errors:
            raise errors[0]

    def of(self, part: str) -> list[int]:
        """When the requests were answered whose text holds `part`."""
        return [when for when, what in self.requests if part in what]


class FarStore(WrappedStore):
    """A store whose requests take a round trip each, as those of an object store."""

    at_once = WRITES_AT_ONCE

    def __init__(self, store: Any, trips: Trips, label: str) -> None:
        super().__init__(store, self._request)
        self.trips, self.label = trips, label

    def _request(self, name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        several = name in ("read_many", "read_ranges", "read_versions", "sizes", "heads")
        key = ",".join(map(str, given[0])) if several or name == "delete_many" else given[0]
        if not several or given[0]:
            self.trips.request(f"{name} {self.label}/{key}", len(given[0]) if several else 1)
        return act(*given, **named)


def far_catalog(catalog: Any, trips: Trips, swap: bool = True) -> Any:
    """
    A catalog whose loads and compare-and-swaps take a round trip each; `swap` is False where stores count them.
    """

    def around(name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        counted = {COMMIT: "swap", LOAD: "load"}.get(name) if swap else None
        if counted == "swap":
            trips.request(counted)
        found = act(*given, **named)
        if counted == "load":
            trips.request(counted)
        return found

    return WrappedCatalog(catalog, around)
