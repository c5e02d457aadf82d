"""
One simulated lake: its disk, its catalog, and all processes at work on it, which are made of the production code.
"""

import logging
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any
from unittest import mock

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetPropertiesUpdate

from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.config.settings import Compaction, Reaper, Retention, Table
from bookkeeper.core.folder import Folder
from bookkeeper.errors import BookkeeperError
from bookkeeper.ledger import commit_request
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.streams import consumer
from bookkeeper.tick.tick import Bookkeeper
from reaper import reap
from tests.simulation import account, table_state
from tests.simulation.catalog import MemoryCatalog, parsed
from tests.simulation.changes import NAME as MIXED
from tests.simulation.changes import STEP_ROWS, Change, Changes
from tests.simulation.coverage import errors_counted
from tests.simulation.decoder import ORDER, Wrong
from tests.simulation.disk import Disk
from tests.simulation.foreign import DOES, Foreign
from tests.simulation.forger import FORGER, forge
from tests.simulation.memory import MemoryStore
from tests.simulation.oracle import Oracle
from tests.simulation.others import Inline, Reading, compactor, operate
from tests.simulation.schedule import Event, Scheduler, is_keyed
from tests.simulation.shortcuts import shortcuts
from writers.files import steps
from writers.writer import Writer

KEYS = 11
ROWS = pa.schema(
    [
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False, metadata={"PARQUET:field_id": "1"}),
        pa.field("key", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2"}),
        pa.field("value", pa.binary(), metadata={"PARQUET:field_id": "3"}),
    ]
)
OPS_SCHEMA = (
    {"name": "timestamp", "type": "timestamptz"},
    {"name": "key", "type": "string", "required": True},
    {"name": "value", "type": "binary"},
    {"name": "op", "type": "string"},
    {"name": ORDER, "type": "long"},
)
ROOT = "s3://simulated/lake"
IDENTIFIER = "demo.events"
BOOKS = ("book-1", "book-2")
PLAIN, POSITIONED = ("plain-1", "plain-2"), ("chain-1",)
#: rows of one publish; behind as many another writer names the same files
MOST_KEYS = 3
KEEP, KEEP_SHORT = timedelta(hours=3), timedelta(minutes=12)


@dataclass
class Run:
    """A writer of a name: its process, what it has confirmed, and the rows it has yet to send."""

    name: str
    writer: Any = None
    confirmed: list[str] = field(default_factory=list)


