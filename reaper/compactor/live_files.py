"""
The live files of a snapshot, without decoding everything anew each time.

A manifest never changes: one that was listed before is not read again. Most blocks of a manifest are passed on as they
are when it is written anew, so a block that was read before is known by its bytes, and by the manifest's sequence
number where a file inherits that. Kept between two reads: the files of the last head, about 400 bytes each, within a
bound.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table

from bookkeeper.contract.delete_scope import DeleteFile, Scope, delete_file, scopes_of
from bookkeeper.contract.retention_column import RetentionColumn
from bookkeeper.contract.rewrite import file_key
from bookkeeper.format.entries import DATA
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.records import DELETED
from bookkeeper.format.skim import EntrySummary
from bookkeeper.manifests.cache import BlockCache
from bookkeeper.manifests.walk import Heads, StoredBlock, read_in_turn, split, with_inherited
from reaper.compactor.choose_files import LiveFile, partition_key
from reaper.files.manifest_reader import ManifestReader, reading

#: of the files that are remembered from one plan to the next, and what a file takes
MOST_BYTES, _FILE_BYTES = 2**28, 400
_Files = tuple[LiveFile, ...]


class _Manifest(NamedTuple):
    """What a manifest holds: the data files of each block, or delete files."""

    blocks: Sequence[_Files]
    deletes: Sequence[DeleteFile]


def _cache() -> BlockCache[str, Sequence[DeleteFile], _Files]:
    return BlockCache(lambda files: _FILE_BYTES * (1 + len(files)), MOST_BYTES)


@dataclass
class LiveFiles:
    """Reads the live files of one table again and again."""

    _column: RetentionColumn | None = None
    #: the delete files of each manifest, and the data files of each block
    _known: BlockCache[str, Sequence[DeleteFile], _Files] = field(default_factory=_cache)
    #: file formats: one string for all
    _formats: dict[str, str] = field(default_factory=dict)

    def read(
        self, reader: ManifestReader, table: Table, column: RetentionColumn | None
    ) -> tuple[Sequence[_Files], list[DeleteFile]]:
        """
        The data files of `main`'s head, block by block, with the upper bound of `column`, and its delete files.

        Raises StorageUnavailable, also for a manifest that does not decode.
        """
        if column != self._column:
            self._column, self._known = column, _cache()
        head, specs = table.metadata.current_snapshot(), table.specs()
        (listed,) = reader.lists([head]) if head is not None else ((),)
        found = {item.manifest_path: self._remembered(item.manifest_path) for item in listed}
        for item, data in reader.contents(item for item in listed if found[item.manifest_path] is None):
            with reading(item.manifest_path):
                found[item.manifest_path] = self._read(data, item, specs)
        self._known.keep_only(found)
        self._formats = {}
        read = [item for item in found.values() if item is not None]
        return [files for item in read for files in item.blocks], [delete for item in read for delete in item.deletes]

    def _remembered(self, path: str) -> _Manifest | None:
        deletes, digests = self._known.manifest(path), self._known.blocks_of(path)
        blocks = [files for digest in digests if (files := self._known.block(digest)) is not None]
        return _Manifest(blocks, deletes) if deletes is not None and len(blocks) == len(digests) else None

    def _read(self, data: bytes, manifest: ListedManifest, specs: Mapping[int, PartitionSpec]) -> _Manifest:
        path = manifest.manifest_path
        if manifest.content == ManifestContent.DELETES:
            deletes = [*_deletes(data, manifest, specs[manifest.partition_spec_id])]
            self._known.put_manifest(path, deletes)
            return _Manifest([], deletes)
        column = self._column.field_id if self._column else None
        stored = split(data, column, b"%d:" % manifest.partition_spec_id)
        blocks = [self._block(block, manifest) for block in stored]
        self._known.put_manifest(path, (), [key for key, _ in blocks])
        return _Manifest([files for _, files in blocks], ())

    def _block(self, block: StoredBlock, manifest: ListedManifest) -> tuple[bytes, _Files]:
        """What a block is known by, and its files; where one inherits a number, that of the manifest belongs to it."""
        digest = block.digest
        inheriting = digest + b"%d" % manifest.sequence_number
        for key in (digest, inheriting):
            if (known := self._known.block(key)) is not None:
                return key, known
        files, inherits = self._live(block.rows(), manifest)
        key = inheriting if inherits else digest
        self._known.put_block(key, files)
        return key, files

    def _live(self, rows: Iterable[EntrySummary], manifest: ListedManifest) -> tuple[_Files, bool]:
        """The live files, and whether a record inherits a number from the manifest."""
        heads, found = Heads(manifest), list[LiveFile]()
        for row in rows:
            head = heads.of(row)
            if head.status == DELETED or (row.entry is not None and row.entry.content != DATA):
                continue
            found.append(
                LiveFile(
                    row.path,
                    self._formats.setdefault(row.file_format, row.file_format),
                    manifest.partition_spec_id,
                    row.partition,
                    row.record_count,
                    row.size_bytes,
                    head.sequence or 0,
                    head.file_sequence or 0,
                    row.sort_order_id,
                    self._newest(row),
                )
            )
        return tuple(found), heads.inherited

    def _newest(self, row: EntrySummary) -> int | None:
        """The upper bound of the retention column; None where retention.keep cannot judge the file."""
        column, upper = self._column, row.upper
        if column is None or upper is None or len(upper) != column.width:
            return None
        if row.nulls or (row.nulls is None and not column.required):
            return None
        return int.from_bytes(upper, "little", signed=True)


def _deletes(data: bytes, manifest: ListedManifest, spec: PartitionSpec) -> Iterator[DeleteFile]:
    for block in read_in_turn(data):
        for entry in block.entries():
            if entry.status != DELETED:
                whole = with_inherited(entry, manifest)
                number, partition = whole.sequence_number or 0, partition_key(entry.data_file.partition)
                yield delete_file(entry, number, spec, partition)


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
