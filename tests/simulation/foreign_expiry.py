"""
Expiry by another program, as Iceberg Java's `ExpireSnapshots` does it: what no branch keeps and no tag names goes, in a
commit against the very metadata that it read. Then files go that only expired snapshots need (`ReachableFileCleanup`).
"""

from collections.abc import Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

from pydantic import BaseModel
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestFile, read_manifest_list
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemoveSnapshotsUpdate

from tests.simulation.decoder import Wrong

if TYPE_CHECKING:
    from tests.simulation.world import World

ATTEMPTS = 5


class Unchanged(BaseModel):
    """A requirement as SQL, Hive and Glue catalogs have it: the table's metadata is the one that was loaded."""

    type: str = "assert-metadata-location"
    location: str


def expire(world: "World", table: Any, dice: Random) -> str:
    """Expires; says so when there is nothing to expire."""
    minutes, least = dice.choice((1, 1, 5, 30)), dice.choice((1, 1, 2, 5, 10))
    for left in reversed(range(ATTEMPTS)):
        metadata = table.metadata
        before_ms = int(world.scheduler.now.timestamp() * 1000) - minutes * 60_000
        expiring = _expiring(metadata, before_ms, least)
        if not expiring:
            return ": nothing to do"
        update = RemoveSnapshotsUpdate(snapshot_ids=[item.snapshot_id for item in expiring])
        try:
            table.catalog.commit_table(table, (Unchanged(location=table.metadata_location),), (update,))
            break
        except CommitFailedException:
            if not left:
                raise
            table = table.catalog.load_table(world.settings.identifier)
    world.foreign_expiry = True
    world.scheduler.tell(f"   another program expired snapshots {[item.sequence_number for item in expiring]}")
    _clean_up(world, expiring, table.catalog.load_table(world.settings.identifier))
    return ""


def _expiring(metadata: TableMetadata, before_ms: int, least: int) -> list[Snapshot]:
    """All but what a branch keeps, what a tag names, and what is young and beside every ref."""
    kept, referenced = set[int](), set[int]()
    for ref in metadata.refs.values():
        if ref.snapshot_ref_type == SnapshotRefType.TAG:
            kept.add(ref.snapshot_id)
            referenced.add(ref.snapshot_id)
            continue
        going = False
        for count, snapshot in enumerate(_line(metadata, ref.snapshot_id)):
            going = going or (count >= least and snapshot.timestamp_ms < before_ms)
            referenced.add(snapshot.snapshot_id)
            kept |= set() if going else {snapshot.snapshot_id}
    young = {item.snapshot_id for item in metadata.snapshots if item.timestamp_ms >= before_ms}
    kept |= young - referenced
    return [item for item in metadata.snapshots if item.snapshot_id not in kept]


def _line(metadata: TableMetadata, at: int | None) -> Iterator[Snapshot]:
    while at is not None and (snapshot := metadata.snapshot_by_id(at)) is not None:
        yield snapshot
        at = snapshot.parent_snapshot_id


def _clean_up(world: "World", expired: Iterable[Snapshot], table: Any) -> None:
    """Deletes what the expired snapshots name and no snapshot of the table as it is now."""
    theirs, kept = _manifests(table.io, expired), _manifests(table.io, table.metadata.snapshots)
    candidates = {path: item for path, item in theirs.items() if path not in kept}
    files = _live(table.io, candidates.values())
    if files:
        files -= _live(table.io, kept.values())
    lists = {item.manifest_list for item in expired}
    for location in (*sorted(files), *sorted(candidates), *sorted(lists)):
        _delete(world, location)


def _manifests(files: Any, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
    lists = (read_manifest_list(files.new_input(item.manifest_list)) for item in snapshots)
    return {manifest.manifest_path: manifest for each in lists for manifest in each}


def _live(files: Any, manifests: Iterable[ManifestFile]) -> set[str]:
    return {entry.data_file.file_path for item in manifests for entry in item.fetch_manifest_entry(files)}


def _delete(world: "World", location: str) -> None:
    """Other programs know nothing of the txlog folder: only what kept snapshots need must stay."""

    def check(location: str) -> None:
        if location in world.oracle.needed_by_snapshots():
            raise Wrong(f"another program's expiry deletes {location}, which a snapshot needs")

    with mock.patch.object(world.disk, "deleting", check):
        world.disk.delete(location)
