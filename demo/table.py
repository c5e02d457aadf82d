"""
Follows the table from outside, with pyiceberg: the files that each append snapshot added, the files that rewrites
replaced and retention dropped, and what was expired and deleted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from bookkeeper.catalogs.commit import load_table
from bookkeeper.contract.names import TxlogName
from bookkeeper.stores.locations import local_path

TXLOGS = "bookkeeper.txlogs"
REWRITES = "bookkeeper.rewrites"


@dataclass
class TableWatch:
    """One table; remembers every snapshot and data file it ever saw."""

    catalog: Catalog
    identifier: str
    live_files: int = 0
    snapshots: int = 0
    dropped_files: int = 0
    rewrites: int = 0
    replaced_files: int = 0
    seen: set[int] = field(default_factory=set)
    paths: set[Path] = field(default_factory=set)
    _current: set[int] = field(default_factory=set)

    def look(self) -> Iterator[tuple[Snapshot, list[Path]]]:
        """The append snapshots that came since the last look, each with the data files it added."""
        table = load_table(self.catalog, self.identifier)
        self._current = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
        self.snapshots = len(self._current)
        for snapshot in table.metadata.snapshots:
            if snapshot.snapshot_id in self.seen:
                continue
            self.seen.add(snapshot.snapshot_id)
            self._count(snapshot)
            if snapshot.summary and snapshot.summary.operation == Operation.APPEND:
                added = added_files(snapshot, table.io)
                self.paths.update(added)
                yield snapshot, added
        self.live_files = _live(table)

    def _count(self, snapshot: Snapshot) -> None:
        rewrites = _summary(snapshot, REWRITES).split()
        self.rewrites += len(rewrites)
        gone = int(_summary(snapshot, "deleted-data-files") or 0)
        if rewrites:
            self.replaced_files += gone
        else:
            self.dropped_files += gone

    def expired(self) -> int:
        """Snapshots seen that were gone at the last look."""
        return len(self.seen - self._current)

    def deleted(self) -> int:
        """Data files seen that are gone from disk."""
        return sum(not path.exists() for path in self.paths)


def added_files(snapshot: Snapshot, io: FileIO) -> list[Path]:
    """
    The data files that this very snapshot added.
    """
    manifests = [item for item in snapshot.manifests(io) if item.added_snapshot_id == snapshot.snapshot_id]
    entries = (entry for manifest in manifests for entry in manifest.fetch_manifest_entry(io))
    added = (entry.data_file for entry in entries if entry.status == ManifestEntryStatus.ADDED)
    return [path_of(file.file_path) for file in added]


def path_of(location: str) -> Path:
    """
    The path of a location on this machine's disk.
    """
    path = local_path(location)
    assert path is not None, "the demo's table lies on this machine's disk"
    return Path(path)


def txlogs_in(snapshot: Snapshot) -> list[TxlogName]:
    """
    The txlogs that a snapshot's summary names.
    """
    return list(spans(_summary(snapshot, TXLOGS)))


def spans(text: str) -> Iterator[TxlogName]:
    """
    The txlogs in `writer.incarnation:from-to ...`; what does not fit into a summary is cut off.
    """
    for part in text.split():
        run, colon, span = part.partition(":")
        if not colon:
            return
        writer, _, incarnation = run.partition(".")
        first, _, last = span.partition("-")
        yield from (TxlogName(writer, incarnation, number) for number in range(int(first), int(last) + 1))


def _summary(snapshot: Snapshot, key: str) -> str:
    return snapshot.summary.additional_properties.get(key, "") if snapshot.summary else ""


def _live(table: Table) -> int:
    head = table.metadata.current_snapshot()
    return int(_summary(head, "total-data-files") or 0) if head else 0
