"""
Looks at what consumers name: several at once, with one deadline for all, since any of their storages may hang.

A look that has no answer by then goes on in a thread of its own, which does not keep the process from ending. What it
looks at is not looked at again before it has ended, and no more than `AT_ONCE` of them hang.
"""

from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from datetime import timedelta
from threading import Lock
from typing import Any, TypeVar

from bookkeeper.errors import StorageUnavailable
from bookkeeper.threads import Threads

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

#: less than a process is given to end by itself
PATIENCE = timedelta(seconds=20)
AT_ONCE = 16


class Looks:
    """Looks by several callers; `hanging` is what they got no answer of so far."""

    def __init__(self, patience: timedelta = PATIENCE) -> None:
        self.patience = patience
        self._late: dict[Hashable, Future[Any]] = {}
        self._lock = Lock()

    @property
    def hanging(self) -> set[Hashable]:
        """The keys of looks that have not answered yet."""
        with self._lock:
            self._late = {key: look for key, look in self._late.items() if not look.done()}
            return set(self._late)

    def at_all(self, keys: Iterable[K], look: Callable[[K], T]) -> dict[K, T | StorageUnavailable]:
        """What `look` says of each key, StorageUnavailable of those without an answer; raises what it raises."""
        wanted, hanging = dict.fromkeys(keys), self.hanging
        begun, free = dict[K, Future[T]](), AT_ONCE - len(hanging)
        if free > 0:
            threads = Threads("look", free)  # of this call: those of others may all hang
            begun = {key: threads.submit(look, key) for key in wanted if key not in hanging}
            wait(begun.values(), self.patience.total_seconds(), FIRST_EXCEPTION)
            threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._late |= {key: outcome for key, outcome in begun.items() if not outcome.done()}
        late = f"no answer within {self.patience.total_seconds():g} s"
        answers = {
            key: outcome.result() for key, outcome in begun.items() if outcome.done() and not outcome.cancelled()
        }
        return {key: answers.get(key, StorageUnavailable(f"{f'{key}'[:300]}: {late}")) for key in wanted}
