"""
Rows under a steady load of upserts, with the fold policy on and off: what readers have to bear, and what rows wait.

    python -m benchmarks.upsert_load

Real processes, in turns: a table that `bookkeeper run` folds, and one that it does not. Each has its own rows, and a
writer that upserts random keys of all of them. Visible is when the catalog showed it to a reader that looks every 5 ms.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.support.daemon import commits, running
from benchmarks.support.harness import Chosen, alone, number, percentile
from benchmarks.support.lake import Lake, Watch, configured
from bookkeeper.config.settings import Fold
from writers import Writer

COLUMNS = [
    {"name": "id", "type": "long", "required": True},
    {"name": "value", "type": "string", "required": False},
]
HEADS = (
    "fold policy",
    "visible, p50 / p99, ms",
    "tick, p50 / p99, ms",
    "folds",
    "most unfolded files",
    f"longest with > {Fold().files}, s",
    "txlogs",
)


@dataclass(frozen=True, slots=True)
class Size:
    """Rows and their files, keys of an upsert, upserts per second, seconds of a turn before it counts and of it."""

    rows: int
    files: int
    keys: int
    rate: float
    warm: float
    seconds: float
    rounds: int


SIZES = {
    "toy": Size(300, 3, 5, 20, 0, 0.5, 1),
    "short": Size(1_000_000, 10, 100, 4, 6, 25, 3),
    "big": Size(5_000_000, 20, 1_000, 4, 10, 120, 5),
}


@dataclass
class Side:
    """A keyed table with rows, and what was measured of it."""

    root: Path
    size: Size
    fold: bool
    visible: list[float] = field(default_factory=list)
    ticks: list[float] = field(default_factory=list)
    folds: int = 0
    outdated: int = 0
    #: when each turn began, in s
    turns: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.noise = random.Random(7)
        self.table = {"schema": COLUMNS, "partition_by": [], "key": ["id"], "discover": "notify"}
        self.table["fold"] = {"enabled": self.fold}
        self.lake = Lake.at(self.root, **self.table)
        self.config = configured(self.root, {}, self.table)

    def fill(self) -> None:
        """The rows that upserts replace."""
        each = self.size.rows // self.size.files
        with running(self.config), Writer.open(self.lake.folder, "rows") as writer:
            for begin in range(0, self.size.rows, each):
                keys = range(begin, begin + each)
                writer.write(pa.table({"id": keys, "value": [f"{key:040}" for key in keys]}))
                writer.publish()
            self._drained()

    def turn(self) -> None:
        """Upserts for a while, and waits until they are in."""
        self.turns.append(time.time())
        log = self.root / f"bookkeeper-{len(self.turns)}.log"
        with running(self.config, log), Watch(self.root) as watch:
            published = dict(self._upserts(f"turn-{len(self.turns)}"))
            self._drained()
        at = watch.times(self.lake.table())
        self.visible += [at[name] - said for name, said in published.items()]
        begun = min(at[name] for name in published) // 1000 * 1000  # log lines have whole seconds
        said = [line for line in commits(log) if _ms(line) >= begun]
        self.ticks += [line["seconds"] * 1000 for line in said]
        said_of_folds = Counter(line["message"] for line in _lines(log) if line.get("action") == "fold")
        self.folds += said_of_folds["deletes folded"]
        self.outdated += said_of_folds.total() - said_of_folds["deletes folded"]

    def _upserts(self, name: str) -> Iterator[tuple[str, float]]:
        """Each txlog that counts, and when it was published, in ms."""
        with Writer.open(self.lake.folder, name) as writer:
            begun = time.time()
            for number in range(int((self.size.warm + self.size.seconds) * self.size.rate)):
                keys = self.noise.sample(range(self.size.rows), self.size.keys)
                writer.upsert(pa.table({"id": keys, "value": [f"{number:040}"] * len(keys)}))
                due = begun + number / self.size.rate
                time.sleep(max(0.0, due - time.time()))
                txlog = writer.publish()
                if due >= begun + self.size.warm:
                    yield str(txlog), time.time() * 1000

    def _drained(self) -> None:
        deadline = time.monotonic() + 120
        while self.lake.folder.pending():
            assert time.monotonic() < deadline, "not all txlogs were committed"
            time.sleep(0.02)

    def unfolded(self) -> tuple[int, float]:
        """The most equality delete files that were live at once, and the longest time that the policy's were passed."""
        live = most = 0
        longest, since = 0.0, None
        for snapshot in self.lake.table().metadata.snapshots:
            counts = snapshot.summary.additional_properties
            live += int(counts.get("added-equality-delete-files", 0))
            live -= int(counts.get("removed-equality-delete-files", 0))
            most, at = max(most, live), snapshot.timestamp_ms / 1000
            if since is not None:
                # Between two turns no bookkeeper runs.
                longest = max(longest, at - max(since, *(begun for begun in self.turns if begun <= at)))
            since = None if live <= Fold().files else since if since is not None else at
        return most, longest

    def row(self) -> list[Any]:
        """What the report says of it."""
        most, longest = self.unfolded()
        spread = [_spread(self.visible), _spread(self.ticks)]
        return ["on" if self.fold else "off", *spread, self.folds, most, longest, len(self.visible)]


def _lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


def _ms(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["time"]).timestamp() * 1000


def _spread(values: list[float]) -> str:
    return f"{number(percentile(values, 0.5))} / {number(percentile(values, 0.99))}"


def measure(chosen: Chosen) -> None:
    """
    A row with the policy on, and one with it off.
    """
    size = SIZES[chosen.size]
    title = f"{size.rate:g} upserts a second of {size.keys} random keys, over {size.rows:,} rows in {size.files} files"
    with chosen.folder() as root:
        sides = [Side(root / ("on" if fold else "off"), size, fold) for fold in (True, False)]
        for side in sides:
            side.fill()
        for _ in range(size.rounds):
            for side in sides:
                side.turn()
        chosen.report.table("upsert-load", title, HEADS)
        for side in sides:
            chosen.report.row(*side.row())
        on, off = (percentile(side.visible, 0.99) for side in sides)
        outdated = f"{sides[0].outdated} folds were planned anew or put off"
        chosen.report.note(f"visible, p99: with folds {on / off:.2f} times that without; {outdated}")


if __name__ == "__main__":
    alone(measure, __doc__)
