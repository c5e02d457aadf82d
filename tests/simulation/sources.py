"""
The writers: runs of three names, with and without positions, some of which stand still for long beside newer ones.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import BookkeeperError
from tests.simulation.account import has_row
from tests.simulation.changes import NAME as MIXED
from tests.simulation.changes import Change, Changes
from tests.simulation.extra import extra_of
from tests.simulation.forger import forge
from tests.simulation.oracle import Oracle
from tests.simulation.schedule import Scheduler
from tests.simulation.traits import Traits
from writers.writer import Writer

if TYPE_CHECKING:
    from tests.simulation.world import World

KEYS = 11
ROWS = pa.schema(
    [
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False, metadata={"PARQUET:field_id": "1"}),
        pa.field("key", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2"}),
        pa.field("value", pa.binary(), metadata={"PARQUET:field_id": "3"}),
    ]
)
PLAIN, POSITIONED = ("plain-1", "plain-2"), ("chain-1",)
#: a writer of many channels
SLOT, CHANNELS = "slot-1", ("a", "b", "c")
#: rows of one publish; behind as many another writer names the same files
MOST_KEYS = 3
#: how often rows have a column that differs from the table's in case only: it is refused
REFUSED = 0.02


@dataclass
class Run:
    """A writer of a name: its process, what it has confirmed, and the rows it has yet to send."""

    name: str
    writer: Any = None
    confirmed: list[str] = field(default_factory=list)


class Sources:
    """A part of World."""

    traits: Traits
    keyed: bool
    ops: bool
    dice: Random
    scheduler: Scheduler
    counts: Counter[str]
    oracle: Oracle
    folder_url: str
    store: Callable[[str], Any]

    def add_writers(self) -> None:
        """Makes their actors; of each name there are two runs, of which one may stand still for long."""
        self.runs: dict[str, Run] = {}
        #: rows of each writer without positions, of all its runs
        self.sent = Counter[str]()
        for name in PLAIN:
            for actor in (name, f"{name}b"):
                self._add_writer(actor, name, self._publish)
        for name in ("chain-1", "chain-1b"):
            self._add_writer(name, "chain-1", self._continue)
        for actor in (SLOT, f"{SLOT}b") if self.traits.slots else ():
            self._add_writer(actor, SLOT, self._read_channels)
        self.changes = Changes(cast("World", self))
        for actor in (MIXED, f"{MIXED}b") if self.keyed else ():
            self._add_writer(actor, MIXED, self.changes.publish)

    def _add_writer(self, actor: str, name: str, act: Callable[[Run, Random], None]) -> None:
        run = self.runs[actor] = Run(name)

        def die() -> None:
            run.writer = None

        self.scheduler.add(actor, lambda dice: act(run, dice), die, by="create")

    def random(self, count: int) -> bytes:
        return self.dice.randbytes(count)

    def open_writer(self, run: Run) -> Writer:
        """The writer of a run, which begins with it."""
        if run.writer is None:
            run.writer = Writer.open(
                Folder(self.store(self.folder_url)),
                run.name,
                clock=self.scheduler.clock,
                wait=self.scheduler.wait,
                random=self.random,
                stores=self.store,
                at_once=lambda acts: [act() for act in acts],
                keep="all" if self.ops and run.name == MIXED else "last",
            )
            self.counts["runs of writers"] += 1
        writer: Writer = run.writer
        return writer

    def rows(self, keys: Sequence[str]) -> pa.Table:
        """Rows with these keys; of a keyed table they are versions of a few keys."""
        if not self.keyed:
            return self.versions([Change(key, key) for key in keys])
        parts = (key.rpartition("-") for key in keys)
        changed = [f"{name}-k{int(number) % KEYS}" for name, _, number in parts]
        return self.versions([*map(Change, changed, keys)])

    def versions(self, changes: Sequence[Change]) -> pa.Table:
        """A row for each of these."""
        versions = [change.version or "" for change in changes]
        for version in versions:
            self.oracle.born.setdefault(version, self.scheduler.now)
        columns = [
            pa.array([self.scheduler.now] * len(changes), pa.timestamp("us", "UTC")),
            pa.array([change.key for change in changes], pa.string()),
            pa.array([version.encode() for version in versions], pa.binary()),
        ]
        return pa.table(columns, schema=ROWS)

    def _write(self, writer: Writer, keys: Sequence[str], offsets: Mapping[str, str] | None = None) -> None:
        rows = self.rows(keys)
        for name in {extra[0]: None for key in keys if self.traits.columns and (extra := extra_of(key))}:
            extra = [extra_of(key) for key in keys]
            values = [item[1] if item and item[0] == name else None for item in extra]
            rows = rows.append_column(name, pa.array(values, pa.string()))
            self.counts["rows with another column"] += 1
        if self.keyed:
            writer.upsert(rows, offsets=offsets)
        else:
            writer.write(rows, offsets=offsets)

    def _publish(self, run: Run, dice: Random) -> None:
        """Rows without positions: each is sent once, and counts when its publish was confirmed."""
        try:
            writer = self.open_writer(run)
            if self.traits.columns and dice.random() < REFUSED:
                writer.write(self.rows([f"{run.name}-0"]).append_column("KEY", pa.array(["x"])))
            keys = [f"{run.name}-{self.sent[run.name] + number}" for number in range(dice.randint(1, MOST_KEYS))]
            self.sent[run.name] += len(keys)
            self._write(writer, keys)
            name = writer.publish()
        except BookkeeperError:
            run.writer = None  # the next run; what is unknown is not sent again
            raise
        run.confirmed += keys
        if len(keys) == MOST_KEYS and not self.keyed:
            forge(cast("World", self), name)
        self.counts["rows confirmed"] += len(keys)

    def _continue(self, run: Run, dice: Random) -> None:
        """Rows of a source: each run goes on where the committed position says."""
        try:
            writer = self.open_writer(run)
            at = int(writer.position or b"0")
            count = dice.randint(1, 3)
            self._write(writer, [f"{run.name}-{at + number}" for number in range(1, count + 1)])
            writer.publish(position=b"%d" % (at + count))
            self.counts["rows chained"] += count
        except BookkeeperError:
            run.writer = None
            raise

    def _read_channels(self, run: Run, dice: Random) -> None:
        """Rows of some channels of a slot: each run goes on where the offsets of its chain say; some have no row."""
        try:
            writer = self.open_writer(run)
            keys, reached = list[str](), dict[str, str]()
            for channel in dice.sample(CHANNELS, dice.randint(1, 2)):
                at = int(writer.offsets.get(channel, "0"))
                numbers = range(at + 1, at + dice.randint(1, 3) + 1)
                keys += [f"{run.name}.{channel}-{number}" for number in numbers if has_row(number)]
                reached[channel] = str(numbers[-1])
            if keys:
                self._write(writer, keys, reached)
            name = writer.publish(offsets=reached)
            self.counts["rows of channels" if keys else "offsets that wait" if name is None else "offsets alone"] += 1
        except BookkeeperError:
            run.writer = None
            raise
