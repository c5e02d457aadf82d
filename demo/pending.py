"""
Looks into pending/ a hundred times a second and keeps a copy of every txlog, before the bookkeeper takes it.

Reads names and bytes only, as any stranger with access to the folder could.
"""

import threading
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.core.names import TxlogName, is_txlog

_EVERY = 0.01


@dataclass(frozen=True, slots=True)
class Sight:
    """A txlog that was there, and when it came (the file's own time)."""

    name: TxlogName
    data: bytes
    published_ms: int


class Pending(threading.Thread):
    """
    Runs from `start` to `end`; `take` gives what came since the last call.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True, name="pending")
        self._folder = folder
        self._known: set[str] = set()
        self._fresh: list[Sight] = []
        self._ended = threading.Event()
        self.now = 0

    def run(self) -> None:
        """Look until told to end."""
        while not self._ended.wait(_EVERY):
            self.look()

    def look(self) -> None:
        """Look once."""
        names = [path.name for path in self._folder.glob("*") if is_txlog(path.name)]
        self.now = len(names)
        self._fresh += [sight for name in names if name not in self._known and (sight := self._keep(name))]

    def _keep(self, name: str) -> Sight | None:
        path = self._folder / name
        try:
            with path.open("rb") as file:
                sight = Sight(TxlogName.parse(name), file.read(), _changed_ms(path))
        except FileNotFoundError:
            return None  # just consumed
        self._known.add(name)
        return sight

    def take(self) -> list[Sight]:
        """What came since the last call."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def end(self) -> None:
        """Stop looking."""
        self._ended.set()
        self.join()


def _changed_ms(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000
