"""
The rewrite: a compactor's request to replace data files by others with the same rows (docs/maintain/rewrite-format.md).

An Iceberg manifest of one spec and one partition: ADDED entries are the new files, DELETED ones the files they
replace. Decoding runs no code and rejects whatever it does not know; what it means for the table is checked against
the table's head, in the commit itself.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from bookkeeper.contract.file_names import owner_of
from bookkeeper.contract.names import TxlogName
from bookkeeper.errors import NewerVersion, PathRefused, RewriteCorrupt, TxlogCorrupt, TxlogTooLarge
from bookkeeper.format import avro, manifest
from bookkeeper.format.avro import Block
from bookkeeper.format.entries import ADDED, DATA, DataFile, Entry, added
from bookkeeper.format.header_values import DIGITS, number, schema_id, text
from bookkeeper.format.layout import Physical
from bookkeeper.format.manifest import Manifest
from bookkeeper.format.records import DELETED, LARGEST, Prefix
from bookkeeper.format.skim import EntrySummary
from bookkeeper.stores.locations import normal_file

VERSION = 1
PREFIX = "bookkeeper."
#: of the table's folder
REWRITES = "rewrites/"
_KEYS = {
    "version",
    "table-uuid",
    "rewrite-id",
    "base-snapshot-id",
    "base-sequence-number",
    "applied-deletes",
    "entries",
}
_SNAPSHOT_DIGITS = 19
#: new and replaced files of one rewrite: a commit keeps a few KiB of memory for each
MOST_ENTRIES = 100_000
MOST_DELETES = 10_000
#: of the list of delete files; parsed, it may take 25 times as much memory
_DELETES_BYTES = 2**21
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SUFFIX = ".avro"


class ReplacedFile(NamedTuple):
    """A live data file as the snapshot that was read lists it, with its data and its file sequence number."""

    file: DataFile
    sequence_number: int
    file_sequence_number: int


class FileVersion(NamedTuple):
    """A replaced file as a rewrite names it."""

    sequence_number: int
    file_sequence_number: int


@dataclass(frozen=True, slots=True)
class Base:
    """What a rewrite was made from: the snapshot of `main` that was read, and the delete files that were applied."""

    table_uuid: str
    snapshot_id: int
    #: of that snapshot
    sequence_number: int
    applied_deletes: Sequence[str] = ()


@dataclass(eq=False)
class Rewrite:
    """
    A rewrite whose every record is proven. `partition` is the layout of its tuples: (field id, Avro type) per field.

    Files are known by `file_key`.
    """

    id: str
    base: Base
    schema_id: int
    spec_id: int
    partition: tuple[tuple[int, Physical], ...]
    #: the values that all its files have
    partition_values: tuple[Any, ...]
    body: Manifest = field(repr=False)
    #: indexes of the new files among the records
    added_indexes: tuple[int, ...] = field(repr=False)
    replaced: Mapping[str, FileVersion] = field(repr=False)
    applied_deletes: frozenset[str] = field(repr=False)

    @property
    def added(self) -> tuple[EntrySummary, ...]:
        """The records of the new files, skimmed."""
        return tuple(self.body.rows[index] for index in self.added_indexes)

    @property
    def added_blocks(self) -> list[tuple[Block, list[EntrySummary]]]:
        """The blocks of records, with the records of new files in each."""
        pairs = zip(self.body.blocks, self.body.skimmed, strict=True)
        return [(block, [row for row in rows if row.head.status == ADDED]) for block, rows in pairs]

    @property
    def sequence_number(self) -> int:
        """
        The data sequence number of its new files: the largest of those they replace.

        A smaller one would let equality deletes take rows that were written after them, a new one would let newer
        deletes miss their rows.
        """
        return max(version.sequence_number for version in self.replaced.values())


def file_key(location: str) -> str:
    """
    What a file is known by: its normal location; as it is where that location needs interpretation.
    """
    try:
        return normal_file(location)
    except PathRefused:
        return location  # another program's file: it is only compared


def key_of(rewrite_id: str) -> str:
    """
    The key of a rewrite in the table's folder.
    """
    return f"{REWRITES}{rewrite_id}{_SUFFIX}"


def parse_key(key: str) -> str:
    """
    The id of the rewrite under this key of the folder; raises RewriteCorrupt where it names none.
    """
    name = key.removeprefix(REWRITES)
    if not name.endswith(_SUFFIX) or not _ID.fullmatch(name.removesuffix(_SUFFIX)):
        raise RewriteCorrupt(f"{key[:200]!r} is not named {REWRITES}<uuid>{_SUFFIX}")
    return name.removesuffix(_SUFFIX)


def encode(
    rewrite_id: str,
    base: Base,
    schema: Schema,
    spec: PartitionSpec,
    new: Iterable[DataFile],
    replaced: Iterable[ReplacedFile],
) -> bytes:
    """
    The bytes to publish under `key_of(rewrite_id)`; raises ValueError for an id that is no UUID in lower case.
    """
    entries = [*map(added, new), *map(_deleted, replaced)]
    return manifest.encode(manifest.header(schema, spec) | header_keys(rewrite_id, base, len(entries)), entries)


def header_keys(rewrite_id: str, base: Base, entries: int) -> dict[str, bytes]:
    """
    What a rewrite's header has beside Iceberg's keys; raises ValueError for an id that is no UUID in lower case.
    """
    if not _ID.fullmatch(rewrite_id):
        raise ValueError(f"{rewrite_id!r} is not a UUID in lower case")
    own = {
        "version": str(VERSION),
        "table-uuid": base.table_uuid,
        "rewrite-id": rewrite_id,
        "base-snapshot-id": str(base.snapshot_id),
        "base-sequence-number": str(base.sequence_number),
        "applied-deletes": json.dumps(list(base.applied_deletes)),
        "entries": str(entries),
    }
    return {PREFIX + key: value.encode() for key, value in own.items()}


def _deleted(old: ReplacedFile) -> Entry:
    return Entry(DELETED, None, old.sequence_number, old.file_sequence_number, DATA, None, None, old.file)


def decode(rewrite_id: str, data: bytes, most_bytes: int) -> Rewrite:
    """
    The rewrite stored under `key_of(rewrite_id)`; raises RewriteCorrupt, or NewerVersion (hold it, do not reject it).
    """
    try:
        return _decode(rewrite_id, data, most_bytes)
    except (TxlogCorrupt, TxlogTooLarge) as exc:
        raise RewriteCorrupt(str(exc)) from exc


def _decode(rewrite_id: str, data: bytes, most_bytes: int) -> Rewrite:
    header = avro.read_header(data)
    own = _own_keys(header.meta)
    if text(own, "rewrite-id") != rewrite_id:
        raise RewriteCorrupt(f"the header says {text(own, 'rewrite-id')[:60]}, the file is named {rewrite_id}")
    if header.meta.get("format-version") != b"2" or header.meta.get("content") != b"data":
        raise RewriteCorrupt("the header must say format-version 2 and content data")
    avro.check_size(data, most_bytes)  # before anything in it is parsed
    base = Base(
        text(own, "table-uuid"),
        _bounded(own, "base-snapshot-id"),
        _bounded(own, "base-sequence-number"),
        _applied_deletes(own["applied-deletes"]),
    )
    body = manifest.decode(data, most_bytes, MOST_ENTRIES, header)
    if number(own, "entries") != len(body.rows):
        # Cut behind a block it would be a whole Avro file that replaces fewer files, or has fewer rows.
        raise RewriteCorrupt(f"the header announces {number(own, 'entries')} entries, the file holds {len(body.rows)}")
    new, replaced = _sorted_by_status(body.rows, base)
    _check_paths(rewrite_id, [body.rows[index].path for index in new], replaced)
    return Rewrite(
        rewrite_id,
        base,
        schema_id(header.meta),
        number(header.meta, "partition-spec-id"),
        body.layout.partition,
        _one_partition(body.rows),
        body,
        tuple(new),
        replaced,
        frozenset(map(file_key, base.applied_deletes)),
    )


def _own_keys(meta: Mapping[str, bytes]) -> dict[str, bytes]:
    own = {key[len(PREFIX) :]: value for key, value in meta.items() if key.startswith(PREFIX)}
    version = own.get("version", b"")
    # Looked at first: what a newer version holds may not look like a rewrite to us.
    if version.isdigit() and len(version) <= DIGITS and int(version) > VERSION:
        raise NewerVersion(
            f"rewrite of format version {int(version)}, this bookkeeper knows up to {VERSION}",
            hint="Upgrade the bookkeeper first, then the compactors; the rewrite waits until then.",
        )
    if unknown := own.keys() - _KEYS:
        raise RewriteCorrupt(f"unknown header key {PREFIX}{min(unknown)[:60]}")
    if lacking := _KEYS - own.keys():
        raise RewriteCorrupt(f"the header lacks {', '.join(PREFIX + key for key in sorted(lacking))}")
    if number(own, "version") < 1:
        raise RewriteCorrupt("there is no format version 0")
    return own


def _bounded(own: Mapping[str, bytes], key: str) -> int:
    value = number(own, key, _SNAPSHOT_DIGITS)
    if value > LARGEST:
        raise RewriteCorrupt(f"header key {PREFIX}{key} is {value}, more than a long")
    return value


def _applied_deletes(raw: bytes) -> tuple[str, ...]:
    if len(raw) > _DELETES_BYTES:
        raise RewriteCorrupt(f"{PREFIX}applied-deletes has {len(raw)} bytes, at most {_DELETES_BYTES} are read")
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as exc:
        raise RewriteCorrupt(f"{PREFIX}applied-deletes is not JSON") from exc
    if not isinstance(found, list) or not all(type(item) is str for item in found):
        raise RewriteCorrupt(f"{PREFIX}applied-deletes is not a JSON list of locations")
    if len(found) > MOST_DELETES:
        raise RewriteCorrupt(f"{len(found)} delete files were applied, at most {MOST_DELETES} are allowed")
    return tuple(found)


def _sorted_by_status(rows: Sequence[EntrySummary], base: Base) -> tuple[list[int], dict[str, FileVersion]]:
    """The indexes of the new files, and the replaced ones."""
    new, replaced = list[int](), dict[str, FileVersion]()
    for index, row in enumerate(rows):
        shown, prefix, entry = row.path[:300], row.head, row.entry
        if entry is not None and (entry.content, entry.equality_ids, entry.referenced_data_file) != (DATA, None, None):
            raise RewriteCorrupt(f"{shown} is no data file: a rewrite names data files only")
        if prefix.snapshot_id is not None:
            raise RewriteCorrupt(f"{shown}: its snapshot id must be null, the commit gives it")
        if prefix == Prefix(ADDED):
            new.append(index)
            continue
        if prefix.status != DELETED or prefix.sequence is None or prefix.file_sequence is None:
            raise RewriteCorrupt(
                f"{shown}: a new file is ADDED (1) without sequence numbers, a replaced one DELETED (2) with both"
            )
        if not 0 <= prefix.sequence <= base.sequence_number or prefix.file_sequence < 0:
            raise RewriteCorrupt(
                f"{shown}: sequence number {prefix.sequence} ({prefix.file_sequence} of the file), "
                f"the snapshot that was read has {base.sequence_number}"
            )
        key = file_key(row.path)
        if key in replaced:
            raise RewriteCorrupt(f"{shown} is named twice")
        replaced[key] = FileVersion(prefix.sequence, prefix.file_sequence)
    if not replaced:
        raise RewriteCorrupt("it replaces no file")
    return new, replaced


def _check_paths(rewrite_id: str, new: Sequence[str], replaced: Mapping[str, FileVersion]) -> None:
    seen = set(replaced)
    for path in new:
        # So a rewrite names only files of its own: never one that a txlog names, or another rewrite.
        if rewrite_id not in path.rpartition("/")[2]:
            raise RewriteCorrupt(f"the new file {path[:300]} has not the rewrite's id in its name")
        if (owner := owner_of(path.rpartition("/")[2])) is not None:
            raise RewriteCorrupt(f"the new file {path[:300]} belongs to txlog {TxlogName(*owner)}, by its name")
        if file_key(path) in seen:
            raise RewriteCorrupt(f"{path[:300]} is named twice")
        seen.add(file_key(path))


def _one_partition(rows: Sequence[EntrySummary]) -> tuple[Any, ...]:
    if len({tuple(map(comparable, row.partition)) for row in rows}) > 1:
        raise RewriteCorrupt("its files lie in more than one partition")
    return rows[0].partition


def comparable(value: Any) -> Any:
    """
    A partition value that is equal to itself and to no other: NaN is not, and 0.0 equals -0.0.
    """
    return value.hex() if isinstance(value, float) else value
