"""
What must hold after each commit and before each delete, found out from bytes alone: the oracle and all that it imports
are of their own code, and know nothing of what is tried.

Rows are known by their keys, which writers never use twice on a table that is append-only.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from tests.simulation import folder_files, table_state
from tests.simulation.decoder import Decoder, Wrong, never_caught
from tests.simulation.disk import Disk
from tests.simulation.folder_files import COLUMNS, PENDING, REASON, REJECTED, REWRITES, TXLOG, Txlog
from tests.simulation.journal_rules import JournalRules
from tests.simulation.marks_rules import MarksRules
from tests.simulation.snapshot_rules import SnapshotRules
from tests.simulation.table_state import Snapshot, TableState

#: so many small manifests are merged
FAN = 16


@dataclass
class Oracle:
    """Follows one table: which files and rows came in, which may be gone, and what is needed."""

    disk: Disk
    folder: str
    clock: Callable[[], datetime]
    keep: timedelta
    #: of a keyed table a row is a version of its key
    keyed: bool = False
    #: the actor whose call is under way; "" for one that arrives late
    acting: Callable[[], str] = lambda: ""
    #: txlogs of this writer name files of others: it is a forger
    forger: str = ""
    table: TableState = field(init=False)
    #: when a row was written
    born: dict[str, datetime] = field(default_factory=dict)
    #: data files that appends added, ever
    added: set[str] = field(default_factory=set)
    #: rows of the head, by key, and those that retention, others or a rollback took out
    rows: Counter[str] = field(default_factory=Counter)
    dropped: set[str] = field(default_factory=set)
    #: rows of snapshots that a rollback abandoned
    abandoned: set[str] = field(default_factory=set)
    #: rows of txlogs that a person gave up
    given_up: set[str] = field(default_factory=set)
    #: rows in the order in which appends added them
    streamed: list[str] = field(default_factory=list)
    #: how many of them were there with a snapshot
    _streamed_with: dict[int, int] = field(default_factory=dict)
    #: files that an append added, by snapshot
    _added_by: dict[int, frozenset[str]] = field(default_factory=dict)
    #: snapshots whose commit it has seen: one may come back after it was expired
    _followed: set[int] = field(default_factory=set)
    #: of each key the last version that is in, by the order of its writer: incarnation, sequence, number
    latest: dict[str, str | None] = field(default_factory=dict)
    _latest_rank: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    #: what txlogs of some writers hold, by incarnation and sequence: keys with their versions, None: deleted
    _changes: dict[tuple[str, int], Sequence[tuple[str, str | None]]] = field(default_factory=dict)
    #: keys with the versions of which other programs delete rows, by snapshot
    deletes_by_others: dict[int, Sequence[tuple[str, str]]] = field(default_factory=dict)
    #: incarnation and sequence of data files
    _ranks: dict[str, tuple[str, int]] = field(default_factory=dict)
    _needed: set[str] | None = None
    #: snapshots that expired
    _gone: set[int] = field(default_factory=set)
    commits: int = 0
    #: whether others have rolled main back, and no bookkeeper has gone on since
    rolled_back: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.journal = JournalRules(self.disk, self.folder, self.acting)
        self.decoder = Decoder(self.disk)
        self.rules = SnapshotRules(self.decoder)
        self.txlogs = MarksRules(self.disk, self.folder, self.keyed, self.acting)

    # -- what is seen

    @property
    def waiting(self) -> dict[str, Txlog]:
        """Published txlogs that are not in."""
        return self.txlogs.waiting

    def rows_of(self, path: str) -> tuple[str, ...]:
        """The rows of a data file by what is unique: their keys, or the versions of these."""
        return tuple(value if self.keyed else key for key, value in self.decoder.pairs(path))

    def check_keys(self) -> None:
        """Of each key a reader sees the last version, unless retention dropped it, and no other."""
        wanted = {key: value for key, value in self.latest.items() if value is not None and value not in self.dropped}
        found = self.decoder.visible(self.table.head) if self.table.head is not None else []
        if sorted(found) != sorted(wanted.items()):
            more, less = set(found) - set(wanted.items()), set(wanted.items()) - set(found)
            raise Wrong(f"readers of keys see {sorted(more)[:4]}, and not {sorted(less)[:4]}")

    # -- what happens

    @never_caught
    def created(self, location: str, data: bytes) -> None:
        """An object was put: a txlog is noted, and why something is rejected."""
        self.journal.created(location)
        if not location.startswith(self.folder):
            return
        place, _, name = location.removeprefix(f"{self.folder}/").rpartition("/")
        if place == REJECTED and name.endswith(REASON):
            self.counts[f"rejected {folder_files.reason(data)}"] += 1
        elif place == PENDING and name.endswith(TXLOG):
            self._published(name, data)
        elif place == REWRITES:
            self._rewritten(data)
        elif name == "marks.json":
            self.txlogs.copied(data, self.table)
        elif name == "card.json":
            self.txlogs.told(data, self.table)

    def _published(self, name: str, data: bytes) -> None:
        if folder_files.name_of(name).writer != self.forger:
            txlog = self.txlogs.published(name, data)
            self._ranks.update(dict.fromkeys(txlog.files if txlog is not None else (), folder_files.name_of(name).rank))

    def _rewritten(self, data: bytes) -> None:
        """New files of a rewrite get the largest number of those they replace (docs/maintain/rewrite-format.md)."""
        rewrite = folder_files.rewrite(data)
        self.rules.rewritten |= dict.fromkeys(rewrite.added, max(rewrite.replaced.values()))

    @never_caught
    def committed(self, before_bytes: bytes, after_bytes: bytes) -> None:
        """The catalog took a commit; both are metadata.json."""
        before = self.table
        after = table_state.read(after_bytes, before)
        self.commits += 1
        self.table, self._needed = after, None
        self._refs(before, after)
        new = [item for item in after.snapshots.values() if item.id not in {*before.snapshots, *self._followed}]
        self._followed |= {item.id for item in new}
        self.rolled_back = self.rolled_back and not any(item.ours for item in new)
        by_id = {**before.snapshots, **after.snapshots}
        self._line(before, after, new)
        for snapshot in new:
            parent = by_id.get(snapshot.parent or 0)
            self.rules.check(after, snapshot, parent)
            self._follow(snapshot, parent)
            self._streamed_with[snapshot.id] = len(self.streamed)
        for name, txlog in self.txlogs.committed(before, after, new, self.added):
            self._came(name, txlog)
        if before.raw.get("current-snapshot-id") != after.raw.get("current-snapshot-id"):
            if not new:
                self._rolled_back(before, after, by_id)
            self._head(after)
            if any("bookkeeper.txlogs" in item.said for item in new):
                self._merged(after)
            if self.keyed and self.commits % 4 == 0:
                self.check_keys()

    def _merged(self, after: TableState) -> None:
        """Each commit of txlogs merges small manifests once they are FAN, but for groups that it cannot read."""
        sizes = Counter[tuple[int, int]]()
        for manifest in self.decoder.manifests(after.head) if after.head else ():
            if 0 < (manifest.files[0] or 0) + (manifest.files[1] or 0) < FAN:
                sizes[manifest.content, manifest.spec] += 1
        if sizes and max(sizes.values()) >= 2 * FAN:
            raise Wrong(f"small manifests are merged: not so for {sizes}")

    def _line(self, before: TableState, after: TableState, new: Sequence[Snapshot]) -> None:
        """The snapshots of a commit follow main as it was; numbers rise, and time does not go back."""
        at, number = before.head, before.last_number
        at_ms = max((item["timestamp-ms"] for item in before.raw["snapshot-log"][-1:]), default=0)
        for snapshot in new:
            if snapshot.parent != (at and at.id):
                raise Wrong(f"{snapshot.about} follows {snapshot.parent}, and main was {at and at.id}")
            if snapshot.number <= number or (snapshot.ours and snapshot.at_ms < at_ms):
                raise Wrong(f"{snapshot.about} of {snapshot.at_ms} comes after number {number} of {at_ms}")
            at, number, at_ms = snapshot, snapshot.number, snapshot.at_ms
        if new and (after.head != new[-1] or after.last_number != number):
            raise Wrong(f"main is {after.head}, after a commit of {[item.id for item in new]}")

    def _follow(self, snapshot: Snapshot, parent: Snapshot | None) -> None:
        live, was = self.decoder.data_files(snapshot), self.decoder.data_files(parent)
        added, gone = live - was, was - live
        about = snapshot.about
        if snapshot.operation == "append":
            if gone:
                raise Wrong(f"{about} took out {sorted(gone)}")
            self._appended(snapshot, added)
        elif snapshot.operation == "replace":
            if more := self.decoder.delete_files(snapshot) - self.decoder.delete_files(parent):
                raise Wrong(f"{about} adds delete files: {sorted(more)}")
            self._replaced(about, added, gone, snapshot.ours)
        elif added:
            raise Wrong(f"{about} added {sorted(added)}")
        else:
            for key, version in self.deletes_by_others.get(snapshot.id, ()):
                if self.latest.get(key) == version:
                    self.latest[key] = None
            self._taken_out(about, gone)
        self.counts[f"snapshots: {(snapshot.said.get('bookkeeper.reason') or snapshot.operation).split()[0]}"] += 1

    def _appended(self, snapshot: Snapshot, added: frozenset[str]) -> None:
        """Each file comes in once."""
        if again := added & self.added:
            raise Wrong(f"{snapshot.about} adds files that were added before: {sorted(again)}")
        self.added |= added
        self._added_by[snapshot.id] = added
        for path in sorted(added):
            self.streamed += self.rows_of(path)
            of = self._ranks.get(path, ("", 0))
            for key, value in self.decoder.pairs(path) if self.keyed and of not in self._changes else ():
                self._changed(key, value, (*of, _number(value)))

    def passed_over(self, place: folder_files.Place) -> set[str]:
        """The rows that a stream does not read that begins at this place."""
        if place.snapshot is None:
            return set()
        before = set(self.streamed[: self._streamed_with[place.snapshot]])
        if place.files is None:
            return before
        snapshot = self.table.snapshots.get(place.snapshot)
        if snapshot is None:  # it has expired: nothing is read from here on
            return set()
        ahead = self.decoder.data_files(snapshot) if place.whole else self._added_by.get(snapshot.id, frozenset())
        return before - {row for path in ahead for row in self.rows_of(path)}

    def expect(self, incarnation: str, sequence: int, changes: Sequence[tuple[str, str | None]]) -> None:
        """A txlog with these changes, in this order, may be published."""
        self._changes[incarnation, sequence] = changes

    def _came(self, name: str, txlog: Txlog) -> None:
        """A txlog is in."""
        of = txlog.name.rank
        for number, (key, version) in enumerate(self._changes.get(of, ())):
            self._changed(key, version, (*of, number))

    def give_up(self, txlog: str) -> None:
        """It is about to be discarded: marks will say that it is in. Its files may have been swept."""
        files = self.waiting[txlog].files if txlog in self.waiting else ()
        self.given_up |= {row for path in files if self.disk.has(path) for row in self.rows_of(path)}
        self.txlogs.give_up(txlog)

    def _changed(self, key: str, version: str | None, rank: tuple[Any, ...]) -> None:
        if rank > self._latest_rank.get(key, ()):
            self.latest[key], self._latest_rank[key] = version, rank

    def _refs(self, before: TableState, after: TableState) -> None:
        """An expiry may take off only a ref that was made after its plan: no commit can be guarded against that one."""
        journal, gone = self.journal.read(), before.snapshots.keys() - after.snapshots.keys()
        self.journal.expired(gone)
        lost = {name for name in before.refs.keys() - after.refs.keys() if before.refs[name] in gone}
        if lost:
            planned = before.refs if journal is None else journal["refs"]
            if known := lost & planned.keys():
                raise Wrong(f"an expiry took off {sorted(known)}, which its plan knew")
            self.journal.given_up = True
            self.counts["refs taken off by an expiry"] += len(lost)
        if back := after.snapshots.keys() & self._gone:
            self.counts["snapshots restored"] += len(back)
        self._gone |= gone
        self._gone -= after.snapshots.keys()

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
        return {
            value for path in paths for key, value in self.decoder.pairs(path) if self.latest.get(key, value) != value
        }

    def _taken_out(self, about: str, gone: frozenset[str]) -> None:
        """Only rows that are old enough may go, and files of a keyed table of which no reader sees a row any more."""
        dead = self._dead(gone)
        rows = {row for path in gone for row in self.rows_of(path)}
        young = [row for row in rows - dead if self.clock() - self.born.get(row, self.clock()) < self.keep]
        if young:
            raise Wrong(f"{about} dropped rows that are too young: {young[:3]}")
        self.dropped |= rows

    def _head(self, after: TableState) -> None:
        paths = self.decoder.data_files(after.head)
        rows = Counter(row for path in paths for row in self.rows_of(path))
        if twice := [row for row, count in rows.items() if count > 1]:
            raise Wrong(f"rows are in the table twice: {sorted(twice)[:5]}")
        if lost := self.rows.keys() - rows.keys() - self.dropped:
            raise Wrong(f"rows are gone: {sorted(lost)[:5]}")
        self.rows = rows
        for path in paths:
            if not self.disk.has(path):
                raise Wrong(f"the head names {path}, which is not there")

    def _rolled_back(self, before: TableState, after: TableState, by_id: dict[int, Snapshot]) -> None:
        """Rows of abandoned snapshots stay out, or come back by a commit that was under way."""
        self.rolled_back, at = True, before.head
        while at is not None and at != after.head:
            paths = self._added_by.get(at.id, frozenset())
            self.added -= paths
            self.abandoned |= {row for path in paths for row in self.rows_of(path)}
            at = by_id.get(at.parent or 0)
        self.dropped |= self.abandoned

    # -- what is needed

    @never_caught
    def deleting(self, location: str) -> None:
        """An object is about to go: nothing may need it."""
        if location.startswith(self.folder):
            place, _, name = location.removeprefix(f"{self.folder}/").rpartition("/")
            if place == PENDING and name.endswith(TXLOG):
                self._consumed(name)
            elif place == REJECTED and name.endswith(TXLOG):
                self._swept(location)
            elif place == COLUMNS:
                self._answered(location)
            else:
                self.journal.deleting(location, self.table, self.named)
            return
        if location in self.needed():
            raise Wrong(f"{location} is deleted, and it is needed")

    def _consumed(self, text: str) -> None:
        if text in self.waiting and not self.disk.has(f"{self.folder}/{REJECTED}/{text}"):
            raise Wrong(f"{text} is deleted, and it is not in the table")

    def _swept(self, location: str) -> None:
        """A rejected txlog goes only when it is in, or when the winner of its position has its rows."""
        text = location.rpartition("/")[2]
        if text not in self.waiting or self.disk.has(f"{self.folder}/{PENDING}/{text}"):
            return
        reason = f"{location}{REASON}"
        error = folder_files.reason(self.disk.get(reason).data) if self.disk.has(reason) else "no reason"
        if error != "PositionTaken":
            raise Wrong(f"{text} is swept, and it was rejected for {error}")
        self.txlogs.give_up(text)

    def _answered(self, location: str) -> None:
        """A request for a column goes when the table has the column, or its answer is in rejected/."""
        request = folder_files.column_request(self.disk.get(location).data)
        names = [column["name"] for column in self.table.schema["fields"]]
        if request.name not in names and not self.disk.has(f"{self.folder}/{REJECTED}/{location.rpartition('/')[2]}"):
            raise Wrong(f"the request for {request} is deleted, and the table has {names}")

    def needed(self) -> set[str]:
        """Locations that a kept snapshot, a pending txlog or a pending rewrite names."""
        found = set(self.needed_by_snapshots())
        for text, txlog in self.waiting.items():
            if self.disk.has(f"{self.folder}/{PENDING}/{text}"):
                found.update(txlog.files, txlog.deletes)
        for _, item in self.disk.under(f"{self.folder}/{REWRITES}"):
            found.update(folder_files.rewrite(item.data).added)
        return found

    def named(self) -> set[str]:
        """What is needed, and what txlogs in the folder name, though they may be in: one may arrive late once more."""
        names = {
            location.rpartition("/")[2]
            for place in (PENDING, REJECTED)
            for location, _ in self.disk.under(f"{self.folder}/{place}")
        }
        known = {**self.txlogs.done, **self.waiting}
        txlogs = [known[name] for name in names if name in known]
        return {*self.needed(), *chain.from_iterable((*txlog.files, *txlog.deletes) for txlog in txlogs)}

    def needed_by_snapshots(self) -> set[str]:
        """Locations that a kept snapshot names."""
        if self._needed is None:
            self._needed = set()
            for snapshot in self.table.snapshots.values():
                self._needed.add(snapshot.manifest_list)
                self._needed.update(manifest.path for manifest in self.decoder.manifests(snapshot))
                self._needed.update(item.line.path for item in self.decoder.live(snapshot))
        return self._needed


def _number(version: str) -> int:
    return int(version.rpartition("-")[2])
