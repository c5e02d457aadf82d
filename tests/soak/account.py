"""
The account: each published row once in the table, in the consumer's output and in Spark's; the keyed table equals the
replay of its writers; every file that a snapshot needs is there.
"""

import math
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.independent import Independent
from tests.soak.journal import Published, operations, published, txlogs
from tests.soak.plan import COPIED, Ground, local
from tests.soak.roles import changes

#: what must have been done at least once, by the log that says so; a short soak has nothing to compact
WORK = {
    "commits": ("daemon", "committed"),
    "folds": ("daemon", "deletes folded"),
    "times that retention dropped files": ("daemon", "files dropped"),
    "runs that expired snapshots": ("reaper", "snapshots expired and files deleted"),
}
LONG_WORK = {"rewrites committed": ("daemon", "rewrites committed")}
LONG_SECONDS = 600
#: writer and number
Row = tuple[str, int]
EXAMPLES = 3
#: how long retention may be late, and a row on its way to the table, on a busy machine
LATE_SECONDS, PATIENCE_SECONDS = 180, 120


@dataclass
class Account:
    """What was counted, and what is wrong."""

    lines: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def count(self, what: str, number: Any) -> None:
        """A line of the report."""
        self.lines.append(f"{what}: {number}")

    def some(self, what: str, number: int) -> None:
        """A line of the report, which is wrong if it is 0: nothing was tried."""
        self.count(what, number)
        if not number:
            self.wrong.append(f"{what}: 0")

    def none(self, what: str, found: Iterable[Any]) -> None:
        """A line of the report, which is wrong if there is any."""
        some = sorted(found)
        self.count(what, len(some))
        if some:
            self.wrong.append(f"{what}: {len(some)}, such as {', '.join(map(str, some[:EXAMPLES]))}")

    def copies(self, name: str, found: Counter[Row], writers: Mapping[str, Published]) -> None:
        """An output that must have each published row once, whether retention has dropped it or not."""
        sure, unsure = rows_of(writers)
        self.count(f"{name}: rows", found.total())
        self.none(f"{name}: published rows that are missing", sure.keys() - found.keys())
        self._no_more(name, found, sure.keys() | unsure.keys())

    def live(
        self,
        found: Counter[Row],
        writers: Mapping[str, Published],
        kept: float,
        gone: float,
        until: float = math.inf,
    ) -> None:
        """The table: rows from `kept` (ms) to `until` once, others at most once, and none from before `gone`."""
        sure, unsure = rows_of(writers)
        known = sure | unsure
        self.count("events: live rows", found.total())
        self.count("events: published rows that retention dropped", len(sure.keys() - found.keys()))
        self.none(
            "events: published rows that are missing",
            (row for row, at in sure.items() if kept <= at <= until and row not in found),
        )
        self.none("events: rows that retention should have dropped", (r for r in found if known.get(r, gone) < gone))
        self._no_more("events", found, known.keys())

    def same_outputs(self, one: Counter[Row], other: Counter[Row]) -> None:
        """Two consumers of one table see the same, also of what no writer is sure of."""
        self.none("rows in one output and not in the other", one.keys() ^ other.keys())

    def state(self, name: str, found: Iterable[tuple[int, str]], expected: Mapping[int, str]) -> None:
        """A reader's rows of the keyed table are those of the replay."""
        rows = Counter(found)
        self.count(f"{name}: rows", f"{rows.total()} of {len(expected)}")
        self.none(f"{name}: rows that are missing", expected.items() - rows.keys())
        self.none(f"{name}: rows too many", rows.keys() - expected.items())
        self.none(f"{name}: rows more than once", (row for row, count in rows.items() if count > 1))

    def _no_more(self, name: str, found: Counter[Row], known: Iterable[Row]) -> None:
        self.none(f"{name}: rows more than once", (row for row, count in found.items() if count > 1))
        self.none(f"{name}: rows of no writer", found.keys() - known)


def rows_of(writers: Mapping[str, Published]) -> tuple[dict[Row, int], dict[Row, int]]:
    """
    All rows that writers are sure of and all others that they tried, with their times.
    """
    sure = {(name, number): at for name, item in writers.items() for number, at in item.sure.items()}
    return sure, {(name, number): at for name, item in writers.items() for number, at in item.unsure.items()}


def replayed(root: Path, seed: int) -> dict[int, str]:
    """
    What the keyed table must hold: the operations of its writers in order.
    """
    found: dict[int, str | None] = {}
    for path in sorted((root / "journal").glob("keyed-*")):
        for number in range(operations(path)):
            found |= dict(changes(seed, path.name, number))
    return {key: value for key, value in found.items() if value is not None}


def copied(output: Path) -> Counter[Row]:
    """
    What the consumer wrote.
    """
    with sqlite3.connect(output) as connection:
        return Counter(connection.execute("SELECT writer, number FROM seen").fetchall())


