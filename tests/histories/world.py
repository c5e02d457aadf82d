"""
One history in the making: moves the real product and the plain model alike, and looks at the table after each step.
"""

import os
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from bookkeeper.config.settings import Reaper, Retention
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.pending_rewrites import pending_rewrites
from bookkeeper.contract.rewrite import Base, ReplacedFile, decode, encode, key_of
from bookkeeper.tick.check_rewrites import check_rewrites
from reaper import reap
from tests.histories import files, invariants, manifest_checks, snapshot_checks
from tests.histories.decoded import Decoder, Entry, local
from tests.histories.files import File
from tests.histories.invariants import Property, State
from tests.histories.model import Model, seen
from tests.support.lake import Clock, Lake, Writes, noon

KEEP = timedelta(hours=6)
COLUMNS = tuple(
    {"name": name, "type": kind}
    for name, kind in (
        ("timestamp", "timestamptz"),
        ("key", "string"),
        ("n", "int"),
        ("region", "string"),
        ("ratio", "float"),
        ("price", "decimal(5, 2)"),
    )
)
TIMESTAMP, KEY = 1, 2
SPECS = {
    "unpartitioned": (),
    "by day": ("day(timestamp)",),
    "bucketed": ("bucket(4, key)",),
    "by value": ("region", "ratio"),
    "by price": ("price", "n"),
}
PROPERTIES: tuple[Property, ...] = (
    invariants.live_files_are_the_models,
    invariants.entries_say_what_the_writer_said,
    invariants.totals_are_the_models,
    invariants.summaries_count_what_their_snapshot_holds,
    invariants.snapshots_follow_from_their_parents,
    invariants.entries_are_carried_on_as_they_were,
    manifest_checks.lines_are_carried_on_as_they_were,
    manifest_checks.lists_describe_their_manifests,
    manifest_checks.manifests_stand_under_their_own_spec,
    snapshot_checks.snapshots_are_one_chain,
    snapshot_checks.lists_name_their_snapshot,
    snapshot_checks.every_named_file_is_there,
)


@dataclass(frozen=True)
class Compaction:
    """A rewrite: its bytes, the paths that it replaces, and its new file."""

    id: str
    data: bytes
    old: tuple[str, ...]
    new: File


