"""
Sources of a keyed table: endless lists of upserts, deletes and inserts. The real Writer reads them, and may crash.

One with positions goes on where the table is; its state is the replay of its operations up to the table's position.
One without loses what its run had not published; its state is the replay of the txlogs that are in, in their order.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

import pyarrow as pa

from bookkeeper.contract.marks import Marks
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import BookkeeperError
from tests.support.enumerated import READS
from tests.support.faults import AFTER, BEFORE, LATE, MIDDLE, Crash, Faults, Rule, crash
from tests.support.in_turn import in_turn
from tests.support.lake import Lake
from writers.writer import Writer

Row = tuple[str | None, datetime]
CHANNEL = "operations"
State = dict[int, Row]


@dataclass(frozen=True, slots=True)
class Op:
    """One operation on one key: write, upsert, delete or change (an upsert and a delete at once), or roll."""

    kind: str
    key: int = 0
    row: Row | None = None


def rows(pairs: Iterable[tuple[int, Row]]) -> pa.Table:
    """Rows for the writer."""
    listed = list(pairs)
    return pa.table(
        {
            "id": pa.array([key for key, _ in listed], pa.int64()),
            "value": pa.array([row[0] for _, row in listed], pa.string()),
            "timestamp": pa.array([row[1] for _, row in listed], pa.timestamp("us", "UTC")),
        }
    )


@dataclass
class Source:
    """One writer name, with keys of its own."""

    lake: Lake
    name: str
    #: its keys are this modulo the number of sources
    rest: int
    modulus: int
    dice: Random
    positions: bool = True
    keep: str = "last"
    #: its position is an offset: it is a slot with one channel
    slot: bool = False
    ops: list[Op] = field(default_factory=list)
    #: how many operations of `ops` were read, and what they make of the keys
    read: int = 0
    keys: int = 4
    would: set[int] = field(default_factory=set)
    state: State = field(default_factory=dict)
    #: how many operations the table has; of txlogs without a position, which operations are in each
    done: int = 0
    published: dict[TxlogName, list[Op]] = field(default_factory=dict)
    settled: list[TxlogName] = field(default_factory=list)
    writer: Writer | None = None
    faults: Faults = field(default_factory=Faults)

    # what it does

    def op(self, number: int) -> Op:
        """The operation with this number, always the same."""
        while len(self.ops) <= number:
            self.ops.append(self._drawn(len(self.ops)))
        return self.ops[number]

    def _drawn(self, number: int) -> Op:
        kind = self.dice.choice(["upsert", "upsert", "upsert", "delete", "delete", "write", "change", "roll"])
        key = self.dice.choice([*range(4), self.keys]) * self.modulus + self.rest
        noon = self.lake.clock.now.replace(hour=12, minute=0, second=0, microsecond=0)
        row = (f"{self.name}-{number}", noon - timedelta(days=self.dice.choice([0, 0, 0, 1, 2])))
        if kind == "write" and (not self.positions or key in self.would):
            # Its key must be new to the table: without positions a delete before it may be lost.
            self.keys += 1
            key = self.keys * self.modulus + self.rest
        if kind == "delete":
            self.would.discard(key)
        elif kind != "roll":
            self.would.add(key)
        return Op(kind, key, None if kind in ("delete", "roll") else row)

    def work(self, crashes: Counter[str], under_way: list[Faults], calm: bool = False) -> bool:
        """One publish of a few operations by its run, or by a new one; False where the process ended."""
        try:
            self._publish(calm)
        except Crash as error:
            crashes[operation_kind(str(error))] += 1
            if self.faults.under_way:
                under_way.append(self.faults)
            self.writer = None
            return False
        except BookkeeperError:  # fenced, or an outcome that is not known: its run ends
            self.writer = None
            return False
        return True

    def _publish(self, calm: bool) -> None:
        if self.writer is None:
            self._open(calm)
        assert self.writer is not None
        if not calm and self.dice.random() < 0.25:
            self.faults.rules.append(change(self.dice, 10))
        taken = list[Op]()
        for _ in range(self.dice.randint(1, 12)):
            op = self.op(self.read)
            self.read += 1
            taken.append(op)
            self._apply(self.writer, op)
        name = TxlogName(self.name, self.writer.incarnation, self.sequence + 1)
        if not self.positions:
            self.published[name] = taken
        position = b"%d" % self.read if self.positions and not self.slot else None
        if self.writer.publish(position, {CHANNEL: str(self.read)} if self.slot else None) is not None:
            self.sequence += 1
        else:  # nothing but rolls
            self.published.pop(name, None)

    def _open(self, calm: bool) -> None:
        self.lake.clock.move(seconds=1)
        self.faults, self.sequence = Faults(), 0
        if not calm and self.dice.random() < 0.15:
            # The machine is gone while the txlog is on its way; it arrives when others have gone on.
            self.faults.rules.append(
                Rule(lambda _, operation: operation.startswith("create folder/pending"), LATE, crash, times=1)
            )
        stores, run = self.lake.faulty(self.faults), self.dice.getrandbits(80).to_bytes(10, "big")
        self.writer = Writer.open(
            Folder(stores(self.lake.made.folder)),
            self.name,
            clock=self.lake.clock,
            wait=lambda seconds: True,
            random=lambda count: run[:count],
            stores=stores,
            at_once=in_turn(lambda count: self.dice.sample(range(count), count)),
            keep=self.keep,
        )
        if self.slot:
            self.read = int(self.writer.offsets.get(CHANNEL, "0"))
        elif self.positions:
            self.read = int(self.writer.position or b"0")

    def _apply(self, writer: Writer, op: Op) -> None:
        key = pa.table({"id": pa.array([op.key], pa.int64())})
        offsets: dict[str, str] | None = {} if self.slot else None  # they come with the publish
        if op.kind == "roll":
            writer.roll()
        elif op.kind == "delete":
            writer.delete(key, offsets=offsets)
        elif op.kind == "change":
            assert op.row is not None
            both = rows([(op.key, ("superseded", op.row[1])), (op.key, op.row)])
            writer.change(both, pa.array([True, False]), offsets=offsets)
        else:
            assert op.row is not None
            {"write": writer.write, "upsert": writer.upsert}[op.kind](rows([(op.key, op.row)]), offsets=offsets)

    # what the table must show of it

    def sync(self, marks: Marks) -> None:
        """Replays what has come into the table since the last time."""
        if self.positions:
            known = marks.writer(self.name)
            reached = int(known.offsets.get(CHANNEL, "0") if self.slot else known.position or b"0")
            assert reached >= self.done, f"the position of {self.name} went back"
            self._replay(self.op(number) for number in range(self.done, reached))
            self.done = reached
            return
        new = sorted(name for name in self.published if marks.is_in(name) and name not in self.settled)
        for name in new:
            assert not self.settled or self.settled[-1] < name, f"{name} came after a later one"
            self._replay(self.published[name])
            self.settled.append(name)

    def _replay(self, ops: Iterable[Op]) -> None:
        for op in ops:
            if op.row is not None:
                self.state[op.key] = op.row
            elif op.kind == "delete":
                self.state.pop(op.key, None)


def operation_kind(operation: str) -> str:
    """
    The verb and what it is of, without names: `create folder/pending`, `upload data/…-deletes`.
    """
    verb, _, rest = operation.partition(" ")
    place, _, name = rest.partition("/")
    place = place if place in ("folder", "metadata", "data") or not name else "table"
    if name.endswith("-deletes.parquet"):
        return f"{verb} {place}/ deletes"
    return f"{verb} {place}/{name.partition('/')[0]}" if place == "folder" and "/" in name else f"{verb} {place}"


def change(dice: Random, most: int) -> Rule:
    """
    Ends the process before, in or after one of its next operations that change something; a read leaves nothing.
    """
    passed = iter(range(dice.randrange(most)))
    return Rule(
        lambda _, operation: not operation.startswith(READS) and next(passed, None) is None,
        dice.choice([BEFORE, MIDDLE, AFTER]),
        crash,
        times=1,
    )
