"""
What must hold of the metadata and the disk: one chain of snapshots in time, every file there, none unneeded.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.histories.decoded import Snapshot, local
from tests.histories.invariants import State, ours


def snapshots_are_one_chain(state: State) -> Iterator[str]:
    """Each new snapshot is the child of the one before, later and with the next sequence number."""
    by_sequence = sorted(state.snapshots.values(), key=lambda found: found.said["sequence-number"])
    for parent, child in pairwise(by_sequence):
        if child.said.get("parent-snapshot-id") != parent.id:
            yield f"snapshot {child.said['sequence-number']} is no child of the one before"
        # Strangers here have a clock of their own.
        if ours(child) and child.said["timestamp-ms"] <= parent.said["timestamp-ms"]:
            yield f"snapshot {child.said['sequence-number']} is older than its parent"
    last = state.metadata["last-sequence-number"]
    if by_sequence and (by_sequence[-1].said["sequence-number"], by_sequence[-1]) != (last, state.head):
        yield f"the head has not the last sequence number {last}"
    log = [(item["timestamp-ms"], item["snapshot-id"]) for item in state.metadata.get("snapshot-log", [])]
    for (before, _), (at, number) in pairwise(log):
        if at < before and number in state.snapshots and ours(state.snapshots[number]):
            yield f"the snapshot log is not sorted: {log}"


def lists_name_their_snapshot(state: State) -> Iterator[str]:
    """The header of each new manifest list."""
    for snapshot in state.new:
        said = (snapshot.said["snapshot-id"], snapshot.said["sequence-number"])
        if (int(snapshot.meta["snapshot-id"]), int(snapshot.meta["sequence-number"])) != said:
            yield f"{snapshot.said['manifest-list']}: header {snapshot.meta}"


def every_named_file_is_there(state: State) -> Iterator[str]:
    """Manifest lists, manifests and live files of every snapshot that is kept."""
    named = {location for snapshot in state.snapshots.values() for location in _named(snapshot)}
    folders = {local(location).parent for location in named}
    there = {str(path) for folder in folders for path in (folder.iterdir() if folder.exists() else ())}
    yield from (f"{location} is named and not there" for location in named if str(local(location)) not in there)


def _named(snapshot: Snapshot) -> Iterator[str]:
    yield snapshot.said["manifest-list"]
    for manifest in snapshot.manifests:
        yield manifest.path
        yield from (entry.path for entry in manifest.live())


def unneeded(state: State, data: Path, waiting: set[str]) -> list[str]:
    """Data files on disk that no kept snapshot has or has deleted, and no txlog names."""
    manifests = [manifest for snapshot in state.snapshots.values() for manifest in snapshot.manifests]
    # A file goes with the snapshot that deleted it.
    named = {entry.path for manifest in manifests for entry in manifest.entries} | waiting
    kept = {str(local(location)) for location in named}
    return [str(path) for path in data.rglob("*") if path.is_file() and str(path) not in kept]
