"""
Skims the records of a manifest: proves each one's length and reads the few fields a commit needs.

Decoding every statistic of every file would cost more than all the rest of a commit (50 columns: about 200 us an
entry with a full decoder, 8 us here; benchmarks/skim.py). So one regular expression is made from the first record
of a kind (which columns its statistics name, in which order) and matched against the following ones: it accepts
exactly the bytes that a full decoder would, with those columns, counts that are not negative, and bounds of the
length their columns had. A record that does not match is decoded in full, and may make another expression.

Spec: "Manifests", fields 0-4 and 100-143; Avro 1.11, "Binary encoding".
"""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from bookkeeper.core.errors import TxlogCorrupt
from bookkeeper.format.avro import encode_long
from bookkeeper.format.decoder import decode_one
from bookkeeper.format.entries import DATA_FILE, ENTRY, DataFile, Entry
from bookkeeper.format.layout import Layout, Physical, parse_layout

#: a varint of at most 63 bits; the second form is one that is not negative (its zigzag code is even)
_VARINT = rb"[\x80-\xff]{0,8}[\x00-\x7f]"
_VARINT_64 = rb"(?:[\x80-\xff]{0,8}[\x00-\x7f]|[\x80-\xff]{9}[\x00\x01])"
_VARINT_32 = rb"(?:[\x80-\xff]{0,3}[\x00-\x7f]|[\x80-\xff]{4}[\x00-\x0f])"
_EVEN_LAST = b"[" + b"".join(re.escape(bytes([byte])) for byte in range(0, 0x80, 2)) + b"]"
_EVEN_MORE = b"[" + b"".join(re.escape(bytes([byte])) for byte in range(0x80, 0x100, 2)) + b"]"
_NATURAL = b"(?:" + _EVEN_LAST + b"|" + _EVEN_MORE + rb"[\x80-\xff]{0,7}[\x00-\x7f])"
_OPTIONAL_LONG = rb"(?:\x00|\x02" + _VARINT_64 + rb")"
#: status, snapshot id, sequence number, file sequence number; then content and the length of the path
_HEAD = re.compile(rb"([\x00\x02\x04]" + _OPTIONAL_LONG * 3 + rb")\x00(" + _NATURAL + b")", re.DOTALL)
_MOST_EXPRESSIONS = 32
_MOST_SIGNATURES = 1000
_MOST_TRIES = 6
_MOST_TUPLES = 10_000
_TRUNCATED = 16  # bytes of a truncated bound
_MOST_SHORT = 64
_MOST_OFFSETS = 8

Signature = tuple[tuple[int, ...], ...]
Kinds = tuple[tuple[int, Physical], ...]
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")
_FIXED = {"boolean": 1, "float": 4, "double": 8}
_UNPACK = {"float": "<f", "double": "<d", "boolean": "<?"}


@dataclass(frozen=True, slots=True)
class Shape:
    """
    What statistics of a kind of record look like: the columns they name, and the bytes of each bound.

    A bound whose length varies from record to record has the width None.
    """

    columns: frozenset[int]
    widths: Mapping[int, int | None]


class Row(NamedTuple):
    """
    One skimmed record: `payload[start:end]` are its bytes, `prefix` those before the data file.

    Without an `entry` it is proven that content is data, that equality ids and referenced data file are null, that
    no count is negative, and that the statistics have this `shape`.
    """

    start: int
    end: int
    prefix: bytes
    path: str
    file_format: str
    partition: tuple[Any, ...]
    record_count: int
    size_bytes: int
    sort_order_id: int | None
    shape: Shape
    entry: Entry | None


