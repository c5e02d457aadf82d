"""
Records runs of the code as steps of the model (docs/maintain/model.md); `make conform` lets the model follow them.

Only what reached the disk and the catalog is recorded, and only what the model knows may happen: writers of one row a
txlog, two bookkeepers, retention, the reaper, other committers.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any
from unittest import mock

from bookkeeper.config.settings import Retention
from bookkeeper.contract.marks import PROPERTY, Marks
from bookkeeper.contract.marks_json import from_json, loads
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import SUFFIX, Found
from bookkeeper.tick.select import in_order
from tests.simulation import table_state
from tests.simulation import world as worlds
from tests.simulation.books import BOOKS
from tests.simulation.decoder import Wrong
from tests.simulation.disk import Object
from tests.simulation.schedule import (
    BEFORE,
    CRASH,
    CRASH_AFTER,
    FAULTS,
    LOST,
    STALE,
    TORN,
    TWICE,
    Call,
    Event,
    Scheduler,
)
from tests.simulation.table_state import Snapshot, TableState
from tests.simulation.traits import traits_of
from tests.simulation.world import World, repeatable

#: as in tests/model/src/state.rs; the first half of the incarnations has positions
INCARNATIONS, SEQUENCES = 24, 5
EVENTS = 120
FOREIGN = "foreign-"
KEEP, AGES = timedelta(minutes=10), timedelta(days=30)
WEIGHTS = {
    "book-1": 60,
    "book-2": 45,
    "plain-1": 9,
    "plain-2": 6,
    "chain-1": 9,
    "chain-1b": 5,
    "foreign": 1.5,
    "refs": 1.0,
    "reaper": 2.5,
}
DIES = frozenset({CRASH, CRASH_AFTER})


class Within(Scheduler):
    """A call meets only the faults that the model knows."""

    def call(self, call: Call, act: Callable[[], Any], error: Callable[[str], Exception]) -> Any:
        return super().call(call._replace(able=call.able & _known(call)), act, error)


def _known(call: Call) -> frozenset[str]:
    pending = "/pending/" in call.what
    if call.verb == "commit" or (call.verb == "create" and pending) or call.verb == "upload":
        return frozenset(FAULTS) - {TORN}
    if call.verb == "delete" and pending:
        return DIES | {BEFORE, TWICE}
    if call.what.endswith("/marks.json"):
        return DIES | {BEFORE, LOST, TWICE}
    return DIES if call.verb in ("read", "create") else DIES | {BEFORE}


@dataclass
class Trace:
    """The events of one run, with small numbers in place of names and snapshot ids."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    #: the number of each incarnation that has opened
    incarnations: dict[str, int] = field(default_factory=dict)
    snapshots: dict[int, int] = field(default_factory=dict)
    commits: int = 0
    #: incarnations with positions and without, so far
    begun: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, do: str, **more: Any) -> dict[str, Any]:
        self.lines.append({"do": do, **more})
        return self.lines[-1]

    def begin(self, positioned: bool) -> int:
        kind = 0 if positioned else 1
        self.begun[kind] += 1
        return kind * INCARNATIONS // 2 + self.begun[kind] - 1

    def is_full(self, positioned: bool) -> bool:
        return self.begun[0 if positioned else 1] == INCARNATIONS // 2

    def slot(self, incarnation: str, sequence: int) -> int:
        return self.incarnations[incarnation] * SEQUENCES + sequence - 1

    def slot_of(self, location: str) -> int:
        """Of a txlog or a data file."""
        name = location.rpartition("/")[2]
        if name.endswith(SUFFIX):
            txlog = TxlogName.parse(name)
            return self.slot(txlog.incarnation, txlog.sequence)
        stem, sequence, _ = name.rsplit("-", 2)
        return self.slot(stem[-36:], int(sequence))

    def snapshot(self, number: int | None) -> int | None:
        return None if number is None else self.snapshots[number]

    def marks(self, marks: Marks) -> dict[str, Any]:
        last, holes, position = dict[str, int](), list[int](), 0
        for writer in marks.writers.values():
            position = max(position, int(writer.position or b"0"))
            for incarnation, mark in writer.incarnations.items():
                last[str(self.incarnations[incarnation])] = mark.last
                holes += [self.slot(incarnation, hole) for hole in mark.holes]
        told = {"last": last, "holes": sorted(holes), "position": position}
        return told | {"snapshot": self.snapshots.get(marks.snapshot or 0)}


