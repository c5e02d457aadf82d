"""
What the table says after the commit, before anything is deleted: reads only, decides per journal.
"""

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.errors import StorageUnavailable
from bookkeeper.format.records import DELETED
from reaper.context import ReaperContext
from reaper.expiry.expire import remaining
from reaper.expiry.journal import Journal
from reaper.files import txlogs
from reaper.files.expired import Files
from reaper.files.manifest_reader import Reader, normalize, reading
from reaper.plan import last_sequence, rules


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may be deleted; or why nothing; and refs that the commit removed unseen, with their snapshots."""

    files: Files = field(default_factory=Files)
    void: str | None = None
    lost: tuple[tuple[str, SnapshotRef, Snapshot], ...] = ()


def verify_journal(site: ReaperContext, journal: Journal) -> tuple[Verdict, Table]:
    """
    What to do about a journal, and the table it was held against.

    Raises Retry or NewerVersion when that cannot be told now: the journal stays.
    """
    # The folder first, the table last: what leaves the folder meanwhile is then in the table.
    named = txlogs.named(site.folder) if journal.files.data else set()
    table = site.load()
    void = _void(site, table.metadata, journal)
    if void:
        return Verdict(void=void), table
    replaced = _replaced(table, journal)
    if replaced is None:
        return Verdict(void="the metadata that the expiry replaced cannot be found"), table
    lost = tuple(_lost(replaced, journal))
    if lost:
        return Verdict(void="branches or tags were made while their snapshots expired", lost=lost), table
    named |= set(_named_since(site.reader, table, journal))
    return Verdict(files=journal.files.without(named)), table


def _void(site: ReaperContext, metadata: TableMetadata, journal: Journal) -> str | None:
    left = remaining(metadata, journal)
    if str(metadata.table_uuid) != journal.table_uuid:
        return "the table was dropped and made anew"
    if left == set(journal.expire):
        return "nothing was committed"
    if left:
        return "some of the snapshots are still there"
    if not rules(site.settings.reaper, metadata.properties).gc:
        return "gc.enabled is false now"
    return None


def _replaced(table: Table, journal: Journal) -> TableMetadata | None:
    """
    The last metadata that still had the journal's snapshots: the one our commit replaced.
    """
    metadata: TableMetadata | None = table.metadata
    while metadata is not None and metadata.metadata_log:
        locations = [entry.metadata_file for entry in metadata.metadata_log]
        metadata = _read(table.io, locations[-1])
        if _is_after(metadata, journal):
            metadata = _read(table.io, locations[0])
            if _is_after(metadata, journal):
                # The log of the oldest goes further back.
                continue
            at = bisect.bisect_left(locations, True, key=lambda item: _is_after(_read(table.io, item), journal))
            metadata = _read(table.io, locations[at - 1])
        return metadata if metadata is not None and _has(metadata, journal) else None
    return None


def _is_after(metadata: TableMetadata | None, journal: Journal) -> bool:
    if metadata is None or last_sequence(metadata) < journal.sequence_number:
        return False
    return not _has(metadata, journal)


def _has(metadata: TableMetadata, journal: Journal) -> bool:
    return remaining(metadata, journal) == set(journal.expire)


def _read(io: FileIO, location: str) -> TableMetadata | None:
    try:
        with reading(location):
            return FromInputFile.table_metadata(io.new_input(location))
    except StorageUnavailable as exc:
        if isinstance(exc.__cause__, FileNotFoundError):
            return None
        raise


def _lost(replaced: TableMetadata, journal: Journal) -> Iterator[tuple[str, SnapshotRef, Snapshot]]:
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in replaced.snapshots}
    for name, ref in replaced.refs.items():
        if ref.snapshot_id in journal.expire:
            yield name, ref, snapshots[ref.snapshot_id]


def _named_since(reader: Reader, table: Table, journal: Journal) -> Iterator[str]:
    """
    Every file that snapshots made since the plan stand on.
    """
    planned = journal.files.manifests
    later = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in journal.known]
    ids = {snapshot.snapshot_id for snapshot in later}
    seen: set[str] = set()
    for snapshot in later:
        yield normalize(snapshot.manifest_list)
        for manifest in reader.manifests(snapshot):
            path = normalize(manifest.manifest_path)
            if path in seen or not (manifest.added_snapshot_id in ids or path in planned):
                continue
            seen.add(path)
            yield path
            for entry in reader.entries(manifest):
                if entry.status != DELETED:
                    yield entry.path
