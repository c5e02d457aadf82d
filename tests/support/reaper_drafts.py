"""
Manifests and manifest lists of a test's snapshot, written with pyiceberg's writers.
"""

from collections.abc import Sequence
from typing import Any

from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot


class Draft:
    """Manifests of a snapshot in the making."""

    def __init__(self, table: Table, head: Snapshot | None, number: int) -> None:
        self.table, self.head, self.id, self.count = table, head, number, 0
        self.sequence = table.metadata.last_sequence_number + 1

    def _output(self, name: str) -> Any:
        return self.table.io.new_output(f"{self.table.location()}/metadata/{name}")

    def _writer(self) -> Any:
        self.count += 1
        output = self._output(f"{self.id}-m{self.count}.avro")
        return write_manifest(2, self.table.spec(), self.table.schema(), output, self.id, "deflate")

    def manifest(self, files: Sequence[DataFile]) -> ManifestFile:
        with self._writer() as writer:
            for file in files:
                writer.add_entry(
                    ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=self.id, data_file=file)
                )
        return writer.to_manifest_file()

    def rewritten(self, deleted: Sequence[str], merged: bool, once: bool = False) -> list[ManifestFile]:
        """
        The parent's manifests, those rewritten that lose a file or are merged; all-DELETED ones dropped.

        `once`: of a file that is listed several times the newest entry alone is deleted.
        """
        parents = self.head.manifests(self.table.io) if self.head else []
        kept, entries = [], []
        for manifest in parents:
            found = manifest.fetch_manifest_entry(self.table.io)
            if merged or any(entry.data_file.file_path in deleted for entry in found):
                entries += found
            elif found:
                kept.append(manifest)
        return kept + ([self._rewrite(entries, deleted, once)] if entries else [])

    def _rewrite(self, entries: list[ManifestEntry], deleted: Sequence[str], once: bool) -> ManifestFile:
        gone = set[str]()
        with self._writer() as writer:
            for entry in sorted(entries, key=lambda item: -(item.sequence_number or 0)):
                path = entry.data_file.file_path
                keep = path not in deleted or (once and path in gone)
                gone.add(path)
                (writer.existing if keep else writer.delete)(entry)
        return writer.to_manifest_file()

    def manifest_list(self, manifests: list[ManifestFile]) -> str:
        output = self._output(f"snap-{self.id}.avro")
        parent = self.head.snapshot_id if self.head else None
        with write_manifest_list(2, output, self.id, parent, self.sequence, "deflate") as writer:
            writer.add_manifests(manifests)
        return output.location
