"""
The txlog: an Iceberg manifest with our header keys (docs/maintain/txlog-format.md).

Encoded once by its writer; decoding runs no code and rejects whatever it does not know.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from bookkeeper.contract import offsets as offsets_format
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.offsets import Offsets
from bookkeeper.errors import NameMismatch, NewerVersion, TxlogCorrupt
from bookkeeper.format import avro, manifest
from bookkeeper.format.entries import ADDED, DATA, EQUALITY_DELETES, DataFile, Entry, added
from bookkeeper.format.header_values import DIGITS, number, schema_id, text
from bookkeeper.format.headers import Alike, Headers
from bookkeeper.format.layout import Physical
from bookkeeper.format.manifest import Manifest
from bookkeeper.format.skim import EntrySummary, skimmer_for
from bookkeeper.stores.locations import normal_file

#: the newest that is known; a txlog with offsets is version 3, or 4 where it forgets channels; another one with deletes
#: 2, and one without them 1
VERSION = 4
#: the first with offsets, and the first that forgets channels
WITH_OFFSETS, FORGETTING = 3, 4
PREFIX = "bookkeeper."
POSITION_BYTES = 1024
_REQUIRED = {"version", "table-uuid", "writer", "incarnation", "sequence", "created-ms"}
_OPTIONAL = {"position", "previous-position", "entries"}
_KEYS = _REQUIRED | _OPTIONAL
#: header keys by version: those that must be there, and all
_KEYS_OF = {
    1: (_REQUIRED, _KEYS),
    2: (_REQUIRED | {"entries", "deletes", "span"}, _KEYS | {"deletes", "span"}),
    3: (_REQUIRED | {"entries", "position", "offsets"}, _KEYS | {"deletes", "span", "offsets"}),
}
_KEYS_OF[FORGETTING] = _KEYS_OF[WITH_OFFSETS]
_POSITIONS = ("position", "previous-position")
#: data files and delete files; decoding takes a few KiB of memory for each
MOST_ENTRIES = 100_000
#: of one data file; the largest object of S3 has 50 TB. All files of a txlog together fit in a long
MOST_BYTES = 2**46 - 1
#: sequence numbers that one txlog takes of its table; they are used up for good
MOST_SPAN = 10_000


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of header: the `keys` whose values differ from txlog to txlog, and the values that all of them share."""

    keys: tuple[str, ...]
    schema_id: int
    spec_id: int
    avro_schema: bytes


def _kind(meta: Mapping[str, bytes], keys: Iterable[str]) -> _Kind:
    """The kind of a header, whose records can be skimmed; raises TxlogCorrupt."""
    if "avro.schema" not in meta:
        raise TxlogCorrupt("the header has no avro.schema")
    if meta.get("format-version", b"") != b"2" or meta.get("content", b"") != b"data":
        raise TxlogCorrupt("the header must say format-version 2 and content data")
    names = tuple(key.removeprefix(PREFIX) for key in keys)
    skimmer_for(meta["avro.schema"])
    return _Kind(names, schema_id(meta), number(meta, "partition-spec-id"), meta["avro.schema"])


def _common(meta: Mapping[str, bytes], keys: Sequence[str]) -> _Kind | None:
    """The kind of all headers that begin with `meta` and go on with `keys`, where none but ours come last."""
    own = {key.removeprefix(PREFIX) for key in keys if key.startswith(PREFIX)}
    if not _REQUIRED <= own <= _KEYS or len(own) != len(keys) - 1 or keys[-1] != avro.CODEC:
        return None
    try:
        return _kind(meta, keys)
    except TxlogCorrupt:
        return None


_HEADERS = Headers(PREFIX, _common)


class StepFile(NamedTuple):
    """A file of a step, and its relative sequence number."""

    file: DataFile
    number: int


@dataclass(eq=False)
class DeleteEntries:
    """
    The equality-delete files of a txlog of version 2, every record proven and decoded in full.

    `partition` is the layout of their tuples; `numbers` and `equality_ids` have one item per file.
    """

    spec_id: int
    partition: tuple[tuple[int, Physical], ...]
    body: Manifest = field(repr=False)
    numbers: tuple[int, ...] = field(repr=False)
    equality_ids: tuple[tuple[int, ...], ...] = field(repr=False)

    @property
    def rows(self) -> tuple[EntrySummary, ...]:
        """Its records; each has its `entry`."""
        return self.body.rows

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Its records, decoded in full."""
        return tuple([row.entry for row in self.body.rows if row.entry is not None])

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The normal location of each delete file; raises PathRefused."""
        return tuple([normal_file(row.path) for row in self.rows])


