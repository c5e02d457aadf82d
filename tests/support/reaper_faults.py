"""
Stops or disturbs a run at a storage or catalog operation.
"""

from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any

from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from tests.support.faults import Crash
from tests.support.reaper_lake import ClockStore
from tests.support.wrapped import WrappedCatalog, WrappedStore

STORE = ("read", "read_many", "create", "replace", "move", "size", "sizes", "list", "delete_many")


#: begins a way to crash in the middle of a batch; what follows chooses the files that are gone then
SOME = "some "


class Faults:
    """Counts operations; crashes around one of them, or does something right before one, by name."""

    def __init__(self, crash: tuple[int, str] | None = None) -> None:
        self.calls: list[str] = []
        self._crash = crash
        self._fatal = ""
        self._before: dict[str, list[Callable[[], object]]] = {}
        self._errors: dict[str, Exception] = {}

    def before(self, name: str, *acts: Callable[[], object]) -> "Faults":
        """Do one of `acts` before each of the next operations called `name`."""
        self._before.setdefault(name, []).extend(acts)
        return self

    def lose_reply(self, name: str, error: Exception) -> "Faults":
        """Let the next operation called `name` happen, and raise."""
        self._errors[name] = error
        return self

    def crash_after(self, name: str) -> "Faults":
        """Crash after the next operation called `name`."""
        self._fatal = name
        return self

    def around(self, name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """The operation, disturbed."""
        number = len(self.calls)
        self.calls.append(name)
        if self._before.get(name):
            self._before[name].pop(0)()
        if self._crash == (number, "before"):
            raise Crash(name)
        if self._crash and self._crash[0] == number and self._crash[1].startswith(SOME):
            # Requests for parts of a batch are on their way together: any of its files may be gone.
            chance = Random(self._crash[1])
            act([key for key in given[0] if chance.random() < 0.5])
            raise Crash(name)
        try:
            result = act(*given, **named)
        finally:
            if self._crash == (number, "after") or self._fatal == name:
                raise Crash(name)
        if name in self._errors:
            raise self._errors.pop(name)
        return result

    def stores(self, now: datetime) -> Callable[[str], Store]:
        """Stores whose operations are disturbed, on a storage whose clock shows `now`."""
        return lambda url: self.store(ClockStore(open_store(url), now))

    def store(self, inner: Any) -> Any:
        """A store whose operations are disturbed."""
        return WrappedStore(inner, self._of_store)

    def _of_store(self, name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return self.around(name, act, *given, **named) if name in STORE else act(*given, **named)

    def catalog(self, inner: Any) -> Any:
        """A catalog whose loads and commits are disturbed."""
        return WrappedCatalog(inner, self.around)
