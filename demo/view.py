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
from demo.witness import Facts

_EVERY = 5.0


@dataclass
class View(AbstractContextManager["View"]):
    """
    Shows facts, and what is said beside them; `clock` gives seconds.
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

    def show(self, phase: str, facts: Facts | None = None) -> None:
        """The facts as they are now."""
        if self._live is not None:
            line = Text(f"{self.clock() - self.began:5.1f} s  {phase} ...")
            self._live.update(line if facts is None else Group(_table(facts), line), refresh=True)
        elif self.clock() >= self._next:
            self._next = self.clock() + _EVERY
            self.say(f"{phase} ..." if facts is None else _line(facts))


def _cells(facts: Facts) -> dict[str, str]:
    return {
        "pending": f"{facts.pending}",
        "commits": f"{facts.commits}",
        "published": f"{facts.published:,}",
        "committed": f"{facts.committed:,}",
        "consumed": f"{facts.consumed:,}",
        "latency": "-" if facts.latency is None else format_duration(facts.latency),
        "files": f"{facts.files}",
        "snapshots": f"{facts.snapshots}",
    }


def _line(facts: Facts) -> str:
    return "  ".join(f"{name} {text}" for name, text in _cells(facts).items())


def _table(facts: Facts) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for name in _cells(facts):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row(*_cells(facts).values())
    return table
