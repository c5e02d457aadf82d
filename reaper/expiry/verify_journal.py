"""
Checks the table after the commit and before anything is deleted: reads only.

A file of the journal is deleted only when all of this holds:

1. The table has the journal's uuid, all planned snapshots are gone, and `gc.enabled` is not false.
2. The metadata that the commit replaced is found, and no ref went with a planned snapshot. No commit can be guarded
   against a new ref: a tag made between plan and commit is removed with its snapshot, and is restored here.
3. No snapshot made since the plan and no txlog names the file. The folder is read first, the table loaded last: a txlog
   that leaves the folder in between is in the table then.
4. No snapshot that stays can read a data file of it, however often and by whatever names the table lists it. The plan
   follows DELETED entries: the file may have been added again since, by an undo, or be listed by another entry.
"""

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from bookkeeper.catalogs.statistics_kinds import with_any_statistics
from bookkeeper.config.expiry import rules
from bookkeeper.errors import StorageUnavailable
from bookkeeper.format.records import DELETED
from reaper.context import ReaperContext
from reaper.expiry.journal import Journal, last_sequence
from reaper.expiry.restore_refs import LostRefs
from reaper.files import txlogs
from reaper.files.expired import Files
from reaper.files.manifest_reader import ManifestReader, normalize, reading


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may be deleted; or why nothing; and refs that the commit removed unseen, with their snapshots."""

    files: Files = field(default_factory=Files)
    refusal: str | None = None
    lost_refs: LostRefs = ()
    #: planned data files that snapshots which stay can read: added again, or listed twice
    readable: frozenset[str] = frozenset()


def verify_journal(context: ReaperContext, journal: Journal) -> tuple[Verdict, Table]:
    """
    What to do about a journal, and the table that it was checked against.

    Raises Retry or NewerVersion when something cannot be read now: the journal stays.
    """
    # The folder first, the table last: a txlog that leaves the folder meanwhile is then in the table.
    named = txlogs.named(context.folder) if journal.files.data else set()
    table = context.load()
    refusal = _refusal(context, table.metadata, journal)
    if refusal:
        return Verdict(refusal=refusal), table
    lost = _lost_refs(context, table, journal)
    if lost is None:
        return Verdict(refusal="the metadata that the expiry replaced cannot be found"), table
    if lost:
        return Verdict(refusal="branches or tags were made while their snapshots expired", lost_refs=lost), table
    named |= set(_named_since(context.reader, table, journal))
    files = journal.files.without(named)
    readable = _readable(context, table, files)
    return Verdict(files=files.without(readable), readable=readable), table


def _refusal(context: ReaperContext, metadata: TableMetadata, journal: Journal) -> str | None:
    remaining = journal.remaining(metadata)
    if str(metadata.table_uuid) != journal.table_uuid:
        return "the table was dropped and made anew"
    if remaining == set(journal.expire):
        return "nothing was committed"
    if remaining:
        return "some of the snapshots are still there"
    if not rules(context.settings.reaper, metadata.properties).gc:
        return "gc.enabled is false now"
    return None


def _lost_refs(context: ReaperContext, table: Table, journal: Journal) -> LostRefs | None:
    """
    Refs that went with a planned snapshot in one commit; None where the metadata from before is not found.

    That is our commit, or one of another program that expired a part of the plan. A ref that was taken off before its
    snapshot went is not lost: the snapshot's files may be gone.
    """

    @cache
    def read(location: str) -> TableMetadata | None:
        if location == table.metadata_location:
            return table.metadata
        # In the run that committed it is what the plan was made of.
        return context.metadata.get(location) or _read(table.io, location)

    locations = _locations_since(read, table, journal)
    lost: LostRefs = ()
    # The last that has all planned snapshots is found by bisection.
    at = bisect.bisect_left(locations, True, key=lambda item: _is_after(read(item), journal)) - 1
    before = read(locations[at]) if at >= 0 else None
    if before is None or not _has_all(before, journal):
        return None
    for location in locations[at + 1 :]:
        after = read(location)
        if after is None:
            return None
        left = journal.remaining(after)
        gone = {item.snapshot_id: item for item in before.snapshots if item.snapshot_id in journal.expire}
        refs = [item for item in before.refs.items() if item[1].snapshot_id in gone.keys() - left]
        lost += tuple((name, ref, gone[ref.snapshot_id]) for name, ref in refs)
        if not left:
            break
        before = after
    return lost


def _locations_since(read: Callable[[str], TableMetadata | None], table: Table, journal: Journal) -> list[str]:
    """
    The table's metadata files, oldest first, from before the commit on: at least one, where the logs reach back to it.

    Right after the commit that is the one it replaced; else logs are followed back until one begins before it.
    """
    found, metadata = [table.metadata_location], table.metadata
    while metadata.metadata_log:
        log = [entry.metadata_file for entry in metadata.metadata_log]
        if not _is_after(read(log[-1]), journal):
            return [log[-1], *found]
        found = log + found
        oldest = read(found[0])
        if oldest is None or not _is_after(oldest, journal):
            break
        metadata = oldest
    return found


def _is_after(metadata: TableMetadata | None, journal: Journal) -> bool:
    if metadata is None or last_sequence(metadata) < journal.sequence_number:
        return False
    return not _has_all(metadata, journal)


def _has_all(metadata: TableMetadata, journal: Journal) -> bool:
    return journal.remaining(metadata) == set(journal.expire)


def _read(io: FileIO, location: str) -> TableMetadata | None:
    try:
        with reading(location):
            return with_any_statistics(lambda: FromInputFile.table_metadata(io.new_input(location)))
    except StorageUnavailable as exc:
        if isinstance(exc.__cause__, FileNotFoundError):
            return None
        raise


def _readable(context: ReaperContext, table: Table, files: Files) -> frozenset[str]:
    """
    The planned data files that a snapshot of the table can read.

    Such a file is live in a snapshot without a kept parent, the oldest of its line, or a later one added it.
    """
    if not files.data:
        return frozenset()
    snapshots = table.metadata.snapshots
    ids = {snapshot.snapshot_id for snapshot in snapshots}
    oldest = [snapshot for snapshot in snapshots if snapshot.parent_snapshot_id not in ids]
    later = [snapshot for snapshot in snapshots if snapshot.parent_snapshot_id in ids]
    by_hash, added = {hash(path): path for path in files.data}, set[int]()
    for _, hashes in context.reader.hashes_added(later):
        added |= by_hash.keys() & hashes
    live = context.live_paths.among(files.data, str(table.metadata.table_uuid), oldest)
    return live.union(by_hash[value] for value in added)


def _named_since(reader: ManifestReader, table: Table, journal: Journal) -> Iterator[str]:
    """
    Every file that snapshots made since the plan need.
    """
    planned, known = journal.files.manifests, {*journal.known}
    later = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in known]
    ids = {snapshot.snapshot_id for snapshot in later}
    yield from (normalize(snapshot.manifest_list) for snapshot in later)
    named = {
        path: line for path, line in reader.by_path(later).items() if line.added_snapshot_id in ids or path in planned
    }
    yield from named
    for _, entries in reader.files(named.values()):
        yield from (entry.path for entry in entries if entry.status != DELETED)
