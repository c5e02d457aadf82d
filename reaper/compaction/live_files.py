"""
The live files of a snapshot, without decoding everything anew each time.

A manifest never changes: one that was listed before is not read again. Most blocks of a manifest are passed on as they
are when it is written anew, so a block that was read before is known by its bytes, and by the manifest's sequence
number where a file inherits that. Kept between two reads: the files of the last head, about 400 bytes each.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import NamedTuple

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table

from bookkeeper.core.delete_scope import DeleteFile, Scope, delete_file, scopes_of
from bookkeeper.core.retention_column import RetentionColumn
from bookkeeper.core.rewrite import file_key
from bookkeeper.format import avro
from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.avro import Block
from bookkeeper.format.entries import DATA
from bookkeeper.format.manifest_list import Line
from bookkeeper.format.records import DELETED, Prefix, read_prefix
from bookkeeper.format.skim import EntrySummary
from reaper.compaction.policy import LiveFile, partition_key
from reaper.files.manifest_reader import ManifestReader, reading

#: of a manifest, decompressed
_MOST_BYTES = 2**31
_DELETES = 1
_Files = tuple[LiveFile, ...]


class _Manifest(NamedTuple):
    """What a manifest holds: the files of each block, or delete files."""

    blocks: dict[bytes, _Files]
    deletes: tuple[DeleteFile, ...]


class LiveFiles:
    """Reads the live files of one table again and again."""

    def __init__(self) -> None:
        self._column: RetentionColumn | None = None
        #: of the last head, by location, and their blocks by what they are known by
        self._manifests: dict[str, _Manifest] = {}
        self._blocks_known: dict[bytes, _Files] = {}
        #: file formats: one string for all
        self._formats: dict[str, str] = {}

    def read(
        self, reader: ManifestReader, table: Table, column: RetentionColumn | None
    ) -> tuple[Sequence[_Files], list[DeleteFile]]:
        """
        The data files of `main`'s head, block by block, with the upper bound of `column`, and its delete files.

        Raises StorageUnavailable, also for a manifest that does not decode.
        """
        if column != self._column:
            self._column, self._blocks_known, self._manifests = column, {}, {}
        head, specs = table.metadata.current_snapshot(), table.specs()
        (lines,) = reader.lists([head]) if head is not None else ((),)
        manifests = {line.path: found for line in lines if (found := self._manifests.get(line.path)) is not None}
        for line, data in reader.contents(line for line in lines if line.path not in manifests):
            with reading(line.path):
                manifests[line.path] = self._manifest(data, line, specs)
        self._manifests, self._formats = manifests, {}
        self._blocks_known = {key: files for item in manifests.values() for key, files in item.blocks.items()}
        deletes = [delete for item in manifests.values() for delete in item.deletes]
        return [files for item in manifests.values() for files in item.blocks.values()], deletes

    def _manifest(self, data: bytes, line: Line, specs: Mapping[int, PartitionSpec]) -> "_Manifest":
        if line.content == _DELETES:
            return _Manifest({}, tuple(_deletes(data, line, specs[line.spec_id])))
        blocks = dict[bytes, _Files]()
        for key, decode in self._blocks(data, line):
            inheriting = key + b"%d" % line.sequence
            if known := next((name for name in (key, inheriting) if name in self._blocks_known), None):
                blocks[known] = self._blocks_known[known]
            else:
                files, inherits = decode()
                blocks[inheriting if inherits else key] = files
        return _Manifest(blocks, ())

    def _blocks(self, data: bytes, line: Line) -> Iterator[tuple[bytes, Callable[[], tuple[_Files, bool]]]]:
        """What each block of a manifest is known by, and how to decode it."""
        header = avro.read_header(data)
        skims = manifest_format.skimmer_of(header.meta, self._column.field_id if self._column else None)
        about = b"%d:" % line.spec_id + header.meta["avro.schema"]
        if header.meta.get(avro.CODEC) != b"deflate":
            blocks = avro.decode(data, _MOST_BYTES, header).blocks
            yield sha256(about + data).digest(), lambda: self._live(manifest_format.prove(blocks, skims).rows, line)
            return
        for packed in avro.packed_blocks(data, header.end):

            def decode(packed: avro.PackedBlock = packed) -> tuple[_Files, bool]:
                block = Block(packed.count, avro.payload_of(packed))
                return self._live(manifest_format.prove((block,), skims).rows, line)

            yield sha256(about + b"%d:" % packed.count + packed.packed).digest(), decode

    def _live(self, rows: Iterable[EntrySummary], line: Line) -> tuple[_Files, bool]:
        """The live files, and whether one of them inherits a number from the manifest."""
        prefixes, inherits = dict[bytes, Prefix](), False
        found = list[LiveFile]()
        for row in rows:
            prefix = _prefix_of(row) if row.entry is not None else prefixes.get(row.prefix)
            if prefix is None:
                prefix = prefixes[row.prefix] = read_prefix(row.prefix)
            if prefix.status == DELETED or (row.entry is not None and row.entry.content != DATA):
                continue
            inherits = inherits or None in (prefix.sequence, prefix.file_sequence)
            found.append(
                LiveFile(
                    row.path,
                    self._formats.setdefault(row.file_format, row.file_format),
                    line.spec_id,
                    row.partition,
                    row.record_count,
                    row.size_bytes,
                    line.sequence if prefix.sequence is None else prefix.sequence,
                    line.sequence if prefix.file_sequence is None else prefix.file_sequence,
                    row.sort_order_id,
                    self._newest(row),
                )
            )
        return tuple(found), inherits

    def _newest(self, row: EntrySummary) -> int | None:
        """The upper bound of the retention column; None where retention.keep cannot judge the file."""
        column, upper = self._column, row.upper
        if column is None or upper is None or len(upper) != column.width:
            return None
        if row.nulls or (row.nulls is None and not column.required):
            return None
        return int.from_bytes(upper, "little", signed=True)


def _prefix_of(row: EntrySummary) -> Prefix:
    entry = row.entry
    assert entry is not None
    return Prefix(entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)


def _deletes(data: bytes, line: Line, spec: PartitionSpec) -> Iterator[DeleteFile]:
    for entry in manifest_format.decode(data, _MOST_BYTES).entries:
        if entry.status != DELETED:
            number = line.sequence if entry.sequence_number is None else entry.sequence_number
            yield delete_file(entry, number, spec, partition_key(entry.data_file.partition))


class Deleted:
    """Which data files a live delete file may apply to; none of them is rewritten here."""

    def __init__(self, deletes: Iterable[DeleteFile]) -> None:
        #: the largest sequence number that one applies to, by scope
        self._largest: dict[Scope, int] = {}
        for item in deletes:
            self._largest[item.scope] = max(item.largest_number, self._largest.get(item.scope, -1))

    def has(self, file: LiveFile) -> bool:
        """Whether rows of this file may be deleted."""
        if not self._largest:
            return False
        scopes = scopes_of(file_key(file.path), file.spec_id, partition_key(file.partition))
        return any(file.sequence_number <= self._largest.get(scope, -1) for scope in scopes)


def all_of(blocks: Iterable[Sequence[LiveFile]]) -> Iterator[LiveFile]:
    """
    Every file.
    """
    return chain.from_iterable(blocks)