@dataclass
class Skimmer:
    """
    Skims blocks of one layout; what it learns from one block serves the next.
    """

    layout: Layout
    expressions: list[tuple[re.Pattern[bytes], Shape]] = field(default_factory=list)
    #: of each signature: how often it was decoded in full, and the widths that all of those had
    met: dict[Signature, tuple[int, dict[int, int]]] = field(default_factory=dict)
    tuples: dict[tuple[bytes, ...], tuple[Any, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.standard = is_standard(self.layout)

    def rows(self, payload: bytes, count: int) -> Iterator[Row]:
        """
        The `count` records in `payload`; raises TxlogCorrupt when they are not exactly that.
        """
        if count > len(payload):
            raise TxlogCorrupt(f"{count} records in {len(payload)} bytes")
        at = 0
        for _ in range(count):
            row = self._quick(payload, at) or self._slow(payload, at)
            at = row.end
            yield row
        if at != len(payload):
            raise TxlogCorrupt(f"{len(payload) - at} bytes behind the last record of a block")

    def _quick(self, payload: bytes, at: int) -> Row | None:
        head = _HEAD.match(payload, at)
        if head is None:
            return None
        begin = head.end()
        end = begin + _number(head[2])
        for expression, shape in self.expressions:
            body = expression.match(payload, end)
            if body is not None:
                return self._row(head, body, payload[begin:end], shape)
        return None

    def _row(self, head: re.Match[bytes], body: re.Match[bytes], path: bytes, shape: Shape) -> Row | None:
        file_format, *partition, records, size, order = body.groups()
        try:
            return Row(
                head.start(),
                body.end(),
                head[1],
                path.decode(),
                file_format[1:].decode(),
                self._tuple(tuple(partition)),
                _number(records),
                _number(size),
                _signed(order) if order else None,
                shape,
                None,
            )
        except UnicodeDecodeError:
            return None

    def _tuple(self, raw: tuple[bytes, ...]) -> tuple[Any, ...]:
        known = self.tuples.get(raw)
        if known is None:
            kinds = [kind for _, kind in self.layout.partition]
            known = tuple(_partition_value(value, kind) for value, kind in zip(raw, kinds, strict=True))
            if len(self.tuples) < _MOST_TUPLES:
                self.tuples[raw] = known
        return known

    def _slow(self, payload: bytes, at: int) -> Row:
        entry, end = decode_one(payload, at, self.layout)
        file, head = entry.data_file, _HEAD.match(payload, at)
        if self.standard and head is not None:
            self._learn(entry)
        return Row(
            at,
            end,
            head[1] if head else b"",
            file.path,
            file.file_format,
            file.partition,
            file.record_count,
            file.size_bytes,
            file.sort_order_id,
            Shape(columns_of(file), widths_of(file)),
            entry,
        )

    def _learn(self, entry: Entry) -> None:
        """Makes an expression for the second record of a signature, a looser one each time it was too tight."""
        file = entry.data_file
        signature = tuple(tuple(getattr(file, name)) for name in (*_COUNTS, *_BOUNDS))
        times, before = self.met.get(signature, (0, widths_of(file)))
        rigid = {number: width for number, width in widths_of(file).items() if before.get(number) == width}
        self.met[signature] = (times + 1, rigid)
        if 0 < times <= _MOST_TRIES:
            shape = Shape(columns_of(file), {number: rigid.get(number) for number in widths_of(file)})
            self.expressions.insert(0, (expression_for(entry, self.layout.partition, rigid), shape))
            del self.expressions[_MOST_EXPRESSIONS:]
        if len(self.met) > _MOST_SIGNATURES:
            self.met.pop(next(iter(self.met)))


@lru_cache(maxsize=64)
def skimmer(avro_schema: bytes) -> Skimmer:
    """
    The skimmer of all manifests with this Avro schema; raises TxlogCorrupt like `parse_layout`.
    """
    return Skimmer(parse_layout(avro_schema))


def columns_of(file: DataFile) -> frozenset[int]:
    """
    The field ids that the statistics of a file name.
    """
    return frozenset(number for name in (*_COUNTS, *_BOUNDS) for number in getattr(file, name))


def widths_of(file: DataFile) -> dict[int, int]:
    """
    The length of each column's bounds; -1 where lower and upper differ.
    """
    widths = {number: len(value) for number, value in file.lower_bounds.items()}
    for number, value in file.upper_bounds.items():
        widths[number] = len(value) if widths.get(number, len(value)) == len(value) else -1
    return widths


def _number(raw: bytes) -> int:
    value = shift = 0
    for byte in raw:
        value |= (byte & 0x7F) << shift
        shift += 7
    return value >> 1


def _signed(raw: bytes) -> int:
    value = shift = 0
    for byte in raw:
        value |= (byte & 0x7F) << shift
        shift += 7
    return value >> 1 ^ -(value & 1)


def expression_for(entry: Entry, partition: Kinds, rigid: Mapping[int, int]) -> re.Pattern[bytes]:
    """
    Matches what follows the path of records like `entry`: same columns in the same order, any values.

    Groups: file format, one per partition field, record count, size, sort order id. Bounds of a column in `rigid`
    have that many bytes, others up to 16 or what this record has.
    """
    file = entry.data_file
    parts = [
        b"(" + _short(rb"[A-Za-z]{%d}", range(3, 9)) + b")",
        *(b"(" + _partition_pattern(kind) + b")" for _, kind in partition),
        b"(" + _NATURAL + b")(" + _NATURAL + b")",
        *(_counts(getattr(file, name)) for name in _COUNTS),
        *(_bounds(getattr(file, name), rigid) for name in _BOUNDS),
        rb"\x00" + _offsets() + rb"\x00(?:\x00|\x02(" + _VARINT_32 + rb"))\x00",
    ]
    return re.compile(b"".join(parts), re.DOTALL)


def _counts(values: Mapping[int, int]) -> bytes:
    return _map(values, [_key(number) + _NATURAL for number in values])


def _bounds(values: Mapping[int, bytes], rigid: Mapping[int, int]) -> bytes:
    return _map(values, [_key(number) + _bound(len(value), rigid.get(number)) for number, value in values.items()])


def _map(values: Sized, pairs: list[bytes]) -> bytes:
    if not values:
        return rb"(?:\x00|\x02\x00)"
    return rb"\x02" + _key(len(values)) + b"".join(pairs) + rb"\x00"


def _key(number: int) -> bytes:
    return re.escape(encode_long(number))


def _bound(size: int, rigid: int | None) -> bytes:
    if rigid == size:
        return _key(size) + b".{%d}" % size
    return _short(b".{%d}", [size, *(other for other in range(_TRUNCATED, -1, -1) if other != size)])


def _short(pattern: bytes, sizes: Iterable[int]) -> bytes:
    return b"(?:" + b"|".join(_key(size) + pattern % size for size in sizes) + b")"


def _offsets() -> bytes:
    lists = b"|".join(_key(count) + _VARINT * count for count in range(1, _MOST_OFFSETS + 1))
    return rb"(?:\x00|\x02(?:" + lists + rb")\x00)"


def _partition_pattern(kind: Physical) -> bytes:
    if isinstance(kind, tuple):
        value = b".{%d}" % kind[1]
    elif kind in ("int", "long"):
        value = _VARINT_32 if kind == "int" else _VARINT_64
    elif kind in _FIXED:
        value = b".{%d}" % _FIXED[kind]
    else:
        value = _short(b".{%d}", range(_MOST_SHORT + 1))
    return rb"\x00|\x02" + value


def _partition_value(raw: bytes, kind: Physical) -> Any:
    if raw == b"\0":
        return None
    value = raw[1:]
    if isinstance(kind, tuple):
        return value
    if kind in ("int", "long"):
        return _signed(value)
    if kind in _UNPACK:
        return struct.unpack(_UNPACK[kind], value)[0]
    # Up to 63 bytes have a length of one byte, 64 have one of two.
    text = value[1:] if value[0] < 0x80 else value[2:]
    return text.decode() if kind == "string" else text


def is_standard(layout: Layout) -> bool:
    """
    Whether records lie as Iceberg Java writes them: every known field, in its order, partition fields optional.
    """
    entry = layout.schema["fields"]
    if not _in_order(entry, ENTRY):
        return False
    data_file = entry[-1]["type"]["fields"]
    return _in_order(data_file, DATA_FILE) and all(
        isinstance(item["type"], list) for item in data_file[3]["type"]["fields"]
    )


def _in_order(fields: Any, known: Mapping[int, tuple[str, Any, bool]]) -> bool:
    written = [(item["name"], not isinstance(item["type"], list)) for item in fields]
    return written == [(name, required) for name, _, required in known.values()]