class World:
    """A table with two bookkeepers, writers and pyiceberg_changes."""

    #: whether columns that any spec was made of stay, for readers that need them
    keeps_sources = False

    #: a seed is one history at any time of day
    begin = staticmethod(noon)

    def __init__(self, root: Path, partition_by: tuple[str, ...] = (), seed: int = 0, **settings: Any) -> None:
        reaper = Reaper(older_than=timedelta(minutes=30), retain_last=3)
        settings.setdefault("marks_keep", timedelta(days=365))
        given = {"retention": Retention(keep=KEEP, brake=1.0, every=timedelta(0)), "reaper": reaper, **settings}
        self.lake = Lake(root, Clock(self.begin()), COLUMNS, partition_by=partition_by, **given)
        self.model, self.dice, self.decoder = Model(), Random(seed), Decoder()
        self.books = [self.lake.book(), self.lake.book()]
        self.writers = [Writes(self.lake, f"w{number}") for number in range(2)]
        self.held: list[tuple[TxlogName, bytes, list[File]]] = []
        self.count = 0
        self.seen: set[int] = set()
        #: files on disk that no reader may ever see
        self.strays: set[str] = set()
        self.pending: Compaction | None = None
        self.settled: Compaction | None = None
        self.lake.tick(self.books[0])

    # -- what writers do

    def publish(self, counts: list[int], hours: float | None = 0, writer: int = 0, hold: bool = False) -> None:
        """A txlog of files with so many rows each, dated so many hours ago (None: no date)."""
        run = self.writers[writer]
        made = [self.file(run, rows, hours) for rows in counts]
        name, data = run.encoded([item.described for item in made])
        if hold:
            self.held.append((name, data, made))
            # What comes after it must not wait for it.
            self.writers[writer] = Writes(self.lake, f"w{writer}")
        else:
            self._published(name, data, made)

    def release(self) -> None:
        """What was held back is published, whatever became of the table meanwhile."""
        for name, data, made in self.held:
            self._published(name, data, made)
        self.held.clear()

    def _published(self, name: TxlogName, data: bytes, made: list[File]) -> None:
        self.lake.folder.publish(name, data)
        self.model.pending[str(name)] = made

    def refused(self) -> None:
        """A txlog for another table: none of its rows may ever be seen."""
        run = Writes(self.lake, "stray")
        made = self.file(run, 1, 0)
        self.strays.add(made.path)
        self.lake.folder.publish(*run.encoded([made.described], table_uuid="another"))

    def file(self, run: Writes, rows: int, hours: float | None) -> File:
        """A new data file of the next txlog of this run, under what the card says now."""
        card = self.lake.folder.card()
        at = None if hours is None else self.lake.clock.now - timedelta(hours=hours)
        keys = [f"k{self.count:04d}-{number}" for number in range(rows)]
        self.count += 1
        found = files.rows_of(card.schema, card.spec, keys, at, self.dice)
        txlog = run.name.at(run.name.sequence + 1)
        name = f"{txlog.writer}-{txlog.incarnation}-{txlog.sequence:010d}-{self.count:05d}.parquet"
        return files.write(card.data_path, name, card.schema, card.spec, found)

    # -- what the product does

    def tick(self, minutes: float = 1, book: int = 0) -> None:
        """A tick of one of two bookkeepers that know nothing of each other."""
        self.books[book].duties.rewrites.turns.due.again()  # or their time comes only once a minute
        turn = self.lake.tick(self.books[book], minutes=minutes)
        assert turn.trouble is None, turn.trouble
        self.model.commit()
        self._settle()
        self.model.expire(TIMESTAMP, KEEP, self.lake.clock.now)

    def rewrite(self, choice: int, most: int, book: int = 0) -> None:
        """A compactor makes one file of some of a partition; one of the bookkeepers' ledgers commits that."""
        if (made := self._compacted(choice, most)) is not None:
            ledger = self.books[book].ledger
            view = ledger.load(self.lake.folder.card().folder)
            checked = check_rewrites(ledger, view, [decode(made.id, made.data, 2**24)])
            assert checked.rejected == {}, checked.rejected
            ledger.rewrite(view, checked.good, checked.deletes)
            self._rewritten(made)

    def publish_rewrite(self, choice: int, most: int) -> None:
        """The same, but it is published: the next tick commits it, unless a file of it goes before."""
        if self.pending is None and (made := self._compacted(choice, most)) is not None:
            self.strays.add(made.new.path)
            self._pend(made)

    def give_back(self) -> None:
        """The last rewrite that was published lies in the folder once more."""
        if self.pending is None and self.settled is not None:
            self._pend(self.settled)

    def _pend(self, made: "Compaction") -> None:
        self.lake.put(key_of(made.id), made.data)
        self.pending = made

    def _settle(self) -> None:
        """What a tick makes of a pending rewrite: it is committed when every file that it replaces is still live."""
        assert pending_rewrites(self.lake.folder) == []
        made, self.pending = self.pending, None
        if made is not None:
            self.settled = made
            if made.new.path not in self.model.live and all(path in self.model.live for path in made.old):
                self._rewritten(made)

    def _rewritten(self, made: "Compaction") -> None:
        for path in made.old:
            self.model.drop(path)
        self.model.live[made.new.path] = made.new
        self.strays.discard(made.new.path)

    def _compacted(self, choice: int, most: int) -> "Compaction | None":
        old = self._one_partition(choice)[:most]
        table = self.lake.table()
        if not old or not table.metadata.current_snapshot_id:
            return None
        spec = next(spec for spec in table.metadata.partition_specs if spec.spec_id == old[0][1].spec_id)
        schema = table.schema()
        columns = {field.field_id for field in schema.fields}
        if any(field.source_id not in columns for field in spec.fields):
            return None  # it is not known any more what is in the partition
        rows = [{number: row.get(number) for number in columns} for _, file in old for row in file.rows]
        name = str(UUID(int=self.dice.getrandbits(128)))
        new = files.write(self.lake.folder.card().data_path, f"{name}-1.parquet", schema, spec, rows)
        # The disk tells the time of the history.
        os.utime(local(new.path), (self.lake.clock.now.timestamp(),) * 2)
        metadata = table.metadata
        head = metadata.current_snapshot()
        base = Base(str(metadata.table_uuid), head.snapshot_id, head.sequence_number)
        described = [replace(file.described, partition=new.described.partition) for _, file in old]
        replaced = [
            ReplacedFile(file, entry.sequence, entry.file_sequence)
            for file, (entry, _) in zip(described, old, strict=True)
        ]
        data = encode(name, base, schema, spec, [new.described], replaced)
        return Compaction(name, data, tuple(file.path for _, file in old), new)

    def _one_partition(self, choice: int) -> list[tuple[Entry, File]]:
        """The live files of one partition, as the head lists them, oldest first."""
        head, groups = self.state().head, dict[Any, list[tuple[Entry, File]]]()
        for entry in head.live() if head else []:
            file = self.model.live[entry.path]
            groups.setdefault((file.spec_id, seen(file.partition)), []).append((entry, file))
        listed = [groups[key] for key in sorted(groups, key=str)]
        return sorted(listed[choice % len(listed)], key=lambda pair: pair[0].sequence) if listed else []

    def restart(self, book: int = 0) -> None:
        """A bookkeeper that remembers nothing."""
        self.books[book] = self.lake.book()

    def reap(self) -> None:
        """The reaper expires snapshots and deletes their files: all of those, and no other."""
        reap(self.lake.catalog, self.lake.settings, self.lake.clock.now, open_store=self.lake.store)
        waiting = {file.path for made in self.model.pending.values() for file in made}
        waiting |= {file.path for _, _, made in self.held for file in made}
        left = snapshot_checks.unneeded(self.state(), self.data, waiting | self.strays)
        assert left == [], left

    # -- looking

    def state(self) -> State:
        """The table as it is, decoded."""
        metadata = self.decoder.metadata(self.lake.table().metadata_location)
        snapshots = {found["snapshot-id"]: self.decoder.snapshot(found) for found in metadata.get("snapshots", [])}
        new = [found for number, found in snapshots.items() if number not in self.seen]
        return State(metadata, snapshots, new, self.model)

    def complaints(self) -> list[str]:
        """Every property that does not hold, by name; what is new now is old the next time."""
        state = self.state()
        found = [f"{holds.__name__}: {why}" for holds in PROPERTIES for why in holds(state)]
        self.seen = set(state.snapshots)
        return found

    def look(self) -> None:
        """Asserts every property."""
        found = self.complaints()
        assert found == [], "\n".join(found)

    @property
    def data(self) -> Path:
        """Where the data files lie."""
        return local(self.lake.folder.card().data_path)
