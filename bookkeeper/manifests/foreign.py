"""
Manifest lists and manifests of a form that our decoders do not take (format v1, another codec, another layout), as
pyiceberg reads them: the only place that asks it.

It is given bytes that were read already, and reaches no storage.
"""

import io
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar, cast
from uuid import UUID

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.manifest import DataFile as ForeignFile
from pyiceberg.manifest import ManifestEntry, ManifestFile, PartitionFieldSummary, read_manifest_list
from pyiceberg.utils.decimal import decimal_to_bytes

from bookkeeper.errors import ManifestCorrupt
from bookkeeper.format.entries import DataFile, Entry
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.partition_tuples import FieldSummary
from bookkeeper.format.skim import EntrySummary, StatsShape

T = TypeVar("T")

_NO_STATISTICS = StatsShape(frozenset(), {})


def read_list(data: bytes, location: str) -> list[ListedManifest]:
    """
    The manifests of a list; raises ManifestCorrupt.
    """
    return _decoded(location, lambda: [_listed(item) for item in read_manifest_list(_ReadFile(data, location))])


def read_rows(data: bytes, manifest: ListedManifest) -> tuple[EntrySummary, ...]:
    """
    The records of a manifest, with what they inherit from it and without statistics; raises ManifestCorrupt.
    """
    path = manifest.manifest_path
    known = ManifestFile.from_args(
        manifest_path=path,
        partition_spec_id=manifest.partition_spec_id,
        added_snapshot_id=manifest.added_snapshot_id,
        sequence_number=manifest.sequence_number,
    )
    return _decoded(path, lambda: tuple(map(_row, known.fetch_manifest_entry(_OneFile(data), discard_deleted=False))))


def _decoded(location: str, decode: Callable[[], T]) -> T:
    try:
        return decode()
    except Exception as exc:
        # Its decoders share no root of errors.
        raise ManifestCorrupt(f"{location[:300]} does not decode: {type(exc).__name__}: {exc}") from exc


def _listed(found: ManifestFile) -> ListedManifest:
    values = {name: getattr(found, name) for name in ListedManifest._fields}
    if found.partitions is not None:
        values["partitions"] = tuple(map(_summary, found.partitions))
    return ListedManifest(**values)


def _summary(found: PartitionFieldSummary) -> FieldSummary:
    return FieldSummary(*[getattr(found, name) for name in FieldSummary._fields])


def _row(found: ManifestEntry) -> EntrySummary:
    file, order = found.data_file, found.data_file.sort_order_id
    path, kind, partition = file.file_path, str(file.file_format.value), _partition(file)
    records, size = file.record_count, file.file_size_in_bytes
    entry = Entry(
        int(found.status),
        found.snapshot_id,
        found.sequence_number,
        found.file_sequence_number,
        int(file.content),
        None if file.equality_ids is None else tuple(file.equality_ids),
        None,
        DataFile(path, kind, partition, records, size, sort_order_id=order),
    )
    return EntrySummary(0, 0, b"", path, kind, partition, records, size, order, _NO_STATISTICS, entry)


def _partition(file: ForeignFile) -> tuple[Any, ...]:
    return tuple(_physical(file.partition[index]) for index in range(len(file.partition)))


def _physical(value: Any) -> Any:
    """A value of a partition tuple as Avro stores it."""
    if isinstance(value, UUID):
        return value.bytes
    return decimal_to_bytes(value) if isinstance(value, Decimal) else value


class _ReadFile(InputFile):
    """A file that was read."""

    def __init__(self, data: bytes, location: str) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        """See InputFile."""
        return True

    def open(self, seekable: bool = True) -> InputStream:
        """See InputFile."""
        return cast(InputStream, io.BytesIO(self._data))


class _OneFile(FileIO):
    """Has the same bytes at each location."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    def new_input(self, location: str) -> InputFile:
        """See FileIO."""
        return _ReadFile(self._data, location)

    def new_output(self, location: str) -> OutputFile:
        """See FileIO."""
        raise NotImplementedError

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See FileIO."""
        raise NotImplementedError