def read(table: Any) -> Counter[Row]:
    """
    The rows of a table as pyiceberg reads them.
    """
    found = table.scan(selected_fields=("writer", "number")).to_arrow()
    return Counter(zip(found["writer"].to_pylist(), found["number"].to_pylist(), strict=True))


def look(ground: Ground, account: Account) -> None:
    """
    The table while all are at work: rows that are published for two minutes and not past retention are there.
    """
    began = time.time() * 1000
    live, plan = read(ground.table("events")), ground.plan
    writers, now = journals(plan.root), time.time() * 1000
    late = (1.25 * plan.keep + LATE_SECONDS) * 1000
    account.live(live, writers, now - plan.keep * 1000, began - late, began - PATIENCE_SECONDS * 1000)


def settle(ground: Ground, account: Account, quiet: float) -> None:
    """
    Everything is at rest, since the writers stopped at `quiet` (ms): counts all.
    """
    work(ground, account)
    outputs(ground, account)
    _once(ground, account)
    events(ground, account, quiet)
    state(ground, account)
    files(ground, account)


def outputs(ground: Ground, account: Account) -> None:
    """
    What the consumers made of the rows.
    """
    plan, writers = ground.plan, journals(ground.plan.root)
    sure, unsure = rows_of(writers)
    account.count("published rows", len(sure))
    account.count("rows of publishes that were killed", len(unsure))
    copy = copied(plan.output)
    account.copies("consumer", copy, writers)
    if plan.spark:
        stream = read(ground.table(COPIED))
        account.copies("Spark", stream, writers)
        account.same_outputs(copy, stream)


def events(ground: Ground, account: Account, quiet: float) -> None:
    """
    The append-only table. Since `quiet` retention may be held back by its brake, for nothing new comes.
    """
    live, keep, now = read(ground.table("events")), ground.plan.keep, time.time() * 1000
    late = (1.25 * keep + LATE_SECONDS) * 1000
    account.live(live, journals(ground.plan.root), now - keep * 1000, quiet - late)
    account.none("rows that the consumer saw in no snapshot", live.keys() - copied(ground.plan.output).keys())


def work(ground: Ground, account: Account) -> None:
    """
    What the programs and the writers say that they did: a soak without work proves nothing.
    """
    expected = WORK | (LONG_WORK if ground.plan.seconds >= LONG_SECONDS else {})
    for what, (role, message) in expected.items():
        log = (ground.plan.root / "logs" / f"{role}.log").read_text("utf-8", "replace")
        account.some(what, log.count(f'"message": "{message}"'))
    for journal in ground.plan.journals:
        account.some(f"{journal.name}: txlogs", txlogs(journal))


def journals(root: Path) -> dict[str, Published]:
    """
    What each writer of the append-only table published.
    """
    paths = (path for path in (root / "journal").iterdir() if not path.name.startswith("keyed"))
    return {path.name: published(path) for path in sorted(paths)}


def _once(ground: Ground, account: Account) -> None:
    """What is left to do for ticks, folds and the reaper; then verify."""
    config = ["--config", str(ground.plan.config)]
    for words in (["bookkeeper", "once"], ["bookkeeper", "fold", "--table", "state"], ["reaper", "once"]):
        _run(account, [*words, *config])
    for table, more in (("events", []), ("state", ["--deep"])):
        _run(account, ["bookkeeper", "verify", "--table", table, *more, *config])


def _run(account: Account, words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
    what = " ".join(word for word in words if not word.endswith(".toml"))
    account.count(what, f"exit code {done.returncode}")
    if done.returncode:
        account.wrong.append(f"{what}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")


def state(ground: Ground, account: Account) -> None:
    """
    The keyed table, after a fold: pyiceberg refuses a table with equality deletes.
    """
    expected, table = replayed(ground.plan.root, ground.plan.seed), ground.table("state")
    found = table.scan(selected_fields=("id", "value")).to_arrow()
    pairs = zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True)
    account.state("state by pyiceberg", pairs, expected)
    try:
        import duckdb_extension_iceberg  # noqa: F401

        from tests.histories.readers import duckdb_session
    except ImportError:
        account.count("state by DuckDB", "not installed")
        return
    location = local(table.metadata_location)
    rows = duckdb_session().execute(f"SELECT id, value FROM iceberg_scan('{location}')").fetchall()
    account.state("state by DuckDB", rows, expected)


def files(ground: Ground, account: Account) -> None:
    """
    What snapshots need is there; what nothing names is of killed processes and lost commits, and counted only.
    """
    for name in ("events", "state"):
        seen = Independent(ground.plan.root / "cat.db", name)
        reachable, disk, logged = ({*map(local, found)} for found in (seen.reachable(), seen.disk(), seen.logged()))
        account.none(f"{name}: files that are needed and gone", reachable - disk)
        account.count(f"{name}: files needed", len(reachable))
        account.count(f"{name}: files that nothing names yet", len(disk - reachable - logged))
        account.none(f"{name}: txlogs still pending", (str(item.name) for item in ground.txlogs(name).pending()))
        account.count(f"{name}: rejected", len(ground.txlogs(name).rejected()))
