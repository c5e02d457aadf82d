"""
Random histories of a keyed table: real writers and bookkeepers that crash at any operation, folds, rewrites, retention,
expiry, commits of other programs. The model is a dict that replays the sources' operations in order.

A world is told what to do next by `act`, and holds the table against the model whenever that has changed (`check`).
"""

import os
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Reaper, Retention
from bookkeeper.contract.pending_rewrites import publish
from bookkeeper.contract.rewrite import encode
from bookkeeper.errors import BookkeeperError, FoldOutdated, Retry
from bookkeeper.folds.fold import plan_fold
from bookkeeper.format.entries import DATA, EQUALITY_DELETES, POSITION_DELETES, DataFile
from bookkeeper.ledger.fold_commit import commit_fold
from bookkeeper.ledger.fold_plan import FoldPlan
from bookkeeper.retention.apply import apply_retention
from bookkeeper.tick.duties import Duties
from bookkeeper.tick.tick import Bookkeeper
from reaper import reap
from tests.histories.decoded import local, plain
from tests.histories.sources import Row, Source, State, change, operation_kind
from tests.support import compactor, folds
from tests.support.faults import LATE, Crash, Faults, FaultyCatalog, Rule, crash
from tests.support.lake import Clock, Lake, append_by_others, described

COLUMNS = (
    {"name": "id", "type": "long", "required": True},
    {"name": "value", "type": "string", "required": False},
    {"name": "timestamp", "type": "timestamptz", "required": False},
    {"name": "op", "type": "string", "required": False},
    {"name": "seq", "type": "long", "required": False},
)
#: not partitioned; by the key, so that deletes are bound to partitions; by day, so that they are not, and days go
LAYOUTS: dict[str, tuple[str, ...]] = {"one": (), "by key": ("bucket(3, id)",), "by day": ("day(timestamp)",)}
KEEP = timedelta(days=2)
RULES = Reaper(older_than=timedelta(minutes=10), retain_last=2, metadata_keep=timedelta(hours=1))


def keyed_table(
    root: Any, layout: str, identifier: str = "demo.events", clock: Clock | None = None, **settings: Any
) -> Lake:
    """A keyed table with op- and order-column, in this layout."""
    more: dict[str, Any] = {"key": ("id",), "op_column": "op", "order_column": "seq", "reaper": RULES}
    return Lake(root, clock, columns=COLUMNS, partition_by=LAYOUTS[layout], identifier=identifier, **more, **settings)