class World:
    """Begins with an empty table; `run` takes events, `settle` lets all come to rest and looks at the result."""

    def __init__(self, seed: int, dice: Random, tell: Callable[[str], None] = lambda line: None) -> None:
        self.dice = dice
        #: whether others roll the table back in this world
        self.rollbacks = seed % 3 == 0
        #: whether rows are versions of keys in this one
        self.keyed = is_keyed(seed)
        #: whether others expire snapshots in this one, and whether they have
        self.expires, self.foreign_expiry = seed // 3 % 2 == 1, False
        #: rows are dropped soon in some: then much of the table is older than its newest rows, and deletes are live
        keep = KEEP_SHORT if seed % 7 in ((0, 1, 2, 4, 5) if self.keyed else (1, 2, 4)) else KEEP
        self.scheduler = Scheduler(Random(seed + 1), tell=tell)
        self.counts = self.scheduler.counts
        self.disk = Disk(self.scheduler.clock)
        self.catalog = MemoryCatalog(ROOT, self.disk, self.scheduler, parents=seed % 2 == 0)
        #: whether streams of this one see deletes, by rows with an op; then versions of a key lie in several partitions
        self.ops = self.keyed and seed // 13 % 2 == 1
        by = ("hour(timestamp)",) if self.ops else () if self.keyed else ("day(timestamp)",)
        self.settings = Table(
            name="events",
            identifier=IDENTIFIER,
            partition_by=by,
            key=("key",) if self.keyed else (),
            schema=OPS_SCHEMA if self.ops else (),
            op_column="op" if self.ops else None,
            order_column=ORDER if self.ops else None,
            # A codec is nothing that can go wrong here, and zstd takes 0.17 ms for each file of a few rows, both ways.
            compression="zstd" if seed % 8 == 0 else "snappy",
            marks_keep=timedelta(hours=2),
            orphan_age=timedelta(hours=2),
            retention=Retention(keep=keep, brake=0.9),
            compaction=Compaction(engine="own", fan_in=4, quiet=timedelta(minutes=5)),
            reaper=Reaper(older_than=timedelta(minutes=2), retain_last=5, metadata_keep=timedelta(minutes=5)),
        )
        made = initialise(self.catalog, self.settings, schema_for(self.settings), self.store)  # type: ignore[arg-type]
        # pyiceberg's own retry would sleep.
        once = SetPropertiesUpdate(updates={"commit.retry.num-retries": "0"})
        self.catalog.commit_table(self.catalog.load_table(IDENTIFIER), (), (once,))
        self.folder_url = made.folder
        self.oracle = Oracle(
            self.disk,
            made.folder,
            self.scheduler.clock,
            keep - timedelta(minutes=10),
            self.keyed,
            lambda: self.scheduler.acting,
            FORGER,
        )
        self.oracle.table = table_state.read(self.metadata_bytes)
        self.oracle.counts = self.counts
        self.catalog.committed = self.oracle.committed
        self.disk.created, self.disk.deleting = self.oracle.created, self.oracle.deleting
        self.books: dict[str, Bookkeeper] = {}
        #: what a bookkeeper gave its thread that plans folds
        self.folds: dict[str, Callable[[], None]] = {}
        self.runs: dict[str, Run] = {}
        #: rows of each writer without positions, of all its runs
        self.sent = Counter[str]()
        for name in BOOKS:
            self.scheduler.add(name, partial(self._tick, name), partial(self._forget, name), rolls=False)
            self.scheduler.add(f"fold-{name}", partial(self._fold, name), partial(self._forget, name), rolls=False)
        for name in PLAIN:
            for actor in (name, f"{name}b"):  # two runs, of which one may stand still for long
                self._add_writer(actor, name, self._publish)
        for name in ("chain-1", "chain-1b"):
            self._add_writer(name, "chain-1", self._continue)
        self.changes = Changes(self)
        if self.keyed:
            for actor in (MIXED, f"{MIXED}b"):
                self._add_writer(actor, MIXED, self.changes.publish)
        self.scheduler.add("reaper", lambda dice: self._reap())
        self.compactors: dict[str, Any] = {}
        for name in ("compactor-1", "compactor-2"):
            self.scheduler.add(
                name,
                lambda dice, name=name: self._compact(name),  # type: ignore[misc]
                lambda name=name: self.compactors.pop(name, None),  # type: ignore[misc]
            )
        self.reading, self.foreign = Reading(self), Foreign(self)
        self.scheduler.add("consumer", self.reading.step, self.reading.die)
        for name in DOES:
            self.scheduler.add(name, lambda dice, name=name: self.foreign.step(name, dice))  # type: ignore[misc]
        self.scheduler.add("operator", lambda dice: operate(self))
        self.scheduler.add("disk", self._disk)
        self.scheduler.add("clock", lambda dice: None)
        self._errors = errors_counted(self.counts)
        self._errors.start()
        self._listener = Listener(self.counts)
        self._loggers = [logging.getLogger(name) for name in ("bookkeeper", "reaper", "writers")]
        for logger in self._loggers:
            logger.addHandler(self._listener)
            logger.setLevel(logging.WARNING)
            logger.propagate = False

    def end(self) -> None:
        """The log is listened to no more; what is under way ends here."""
        self._errors.stop()
        for logger in self._loggers:
            logger.removeHandler(self._listener)
            logger.setLevel(logging.NOTSET)
            logger.propagate = True
        self.scheduler.end()

    # -- parts

    @property
    def metadata_bytes(self) -> bytes:
        """The metadata.json that the catalog has now."""
        return self.catalog.tables[tuple(IDENTIFIER.split("."))].data

    @property
    def metadata(self) -> TableMetadata:
        """The same as programs see it."""
        return parsed(self.metadata_bytes)

    def store(self, url: str) -> Any:
        return MemoryStore(url, self.disk, self.scheduler)

    def random(self, count: int) -> bytes:
        return self.dice.randbytes(count)

    def _add_writer(self, actor: str, name: str, act: Callable[[Run, Random], None]) -> None:
        run = self.runs[actor] = Run(name)

        def die() -> None:
            run.writer = None

        self.scheduler.add(actor, lambda dice: act(run, dice), die, by="create")

    # -- bookkeepers

    def book(self, name: str) -> Bookkeeper:
        """A bookkeeper that remembers nothing; its folds are planned by an actor, beside its ticks."""

        def spawn(act: Callable[[], None], about: str) -> bool:
            self.folds[name] = act
            return True

        ledger = Ledger(self.catalog, IDENTIFIER, self.scheduler.clock, self.store)  # type: ignore[arg-type]
        return Bookkeeper(self.settings, Folder(self.store(self.folder_url)), ledger, store=self.store, folds=spawn)

    def _forget(self, name: str) -> None:
        self.books.pop(name, None)
        self.folds.pop(name, None)

    def _fold(self, name: str, dice: Random) -> None:
        if (act := self.folds.pop(name, None)) is not None:
            act()

    def _tick(self, name: str, dice: Random) -> None:
        book = self.books.get(name)
        if book is None:
            book = self.books[name] = self.book(name)
        self.counts["ticks"] += 1
        done = book.tick(self.scheduler.now)
        if done.commit is not None:
            self.counts["ticks that committed"] += 1
        if done.rejected:
            self.counts["rejected"] += len(done.rejected)

    # -- writers

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

    def _write(self, writer: Writer, keys: Sequence[str]) -> None:
        if self.keyed:
            writer.upsert(self.rows(keys))
        else:
            writer.write(self.rows(keys))

    def _publish(self, run: Run, dice: Random) -> None:
        """Rows without positions: each is sent once, and counts when its publish was confirmed."""
        try:
            writer = self.open_writer(run)
            keys = [f"{run.name}-{self.sent[run.name] + number}" for number in range(dice.randint(1, MOST_KEYS))]
            self.sent[run.name] += len(keys)
            self._write(writer, keys)
            name = writer.publish()
        except BookkeeperError:
            run.writer = None  # the next run; what is unknown is not sent again
            raise
        run.confirmed += keys
        if len(keys) == MOST_KEYS and not self.keyed:
            forge(self, name)
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

    # -- others

    def _reap(self) -> None:
        done = reap(self.catalog, self.settings, self.scheduler.now, open_store=self.store)  # type: ignore[arg-type]
        self.counts["snapshots expired"] += done.snapshots
        self.counts["orphans"] += done.orphans

    def _compact(self, name: str) -> None:
        at_work = self.compactors.get(name)
        if at_work is None:
            at_work = self.compactors[name] = compactor(self, name)
        done = at_work.round(self.catalog, self.scheduler.now)
        self.counts["rewrites published"] += done.rewrites
        self.counts["rewrites that failed"] += done.failed

    def _disk(self, dice: Random) -> None:
        """The disk fills up for a while, or its clock jumps."""
        if dice.random() < 0.4:
            self.scheduler.full_until = self.scheduler.now + timedelta(seconds=dice.choice([1, 5, 20, 90]))
            self.scheduler.tell("   the disk is full")
        elif dice.random() < 0.3:
            self.scheduler.refused_until = self.scheduler.now + timedelta(seconds=dice.choice([1, 5, 20]))
            self.scheduler.tell("   the catalog refuses commits")
        else:
            self.disk.ahead = timedelta(seconds=dice.choice([0, 0, 0, 0, 0, 0, 0, 3, -3, 45, -45, 400, -400]))
            self.scheduler.tell(f"   the storage's clock is {self.disk.ahead} ahead")

    # -- the run

    def run(self, event: Event) -> None:
        self.scheduler.run(event)

    def settle(self) -> None:
        """Faults end, everything late arrives, every process goes on; then each row must be where it belongs."""
        self.scheduler.full_until = self.scheduler.refused_until = self.scheduler.now
        self.disk.ahead = timedelta(0)
        for name, actor in self.scheduler.actors.items():
            while actor.running is not None:
                self.run(Event(name, 1))
        self.scheduler.now += timedelta(minutes=10)
        self.scheduler.arrive(everything=True)
        for _ in range(2):
            self.run(Event("operator", 1))
            for name in BOOKS:
                self.run(Event(name, 11))
        for _ in range(3):
            for name in BOOKS:
                self.run(Event(name, 11))
        for _ in range(3):
            self.run(Event("consumer", 61))
        for _ in range(2):
            self.run(Event("reaper", 61))
        self.foreign.look()
        self.reading.look()
        self.oracle.journal.look()
        confirmed = {actor: run.confirmed for actor, run in self.runs.items()}
        account.look(self.oracle, confirmed, self.changes.confirmed, POSITIONED)


class Listener(logging.Handler):
    """Counts what the log says."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__(logging.WARNING)
        self.counts = counts

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()[:60]
        self.counts[f"log {said}"] += 1
        if "defect" in said:
            raise Wrong(f"{said}: {getattr(record, 'cause', '')}")


@contextmanager
def repeatable(seed: int) -> Iterator[Random]:
    """All that is random comes from the dice of the seed."""
    dice = Random(seed)

    def made() -> uuid.UUID:
        return uuid.UUID(int=dice.getrandbits(128), version=4)

    with (
        mock.patch.object(uuid, "uuid4", made),
        mock.patch.object(os, "urandom", dice.randbytes),
        mock.patch.object(commit_request, "randbits", dice.getrandbits),
        mock.patch.object(consumer, "ThreadPoolExecutor", Inline),
        mock.patch.object(steps, "STEP_ROWS", STEP_ROWS),
        shortcuts(),
    ):
        yield dice
