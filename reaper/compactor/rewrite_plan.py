"""
What to rewrite now, from the folder and the head of the table; nothing is written.

The folder is read first and the table last: a rewrite that is committed in between is in one of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from bookkeeper.config.settings import MOST_TXLOG_BYTES
from bookkeeper.config.settings import Table as TableSettings
from bookkeeper.contract import marks as marks_format
from bookkeeper.contract import marks_json
from bookkeeper.contract.pending_rewrites import pending_rewrites
from bookkeeper.contract.retention_column import RetentionColumn, retention_column
from bookkeeper.contract.rewrite import REWRITES, Base, decode, file_key, parse_key
from bookkeeper.contract.tray import FoundObject
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import BookkeeperError, ConfigInvalid, Missing, Retry, StorageUnavailable, Unfit
from bookkeeper.stores.store import Store
from bookkeeper.stores.together import in_parts
from reaper.compactor.choose_files import Candidate, Limits, LiveFile, choose
from reaper.compactor.lifetime import Lifetime, Times, lifetime
from reaper.compactor.live_files import Deleted, LiveFiles, all_of
from reaper.compactor.new_files import target_bytes
from reaper.compactor.set_aside import SetAside
from reaper.context import ReaperContext

#: why a small file is left alone
PENDING, DELETES, RETENTION, FORMAT, FAILED = REASONS = ("pending", "deletes", "retention", "format", "failed")
#: why such a file fails: a rewrite takes one entry out, and expiry deletes the file that the other still needs
TWICE = "the table lists the file more than once"
#: rewrites that wait for the bookkeeper, what it takes in one tick; of more none is published, and none is read
MOST_PENDING = 100
#: of pending rewrites that are read together, unless one alone has more
PENDING_BYTES = 2**24
#: files looked up in one plan, to learn when they were written
MOST_LOOKUPS = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be rewritten now, first what saves most, and what is live, is pending and is left alone."""

    table: Table
    base: Base | None
    candidates: Sequence[Candidate]
    live_files: int
    live_bytes: int
    pending: Sequence[FoundObject]
    pending_files: int
    #: small files by reason, each of REASONS
    left_alone: Mapping[str, int]
    #: the reasons of those that failed
    failures: Mapping[str, int]

    @property
    def bytes(self) -> int:
        """The size of all files that would be rewritten, bytes."""
        return sum(item.bytes for item in self.candidates)


