"""
What every benchmark needs: sizes, wall and CPU time, medians, interleaving, tables with ratios, results as JSON lines.

A machine is noisy: whatever is compared is measured in the same run, in turns, and CPU time stands beside wall time.
"""

import argparse
import json
import logging
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.support.peers import Peer, open_peer

OURS, STOCK, HADOOP, JDBC, FLOOR = "ours", "stock pyiceberg", "Java HadoopTables", "Java JdbcCatalog", "floor"
NOT_RUN = "not run"
SIZES = ("toy", "short", "big")
RESULTS = Path(".bench/results.jsonl")


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall and CPU time of a piece of work, in ms; CPU may be unknown."""

    wall: float
    cpu: float | None = None

    def __str__(self) -> str:
        return number(self.wall) if self.cpu is None else f"{number(self.wall)} ({number(self.cpu)})"


def now() -> datetime:
    """This machine's clock."""
    return datetime.now(UTC)


def cpu_ms() -> float:
    """CPU time of this process so far, all its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1000


def timed(act: Callable[[], Any]) -> Timing:
    """How long `act` takes."""
    wall, cpu = time.perf_counter(), cpu_ms()
    act()
    return Timing((time.perf_counter() - wall) * 1000, cpu_ms() - cpu)


def median(taken: Iterable[Timing]) -> Timing:
    """Medians of wall and of CPU."""
    listed = list(taken)
    cpus = [item.cpu for item in listed if item.cpu is not None]
    return Timing(statistics.median(item.wall for item in listed), statistics.median(cpus) if cpus else None)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def in_turns(sides: Mapping[str, Callable[[], Timing]], rounds: int, warm: int = 0) -> dict[str, Timing]:
    """
    Medians of each side after `warm` rounds; a round runs every side once, so that all meet the same machine.
    """
    taken: dict[str, list[Timing]] = {name: [] for name in sides}
    for turn in range(warm + rounds):
        for name, act in sides.items():
            took = act()
            if turn >= warm:
                taken[name].append(took)
    return {name: median(items) for name, items in taken.items()}


def number(value: float) -> str:
    """Three digits that matter, thousands grouped."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(other: "Timing | float | None", ours: "Timing | float") -> str:
    """How many times ours the other takes: wall, and CPU in brackets where both are known."""
    if other is None:
        return "-"
    if isinstance(other, Timing) and isinstance(ours, Timing):
        wall = f"{other.wall / ours.wall:.1f} x"
        return f"{wall} ({other.cpu / ours.cpu:.1f} x)" if other.cpu and ours.cpu else wall
    return f"{_wall(other) / _wall(ours):.1f} x"


def _wall(value: "Timing | float") -> float:
    return value.wall if isinstance(value, Timing) else value


def cell(value: Any) -> str:
    """A cell of a table."""
    if value is None:
        return NOT_RUN
    return number(value) if isinstance(value, float) else str(value)


@dataclass
class Report:
    """Prints rows as they come, and keeps them as JSON lines for plots and the documentation."""

    lines: Path | None = None
    widths: list[int] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)

    def table(self, benchmark: str, title: str, columns: Sequence[str], note: str = "") -> None:
        """Begins a table."""
        self.about = {"benchmark": benchmark, "title": title, "note": note}
        self.columns = list(columns)
        self.widths = [max(len(columns[0]), 26), *(max(len(name), 13) for name in columns[1:])]
        print(f"\n{title}" + (f"\n{note}" if note else ""))
        self._print(columns)

    def row(self, *cells: Any) -> None:
        """One row; None is 'not run'."""
        shown = [cell(item) for item in cells]
        self._print(shown)
        self.keep({**self.about, "columns": self.columns, "cells": shown})

    def note(self, text: str) -> None:
        """A line below the table."""
        print(f"  {text}", flush=True)
        self.keep({**self.about, "below": text})

    def _print(self, cells: Sequence[str]) -> None:
        first, *rest = zip(cells, self.widths, strict=True)
        line = first[0].ljust(first[1]) + "".join("  " + text.rjust(width) for text, width in rest)
        print(line.rstrip(), flush=True)

    def keep(self, line: Mapping[str, Any]) -> None:
        """Keeps a line of results, such as the points of a plot."""
        if self.lines is not None:
            with self.lines.open("a") as out:
                out.write(json.dumps(line) + "\n")


@dataclass(frozen=True)
class Chosen:
    """What was asked for on the command line, and where results go."""

    size: str
    peer: Peer | None
    report: Report
    work: Path

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """An empty folder that goes away; on the disk that holds the temporary files of this machine."""
        with tempfile.TemporaryDirectory(prefix="bench-", dir=self.work, ignore_cleanup_errors=True) as made:
            yield Path(made)


def quiet() -> None:
    """Keeps what a bookkeeper or a reaper warns of (here: that it met the other one) out of the tables."""
    for name in ("bookkeeper", "reaper"):
        logging.getLogger(name).setLevel(logging.ERROR)


def reason(exc: Exception) -> str:
    """Why a benchmark failed, in one line: an error may list a hundred thousand files."""
    text = f"{type(exc).__name__}: {exc}".partition("\n")[0]
    return text if len(text) <= 300 else f"{text[:300]} ..."


Measure = Callable[[Chosen], None]


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--peer", metavar="SCRIPT", help="the Java peer; without it its columns say 'not run'")
    options.add_argument("--big", action="store_true", help="everything in full: million files, 10,000 commits")
    options.add_argument("--toy", action="store_true", help="as small as it gets: does it run at all?")
    options.add_argument("--results", type=Path, default=RESULTS, help="JSON lines (default: %(default)s)")
    options.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()), help="disk to measure on")
    return options


def chosen(given: argparse.Namespace) -> Chosen:
    """The options, with results ready to be added to."""
    given.results.parent.mkdir(parents=True, exist_ok=True)
    size = "big" if given.big else "toy" if given.toy else "short"
    return Chosen(size, open_peer(given.peer), Report(given.results), given.work)


def alone(measure: Measure, description: str | None, words: Sequence[str] | None = None) -> None:
    """One benchmark as a program; raises SystemExit, with the reason in one line, when it fails."""
    from benchmarks.support.machine import machine

    what = chosen(parser(description).parse_args(sys.argv[1:] if words is None else words))
    quiet()
    facts = machine(what)
    print(facts["line"])
    what.report.keep({"machine": facts})
    try:
        measure(what)
    except Exception as exc:
        raise SystemExit(f"failed: {reason(exc)}") from exc