class RecordedWorld(World):
    """A world whose calls are recorded; each writer publishes one row at a time."""

    def __init__(self, seed: int, dice: Random) -> None:
        self.trace = Trace()
        self.opening = dict[str, int]()
        super().__init__(seed, dice, traits=traits_of(seed).plain)
        # What goes by age beside data files is not in the model: pruned marks, swept txlogs, orphans.
        ages = {"marks_keep": AGES, "orphan_age": AGES, "retention": Retention(keep=KEEP, brake=0.9)}
        self.settings = replace(self.settings, **ages)  # type: ignore[arg-type]
        self.oracle.keep = KEEP - timedelta(minutes=1)
        self.catalog_loads, self.catalog_commits = self.catalog.load_table, self.catalog.commit_table
        self.hooks()

    @property
    def who(self) -> str:
        """Whose call it is; empty for one that arrives late."""
        return self.scheduler.acting

    def hooks(self) -> None:
        disk, catalog, oracle = self.disk, self.catalog, self.oracle
        under, get = disk.under, disk.get

        def listed(root: str) -> Any:
            found = under(root)
            if root == f"{self.folder_url}/pending":
                self._listed(found)
            return found

        def read(location: str) -> Any:
            if location == f"{self.folder_url}/marks.json" and self.who in self.opening:
                self.starts = self.trace.add("writer-starts", i=self.opening[self.who])
            if self.who in BOOKS and location.startswith(f"{self.folder_url}/pending/"):
                self.trace.add("read", b=self._b(), slot=self.trace.slot_of(location), there=disk.has(location))
            return get(location)

        def created(location: str, data: bytes) -> None:
            self._created(location, data)
            oracle.created(location, data)

        def deleting(location: str) -> None:
            self._deleting(location)
            oracle.deleting(location)

        def committed(before: bytes, after: bytes) -> None:
            try:
                self._committed(table_state.read(before), table_state.read(after))
            except Exception as error:  # the code under test would take it for a refusal
                raise Wrong(f"not recorded: {error!r}") from error
            oracle.committed(before, after)

        disk.under, disk.get = listed, read  # type: ignore[method-assign]
        disk.created, disk.deleting, catalog.committed = created, deleting, committed
        catalog.load_table, catalog.commit_table = self._load, self._commit  # type: ignore[method-assign]

    # -- what is seen

    def _listed(self, listed: Iterable[tuple[str, Object]]) -> None:
        if self.who in BOOKS:
            names = [(TxlogName.parse(at.rpartition("/")[2]), item) for at, item in listed if at.endswith(SUFFIX)]
            found = in_order([Found(name, len(item.data), item.modified) for name, item in names])
            slots = [self.trace.slot(item.name.incarnation, item.name.sequence) for item in found]
            self.trace.add("list", b=self._b(), found=slots)
        elif self.who in self.opening:
            self.opening[self.who] = i = self.trace.begin(self.who.startswith("chain"))
            self.trace.add("writer-lists", i=i)

    def _created(self, location: str, data: bytes) -> None:
        trace, folder = self.trace, self.folder_url
        if location == f"{folder}/marks.json":
            marks = from_json(json.loads(data)["marks"])
            trace.add("copy", b=self._b(), marks=trace.marks(marks))
        elif location.startswith(f"{folder}/pending/"):
            trace.add("put", slot=trace.slot_of(location))
        elif location.startswith(f"{folder}/rejected/") and location.endswith(SUFFIX):
            trace.add("reject", b=self._b(), slot=trace.slot_of(location))
        elif location.endswith(".parquet") and FOREIGN not in location:
            slot = trace.slot_of(location)
            if not any(line["do"] == "file" and line["slot"] == slot for line in trace.lines):
                trace.add("file", slot=slot)

    def _deleting(self, location: str) -> None:
        if location.startswith(f"{self.folder_url}/pending/"):
            self.trace.add("unpend", b=self._b(), slot=self.trace.slot_of(location))
        elif location.startswith(f"{self.folder_url}/rejected/") and location.endswith(SUFFIX):
            self.trace.add("sweep", slot=self.trace.slot_of(location))
        elif location.endswith(".parquet") and FOREIGN not in location:
            self.trace.add("gone", slot=self.trace.slot_of(location))

    def _b(self) -> int | None:
        return BOOKS.index(self.who) if self.who in BOOKS else None

    def _committed(self, before: TableState, after: TableState) -> None:
        trace = self.trace
        new = [item for item in after.snapshots if item not in before.snapshots]
        moved = before.head != after.head
        for item in new:
            trace.snapshots[item] = trace.commits
        trace.commits += bool(new)
        was, live = (self._live(table.head) for table in (before, after))
        marks = (before.properties.get(PROPERTY), after.properties.get(PROPERTY))
        left = {self.trace.snapshots[item] for item in after.snapshots}
        gone = {self.trace.snapshots[item] for item in before.snapshots} - left
        if gone:
            trace.add("expire", snapshots=sorted(gone))
        if moved and not new:
            trace.add("rollback", head=trace.snapshot(after.head.id if after.head else None))
        elif new and marks[0] == marks[1] and live == was:
            trace.add("append")
        elif new or marks[0] != marks[1]:
            adds, removes = sorted(live - was), sorted(was - live)
            trace.add("swap", b=self._b(), adds=adds, removes=removes, marks=trace.marks(loads(marks[1])))

    def _live(self, snapshot: Snapshot | None) -> set[int]:
        """The live files of writers: the model does not follow those of others."""
        paths = self.oracle.decoder.data_files(snapshot)
        return {self.trace.slot_of(path) for path in paths if FOREIGN not in path}

    def _load(self, identifier: Any) -> Any:
        table = self.catalog_loads(identifier)
        if self.who in BOOKS:
            marks = self.trace.marks(loads(table.metadata.properties[PROPERTY]))
            head = self.trace.snapshot(table.metadata.current_snapshot_id)
            self.trace.add("load", b=self._b(), head=head, marks=marks)
        return table

    def _commit(self, table: Any, requirements: Any, updates: Any) -> Any:
        if self.who not in BOOKS:
            return self.catalog_commits(table, requirements, updates)
        b = self._b()
        texts = [update.updates[PROPERTY] for update in updates if PROPERTY in getattr(update, "updates", ())]
        self.trace.add("send", b=b, marks=self.trace.marks(loads(texts[0])) if texts else None)
        try:
            done = self.catalog_commits(table, requirements, updates)
        except Exception:
            self.trace.add("answer", b=b, ok=False)
            raise
        self.trace.add("answer", b=b, ok=True)
        return done

    # -- what begins and ends

    def _tick(self, name: str, dice: Random) -> None:
        self.trace.add("tick", b=BOOKS.index(name))
        try:
            super()._tick(name, dice)
        except Exception:
            self.trace.add("rest", b=BOOKS.index(name))
            raise
        self.trace.add("rest", b=BOOKS.index(name))

    def _forget(self, name: str) -> None:
        self.trace.add("die", b=BOOKS.index(name))
        super()._forget(name)

    def open_writer(self, run: Any) -> Any:
        if run.writer is not None:
            return run.writer
        who = self.who
        self.opening[who] = -1
        try:
            writer = super().open_writer(run)
            self.trace.incarnations[writer.incarnation] = self.opening[who]
            if run.name.startswith("chain"):
                self.starts["from"] = int(writer.position or b"0")
            return writer
        finally:
            del self.opening[who]

    def _is_over(self, run: Any) -> bool:
        """Whether the model has no number left for what the writer would publish."""
        if run.writer is not None and run.writer._publisher.sequence > SEQUENCES:
            run.writer = None
        return run.writer is None and self.trace.is_full(run.name.startswith("chain"))

    def _publish(self, run: Any, dice: Random) -> None:
        if not self._is_over(run):
            super()._publish(run, _One())

    def _continue(self, run: Any, dice: Random) -> None:
        if not self._is_over(run):
            super()._continue(run, _One())


