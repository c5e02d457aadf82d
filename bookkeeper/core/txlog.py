"""
The txlog: an Iceberg manifest with our header keys (docs/txlog-format.md).

Encoded once by its writer; decoding runs no code and rejects whatever it does not know.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from bookkeeper.core.names import TxlogName
from bookkeeper.errors import NameMismatch, NewerVersion, TxlogCorrupt
from bookkeeper.format import avro, manifest
from bookkeeper.format.entries import DataFile, Entry, added
from bookkeeper.format.header_values import DIGITS, number, schema_id, text
from bookkeeper.format.headers import Alike, Headers
from bookkeeper.format.layout import Physical
from bookkeeper.format.manifest import Manifest
from bookkeeper.format.skim import EntrySummary, Skimmer, skimmer_for
from bookkeeper.stores.locations import normal_file

VERSION = 1
PREFIX = "bookkeeper."
POSITION_BYTES = 1024
_REQUIRED = {"version", "table-uuid", "writer", "incarnation", "sequence", "created-ms"}
_OPTIONAL = {"position", "previous-position", "entries"}
_KEYS = _REQUIRED | _OPTIONAL
_POSITIONS = ("position", "previous-position")
#: decoding takes a few KiB of memory for each
MOST_ENTRIES = 100_000
#: of one data file; the largest object of S3 has 50 TB. All files of a txlog together fit in a long
MOST_BYTES = 2**46 - 1


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of header: the `keys` whose values differ from txlog to txlog, and the values that all of them share."""

    keys: tuple[str, ...]
    schema_id: int
    spec_id: int
    skims: Skimmer


def _kind(meta: Mapping[str, bytes], keys: Iterable[str]) -> _Kind:
    """The kind of a header; raises TxlogCorrupt."""
    if "avro.schema" not in meta:
        raise TxlogCorrupt("the header has no avro.schema")
    if meta.get("format-version", b"") != b"2" or meta.get("content", b"") != b"data":
        raise TxlogCorrupt("the header must say format-version 2 and content data")
    names = tuple(key.removeprefix(PREFIX) for key in keys)
    return _Kind(names, schema_id(meta), number(meta, "partition-spec-id"), skimmer_for(meta["avro.schema"]))


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


@dataclass(eq=False)
class Txlog:
    """
    A txlog whose every record is proven. `partition` is the layout of its tuples: (field id, Avro type) per field.
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


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a writer puts on a txlog beside the data files."""

    name: TxlogName
    table_uuid: str
    created_ms: int
    position: bytes | None = None
    previous_position: bytes | None = None


def encode(envelope: Envelope, schema: Schema, spec: PartitionSpec, files: Iterable[DataFile]) -> bytes:
    """
    The bytes to publish under `envelope.name`; raises ValueError when a position is longer than 1 KiB.
    """
    entries = [added(file) for file in files]
    own = {
        "version": str(VERSION).encode(),
        "table-uuid": envelope.table_uuid.encode(),
        "writer": envelope.name.writer.encode(),
        "incarnation": envelope.name.incarnation.encode(),
        "sequence": str(envelope.name.sequence).encode(),
        "created-ms": str(envelope.created_ms).encode(),
        "entries": str(len(entries)).encode(),
    }
    own |= _positions(envelope)
    meta = manifest.header(schema, spec) | {PREFIX + key: value for key, value in own.items()}
    return manifest.encode(meta, entries)


def _positions(envelope: Envelope) -> dict[str, bytes]:
    pairs = {"position": envelope.position, "previous-position": envelope.previous_position}
    for key, value in pairs.items():
        if value is not None and len(value) > POSITION_BYTES:
            raise ValueError(f"{key} has {len(value)} bytes, at most {POSITION_BYTES} are allowed")
    return {key: value for key, value in pairs.items() if value is not None}


def decode(name: TxlogName, data: bytes, most_bytes: int) -> Txlog:
    """
    The txlog stored under `name`.

    Raises TxlogCorrupt, TxlogTooLarge, NameMismatch, or NewerVersion (hold it, do not reject it).
    """
    kind, own, end = _header(data, most_bytes)
    raw = manifest.prove(avro.read_blocks(data, end, own[avro.CODEC], most_bytes), kind.skims, MOST_ENTRIES)
    _check_name(name, own)
    _check_count(own, raw)
    return Txlog(
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


def _header(data: bytes, most_bytes: int) -> tuple[_Kind, dict[str, bytes], int]:
    """What its kind has in common, our own keys and the codec, and the byte behind the header."""
    header = _HEADERS.read(data)
    if isinstance(header, Alike):
        own = dict(zip(header.kind.keys, header.values, strict=True))
        _check_version(own)
        return header.kind, own, header.end
    own = _own_keys(header.meta)
    avro.check_size(data, most_bytes)  # before anything in it is parsed
    kind = _kind(header.meta, own)
    return kind, own | {avro.CODEC: header.meta.get(avro.CODEC, b"null")}, header.end


def _own_keys(meta: Mapping[str, bytes]) -> dict[str, bytes]:
    own = {key[len(PREFIX) :]: value for key, value in meta.items() if key.startswith(PREFIX)}
    if "version" not in own:
        raise TxlogCorrupt(f"the header has no {PREFIX}version, so this is no txlog")
    _check_version(own)
    if not _REQUIRED <= own.keys() <= _KEYS:
        raise TxlogCorrupt(_wrong_keys(own))
    for key in _POSITIONS:
        if len(own.get(key, b"")) > POSITION_BYTES:
            raise TxlogCorrupt(f"{PREFIX}{key} is longer than {POSITION_BYTES} bytes")
    return own


def _wrong_keys(own: Mapping[str, bytes]) -> str:
    unknown, lacking = own.keys() - _KEYS, _REQUIRED - own.keys()
    if unknown:
        return f"unknown header key {PREFIX}{min(unknown)[:60]}"
    return f"the header lacks {', '.join(PREFIX + key for key in sorted(lacking))}"


def _check_version(own: Mapping[str, bytes]) -> None:
    # Looked at before anything else: what a newer version holds may not look like entries to us at all.
    version = own["version"]
    if version.isdigit() and len(version) <= DIGITS and int(version) > VERSION:
        raise NewerVersion(f"format version {int(version)}, this bookkeeper knows up to {VERSION}")
    if number(own, "version") < 1:
        raise TxlogCorrupt(f"there is no format version {int(version)}")


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