@dataclass(eq=False)
class Txlog:
    """
    A txlog whose every record is proven. `partition` is the layout of its tuples: (field id, Avro type) per field.

    With deletes it has `deletes`, the relative sequence number of each data file, and how many it takes: its span. With
    `offsets` it is of version 3 or 4, and may name no file at all: its slot read on, and there were no rows.
    """

    name: TxlogName
    table_uuid: str
    created_ms: int
    schema_id: int
    spec_id: int
    partition: tuple[tuple[int, Physical], ...]
    position: bytes | None
    previous_position: bytes | None
    body: Manifest = field(repr=False)
    span: int = 1
    numbers: tuple[int, ...] = field(default=(), repr=False)
    deletes: DeleteEntries | None = None
    offsets: Offsets = field(default_factory=dict)
    #: its records, skimmed: what a commit needs to know of each data file
    rows: tuple[EntrySummary, ...] = field(init=False, repr=False)
    #: rows in all its data files, and bytes of them
    row_count: int = field(init=False)
    data_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.rows = self.body.rows
        self.row_count = sum([row.record_count for row in self.rows])
        self.data_bytes = sum([row.size_bytes for row in self.rows])

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Its records, decoded in full when first asked for."""
        return self.body.entries

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The data files it names, decoded in full when first asked for."""
        return tuple(entry.data_file for entry in self.body.entries)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The normal location of each data file; raises PathRefused."""
        return tuple([normal_file(row.path) for row in self.rows])

    @property
    def every_path(self) -> tuple[str, ...]:
        """The normal location of each data file and each delete file; raises PathRefused."""
        return self.paths if self.deletes is None else self.paths + self.deletes.paths

    @property
    def every_row(self) -> tuple[EntrySummary, ...]:
        """The record of each data file and each delete file, as in `every_path`."""
        return self.rows if self.deletes is None else self.rows + self.deletes.rows

    @property
    def delete_count(self) -> int:
        """How many delete files it names."""
        return 0 if self.deletes is None else len(self.deletes.rows)

    @property
    def delete_bytes(self) -> int:
        """Bytes of its delete files."""
        return 0 if self.deletes is None else sum(row.size_bytes for row in self.deletes.rows)


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a writer puts on a txlog beside the data files."""

    name: TxlogName
    table_uuid: str
    created_ms: int
    position: bytes | None = None
    previous_position: bytes | None = None
    #: what each of these channels has reached; only with a position
    offsets: Offsets = field(default_factory=dict)


def encode(envelope: Envelope, schema: Schema, spec: PartitionSpec, files: Iterable[DataFile]) -> bytes:
    """
    The bytes to publish under `envelope.name`; raises ValueError when a position is longer than 1 KiB, or when offsets
    are not allowed so.
    """
    entries = [added(file) for file in files]
    return manifest.encode(_meta(envelope, 1, schema, spec, len(entries)), entries)


def encode_steps(
    envelope: Envelope,
    schema: Schema,
    spec: PartitionSpec,
    data: Sequence[StepFile],
    delete_spec: PartitionSpec,
    deletes: Sequence[StepFile],
    key_ids: Sequence[int],
    span: int,
) -> bytes:
    """
    The bytes of version 2 (3 or 4 with offsets), for data files and equality-delete files by `key_ids`.

    Raises ValueError like `encode`, and when the relative numbers do not fit the span.
    """
    check_numbers([item.number for item in data], [item.number for item in deletes], span)
    ids = tuple(key_ids)
    removing = [Entry(ADDED, None, n, None, EQUALITY_DELETES, ids, None, file) for file, n in deletes]
    meta = _meta(envelope, 2, schema, spec, len(data))
    meta[PREFIX + "span"] = str(span).encode()
    meta[PREFIX + "deletes"] = manifest.encode(manifest.header(schema, delete_spec, b"deletes"), removing)
    return manifest.encode(meta, [Entry(ADDED, None, n, None, DATA, None, None, file) for file, n in data])


