"""
The data files that snapshots added, in the order in which a place counts them.

pyiceberg takes 1.2 ms for a manifest list and 1 ms for a small manifest, most of it for schemas that never change. The
lists and manifests are read here with the format package: 0.1 ms each. A file that it does not know, and a partition
whose values stand for a column that the file lacks, goes the way of pyiceberg.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from bookkeeper.errors import TxlogCorrupt, TxlogTooLarge
from bookkeeper.format import avro, manifest_list
from bookkeeper.format.decoder import decode_block
from bookkeeper.format.entries import ADDED, DATA
from bookkeeper.format.layout import parse_layout
from bookkeeper.streams.live_entries import ordered_files
from bookkeeper.streams.rows import reading

#: of one manifest list or manifest
MOST_BYTES = 2**30


@dataclass
class AddedFiles:
    """Reads what snapshots added; it remembers the lines of manifest lists, of which each list repeats most."""

    known: manifest_list.KnownLines = field(default_factory=dict)

    def of(self, table: Table, snapshot: Snapshot, whole: bool = False) -> list[DataFile]:
        """
        The files that the snapshot added; `whole`: all that were in the table then.

        Raises Missing, StorageUnavailable, and NotPossible when they cannot be told.
        """
        if whole:
            return ordered_files(table.io, snapshot)
        with reading(snapshot.manifest_list):
            data = _read(table.io, snapshot.manifest_list)
        try:
            lines = manifest_list.decode(data, MOST_BYTES, self.known)
        except (TxlogCorrupt, TxlogTooLarge):
            return _by_pyiceberg(table.io, snapshot)
        own = [line for line in lines if line.snapshot_id == snapshot.snapshot_id and line.content in (0, None)]
        if any(_may_project(table, line.spec_id) for line in own):
            return _by_pyiceberg(table.io, snapshot)
        try:
            return [file for line in sorted(own) for file in _added(table.io, line)]
        except (TxlogCorrupt, TxlogTooLarge):
            return _by_pyiceberg(table.io, snapshot)


def _read(io: FileIO, path: str) -> bytes:
    with io.new_input(path).open() as source:
        return source.read()


def _may_project(table: Table, spec_id: int) -> bool:
    """Whether a value of a partition may stand for a column: it must have the type that pyiceberg gives it."""
    spec = table.metadata.specs().get(spec_id)
    return spec is None or any(isinstance(item.transform, IdentityTransform) for item in spec.fields)


def _added(io: FileIO, line: manifest_list.Line) -> Iterator[DataFile]:
    with reading(line.path):
        meta, blocks = avro.decode(_read(io, line.path), MOST_BYTES)
    layout = parse_layout(meta.get("avro.schema", b""))
    for entry in (entry for block in blocks for entry in decode_block(block, layout)):
        if entry.status == ADDED and entry.content == DATA:
            found = entry.data_file
            file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=found.path,
                file_format=FileFormat(found.file_format.upper()),
                partition=Record(*found.partition),
                record_count=found.record_count,
                file_size_in_bytes=found.size_bytes,
            )
            file.spec_id = line.spec_id
            yield file


def _by_pyiceberg(io: FileIO, snapshot: Snapshot) -> list[DataFile]:
    own = [item for item in _manifests(io, snapshot) if item.added_snapshot_id == snapshot.snapshot_id]
    found: list[DataFile] = []
    for manifest in sorted(own, key=lambda item: item.manifest_path):
        if manifest.content == ManifestContent.DATA:
            with reading(manifest.manifest_path):
                entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
            found += (entry.data_file for entry in entries if entry.status == ManifestEntryStatus.ADDED)
    return found


def _manifests(io: FileIO, snapshot: Snapshot) -> Sequence[ManifestFile]:
    with reading(snapshot.manifest_list):
        return snapshot.manifests(io)
