"""
Looks at what consumers name: several at once, with one deadline for all, since any of their storages may hang.

A look that has no answer by then goes on in a thread of its own, which does not keep the process from ending. What it
looks at is not looked at again before it has ended, and no more than `AT_ONCE` of them hang.
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar

from bookkeeper.errors import StorageUnavailable

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

#: less than a process is given to end by itself
PATIENCE = timedelta(seconds=20)
AT_ONCE = 16


@dataclass
class _Round(Generic[K, T]):
    """One call: what is left to look at, is begun, and has answered."""

    look: Callable[[K], T]
    waiting: deque[K]
    begun: set[K] = field(default_factory=set)
    answers: dict[K, T] = field(default_factory=dict)
    errors: list[BaseException] = field(default_factory=list)
    is_over: bool = False


class Looks:
    """Looks by several callers; `hanging` is what they got no answer of so far."""

    def __init__(self, patience: timedelta = PATIENCE) -> None:
        self.patience = patience
        self.hanging: set[Hashable] = set()
        self._changed = threading.Condition()

    def at_all(self, keys: Iterable[K], look: Callable[[K], T]) -> dict[K, T | StorageUnavailable]:
        """What `look` says of each key, StorageUnavailable of those without an answer; raises what it raises."""
        wanted = dict.fromkeys(keys)
        with self._changed:
            turn = _Round(look, deque(key for key in wanted if key not in self.hanging))
            todo, free = len(turn.waiting), max(0, AT_ONCE - len(self.hanging))
        for _ in range(min(todo, free)):
            threading.Thread(target=self._work, args=(turn,), name="look", daemon=True).start()
        with self._changed:
            if free:
                self._changed.wait_for(lambda: turn.errors or len(turn.answers) == todo, self.patience.total_seconds())
            turn.is_over = True
            if turn.errors:
                raise turn.errors[0]
            self.hanging |= turn.begun - turn.answers.keys()
            late = f"no answer within {self.patience.total_seconds():g} s"
            said = turn.answers
            return {
                key: said[key] if key in said else StorageUnavailable(f"{f'{key}'[:300]}: {late}") for key in wanted
            }

    def _work(self, turn: "_Round[Any, Any]") -> None:
        while True:
            with self._changed:
                if turn.is_over or not turn.waiting:
                    return
                turn.begun.add(key := turn.waiting.popleft())
            try:
                answer, error = {key: turn.look(key)}, None
            except BaseException as exc:  # noqa: BLE001  (it is raised again, in the calling thread)
                answer, error = {}, exc
            with self._changed:
                self.hanging.discard(key)
                turn.answers |= answer
                turn.errors += [] if error is None else [error]
                self._changed.notify_all()
