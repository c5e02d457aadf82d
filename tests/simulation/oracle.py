"""
What must hold after each commit and before each delete, found out by a decoder of its own (fastavro, pyarrow).

Rows are known by their keys, which writers never use twice on a table that is append-only.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.core import marks as marks_format
from bookkeeper.core.folder import PENDING, REJECTED, SUFFIX
from bookkeeper.core.names import TxlogName
from bookkeeper.core.rewrite import decode as decode_rewrite
from bookkeeper.core.txlog import decode
from bookkeeper.errors import BookkeeperError
from tests.simulation.decoder import (
    COUNTERS,
    DATA,
    DELETED,
    EQUALITY_DELETES,
    PARTITIONS,
    POSITION_DELETES,
    Decoder,
    Wrong,
)
from tests.simulation.forger import FORGER
from tests.simulation.journal_rules import JournalRules


@dataclass
class Oracle(Decoder):
    """Follows one table: which files and rows came in, which may be gone, and what is needed."""

    folder: str
    clock: Callable[[], datetime]
    keep: timedelta
    #: of a keyed table a row is a version of its key
    keyed: bool = False
    #: the actor whose call is under way; "" for one that arrives late
    acting: Callable[[], str] = lambda: ""
    metadata: TableMetadata | None = None
    #: when a row was written
    born: dict[str, datetime] = field(default_factory=dict)
    #: published txlogs that are not in: their data files by name
    waiting: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: the same of those that are in
    done: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: data files that appends added, ever
    added: set[str] = field(default_factory=set)
    #: rows of the head, by key, and those that retention, others or a rollback took out
    rows: Counter[str] = field(default_factory=Counter)
    dropped: set[str] = field(default_factory=set)
    #: rows of snapshots that a rollback abandoned
    abandoned: set[str] = field(default_factory=set)
    #: rows in the order in which appends added them
    streamed: list[str] = field(default_factory=list)
    #: files that an append added, by snapshot
    _added_by: dict[int, frozenset[str]] = field(default_factory=dict)
    #: live data files by snapshot
    _live: dict[int, frozenset[str]] = field(default_factory=dict)
    #: snapshots whose commit it has seen: one may come back after it was expired
    _followed: set[int] = field(default_factory=set)
    #: of each key the last version that is in, by the order of its writer: incarnation, sequence, number
    latest: dict[str, str | None] = field(default_factory=dict)
    _latest_rank: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    #: what txlogs of some writers hold, by incarnation and sequence: keys with their versions, None: deleted
    _changes: dict[tuple[str, int], Sequence[tuple[str, str | None]]] = field(default_factory=dict)
    #: keys with the versions of which other programs delete rows, by snapshot
    deletes_by_others: dict[int, Sequence[tuple[str, str]]] = field(default_factory=dict)
    #: delete files of txlogs that are not in, by name
    _deletes_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: incarnation and sequence of data files
    _ranks: dict[str, tuple[str, int]] = field(default_factory=dict)
    _needed: set[str] | None = None
    #: snapshots that expired
    _gone: set[int] = field(default_factory=set)
    commits: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.journal = JournalRules(self.disk, self.folder, self.acting)

    # -- what is seen

    def rows_of(self, path: str) -> tuple[str, ...]:
        """The rows of a data file by what is unique: their keys, or the versions of these."""
        return tuple(value if self.keyed else key for key, value in self.pairs(path))

    def live(self, snapshot: Snapshot) -> frozenset[str]:
        """The live data files of a snapshot; each must be live once."""
        if snapshot.snapshot_id not in self._live:
            found = [
                line.path
                for manifest in self._manifests_of(snapshot)
                for line in self._lines(manifest.path)
                if line.status != DELETED and line.content == 0
            ]
            unique = frozenset(found)
            if len(unique) != len(found):
                twice = [path for path, count in Counter(found).items() if count > 1]
                raise Wrong(f"files are live twice: {twice}")
            self._live[snapshot.snapshot_id] = unique
        return self._live[snapshot.snapshot_id]

    def _delete_files(self, snapshot: Snapshot) -> set[str]:
        return {path for content, path, _ in self._files(snapshot) if content != DATA}

    def visible(self, snapshot: Snapshot) -> list[tuple[str, str]]:
        """Key and version of each row that a reader sees, by the spec's rule for a table without partitions."""
        files, by_key, by_place = self._files(snapshot), dict[str, int](), dict[tuple[str, int], int]()
        for content, path, number in files:
            if content == EQUALITY_DELETES:
                for key in self._deleted(path):
                    by_key[key] = max(by_key.get(key, 0), number)
            elif content == POSITION_DELETES:
                for place in self._deleted(path):
                    by_place[place] = max(by_place.get(place, 0), number)
        return [
            (key, value)
            for content, path, number in files
            if content == DATA
            for place, (key, value) in enumerate(self.pairs(path))
            if by_key.get(key, 0) <= number and by_place.get((path, place), -1) < number
        ]

    def check_keys(self) -> None:
        """Of each key a reader sees the last version, unless retention dropped it, and no other."""
        assert self.metadata is not None
        head = self.metadata.current_snapshot()
        wanted = {key: value for key, value in self.latest.items() if value is not None and value not in self.dropped}
        found = self.visible(head) if head is not None else []
        if sorted(found) != sorted(wanted.items()):
            more, less = set(found) - set(wanted.items()), set(wanted.items()) - set(found)
            raise Wrong(f"readers of keys see {sorted(more)[:4]}, and not {sorted(less)[:4]}")

    # -- what happens

    def created(self, location: str, data: bytes) -> None:
        """An object was put: a txlog is noted, and why something is rejected."""
        self.journal.created(location)
        if location.startswith(self.folder) and location.endswith(".reason.json"):
            self.counts[f"rejected {json.loads(data)['error']}"] += 1
        if location.startswith(self.folder) and "/pending/" in location and location.endswith(SUFFIX):
            name = TxlogName.parse(location.rpartition("/")[2])
            if name.writer != FORGER and str(name) not in self.done and str(name) not in self.waiting:
                txlog = decode(name, data, 2**26)
                self.waiting[str(name)] = files = tuple(file.path for file in txlog.files)
                self._deletes_of[str(name)] = tuple({*txlog.every_path} - {*files})
                self._ranks.update(dict.fromkeys(self.waiting[str(name)], (name.incarnation, name.sequence)))

    def committed(self, before: TableMetadata, after: TableMetadata) -> None:
        """The catalog took a commit."""
        self.commits += 1
        self.metadata, self._needed = after, None
        self._refs(before, after)
        known = {item.snapshot_id for item in before.snapshots}
        known |= self._followed
        new = [item for item in after.snapshots if item.snapshot_id not in known]
        self._followed |= {item.snapshot_id for item in new}
        by_id = {item.snapshot_id: item for item in (*before.snapshots, *after.snapshots)}
        for snapshot in new:
            self._follow(snapshot, by_id.get(snapshot.parent_snapshot_id or 0))
        if new and marks_format.PROPERTY in after.properties:
            self._marks(after)
        if before.current_snapshot_id != after.current_snapshot_id:
            if not new:
                self._rolled_back(before, after, by_id)
            self._head(after)
            if self.keyed and self.commits % 4 == 0:
                self.check_keys()

    def _follow(self, snapshot: Snapshot, parent: Snapshot | None) -> None:
        live = self.live(snapshot)
        was = self.live(parent) if parent is not None else frozenset[str]()
        added, gone = live - was, was - live
        summary = snapshot.summary
        operation = summary.operation.value if summary is not None else ""
        about = f"snapshot {snapshot.sequence_number} ({operation})"
        if operation == "append":
            if gone:
                raise Wrong(f"{about} took out {sorted(gone)}")
            self._appended(snapshot, about, added)
        elif operation == "replace":
            if more := self._delete_files(snapshot) - (self._delete_files(parent) if parent is not None else set()):
                raise Wrong(f"{about} adds delete files: {sorted(more)}")
            self._replaced(about, added, gone, ours=any("bookkeeper" in name for name in summary.additional_properties))
        elif added:
            raise Wrong(f"{about} added {sorted(added)}")
        else:
            for key, version in self.deletes_by_others.get(snapshot.snapshot_id, ()):
                if self.latest.get(key) == version:
                    self.latest[key] = None
            self._taken_out(about, gone)
        reason = (summary and summary.additional_properties.get("bookkeeper.reason")) or operation
        self.counts[f"snapshots: {reason.split()[0]}"] += 1
        self._summary(snapshot, about)

    def _summary(self, snapshot: Snapshot, about: str) -> None:
        """Each counter is right: Spark's stream loses rows by a wrong one, and the brake weighs by totals."""
        said = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        counts = self.counted(snapshot)
        ours = any(key.startswith("bookkeeper.") for key in said)
        for key in (*COUNTERS, PARTITIONS) if ours else COUNTERS:
            if int(said.get(key, 0)) != counts[key]:
                raise Wrong(f"{about} says {key} = {said.get(key, 0)}, it is {counts[key]}")

    def _appended(self, snapshot: Snapshot, about: str, added: frozenset[str]) -> None:
        """Each file comes in once."""
        if again := added & self.added:
            raise Wrong(f"{about} adds files that were added before: {sorted(again)}")
        self.added |= added
        self._added_by[snapshot.snapshot_id] = added
        for path in sorted(added):
            self.streamed += self.rows_of(path)
            of = self._ranks.get(path, ("", 0))
            for key, value in self.pairs(path) if self.keyed and of not in self._changes else ():
                self._changed(key, value, (*of, _number(value)))

    def expect(self, incarnation: str, sequence: int, changes: Sequence[tuple[str, str | None]]) -> None:
        """A txlog with these changes, in this order, may be published."""
        self._changes[incarnation, sequence] = changes

    def give_up(self, txlog: str) -> None:
        """It is about to be discarded: marks will say that it is in."""
        if (files := self.waiting.pop(txlog, None)) is not None:
            self.done[txlog] = files

    def _changed(self, key: str, version: str | None, rank: tuple[Any, ...]) -> None:
        if rank > self._latest_rank.get(key, ()):
            self.latest[key], self._latest_rank[key] = version, rank

    def _refs(self, before: TableMetadata, after: TableMetadata) -> None:
        """An expiry may take off only a ref that was made after its plan: no commit can be guarded against that one."""
        kept, journal = {item.snapshot_id for item in after.snapshots}, self.journal.read()
        self.journal.expired({item.snapshot_id for item in before.snapshots} - kept)
        lost = {name for name in before.refs.keys() - after.refs.keys() if before.refs[name].snapshot_id not in kept}
        if lost:
            planned = before.refs if journal is None else journal["refs"]
            if known := lost & planned.keys():
                raise Wrong(f"an expiry took off {sorted(known)}, which its plan knew")
            self.journal.given_up = True
            self.counts["refs taken off by an expiry"] += len(lost)
        if back := [item for item in after.snapshots if item.snapshot_id in self._gone]:
            self.counts["snapshots restored"] += len(back)
        self._gone |= {item.snapshot_id for item in before.snapshots} - kept
        self._gone -= kept

    def _replaced(self, about: str, added: frozenset[str], gone: frozenset[str], ours: bool) -> None:
        """The same rows; other programs leave out those that deletes hide."""
        mine = Counter(row for path in added for row in self.rows_of(path))
        theirs = Counter(row for path in gone for row in self.rows_of(path))
        hidden = Counter[str]() if ours else Counter(self._dead(gone))
        if mine - theirs or theirs - mine - hidden:
            raise Wrong(f"{about} changed rows: {mine - theirs} came, {theirs - mine} went")
        self.dropped |= (theirs - mine).keys()

    def _dead(self, paths: Iterable[str]) -> set[str]:
        """Versions of which no reader sees anything any more."""
        return {value for path in paths for key, value in self.pairs(path) if self.latest.get(key, value) != value}

    def _taken_out(self, about: str, gone: frozenset[str]) -> None:
        """Only rows that are old enough may go, and files of a keyed table of which no reader sees a row any more."""
        dead = self._dead(gone)
        rows = {row for path in gone for row in self.rows_of(path)}
        young = [row for row in rows - dead if self.clock() - self.born.get(row, self.clock()) < self.keep]
        if young:
            raise Wrong(f"{about} dropped rows that are too young: {young[:3]}")
        self.dropped |= rows

    def _head(self, after: TableMetadata) -> None:
        head = after.current_snapshot()
        paths = self.live(head) if head is not None else frozenset[str]()
        rows = Counter(row for path in paths for row in self.rows_of(path))
        if twice := [row for row, count in rows.items() if count > 1]:
            raise Wrong(f"rows are in the table twice: {sorted(twice)[:5]}")
        if lost := self.rows.keys() - rows.keys() - self.dropped:
            raise Wrong(f"rows are gone: {sorted(lost)[:5]}")
        self.rows = rows
        for path in paths:
            if not self.disk.has(path):
                raise Wrong(f"the head names {path}, which is not there")

    def _rolled_back(self, before: TableMetadata, after: TableMetadata, by_id: dict[int, Snapshot]) -> None:
        """Rows of abandoned snapshots stay out, or come back by a commit that was under way."""
        at = before.current_snapshot_id
        while at is not None and at != after.current_snapshot_id and at in by_id:
            paths = self._added_by.get(at, frozenset())
            self.added -= paths
            self.abandoned |= {row for path in paths for row in self.rows_of(path)}
            at = by_id[at].parent_snapshot_id
        self.dropped |= self.abandoned

    def _marks(self, after: TableMetadata) -> None:
        marks = marks_format.loads(after.properties[marks_format.PROPERTY])
        for text, paths in [*self.waiting.items()]:
            name = TxlogName.parse(text)
            there = [path in self.added for path in paths]
            inside = marks.is_in(name)
            if inside and not all(there):
                raise Wrong(f"the marks say that {text} is in, and its files are not")
            if not inside and any(there):
                raise Wrong(f"files of {text} are in, and the marks do not say so")
            if inside:
                self.done[text] = self.waiting.pop(text)
                of = name.incarnation, name.sequence
                for number, (key, version) in enumerate(self._changes.get(of, ())):
                    self._changed(key, version, (*of, number))

    # -- what is needed

    def deleting(self, location: str) -> None:
        """An object is about to go: nothing may need it."""
        if location.startswith(self.folder):
            if "/pending/" in location and location.endswith(SUFFIX):
                self._consumed(location.rpartition("/")[2])
            elif "/rejected/" in location and location.endswith(SUFFIX):
                self._swept(location)
            elif self.metadata is not None:
                self.journal.deleting(location, self.metadata, self.named)
            return
        if location in self.needed():
            raise Wrong(f"{location} is deleted, and it is needed")

    def _consumed(self, text: str) -> None:
        if text in self.waiting and not self.disk.has(f"{self.folder}/rejected/{text}"):
            raise Wrong(f"{text} is deleted, and it is not in the table")

    def _swept(self, location: str) -> None:
        """A rejected txlog goes only when it is in, or when the winner of its position has its rows."""
        text = location.rpartition("/")[2]
        if text not in self.waiting or self.disk.has(f"{self.folder}/pending/{text}"):
            return
        reason = f"{location}.reason.json"
        error = json.loads(self.disk.get(reason).data)["error"] if self.disk.has(reason) else "no reason"
        if error != "PositionTaken":
            raise Wrong(f"{text} is swept, and it was rejected for {error}")
        self.done[text] = self.waiting.pop(text)

    def needed(self) -> set[str]:
        """Locations that a kept snapshot, a pending txlog or a pending rewrite names."""
        found = set(self.needed_by_snapshots())
        for text, paths in self.waiting.items():
            if self.disk.has(f"{self.folder}/pending/{text}"):
                found.update(paths, self._deletes_of[text])
        for location, item in self.disk.under(f"{self.folder}/rewrites"):
            try:
                rewrite = decode_rewrite(location.rpartition("/")[2].removesuffix(".avro"), item.data, 2**26)
            except BookkeeperError:
                continue
            found.update(row.path for row in rewrite.added)
        return found

    def named(self) -> set[str]:
        """What is needed, and what txlogs in the folder name, though they may be in: one may arrive late once more."""
        names = {
            location.rpartition("/")[2]
            for place in (PENDING, REJECTED)
            for location, _ in self.disk.under(f"{self.folder}/{place.rstrip('/')}")
        }
        files = (self.waiting.get(name) or self.done.get(name, ()) for name in names)
        return {*self.needed(), *chain(*files, *(self._deletes_of.get(name, ()) for name in names))}

    def needed_by_snapshots(self) -> set[str]:
        """Locations that a kept snapshot names."""
        if self._needed is None:
            assert self.metadata is not None
            self._needed = set()
            for snapshot in self.metadata.snapshots:
                self._needed.add(snapshot.manifest_list)
                self._needed.update(manifest.path for manifest in self._manifests_of(snapshot))
                self._needed |= {path for _, path, _ in self._files(snapshot)}
        return self._needed


def _number(version: str) -> int:
    return int(version.rpartition("-")[2])
