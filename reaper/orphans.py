"""
Orphans: old files in the table's data and metadata folders that nothing names, found twice, an hour apart.

The disk is listed first, the folder read second, the table loaded last. So a file on its way from a writer through a
txlog into the table is named in one of them at every moment; and no writer publishes a file older than half the orphan
age.

A file that is named at a location outside of the swept folders may be one in them by another way, so each file there
that is called as it stays.

A commit under way names files that nothing else does: its manifests, the position delete files of a fold, the new files
of a rewrite that another bookkeeper has rejected. Its process may stand still for days just before it sends it, and its
guard lets it in as long as main has not moved. So such files go only when main has moved since they were written.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from bookkeeper.config.expiry import rules
from bookkeeper.config.units import format_duration, moment
from bookkeeper.contract.file_names import owner_of
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import Halt, Missing, NotPossible, PathRefused, Unfit
from bookkeeper.format.partition_tuples import compatible, folder_name
from bookkeeper.stores.locations import join, normal
from reaper.clock import EPOCH
from reaper.context import ReaperContext
from reaper.expiry import journal as journals
from reaper.expiry.expiry_plan import check_not_older
from reaper.files import txlogs
from reaper.files.disk_difference import DiskDifference
from reaper.files.manifest_reader import ManifestReader, normalize
from reaper.files.old_metadata import SUFFIXES
from reaper.files.storage import data_path, metadata_path

log = logging.getLogger(__name__)

KEY = "reaper/orphans.json"
LEAST_AGE = timedelta(hours=1)
APART = timedelta(hours=1)
#: an attempt to commit is built anew after ten minutes, and clocks differ by five at most
MARGIN = timedelta(minutes=15)
MOST = 100_000
#: of the record of a sweep: MOST locations, however long
MOST_BYTES = 2**28
FEW = 100


class ManyOrphans(Halt):
    """So many files would go as orphans that a person should look first."""

    hint = "Look at `reaper orphans`: is the location spelled in two ways? If it is right: --release-brake."


class OtherTable(Halt):
    """Another table lies in the folders that are swept: nothing here names its files."""

    hint = "Give each table folders of its own: write.data.path may hold no other table. Orphans stay until then."


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that nothing names: bytes, when it was written, since when it is known to be unnamed."""

    location: str
    bytes: int
    modified: datetime
    since: datetime

    def due(self, now: datetime) -> bool:
        """Whether it was found unnamed by an earlier sweep long enough ago."""
        return self.since <= now - APART

    def why(self, now: datetime) -> str:
        """The reason why the file goes or stays, for people."""
        age = f"no snapshot, txlog or journal names it, {format_duration(now - self.modified)} old"
        return age if self.due(now) else f"{age}; goes if that is so an hour after {self.since:%H:%M}"


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep found: orphans (due or not), of which table, and how many locations are named."""

    table_uuid: str
    orphans: tuple[Orphan, ...]
    named: int

    def due(self, now: datetime) -> dict[str, int]:
        """Location and size of those that may go now."""
        return {orphan.location: orphan.bytes for orphan in self.orphans if orphan.due(now)}


def age_of(context: ReaperContext, older_than: timedelta | None = None) -> timedelta:
    """
    The age from which a file may be an orphan, at least the one in the card; raises NotPossible.
    """
    if older_than is not None and older_than < LEAST_AGE:
        raise NotPossible(
            f"an orphan age of {format_duration(older_than)} is refused: "
            f"at least {format_duration(LEAST_AGE)} is needed",
            hint="A writer may still publish younger files.",
        )
    try:
        in_card = timedelta(milliseconds=Folder(context.folder).card().orphan_age_ms)
    except Missing:
        in_card = timedelta(0)
    return max(older_than or context.settings.orphan_age, in_card, LEAST_AGE)


def is_due(context: ReaperContext, now: datetime) -> bool:
    """
    Whether the last sweep is long enough ago.
    """
    at = _read_sweep(context)[1]
    return at is None or not timedelta(0) <= now - at < context.settings.reaper.orphans_every


def find_orphans(context: ReaperContext, now: datetime, older_than: timedelta | None = None) -> Sweep:
    """
    Every orphan, without deleting one; raises Retry or NewerVersion when something cannot be read, and HistoryChanged
    when marks.json knows a later commit than the table: its files would look like orphans.
    """
    age, metadata = age_of(context, older_than), context.load().metadata
    if not rules(context.settings.reaper, metadata.properties).gc:
        return Sweep(str(metadata.table_uuid), (), 0)
    with DiskDifference() as unnamed:
        # The disk first, the folder second, the table last.
        for location, size, modified in _old_files(context, metadata, now, age):
            unnamed.add(location, [size, modified.isoformat()])
        roots = _roots(metadata)
        unnamed.subtract(_known_by(txlogs.named(context.folder), roots))
        journal = journals.read(context.folder)
        unnamed.subtract(_known_by(journal.files.sizes() if journal else (), roots))
        copy = Folder(context.folder).marks()  # before the table is loaded, because it is written after a commit
        table = context.load()
        uuid = str(table.metadata.table_uuid)
        if table.metadata.table_uuid != metadata.table_uuid:
            return Sweep(uuid, (), 0)
        check_not_older(table.metadata, copy)
        unnamed.subtract(_known_by(_referenced(table, context.reader), roots))
        return Sweep(uuid, tuple(_orphans(context, unnamed, uuid, now)), unnamed.subtracted)


def sweep(
    context: ReaperContext, now: datetime, older_than: timedelta | None = None, release_brake: bool = False
) -> dict[str, int]:
    """
    Deletes the orphans that an earlier sweep found too, and remembers the others; location and size of what went.

    Raises ManyOrphans when that would be more than half of what is named, NotPossible where the catalog's service
    deletes files.
    """
    if not context.deletes:
        raise NotPossible(f"{context.name}: orphans are deleted by the catalog's service (maintained-by)")
    found = find_orphans(context, now, older_than)
    due = found.due(now)
    if len(due) > FEW and len(due) * 2 > found.named and not release_brake:
        raise ManyOrphans(f"{context.name}: {len(due)} files would go as orphans, {found.named} are named")
    context.storage.delete(due)
    due = {location: size for location, size in due.items() if location not in context.storage.stuck}
    # After the files: a crash in between leaves locations in the record that no listing shows again.
    _write_sweep(context, found, due, now)
    return due


def _old_files(
    context: ReaperContext, metadata: TableMetadata, now: datetime, age: timedelta
) -> Iterator[tuple[str, int, datetime]]:
    folder = metadata_path(metadata)
    head = metadata.current_snapshot()
    # What is older belongs to no attempt that can still succeed: main has moved since. An attempt writes its manifests
    # itself; a fold's files are up to 20 minutes older, those of a rewrite up to half the orphan age.
    moved = datetime.fromtimestamp(head.timestamp_ms / 1000, UTC) - MARGIN if head else EPOCH
    before, planned = now - age, moved - age / 2 if head else EPOCH
    own = tuple(f"{normal(place)}/" for place in (folder, join(metadata.location, "metadata")))
    fields = [field.name for spec in metadata.partition_specs for field in spec.fields]
    partitions = tuple(f"{name}=" for field in fields for name in (field, compatible(field), folder_name(field)))
    for root in _roots(metadata):
        attempts = moved if root == normal(folder) else planned
        for location, item in context.storage.list(root):
            if location.endswith(SUFFIXES) and not location.startswith(own):
                raise OtherTable(f"{context.name}: {location} is the metadata of another table")
            is_old = item.modified < before and (item.modified < attempts or _is_of_writer(location))
            if is_old and _may_be_swept(location, root, partitions):
                yield location, item.size, item.modified


def _roots(metadata: TableMetadata) -> tuple[str, ...]:
    """The folders that are swept."""
    return tuple(dict.fromkeys(normal(root) for root in (metadata_path(metadata), data_path(metadata))))


def _known_by(named: Iterable[str], roots: tuple[str, ...]) -> Iterator[str]:
    """
    What a named file is compared by: its location, and the last segment alone where that lies elsewhere. Two locations
    may lead to one file, by a link or by two names of one account, as after the table's location was changed.
    """
    below = tuple(root.rstrip("/") + "/" for root in roots)
    return (location if location.startswith(below) else location.rpartition("/")[2] for location in named)


def _is_of_writer(location: str) -> bool:
    """Whether it is called after a txlog, which names it for as long as it may be committed."""
    return owner_of(location.rpartition("/")[2]) is not None


def _may_be_swept(location: str, root: str, partitions: tuple[str, ...]) -> bool:
    if location.endswith((*SUFFIXES, "/version-hint.text")):
        return False  # they go by the rules of old metadata
    try:
        below = normal(location).removeprefix(root.rstrip("/") + "/")
    except PathRefused:
        return False
    # As Iceberg does: a path that begins with _ or . belongs to another program, unless a partition field does.
    return not any(part.startswith(("_", ".")) and not part.startswith(partitions) for part in below.split("/"))


def _orphans(context: ReaperContext, unnamed: DiskDifference, uuid: str, now: datetime) -> Iterator[Orphan]:
    earlier_uuid, _, earlier = _read_sweep(context)
    seen = earlier if earlier_uuid == uuid else {}
    for count, (location, (size, modified)) in enumerate(unnamed.remaining()):
        if count == MOST:
            log.warning("more orphans than one sweep takes", extra={"action": "orphans", "table": context.name})
            return
        since = min(seen.get(location, now), now)
        yield Orphan(location, size, datetime.fromisoformat(modified), since)


def _referenced(table: Table, reader: ManifestReader) -> Iterator[str]:
    """
    Every location that the table's metadata leads to; raises StorageUnavailable.
    """
    metadata = table.metadata
    yield normalize(table.metadata_location)
    yield from (normalize(entry.metadata_file) for entry in metadata.metadata_log)
    yield from (normalize(item.statistics_path) for item in (*metadata.statistics, *metadata.partition_statistics))
    yield from (normalize(snapshot.manifest_list) for snapshot in metadata.snapshots)
    manifests = reader.by_path(metadata.snapshots)
    yield from manifests
    # DELETED entries too: an older snapshot that stays may still have the file.
    for _, entries in reader.files(manifests.values()):
        yield from (entry.path for entry in entries)


def _read_sweep(context: ReaperContext) -> tuple[str, datetime | None, dict[str, datetime]]:
    try:
        raw = json.loads(context.folder.read(KEY, MOST_BYTES))
        seen = {location: moment(text) for location, text in raw["seen"].items()}
        return raw["table-uuid"], moment(raw["at"]), seen
    except (Missing, Unfit, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # As if there had been no sweep: an orphan has to be found twice again.
        return "", None, {}


def _write_sweep(context: ReaperContext, found: Sweep, gone: Mapping[str, int], now: datetime) -> None:
    seen = {item.location: item.since.isoformat() for item in found.orphans if item.location not in gone}
    data = {"version": 1, "table-uuid": found.table_uuid, "at": now.isoformat(), "seen": seen}
    context.folder.replace(KEY, json.dumps(data).encode() + b"\n")