class PendingFiles:
    """What pending rewrites replace, by the name of each; a rewrite never changes, and is read once."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[str]] = {}

    def read(self, store: Store, found: Iterable[FoundObject]) -> dict[str, frozenset[str]]:
        """
        The files of each, by `file_key`, of the oldest MOST_PENDING; none of one that the bookkeeper will reject.

        Raises StorageUnavailable.
        """
        listed = {item.name: item.size for item in islice(found, MOST_PENDING)}
        self._known = {name: keys for name, keys in self._known.items() if name in listed}
        new = [item for item in listed.items() if item[0] not in self._known and item[1] <= MOST_TXLOG_BYTES]
        for part in in_parts(new, PENDING_BYTES):
            read = store.read_many(
                [f"{REWRITES}{name}" for name in part], {f"{REWRITES}{name}": size for name, size in part.items()}
            )
            for name in part:
                self._known[name] = _replaced(name, read[f"{REWRITES}{name}"])
        return self._known


def _replaced(name: str, data: object) -> frozenset[str]:
    if isinstance(data, StorageUnavailable):
        # No plan without it, though the bookkeeper would reject a second rewrite of its files: a storage that fails
        # for a moment fails for all that are pending, and all their groups would be written twice.
        raise data
    if not isinstance(data, bytes):
        return frozenset()
    try:
        return frozenset(decode(parse_key(name), data, MOST_TXLOG_BYTES).replaced)
    except BookkeeperError:  # rejected or held by the bookkeeper: at worst a rewrite of the same files is rejected
        return frozenset()


class Look(NamedTuple):
    """Pending rewrites, the files that each replaces by `file_key`, and the table as it was loaded after that."""

    pending: Sequence[FoundObject]
    replaced: Mapping[str, frozenset[str]]
    table: Table


@dataclass
class Planner:
    """Plans one table again and again; remembers what does not change in between."""

    live: LiveFiles = field(default_factory=LiveFiles)
    pending: PendingFiles = field(default_factory=PendingFiles)
    set_aside: SetAside = field(default_factory=SetAside)
    #: files of the rewrites that were published here and were pending when last seen, by id
    published: dict[str, Sequence[str]] = field(default_factory=dict)
    _written: dict[str, datetime] = field(default_factory=dict)

    def look(self, context: ReaperContext) -> Look:
        """Reads the folder first and the table last; raises Retry."""
        found = pending_rewrites(Folder(context.folder))
        return Look(found, self.pending.read(context.folder, found), context.load())

    def plan(self, context: ReaperContext, look: Look, now: datetime) -> Plan:
        """The plan of this look; raises Retry, and TableUnusable for a bad property."""
        (found, named, table), settings = look, context.settings
        limits = Limits(target_bytes(settings.compaction, table.metadata.properties), settings.compaction.fan_in)
        column = _column(context, table)
        blocks, deletes = self.live.read(context.reader, table, column)
        self._notice_rejected(found, blocks, now)
        kept = lifetime(settings.retention, column, _times(settings, table), _by_sequence(settings, blocks), now)
        failed = {**self.set_aside.active(now), **dict.fromkeys(_live_twice(blocks), TWICE)}
        sieve = _Sieve(limits, Deleted(deletes), kept, named.values(), failed)
        quiet = _Quiet(context, table.metadata, now, self._written)
        candidates = choose(filter(sieve.takes, all_of(blocks)), limits, quiet, kept.span)
        self._written = quiet.used
        return Plan(
            table,
            _base(table),
            candidates,
            sum(map(len, blocks)),
            sum(file.size_bytes for file in all_of(blocks)),
            found,
            sum(map(len, named.values())),
            sieve.left_alone,
            sieve.failures,
        )

    def _notice_rejected(
        self, found: Sequence[FoundObject], blocks: Sequence[Sequence[LiveFile]], now: datetime
    ) -> None:
        """A rewrite that is not pending any more and whose files are live was rejected, or is lost."""
        pending = {item.name for item in found}
        gone = {key: paths for key, paths in self.published.items() if f"{key}.avro" not in pending}
        if not gone and not self.set_aside:
            return
        live = {file.path for file in all_of(blocks)}
        for rewrite_id, paths in gone.items():
            del self.published[rewrite_id]
            if left := [path for path in paths if path in live]:
                self.set_aside.add(left, f"rewrite {rewrite_id} was not committed: `bookkeeper rejected` says why", now)
        self.set_aside.keep_only(live)


def _times(settings: TableSettings, table: Table) -> Times:
    """The times of commits, as far as retention.max-age knows them."""
    text = table.metadata.properties.get(marks_format.PROPERTY)
    return () if text is None or settings.retention.max_age is None else marks_json.loads(text).times


def _base(table: Table) -> Base | None:
    head = table.metadata.current_snapshot()
    return None if head is None else Base(str(table.metadata.table_uuid), head.snapshot_id, head.sequence_number or 0)


def _column(context: ReaperContext, table: Table) -> RetentionColumn | None:
    retention = context.settings.retention
    if retention.keep is None:
        return None
    try:
        return retention_column(retention, table.schema(), table.metadata.schemas)
    except ConfigInvalid:
        return None  # retention drops nothing then, and says so


def _live_twice(blocks: Sequence[Sequence[LiveFile]]) -> set[str]:
    """The locations, as the table has them, of files that are live more than once, in whichever spelling."""
    names = Counter(file.path.rpartition("/")[2] for file in all_of(blocks))
    if len(names) == sum(map(len, blocks)):
        return set()  # as in a queue: no location is normalized
    keys = [(file.path, file_key(file.path)) for file in all_of(blocks) if names[file.path.rpartition("/")[2]] > 1]
    times = Counter(key for _, key in keys)
    return {path for path, key in keys if times[key] > 1}


def _by_sequence(settings: TableSettings, blocks: Sequence[Sequence[LiveFile]]) -> Mapping[int, int]:
    """Bytes of all live files by sequence number, where retention.keep-bytes asks for them."""
    found = Counter[int]()
    if settings.retention.keep_bytes is not None:
        for file in all_of(blocks):
            found[file.sequence_number] += file.size_bytes
    return found


class _Sieve:
    """Which small files may be rewritten; counts the others by reason."""

    def __init__(
        self,
        limits: Limits,
        deleted: Deleted,
        kept: Lifetime,
        named: Iterable[frozenset[str]],
        failed: Mapping[str, str],
    ) -> None:
        self.limits, self.deleted, self.kept, self.failed = limits, deleted, kept, failed
        self.named = frozenset().union(*named)
        # Few files are named, if any: names are compared before a location is normalized.
        self._last_parts = {key.rpartition("/")[2] for key in self.named}
        self.left_alone: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self.failures: Counter[str] = Counter()

    def takes(self, file: LiveFile) -> bool:
        """Whether the policy may have this file."""
        if not self.limits.is_small(file):
            return False
        why = self._why_not(file)
        if why is not None:
            self.left_alone[why] += 1
        return why is None

    def _why_not(self, file: LiveFile) -> str | None:
        if self.named and file.path.rpartition("/")[2] in self._last_parts and file_key(file.path) in self.named:
            return PENDING
        if file.path in self.failed:
            self.failures[self.failed[file.path]] += 1
            return FAILED
        if file.file_format.upper() != "PARQUET":
            return FORMAT
        if self.deleted.has(file):
            return DELETES
        return RETENTION if self.kept.ends_soon(file) else None


class _Quiet:
    """
    Whether the newest file of a lot came long enough ago.

    By the snapshots that are kept, where they show it. They may all be younger than `quiet`, since most expire after
    minutes: then by the time when the newest file was written, which costs a look-up, once.
    """

    def __init__(
        self, context: ReaperContext, metadata: TableMetadata, now: datetime, written: Mapping[str, datetime]
    ) -> None:
        self.storage, self.written, self.lookups = context.storage, written, 0
        self.used: dict[str, datetime] = {}
        self.before = now - context.settings.compaction.quiet
        since_ms = self.before.timestamp() * 1000
        old = [item.sequence_number or 0 for item in metadata.snapshots if item.timestamp_ms <= since_ms]
        new = [item.sequence_number or 0 for item in metadata.snapshots if item.timestamp_ms > since_ms]
        #: committed before, up to this number, and after, from that one on
        self.old, self.new = max(old, default=-1), min(new, default=None)

    def __call__(self, lot: Sequence[LiveFile]) -> bool:
        newest = lot[-1]
        if newest.sequence_number <= self.old:
            return True
        if self.new is not None and newest.sequence_number >= self.new:
            return False
        written = self.written.get(newest.path) or self._look_up(newest.path)
        if written is not None:
            self.used[newest.path] = written
        return written is not None and written <= self.before

    def _look_up(self, path: str) -> datetime | None:
        self.lookups += 1
        if self.lookups > MOST_LOOKUPS:
            return None  # the next plan goes on
        try:
            return self.storage.modified(path)
        except (Retry, Missing, Unfit):
            return None
