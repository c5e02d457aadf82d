"""
The txlog: an Iceberg manifest with our header keys (docs/txlog-format.md).

Encoded once by its writer; decoding runs no code and refuses whatever it does not know.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from bookkeeper.core.errors import NameMismatch, NewerVersion, TxlogCorrupt
from bookkeeper.core.names import TxlogName
from bookkeeper.format import manifest
from bookkeeper.format.entries import DataFile, Entry, added
from bookkeeper.format.layout import Physical

VERSION = 1
PREFIX = "bookkeeper."
POSITION_BYTES = 1024
_REQUIRED = {"version", "table-uuid", "writer", "incarnation", "sequence", "created-ms"}
_OPTIONAL = {"position", "previous-position", "entries", "companion"}


@dataclass(frozen=True, slots=True)
class Txlog:
    """
    A decoded txlog. `partition` is the physical layout of its tuples: (field id, Avro type) per spec field.
    """

    name: TxlogName
    table_uuid: str
    created_ms: int
    schema_id: int
    spec_id: int
    partition: tuple[tuple[int, Physical], ...]
    position: bytes | None
    previous_position: bytes | None
    entries: tuple[Entry, ...] = field(repr=False)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The data files it names."""
        return tuple(entry.data_file for entry in self.entries)

    @property
    def row_count(self) -> int:
        """Rows in all its data files."""
        return sum(entry.data_file.record_count for entry in self.entries)

    @property
    def data_bytes(self) -> int:
        """Bytes of all its data files."""
        return sum(entry.data_file.size_bytes for entry in self.entries)


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
    raw = manifest.decode(data, most_bytes)
    own = _own_keys(raw.meta)
    _check_name(name, own)
    _check_header(raw.meta)
    if "entries" in own and _number(own, "entries") != len(raw.entries):
        raise TxlogCorrupt(f"the header announces {own['entries']!r} entries, the file holds {len(raw.entries)}")
    return Txlog(
        name,
        _text(own, "table-uuid"),
        _number(own, "created-ms"),
        _number(raw.meta, "schema-id"),
        _number(raw.meta, "partition-spec-id"),
        raw.layout.partition,
        own.get("position"),
        own.get("previous-position"),
        raw.entries,
    )


def _own_keys(meta: Mapping[str, bytes]) -> dict[str, bytes]:
    own = {key.removeprefix(PREFIX): value for key, value in meta.items() if key.startswith(PREFIX)}
    if "version" not in own:
        raise TxlogCorrupt(f"the header has no {PREFIX}version, so this is no txlog")
    if _number(own, "version") > VERSION:
        raise NewerVersion(f"format version {_number(own, 'version')}, this bookkeeper knows up to {VERSION}")
    unknown, lacking = own.keys() - _REQUIRED - _OPTIONAL, _REQUIRED - own.keys()
    if unknown:
        raise TxlogCorrupt(f"unknown header key {PREFIX}{min(unknown)[:60]}")
    if lacking:
        raise TxlogCorrupt(f"the header lacks {', '.join(PREFIX + key for key in sorted(lacking))}")
    for key in ("position", "previous-position"):
        if len(own.get(key, b"")) > POSITION_BYTES:
            raise TxlogCorrupt(f"{PREFIX}{key} is longer than {POSITION_BYTES} bytes")
    return own


def _check_name(name: TxlogName, own: Mapping[str, bytes]) -> None:
    said = (_text(own, "writer"), _text(own, "incarnation"), _number(own, "sequence"))
    if said != (name.writer, name.incarnation, name.sequence):
        raise NameMismatch(f"the header says {said[0][:70]}.{said[1][:40]}.{said[2]}, the file is named {name}")


def _check_header(meta: Mapping[str, bytes]) -> None:
    if meta.get("format-version", b"") != b"2" or meta.get("content", b"") != b"data":
        raise TxlogCorrupt("the header must say format-version 2 and content data")


def _text(values: Mapping[str, bytes], key: str) -> str:
    return values[key].decode("utf-8", "replace")


def _number(values: Mapping[str, bytes], key: str) -> int:
    text = values.get(key, b"")
    if not text.isdigit() or len(text) > 18:
        raise TxlogCorrupt(f"header key {key} is {text[:40]!r}, not a number")
    return int(text)