class _One(Random):
    """Writers ask it how many rows to write."""

    def randint(self, a: int, b: int) -> int:
        return 1


def steps(seed: int, count: int = EVENTS) -> Iterator[Event]:
    """The events of a recorded run, by seed: seconds apart."""
    dice = Random(seed)
    names, weights = list(WEIGHTS), list(WEIGHTS.values())
    calm = dice.random() * 0.8
    for _ in range(count):
        who, seconds = dice.choices(names, weights)[0], dice.choice((0.0, 0.1, 0.5, 1.0, 1.0, 3.0, 11.0))
        if dice.random() < 0.03:
            seconds = dice.choice((120.0, 500.0))
        if who in ("foreign", "refs"):
            yield Event(who, seconds, dice.getrandbits(32))
            continue
        calls = 0 if dice.random() < 0.6 + calm / 3 else dice.randint(1, 25)
        fault = dice.choice([fault for fault in FAULTS if fault != STALE]) if dice.random() < 0.3 * (1 - calm) else ""
        yield Event(who, seconds, dice.getrandbits(32), calls, fault, dice.choice((0, 1, 1, 2, 2, 3, 4, 5, 7, 10, 15)))


def record(seed: int, events: Iterable[Event], broken: bool = False) -> list[dict[str, Any]]:
    """The header and the events of a run; of code that is `broken`, up to what the oracle finds wrong."""
    with ExitStack() as stack:
        dice = stack.enter_context(repeatable(seed))
        stack.enter_context(mock.patch.object(worlds, "Scheduler", Within))
        world = RecordedWorld(seed, dice)
        stack.callback(world.end)
        try:
            for event in events:
                world.run(event)
        except Wrong:
            if not broken:
                raise
        lines = [dict(line) for line in world.trace.lines]
    return [{"run": seed, "incarnations": INCARNATIONS, "sequences": SEQUENCES}, *lines]