@dataclass
class KeyedWorld:
    """One history. `expire`: snapshots are expired, so that only the newest ones can be read later."""

    lake: Lake
    layout: str
    seed: int
    expire: bool = False
    #: no other program inserts or deletes
    alone: bool = False
    read: Callable[["KeyedWorld", State], None] = lambda world, expected: None
    #: what Iceberg Java does, if there is one: draws from the dice, and says which foreign rows there are
    java: Callable[["KeyedWorld"], None] | None = None
    did: Counter[str] = field(default_factory=Counter)
    crashes: Counter[str] = field(default_factory=Counter)
    checks: int = 0
    #: what other programs inserted
    foreign: State = field(default_factory=dict)
    plans: list[FoldPlan] = field(default_factory=list)
    under_way: list[Faults] = field(default_factory=list)
    books: dict[int, tuple[Bookkeeper, Faults]] = field(default_factory=dict)
    checked: int | None = None

    def __post_init__(self) -> None:
        self.dice = Random(f"{self.layout} {self.seed}")
        self.catch_up()
        made = [(True, "last"), (True, "all", True), (False, "last")]
        self.sources = [
            Source(self.lake, f"s{rest}", rest, len(made), Random(f"{self.seed} {rest}"), *how)
            for rest, how in enumerate(made)
        ]

    # what happens

    def act(self) -> None:
        """The next thing that one of the programs does."""
        kinds: dict[Callable[[], None], int] = {
            self.publish: 10,
            self.tick: 8,
            self.plan: 2,
            self.commit_plan: 2,
            self.rewrite: 1,
            self.arrive: 1,
        }
        if not self.alone:
            kinds |= {self.foreign_append: 1, self.foreign_positions: 1}
        if self.layout == "by day":
            kinds |= {self.retain: 1, self.wait: 1}
        if self.expire:
            kinds[self.reap] = 1
        if self.java is not None:
            kinds[self.by_java] = 1
        chosen = self.dice.choices(list(kinds), list(kinds.values()))[0]
        chosen()
        self.did[chosen.__name__] += 1
        self.check()

    def publish(self) -> None:
        self.dice.choice(self.sources).work(self.crashes, self.under_way)

    def arrive(self) -> None:
        """What was on its way when its process ended."""
        if self.under_way:
            self.under_way.pop(self.dice.randrange(len(self.under_way))).arrive()

    def book(self, calm: bool = False) -> tuple[Bookkeeper, Faults]:
        """One of two bookkeepers, which fold beside their ticks; it may be about to crash."""
        number = self.dice.randrange(2)
        if number not in self.books:
            faults = Faults()
            made = self.lake.book(faults)
            made.duties = Duties(made.settings, made.folder, made.ledger, made.open_store, at_once)
            self.books[number] = made, faults
        book, faults = self.books[number]
        faults.rules.clear()
        if not calm and self.dice.random() < 0.35:
            faults.rules.append(change(self.dice, 12))
        elif not calm and self.dice.random() < 0.05:
            faults.rules.append(Rule(lambda _, operation: operation == "commit_table", LATE, crash, times=1))
        return book, faults

    def by_bookkeeper(self, act: Callable[[Bookkeeper], None], calm: bool = False) -> bool:
        """Something that one of the bookkeepers does; False where it crashed, and is started anew later."""
        book, faults = self.book(calm)
        try:
            with suppress(Retry):
                act(book)
        except Crash as error:
            self.crashes[operation_kind(str(error))] += 1
            if faults.under_way:
                self.under_way.append(faults)
            self.books = {number: item for number, item in self.books.items() if item[0] is not book}
            return False
        return True

    def tick(self, calm: bool = False) -> None:
        limits = {} if calm else {"seconds": self.dice.choice([1, 1, 11])}

        def tick(book: Bookkeeper) -> None:
            done = self.lake.tick(book, **(limits or {"seconds": 11}))
            self.did["rewritten"] += done.rewrites.committed
            self.did["rewrite refused"] += len(done.rewrites.rejected)

        self.by_bookkeeper(tick, calm)

    def plan(self) -> None:
        """A fold is computed; it is committed some time later, by whichever bookkeeper, or never."""

        def compute(book: Bookkeeper) -> None:
            view = book.ledger.load(self.lake.folder.card().folder)
            found = plan_fold(book.ledger, view, self.lake.clock.now, os.urandom(10)).plan
            if found is not None:
                self.plans = [*self.plans[-2:], found]

        self.by_bookkeeper(compute)

    def commit_plan(self) -> None:
        if not self.plans:
            return
        plan = self.plans.pop(self.dice.randrange(len(self.plans)))

        def commit(book: Bookkeeper) -> None:
            try:
                commit_fold(book.ledger, book.ledger.load(self.lake.folder.card().folder), plan)
                self.did["folded"] += 1
            except FoldOutdated:
                self.did["fold refused"] += 1

        self.by_bookkeeper(commit)

    def retain(self) -> None:
        """Days go; rows of one day are all at noon, so each file is of rows that go or of rows that stay."""
        self.sync()
        cutoff, before = self.lake.clock.now - KEEP, self.head()

        def drop(book: Bookkeeper) -> None:
            view = book.ledger.load(self.lake.folder.card().folder)
            apply_retention(book.ledger, view, Retention(keep=KEEP, brake=1.0), self.lake.clock.now)

        late = len(self.under_way)
        self.by_bookkeeper(drop)
        while len(self.under_way) > late:  # or it would come when the model does not expect it
            self.under_way.pop().arrive()
        if self.head() != before:
            self.did["dropped"] += 1
            for state in (self.foreign, *(source.state for source in self.sources)):
                for key in [key for key, row in state.items() if row[1] < cutoff]:
                    del state[key]

    def wait(self) -> None:
        self.lake.clock.move(hours=self.dice.choice([3, 9]))

    def reap(self) -> None:
        faults = Faults()
        if self.dice.random() < 0.3:
            faults.rules.append(change(self.dice, 8))
        self.lake.clock.move(minutes=20)
        catalog = FaultyCatalog(open_catalog(self.lake.catalog_settings), faults)
        try:
            with suppress(BookkeeperError):
                reap(
                    catalog,
                    self.lake.settings,
                    self.lake.clock.now,
                    open_store=self.lake.faulty(faults),
                    release_brake=True,
                )
        except Crash as error:
            self.crashes[operation_kind(str(error))] += 1

    # other programs

    def new_foreign(self) -> dict[int, Row]:
        """Rows with keys that no source has."""
        noon = self.lake.clock.now.replace(hour=12, minute=0, second=0, microsecond=0)
        first = -len(self.foreign) - self.did["foreign"] - 1
        self.did["foreign"] += 2
        return {first: (f"f{first}", noon), first - 1: (f"f{first - 1}", noon)}

    def foreign_append(self) -> None:
        """pyiceberg inserts two rows."""
        new = self.new_foreign()
        append_by_others(
            self.lake, *(self.stored([{"id": key, "value": row[0], "timestamp": row[1]}]) for key, row in new.items())
        )
        self.foreign |= new
        self.catch_up()

    def stored(self, content: list[dict[str, Any]], stem: str | None = None) -> DataFile:
        """A data file of these rows, in the partition of the first one."""
        card = self.lake.folder.card()
        whole = [{column.name: row.get(column.name) for column in card.schema.fields} for row in content]
        path = f"{card.data_path}/{stem or self.random_id()}-00001.parquet"
        local(path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(whole, schema=schema_to_pyarrow(card.schema)), local(path))
        return described(path, card.schema, card.spec, whole, local(path).stat().st_size)

    def catch_up(self) -> None:
        """Others stamp by this machine's clock, and a bookkeeper whose clock is behind that commits nothing."""
        stamped = datetime.fromtimestamp(self.lake.table().metadata.last_updated_ms / 1000, UTC)
        self.lake.clock.now = max(self.lake.clock.now, stamped)

    def foreign_positions(self) -> None:
        """A delete of positions for a whole partition, of foreign rows: another file of it may be in scope."""
        alive = [(item, place, key) for item, place, key in self.alive() if key in self.foreign]
        if not alive:
            return
        item, place, key = self.dice.choice(alive)
        partition = tuple(map(plain, item.file["partition"].values()))
        path = item.file["file_path"]
        folds.put(self.lake, folds.positions(self.lake, {path: [place]}, partition, item.spec_id, referenced=False))
        del self.foreign[key]

    def by_java(self) -> None:
        assert self.java is not None
        self.java(self)
        self.catch_up()

    def rewrite(self) -> None:
        """A compactor publishes a rewrite of live rows of a partition, which applied each delete, or none."""
        by_scope: dict[Any, list[folds.Live]] = {}
        for item in folds.live(self.lake, DATA):
            by_scope.setdefault(item.scope, []).append(item)
        if not by_scope:
            return
        near = self.dice.choice(list(by_scope.values()))
        chosen = {item.file["file_path"] for item in self.dice.sample(near, min(len(near), self.dice.randint(1, 3)))}
        applies = self.dice.random() < 0.7
        alive = {(item.file["file_path"], place) for item, place, _ in self.alive()}
        old = [item for item in compactor.live(self.lake) if item.file.path in chosen]
        kept, partition = list[dict[str, Any]](), old[0].file.partition
        for item in old:
            listed = pq.read_table(local(item.file.path)).to_pylist()
            kept += [row for at, row in enumerate(listed) if not applies or (item.file.path, at) in alive]
        card, name = self.lake.folder.card(), self.random_id()
        new = [replace(self.stored(kept, name), partition=partition)] if kept else []
        deletes = [*folds.live(self.lake, EQUALITY_DELETES), *folds.live(self.lake, POSITION_DELETES)]
        applied = [item.file["file_path"] for item in deletes] if applies else []
        base = compactor.base_of(self.lake, applied)
        publish(self.lake.folder, name, encode(name, base, card.schema, card.spec, new, old))

    def random_id(self) -> str:
        """A rewrite's id, which is a UUID."""
        return str(uuid.UUID(int=self.dice.getrandbits(128), version=4))

    # what must hold

    def head(self) -> int | None:
        found: int | None = self.lake.table().metadata.current_snapshot_id
        return found

    def sync(self) -> None:
        """Brings the model to what the table says of each source."""
        marks = self.lake.view().marks
        for source in self.sources:
            source.sync(marks)

    def expected(self) -> State:
        found = dict(self.foreign)
        for source in self.sources:
            found |= source.state
        return found

    def alive(self) -> list[tuple[folds.Live, int, int]]:
        """File, position and key of each live row, by the spec's rule."""
        return [(item, place, row[1]) for item, place, row in folds.live_rows(self.lake)]

    def has_equality_deletes(self) -> bool:
        return bool(folds.live(self.lake, EQUALITY_DELETES))

    def check(self) -> None:
        """The table is the replay, by the spec's rule alone and as `read` sees it."""
        self.sync()
        head = self.head()
        if head == self.checked:
            return
        expected, found = self.expected(), State()
        for _, _, row in folds.live_rows(self.lake):
            assert row[1] not in found, f"live twice: {row}"
            assert row.get(4) != "D", f"a shadow row is live: {row}"
            found[row[1]] = (row[2], row[3])
        assert found == expected, difference(found, expected)
        self.read(self, expected)
        self.checked = head
        self.checks += 1

    def finish(self) -> None:
        """Everything arrives; each source publishes once more, from where the table is; a bookkeeper commits it all."""
        while self.under_way:
            self.arrive()
        for _ in range(2):  # what arrived may be in the way of the run before
            for source in self.sources:
                source.writer = None
                assert source.work(self.crashes, self.under_way, calm=True)
            for _ in range(3):
                self.tick(calm=True)
                self.check()
        assert self.lake.pending() == []
        rejected = {str(item.name): self.lake.folder.reason(item.name) for item in self.lake.folder.rejected()}
        for source in self.sources:
            if source.positions:
                left = [op for op in source.ops[source.done : source.read] if op.kind != "roll"]
                assert not left, f"{source.name} is at {source.done} of {source.read}: {rejected}"
            last = list(source.published)[-1:]
            assert {*last} <= {*source.settled}, f"the last txlog of {source.name} is not in: {rejected}"


def at_once(act: Callable[[], None], name: str) -> bool:
    """
    Plans folds where a daemon has a thread.
    """
    act()
    return True


def difference(found: State, expected: State) -> str:
    """
    The first keys at which they differ.
    """
    keys = [key for key in sorted({*found, *expected}) if found.get(key) != expected.get(key)]
    return "; ".join(f"{key}: {found.get(key)}, not {expected.get(key)}" for key in keys[:5])


def history(world: KeyedWorld, actions: int = 60) -> KeyedWorld:
    """
    So many actions, and the end of all of them.
    """
    for _ in range(actions):
        world.act()
    world.finish()
    return world
