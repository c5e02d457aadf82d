"""
The live view: a small table that is written over on a terminal, elsewhere a plain line now and then.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bookkeeper.config.units import format_duration
from demo.observer import Counts

_EVERY = 5.0


@dataclass
class View(AbstractContextManager["View"]):
    """
    Shows counts, and what is said beside them; `clock` gives seconds.
    """

    stream: TextIO
    clock: Callable[[], float]
    began: float = 0.0
    _live: Live | None = None
    _next: float = 0.0

    def __enter__(self) -> "View":
        self.began = self._next = self.clock()
        if self.stream.isatty():
            self._live = Live(console=Console(file=self.stream), auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """One line that stays."""
        line = f"{self.clock() - self.began:5.1f} s  {text}"
        if self._live is not None:
            self._live.console.print(line, highlight=False)
        else:
            print(line, file=self.stream, flush=True)

    def show(self, phase: str, counts: Counts | None = None) -> None:
        """The counts as they are now."""
        if self._live is not None:
            line = Text(f"{self.clock() - self.began:5.1f} s  {phase} ...")
            self._live.update(line if counts is None else Group(_table(counts), line), refresh=True)
        elif self.clock() >= self._next:
            self._next = self.clock() + _EVERY
            self.say(f"{phase} ..." if counts is None else _line(counts))


def _cells(counts: Counts) -> dict[str, str]:
    return {
        "pending": f"{counts.pending}",
        "commits": f"{counts.commits}",
        "published": f"{counts.published:,}",
        "committed": f"{counts.committed:,}",
        "consumed": f"{counts.consumed:,}",
        "latency": "-" if counts.latency is None else format_duration(counts.latency),
        "files": f"{counts.files}",
        "snapshots": f"{counts.snapshots}",
    }


def _line(counts: Counts) -> str:
    return "  ".join(f"{name} {text}" for name, text in _cells(counts).items())


def _table(counts: Counts) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for name in _cells(counts):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row(*_cells(counts).values())
    return table