def version_of(offsets: Offsets) -> int:
    """
    The version of a txlog with these offsets, of which there are some.
    """
    return FORGETTING if offsets_format.forgets_some(offsets) else WITH_OFFSETS


def check_numbers(data: Sequence[int | None], deletes: Sequence[int | None], span: int) -> None:
    """
    Raises ValueError unless the relative numbers are dense from 1 to span - 1, or 0 of data: the first step's shadow.
    """
    if not deletes:
        raise ValueError("without delete files a txlog is version 1")
    if span > MOST_SPAN:
        raise ValueError(f"the span is {span}, at most {MOST_SPAN} is allowed")
    if 0 in deletes or {0, *data, *deletes} != set(range(span)):
        raise ValueError(
            f"the span is {span}: relative sequence numbers must be dense from 1 to {span - 1}, data files may have 0"
        )


def _meta(envelope: Envelope, version: int, schema: Schema, spec: PartitionSpec, entries: int) -> dict[str, bytes]:
    own = {
        "version": str(version_of(envelope.offsets) if envelope.offsets else version).encode(),
        "table-uuid": envelope.table_uuid.encode(),
        "writer": envelope.name.writer.encode(),
        "incarnation": envelope.name.incarnation.encode(),
        "sequence": str(envelope.name.sequence).encode(),
        "created-ms": str(envelope.created_ms).encode(),
        "entries": str(entries).encode(),
    }
    own |= _positions(envelope)
    if envelope.offsets:
        if envelope.position is None:
            raise ValueError("offsets without a position: which of two runs goes on would not be known")
        own["offsets"] = offsets_format.encode(envelope.offsets)
    return manifest.header(schema, spec) | {PREFIX + key: value for key, value in own.items()}


def _positions(envelope: Envelope) -> dict[str, bytes]:
    pairs = {"position": envelope.position, "previous-position": envelope.previous_position}
    for key, value in pairs.items():
        if value is not None and len(value) > POSITION_BYTES:
            raise ValueError(f"{key} has {len(value)} bytes, at most {POSITION_BYTES} are allowed")
    return {key: value for key, value in pairs.items() if value is not None}


def decode(name: TxlogName, data: bytes, most_bytes: int, column: int | None = None) -> Txlog:
    """
    The txlog stored under `name`; the records of its data files have the null count and the upper bound of `column`.

    Raises TxlogCorrupt, TxlogTooLarge, NameMismatch, or NewerVersion (hold it, do not reject it).
    """
    kind, own, end = _header(data, most_bytes)
    skims = skimmer_for(kind.avro_schema, column)
    raw = manifest.prove(avro.read_blocks(data, end, own[avro.CODEC], most_bytes), skims, MOST_ENTRIES)
    _check_name(name, own)
    _check_count(own, raw)
    found = Txlog(
        name,
        text(own, "table-uuid"),
        number(own, "created-ms"),
        kind.schema_id,
        kind.spec_id,
        raw.layout.partition,
        own.get("position"),
        own.get("previous-position"),
        raw,
    )
    if "deletes" in own:
        _add_deletes(found, own, most_bytes)
    if "offsets" in own:
        found.offsets = offsets_format.decode(own["offsets"], own["version"] == str(FORGETTING).encode())
    return found


def _add_deletes(txlog: Txlog, own: Mapping[str, bytes], most_bytes: int) -> None:
    """What a txlog with deletes has beside others; both manifests together keep the bounds of one."""
    left = most_bytes - sum([len(block.payload) for block in txlog.body.blocks])
    txlog.deletes = _deletes(own["deletes"], txlog.schema_id, left, MOST_ENTRIES - len(txlog.rows))
    txlog.span = number(own, "span")
    numbers = [row.head.sequence for row in txlog.rows]
    try:
        check_numbers(numbers, txlog.deletes.numbers, txlog.span)
    except ValueError as exc:
        raise TxlogCorrupt(str(exc)) from exc
    txlog.numbers = tuple(item for item in numbers if item is not None)


