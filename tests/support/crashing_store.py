"""Ends the process, as far as the code can tell, right before or right after any one call to the storage."""

from collections.abc import Callable
from typing import Any

from bookkeeper.stores.store import Store
from tests.support.faults import Crash
from tests.support.wrapped import WrappedStore

POINTS = 100  # more than any act has
READS = ("read", "read_many", "read_tagged", "read_versions", "size", "sizes", "modified")
CALLS = (*READS, "create", "replace", "move", "upload", "delete_many", "delete_if")


class CrashingStore(WrappedStore):
    """
    A store whose user dies at the `fatal`-th point; points are before and after each call, numbered from 0.

    `lost` are calls that happen and whose reply is an error; `calls` names what was called.
    """

    def __init__(self, store: Store, fatal: int | None = None, lost: dict[str, Exception] | None = None) -> None:
        super().__init__(store, self._call)
        self._fatal = fatal
        self._lost = lost or {}
        self.calls: list[str] = []
        self.points = 0

    def _call(self, name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if name not in CALLS:
            return act(*given, **named)
        self.calls.append(name)
        self._point()
        result = act(*given, **named)
        self._point()
        if name in self._lost:
            raise self._lost.pop(name)
        return result

    def _point(self) -> None:
        self.points += 1
        if self._fatal == self.points - 1:
            raise Crash("")


def survived(store: Store, act: Callable[[CrashingStore], object], fatal: int) -> bool:
    """
    Does `act` until the `fatal`-th point; whether it got through.
    """
    try:
        act(CrashingStore(store, fatal))
    except Crash:
        return False
    return True
