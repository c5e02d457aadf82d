"""
One simulated lake: its disk, its catalog, and all processes at work on it, which are made of the production code.
"""

import logging
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, cast
from unittest import mock

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetPropertiesUpdate

from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.config.settings import Compaction, Evolve, Reaper, Retention, Table
from bookkeeper.consumers import followed
from bookkeeper.leases import lease as leases
from bookkeeper.leases.lease import Lease, NoLease
from bookkeeper.leases.object_lease import PutLease
from bookkeeper.ledger import commit_request
from reaper import reap
from reaper.orphans import ManyOrphans
from tests.simulation import folder_files, table_state
from tests.simulation.books import BOOKS, IDENTIFIER, Books
from tests.simulation.catalog import MemoryCatalog, parsed
from tests.simulation.changes import STEP_ROWS
from tests.simulation.consumers import Inline, Reading
from tests.simulation.coverage import errors_counted
from tests.simulation.decoder import ORDER, Wrong
from tests.simulation.disk import Disk
from tests.simulation.extra import extra_of
from tests.simulation.foreign import DOES, Foreign
from tests.simulation.forger import FORGER
from tests.simulation.hints import Queue
from tests.simulation.memory import MemoryStore
from tests.simulation.oracle import Oracle
from tests.simulation.others import compactor, operate
from tests.simulation.quiet import Quiet
from tests.simulation.schedule import Event, Scheduler
from tests.simulation.shortcuts import shortcuts
from tests.simulation.sources import Sources
from tests.simulation.traits import NOTIFY, Traits, traits_of
from writers.files import upsert_steps as steps

OPS_SCHEMA = (
    {"name": "timestamp", "type": "timestamptz"},
    {"name": "key", "type": "string", "required": True},
    {"name": "value", "type": "binary"},
    {"name": "op", "type": "string"},
    {"name": ORDER, "type": "long"},
)
BUCKET = "simulated"
ROOT = f"s3://{BUCKET}/lake"
CONSUMERS = ("consumer", "consumer-b")


def settings_of(traits: Traits) -> Table:
    """The table's section of the configuration."""
    return Table(
        name="events",
        identifier=IDENTIFIER,
        partition_by=("hour(timestamp)",) if traits.ops else () if traits.keyed else ("day(timestamp)",),
        key=("key",) if traits.keyed else (),
        schema=OPS_SCHEMA if traits.ops else (),
        op_column="op" if traits.ops else None,
        order_column=ORDER if traits.ops else None,
        compression=traits.compression,
        discover=traits.discover,
        look_every=3,
        pending_limit=traits.pending_limit,
        marks_keep=timedelta(hours=2),
        orphan_age=timedelta(hours=2),
        evolve=Evolve(add=traits.columns),
        retention=Retention(keep=traits.keep, brake=0.9),
        compaction=Compaction(engine="own", fan_in=4, quiet=timedelta(minutes=5)),
        reaper=Reaper(older_than=timedelta(minutes=2), retain_last=5, metadata_keep=timedelta(minutes=5)),
    )


