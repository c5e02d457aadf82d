"""
Lists pending/ a hundred times a second and keeps a copy of every new txlog, before the bookkeeper deletes it.

It reads names and bytes only, as any program with access to the folder could.
"""

import threading
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import SUFFIX

_EVERY = 0.01


@dataclass(frozen=True, slots=True)
class SeenTxlog:
    """A txlog that was pending, and the time of its file."""

    name: TxlogName
    data: bytes
    published_ms: int


class PendingWatch(threading.Thread):
    """
    Runs from `start` to `end`; `take` gives the txlogs seen since the last call.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True, name="pending")
        self._folder = folder
        self._known: set[str] = set()
        self._fresh: list[SeenTxlog] = []
        self._ended = threading.Event()
        self.now = 0

    def run(self) -> None:
        """List pending/ until `end`."""
        while not self._ended.wait(_EVERY):
            self.look()

    def look(self) -> None:
        """List pending/ once."""
        names = [path.name for path in self._folder.glob(f"*{SUFFIX}")]
        self.now = len(names)
        self._fresh += [txlog for name in names if name not in self._known and (txlog := self._keep(name))]

    def _keep(self, name: str) -> SeenTxlog | None:
        path = self._folder / name
        try:
            with path.open("rb") as file:
                txlog = SeenTxlog(TxlogName.parse(name), file.read(), _changed_ms(path))
        except FileNotFoundError:
            return None  # just consumed
        self._known.add(name)
        return txlog

    def take(self) -> list[SeenTxlog]:
        """The txlogs seen since the last call."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def end(self) -> None:
        """Stop listing."""
        self._ended.set()
        self.join()


def _changed_ms(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000
