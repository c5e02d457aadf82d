"""
Skims the records of a manifest: proves each one's length and reads the few fields a commit needs.

Decoding every statistic of every file would cost more than all the rest of a commit. So the skimmer learns from
records that it decoded in full:

1. A record whose statistics name the same columns in the same order as an earlier one makes a regular expression.
2. The expression accepts only bytes that the full decoder accepts, with those columns, with counts that are not
   negative, and with bounds of the length that their columns had.
3. Later records are matched against the expressions. A record that matches none is decoded in full.
"""

import re
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from bookkeeper.errors import TxlogCorrupt
from bookkeeper.format.decoder import decode_one
from bookkeeper.format.entries import DataFile, Entry
from bookkeeper.format.layout import Layout, Physical, parse_layout
from bookkeeper.format.skim.expressions import BOUNDS, COUNTS, HEAD, expression_for

_MOST_EXPRESSIONS = 32
_MOST_SIGNATURES = 1000
_MOST_TRIES = 6
_MOST_TUPLES = 10_000
#: of a record that makes an expression, which takes about 1 ms a column
_MOST_COLUMNS = 300

Signature = tuple[tuple[int, ...], ...]
_UNPACK = {"float": "<f", "double": "<d", "boolean": "<?"}


@dataclass(frozen=True, slots=True)
class StatsShape:
    """
    The shape of the statistics of a kind of record: the columns they name, and the bytes of each bound.

    The width of a bound is None where it varies from record to record.
    """

    columns: frozenset[int]
    widths: Mapping[int, int | None]


class EntrySummary(NamedTuple):
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
    shape: StatsShape
    entry: Entry | None
    #: of the skimmer's column; None where the statistics do not have them
    nulls: int | None = None
    upper: bytes | None = None


@dataclass
class Skimmer:
    """
    Skims blocks of one layout, with the null count and upper bound of one `column`; keeps what it learned.
    """

    layout: Layout
    column: int | None = None
    expressions: list[tuple[re.Pattern[bytes], StatsShape]] = field(default_factory=list)
    #: by signature: how many records were decoded in full, and the bound widths that all of them had
    met: dict[Signature, tuple[int, dict[int, int]]] = field(default_factory=dict)
    tuples: dict[tuple[bytes, ...], tuple[Any, ...]] = field(default_factory=dict)
    learning: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def rows(self, payload: bytes, count: int) -> tuple[EntrySummary, ...]:
        """
        The `count` records in `payload`; raises TxlogCorrupt when they are not exactly that.
        """
        if count > len(payload):
            raise TxlogCorrupt(f"{count} records in {len(payload)} bytes")
        at, rows = 0, list[EntrySummary]()
        for _ in range(count):
            row = self._match(payload, at) or self._decode(payload, at)
            at = row.end
            rows.append(row)
        if at != len(payload):
            raise TxlogCorrupt(f"{len(payload) - at} bytes behind the last record of a block")
        return tuple(rows)

    def _match(self, payload: bytes, at: int) -> EntrySummary | None:
        head = HEAD.match(payload, at)
        if head is None:
            return None
        begin = head.end()
        end = begin + _number(head[2])
        for expression, shape in self.expressions:
            body = expression.match(payload, end)
            if body is not None:
                return self._row(head, body, payload[begin:end], shape)
        return None

    def _row(self, head: re.Match[bytes], body: re.Match[bytes], path: bytes, shape: StatsShape) -> EntrySummary | None:
        file_format, *partition, records, size, nulls, upper, order = body.groups()
        try:
            return EntrySummary(
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
                _number(nulls) if nulls else None,
                _bytes(upper) if upper else None,
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

    def _decode(self, payload: bytes, at: int) -> EntrySummary:
        entry, end = decode_one(payload, at, self.layout)
        file, head = entry.data_file, HEAD.match(payload, at)
        if self.layout.standard and head is not None and len(columns_of(file)) <= _MOST_COLUMNS:
            with self.learning:  # tables of the same columns share a skimmer
                self._learn(entry)
        return EntrySummary(
            at,
            end,
            head[1] if head else b"",
            file.path,
            file.file_format,
            file.partition,
            file.record_count,
            file.size_bytes,
            file.sort_order_id,
            StatsShape(columns_of(file), widths_of(file)),
            entry,
            None if self.column is None else file.null_value_counts.get(self.column),
            None if self.column is None else file.upper_bounds.get(self.column),
        )

    def _learn(self, entry: Entry) -> None:
        """Makes an expression from a signature's second record, and a looser one from each that did not match."""
        file = entry.data_file
        signature = tuple(tuple(getattr(file, name)) for name in (*COUNTS, *BOUNDS))
        times, before = self.met.get(signature, (0, widths_of(file)))
        rigid = {number: width for number, width in widths_of(file).items() if before.get(number) == width}
        self.met[signature] = (times + 1, rigid)
        if 0 < times <= _MOST_TRIES:
            shape = StatsShape(columns_of(file), {number: rigid.get(number) for number in widths_of(file)})
            made = (expression_for(entry, self.layout.partition, rigid, self.column), shape)
            self.expressions = [made, *self.expressions][:_MOST_EXPRESSIONS]
        if len(self.met) > _MOST_SIGNATURES:
            self.met.pop(next(iter(self.met)))


@lru_cache(maxsize=1024)
def skimmer_for(avro_schema: bytes, column: int | None = None) -> Skimmer:
    """
    The skimmer of all manifests with this Avro schema; raises TxlogCorrupt like `parse_layout`.
    """
    return Skimmer(parse_layout(avro_schema), column)


def columns_of(file: DataFile) -> frozenset[int]:
    """
    The field ids that the statistics of a file name.
    """
    return frozenset(number for name in (*COUNTS, *BOUNDS) for number in getattr(file, name))


def widths_of(file: DataFile) -> dict[int, int]:
    """
    The length of each column's bounds; -1 where the two lengths differ.
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
    text = _bytes(value)
    return text.decode() if kind == "string" else text


def _bytes(raw: bytes) -> bytes:
    # Up to 63 bytes have a length of one byte, more have one of two.
    return raw[1:] if raw[0] < 0x80 else raw[2:]
