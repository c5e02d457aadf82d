"""
What writers note: a line before each publish and one after it, which outlive the process.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TRY, DONE, AT = "try", "done", "at"


@dataclass(frozen=True)
class Journal:
    """The file of one writer."""

    path: Path

    def say(self, what: str, **words: Any) -> None:
        """One line, written at once."""
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, json.dumps({"what": what, **words}).encode() + b"\n")
        finally:
            os.close(handle)

    def lines(self) -> Iterator[dict[str, Any]]:
        """All lines."""
        if self.path.exists():
            yield from map(json.loads, self.path.read_text("utf-8").splitlines())

    def next(self) -> int:
        """The number behind all that were tried."""
        return max((line["last"] + 1 for line in self.lines() if line["what"] == TRY), default=0)


@dataclass
class Published:
    """The rows of one writer: number -> the time in it, in ms; `unsure` ones may be in the table, or not."""

    sure: dict[int, int] = field(default_factory=dict)
    unsure: dict[int, int] = field(default_factory=dict)


def published(path: Path) -> Published:
    """
    What a writer published, by its journal.

    The last try of a row counts: an earlier one of a source did not arrive. A position that a run began with says
    that all rows before it did.
    """
    found, tried, end = Published(), dict[int, int](), 0
    for line in Journal(path).lines():
        if line["what"] == AT:
            end = max(end, line["position"])
            continue
        times = dict.fromkeys(range(line["first"], line["last"] + 1), line["ms"])
        (tried if line["what"] == TRY else found.sure).update(times)
    found.sure |= {number: at for number, at in tried.items() if number < end}
    found.unsure = {number: at for number, at in tried.items() if number not in found.sure}
    return found


def txlogs(path: Path) -> int:
    """
    How many txlogs a writer is sure to have published.
    """
    return sum(line["what"] == DONE for line in Journal(path).lines())


def operations(path: Path) -> int:
    """
    How many operations a keyed writer published, each as one txlog with its number as position.
    """
    ends = [line["position"] for line in Journal(path).lines() if line["what"] in (AT, DONE)]
    return max(ends, default=0)