def _deletes(data: bytes, schema: int, most_bytes: int, most_entries: int) -> DeleteEntries:
    avro.check_size(data, most_bytes)  # before anything in it is parsed
    header = avro.read_header(data)
    meta = header.meta
    if meta.get("format-version") != b"2" or meta.get("content") != b"deletes":
        raise TxlogCorrupt(f"the header of {PREFIX}deletes must say format-version 2 and content deletes")
    if unknown := [key for key in meta if key.startswith(PREFIX)]:
        raise TxlogCorrupt(f"unknown header key {min(unknown)[:60]} in {PREFIX}deletes")
    if schema_id(meta) != schema:
        raise TxlogCorrupt(f"{PREFIX}deletes has schema {schema_id(meta)}, the txlog has {schema}")
    body = manifest.decode(data, most_bytes, most_entries, header)
    entries = [row.entry for row in body.rows if row.entry is not None and row.entry.content == EQUALITY_DELETES]
    if len(entries) < len(body.rows):
        raise TxlogCorrupt(f"{PREFIX}deletes names a file that is no equality-delete file (content 2)")
    return DeleteEntries(
        number(meta, "partition-spec-id"),
        body.layout.partition,
        body,
        tuple(-1 if entry.sequence_number is None else entry.sequence_number for entry in entries),
        tuple(entry.equality_ids or () for entry in entries),
    )


def _header(data: bytes, most_bytes: int) -> tuple[_Kind, dict[str, bytes], int]:
    """What its kind has in common, our own keys and the codec, and the byte behind the header."""
    header = _HEADERS.read(data)
    if isinstance(header, Alike):
        own = dict(zip(header.kind.keys, header.values, strict=True))
        if own["version"] != b"1":
            _check_keys({key: value for key, value in own.items() if key != avro.CODEC})
        return header.kind, own, header.end
    own = _own_keys(header.meta)
    avro.check_size(data, most_bytes)  # before anything in it is parsed
    kind = _kind(header.meta, own)
    return kind, own | {avro.CODEC: header.meta.get(avro.CODEC, b"null")}, header.end


def _own_keys(meta: Mapping[str, bytes]) -> dict[str, bytes]:
    own = {key[len(PREFIX) :]: value for key, value in meta.items() if key.startswith(PREFIX)}
    if "version" not in own:
        raise TxlogCorrupt(f"the header has no {PREFIX}version, so this is no txlog")
    _check_keys(own)
    for key in _POSITIONS:
        if len(own.get(key, b"")) > POSITION_BYTES:
            raise TxlogCorrupt(f"{PREFIX}{key} is longer than {POSITION_BYTES} bytes")
    return own


def _check_keys(own: Mapping[str, bytes]) -> None:
    required, known = _KEYS_OF[_version(own)]
    if unknown := own.keys() - known:
        raise TxlogCorrupt(f"unknown header key {PREFIX}{min(unknown)[:60]}")
    if lacking := required - own.keys():
        raise TxlogCorrupt(f"the header lacks {', '.join(PREFIX + key for key in sorted(lacking))}")
    if ("deletes" in own) != ("span" in own):
        raise TxlogCorrupt(f"the header has only one of {PREFIX}deletes and {PREFIX}span")


def _version(own: Mapping[str, bytes]) -> int:
    # Looked at before anything else: what a newer version holds may not look like entries to us at all.
    version = own["version"]
    if version.isdigit() and len(version) <= DIGITS and int(version) > VERSION:
        raise NewerVersion(f"format version {int(version)}, this bookkeeper knows up to {VERSION}")
    if number(own, "version") < 1:
        raise TxlogCorrupt(f"there is no format version {int(version)}")
    return int(version)


def _check_count(own: Mapping[str, bytes], raw: Manifest) -> None:
    if "entries" not in own and len(raw.blocks) > 1:
        # Cut behind a block it would be a whole Avro file, with fewer rows.
        raise TxlogCorrupt(f"the header lacks {PREFIX}entries, which more than one block of entries needs")
    if "entries" in own and number(own, "entries") != len(raw.rows):
        raise TxlogCorrupt(f"the header announces {number(own, 'entries')} entries, the file holds {len(raw.rows)}")


def _check_name(name: TxlogName, own: Mapping[str, bytes]) -> None:
    header = (text(own, "writer"), text(own, "incarnation"), number(own, "sequence"))
    if header != (name.writer, name.incarnation, name.sequence):
        raise NameMismatch(f"the header says {header[0][:70]}.{header[1][:40]}.{header[2]}, the file is named {name}")