class World(Books, Sources):
    """Begins with an empty table; `run` takes events, `settle` lets all come to rest and looks at the result."""

    def __init__(
        self,
        seed: int,
        dice: Random,
        tell: Callable[[str], None] = lambda line: None,
        traits: Traits | None = None,
    ) -> None:
        self.seed, self.dice, self.traits = seed, dice, traits or traits_of(seed)
        self.keyed, self.ops = self.traits.keyed, self.traits.ops
        #: whether the reaper found so many orphans that a person is to look
        self.many_orphans = False
        #: whether others have expired snapshots
        self.foreign_expiry = False
        self.scheduler = Scheduler(Random(seed + 1), tell=tell)
        self.scheduler.leases = self.traits.leases or self.traits.group
        self.counts = self.scheduler.counts
        self.disk = Disk(self.scheduler.clock)
        self.catalog = MemoryCatalog(ROOT, self.disk, self.scheduler, self.traits.parents)
        self.settings = settings_of(self.traits)
        made = initialise(self.catalog, self.settings, schema_for(self.settings), self.store)  # type: ignore[arg-type]
        # pyiceberg's own retry would sleep.
        once = SetPropertiesUpdate(updates={"commit.retry.num-retries": "0"})
        self.catalog.commit_table(self.catalog.load_table(IDENTIFIER), (), (once,))
        self.folder_url = made.folder
        self.oracle = Oracle(
            self.disk,
            made.folder,
            self.scheduler.clock,
            self.traits.keep - timedelta(minutes=10),
            self.keyed,
            lambda: self.scheduler.acting,
            FORGER,
        )
        self.oracle.rules.extra_of = extra_of if self.traits.columns else lambda row: None
        self.oracle.table = table_state.read(self.metadata_bytes)
        self.oracle.counts = self.counts
        self.catalog.committed = self.oracle.committed
        self.disk.created, self.disk.deleting = self._created, self.oracle.deleting
        self.queue = Queue(self.scheduler, BUCKET, self.folder_url.removeprefix(f"s3://{BUCKET}/"))
        self.add_books()
        self.add_writers()
        self._add_others()
        self.quiet = Quiet(self)
        self._patches = [errors_counted(self.counts), *self.book_patches()]
        for patch in self._patches:
            patch.start()
        self._listener = Listener(self.counts)
        self._loggers = [logging.getLogger(name) for name in ("bookkeeper", "reaper", "writers")]
        for logger in self._loggers:
            logger.addHandler(self._listener)
            logger.setLevel(logging.WARNING)
            logger.propagate = False

    def _add_others(self) -> None:
        self.scheduler.add("reaper", lambda dice: self.reap())
        self.compactors: dict[str, Any] = {}
        for name in ("compactor-1", "compactor-2"):
            self.scheduler.add(
                name,
                lambda dice, name=name: self._compact(name),  # type: ignore[misc]
                lambda name=name: self.compactors.pop(name, None),  # type: ignore[misc]
            )
        self.reading, self.foreign = Reading(self), Foreign(self)
        for name in CONSUMERS:
            self.scheduler.add(name, partial(self.reading.step, name), partial(self.reading.die, name))
        self.scheduler.add("foreign-append", lambda dice: self.foreign.step("foreign", dice, "append"))
        for name in DOES:
            self.scheduler.add(name, lambda dice, name=name: self.foreign.step(name, dice))  # type: ignore[misc]
        self.scheduler.add("operator", lambda dice: operate(self))
        self.scheduler.add("disk", self._disk)
        self.scheduler.add("clock", lambda dice: None)

    def end(self) -> None:
        """The log is listened to no more; what is under way ends here."""
        for patch in self._patches:
            patch.stop()
        for logger in self._loggers:
            logger.removeHandler(self._listener)
            logger.setLevel(logging.NOTSET)
            logger.propagate = True
        self.scheduler.end()
        for name in BOOKS:
            self._forget(name)
        self.reading.close()

    # -- parts

    @property
    def metadata_bytes(self) -> bytes:
        """The metadata.json that the catalog has now."""
        return self.catalog.tables[tuple(IDENTIFIER.split("."))].data

    @property
    def metadata_location(self) -> str:
        """Where it lies."""
        return self.catalog.tables[tuple(IDENTIFIER.split("."))].location

    @property
    def metadata(self) -> TableMetadata:
        """The same as programs see it."""
        return parsed(self.metadata_bytes)

    def store(self, url: str) -> Any:
        return MemoryStore(url, self.disk, self.scheduler)

    def _created(self, location: str, data: bytes) -> None:
        self.oracle.created(location, data)
        folder, _, name = location.rpartition("/")
        if folder == f"{self.folder_url}/{folder_files.CONSUMERS}" and name.endswith(".json"):
            self.reading.registered(name.removesuffix(".json"), data)
        if self.traits.discover == NOTIFY:
            self.queue.created(location)

    # -- others

    def reap(self, release_brake: bool = False) -> None:
        """A run of the reaper; where it has found too many orphans, a person looks, and says so to the next one."""
        catalog, now = cast(Any, self.catalog), self.scheduler.now
        try:
            done = reap(catalog, self.settings, now, open_store=self.store, release_brake=release_brake)
        except ManyOrphans:
            self.many_orphans = True
            raise
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

    def take(self, event: Event) -> None:
        """One of the events of the world's seed."""
        self.run(event)
        self.quiet.watch(event)

    def settle(self) -> None:
        """Faults end and time goes on: each debt is settled, and each row is where it belongs."""
        self.quiet.settle()


class Listener(logging.Handler):
    """Counts what the log says."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__(logging.WARNING)
        self.counts = counts

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()[:60]
        self.counts[f"log {said}"] += 1
        if "defect" in said or getattr(record, "action", "") == "defect":
            raise Wrong(f"{said}: {getattr(record, 'cause', '')}")


def lease_of(store: MemoryStore, name: str, holder: str, lasting: timedelta) -> Lease:
    """As on an object store, in worlds with leases."""
    return PutLease(store, name, holder, lasting) if store.scheduler.leases else NoLease()  # type: ignore[arg-type]


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
        mock.patch.object(followed, "Threads", Inline),
        mock.patch.object(leases, "_on_objects", lease_of),
        mock.patch.object(steps, "STEP_ROWS", STEP_ROWS),
        shortcuts(),
    ):
        yield dice
