"""
A query as Spark runs it: a checkpoint with its plans and commits, and a sink that is given each batch until it is in.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Self

import pyarrow as pa

from bookkeeper.stores.open import open_store
from spark_jobs.sink_batches import BatchPublisher
from spark_jobs.sink_upserts import Upserts
from tests.support.desk import Desk, Ledger, rows
from tests.support.faults import Faults, FaultyStore
from tests.support.in_turn import in_turn
from tests.support.lake import Lake
from tests.support.upserts import keyed_card, state, table
from writers import Task, TaskWriter
from writers.runtime import Runtime

BATCHES = (("0a", "0b"), ("1a",), (), ("3a", "3b"))


def ticked(lake: Lake) -> Runtime:
    """A bookkeeper of the lake ticks while a sink waits."""
    return Runtime(clock=lake.clock, wait=lambda seconds: lake.tick() and None)


class MicroBatches:
    """
    A query of a few batches, each in tasks of one row, into a table in memory; a bookkeeper ticks while the sink waits.
    """

    changes: Upserts | None = None
    columns = rows().schema

    def __init__(
        self, batches: Sequence[Sequence[str]] = BATCHES, desk: Desk | None = None, name: str = "query"
    ) -> None:
        self.desk = desk or Desk(f"memory://{uuid.uuid4()}")
        if desk is None:
            self._set_card()
        self.ledger = Ledger(self.desk)
        self.batches, self.name = list(batches), name
        self.checkpoint = f"memory://{uuid.uuid4()}"
        self.query = str(uuid.uuid4())
        #: how often the tasks of each batch have run
        self.jobs = Counter[int]()
        self.runs = 0
        self.stores: Any = open_store

    def _set_card(self) -> None:
        self.desk.set_card()

    def wait(self, seconds: float) -> object:
        self.desk.clock.wait(seconds)
        return self.ledger.tick()

    def publisher(self, faults: Faults | None = None, wait: Callable[[float], object] | None = None) -> BatchPublisher:
        """The sink of a new driver."""
        faults, label = faults or Faults(), {f"{self.desk.root}/data": "data", self.checkpoint: "checkpoint"}
        self.stores = lambda url: FaultyStore(open_store(url), faults, label.get(url, "folder"))
        self.runs += 1
        self.desk.clock.move(seconds=1)
        seed = self.runs.to_bytes(10, "big")
        return BatchPublisher(
            f"{self.desk.root}/_bookkeeper",
            self.name,
            self.stores(self.checkpoint),
            Runtime(self.stores, self.desk.clock, wait or self.wait, at_once=in_turn()),
            changes=self.changes,
            random=lambda count: seed[:count],
        )

    def run(self, faults: Faults | None = None, sink: BatchPublisher | None = None, upto: int | None = None) -> None:
        """A driver: gives each batch that is not committed, in order."""
        sink = sink or self.publisher(faults)
        if not self.has("metadata"):
            self.plan_metadata()
        for batch in range(len(self.batches) if upto is None else upto):
            if not self.has(f"commits/{batch}"):
                self.give(sink, batch)
                self.stores(self.checkpoint).create(f"commits/{batch}", b"v1\n{}")

    def plan_metadata(self) -> None:
        """What Spark writes first into a checkpoint."""
        self.stores(self.checkpoint).create("metadata", b'{"id":"%s"}' % self.query.encode())

    def plan(self, batch: int, content: str = "") -> None:
        """What Spark does before it gives a batch for the first time."""
        self.stores(self.checkpoint).create(f"offsets/{batch}", f"v1\n{{}}\n{content or batch}".encode())

    def give(self, sink: BatchPublisher, batch: int) -> int:
        if not self.has(f"offsets/{batch}"):
            self.plan(batch)
        return sink.publish(
            batch, self.columns, lambda task: self.tasks(task, batch), helpers=["gone"], run=str(self.runs)
        )

    def tasks(self, task: Task, batch: int) -> list[bytes]:
        self.jobs[batch] += 1
        return [self._part(task, key) for key in self.batches[batch]]

    def _part(self, task: Task, key: str) -> bytes:
        given = {"stores": self.stores, "clock": self.desk.clock, "wait": lambda seconds: True, "at_once": in_turn()}
        with task.open(**given) as files:
            self._write(files, key)
        return files.result

    def _write(self, files: TaskWriter, key: str) -> None:
        files.write(rows(key))

    def has(self, key: str) -> bool:
        """Whether Spark has written it."""
        return isinstance(open_store(self.checkpoint).sizes([key])[key], int)

    def copied(self) -> Self:
        """The same query of a copy of the checkpoint, on the same table."""
        made = type(self)(self.batches, self.desk, self.name)
        made.ledger, made.query, made.runs = self.ledger, self.query, self.runs + 100
        there, here = open_store(self.checkpoint), open_store(made.checkpoint)
        for item in list(there.list("")):
            here.create(item.key, there.read(item.key))
        return made

    def keys(self) -> list[str]:
        """What is in the table."""
        return self.ledger.keys()

    def all(self) -> list[str]:
        return sorted(key for batch in self.batches for key in batch)


class KeyedBatches(MicroBatches):
    """
    The same into a keyed table: a row upserts the key of its last letter, or deletes it with a "!" behind.
    """

    changes = Upserts(deletes="gone")
    columns = table([]).schema.append(pa.field("gone", pa.bool_()))

    def _set_card(self) -> None:
        keyed_card(self.desk)

    def _write(self, files: TaskWriter, key: str) -> None:
        version = key.rstrip("!")
        files.change(table([(ord(version[-1]), version)]), [version != key])

    def keys(self) -> list[str]:
        """The newest version of each key; fails where a version is in the table's files twice."""
        versions = Counter(row["value"] for row in self.desk.rows(self.ledger.files) if row["op"] == "U")
        assert max(versions.values(), default=1) == 1, versions
        return sorted(str(value) for value in state(self.desk, self.ledger.txlogs).values())

    def all(self) -> list[str]:
        found = dict[str, str]()
        for key in (key for batch in self.batches for key in batch):
            version = key.rstrip("!")
            found.pop(version[-1], None)
            found |= {version[-1]: version} if version == key else {}
        return sorted(found.values())
