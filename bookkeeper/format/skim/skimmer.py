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
from functools import cached_property, lru_cache
from itertools import compress
from typing import Any, NamedTuple

from bookkeeper.errors import TxlogCorrupt
from bookkeeper.format.decoder import decode_one
from bookkeeper.format.entries import DataFile, Entry
from bookkeeper.format.layout import Layout, Physical, parse_layout
from bookkeeper.format.records import Prefix, read_prefix
from bookkeeper.format.skim.expressions import BOUNDS, COUNTS, HEAD, PREFIX, Kinds, expression_for, run_expression_for

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

    @property
    def head(self) -> Prefix:
        """Its status, snapshot id and sequence numbers, as they are stored."""
        if self.entry is None:
            return read_prefix(self.prefix)
        entry = self.entry
        return Prefix(entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)


@dataclass
class Learned:
    """What was learned from a record: `one` matches what follows the path of a record like it."""

    one: re.Pattern[bytes]
    shape: StatsShape
    entry: Entry = field(repr=False)
    rigid: Mapping[int, int] = field(repr=False)
    partition: Kinds = field(repr=False)

    @cached_property
    def run(self) -> re.Pattern[bytes] | None:
        """Splits a run of such records; made when it is first asked for: it takes 2 ms, and 0.15 a column."""
        return run_expression_for(self.entry, self.partition, self.rigid)


#: a record as `Skimmer.with_status` reads it: its snapshot (None: inherited), its path and the bytes of its file
StatusRow = tuple[int | None, str, int]


@dataclass
class Skimmer:
    """
    Skims blocks of one layout, with the null count and upper bound of one `column`; keeps what it learned.
    """

    layout: Layout
    column: int | None = None
    learned: list[Learned] = field(default_factory=list)
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

    def with_status(self, payload: bytes, count: int, *statuses: int) -> list[StatusRow]:
        """
        Those of the `count` records in `payload` that have one of these statuses; raises TxlogCorrupt as `rows` does.

        Every record is proven; of one with another status the path is not read. Records of one kind take 1 us each, and
        `rows` takes 4; where the kinds change within a block it is 2 us.
        """
        if count > len(payload):
            raise TxlogCorrupt(f"{count} records in {len(payload)} bytes")
        asked = frozenset(bytes([status << 1]) for status in statuses)
        found = self._run(payload, count, asked)
        return self._one_by_one(payload, count, asked) if found is None else found

    def _run(self, payload: bytes, count: int, asked: frozenset[bytes]) -> list[StatusRow] | None:
        """As `with_status`, where all records are of one kind that was learned; None where they are not."""
        kind = self._kind_at(payload, 0)
        if kind is None or kind.run is None or count < 1:
            return None
        # [before, five groups, before, five groups, ..., behind]: nothing is before a record, because all is matched.
        parts = kind.run.split(payload, count)
        if len(parts) != 6 * count + 1 or parts[-1] or parts[-2] is None:
            return None
        statuses, snapshots, lengths, paths, sizes = (parts[group::6] for group in range(1, 6))
        # The paths were ended by what follows them; now each is proven to have the length that is written before it.
        if any(_signed(raw) != length for raw, length in set(zip(lengths, map(len, paths), strict=True))):
            return None
        wanted = [*map(asked.__contains__, statuses)]
        try:
            texts = b"\n".join(compress(paths, wanted)).decode().split("\n") if any(wanted) else []
        except UnicodeDecodeError:
            return None
        if len(texts) != sum(wanted):  # a path of several lines
            return None
        ids = {raw: _signed(raw[1:]) if raw != b"\0" else None for raw in {*snapshots}}
        bytes_of = {raw: _signed(raw) for raw in {*compress(sizes, wanted)}}
        known = map(ids.__getitem__, compress(snapshots, wanted))
        return [*zip(known, texts, map(bytes_of.__getitem__, compress(sizes, wanted)), strict=True)]

    def _kind_at(self, payload: bytes, at: int) -> Learned | None:
        head = HEAD.match(payload, at)
        end = head.end() + _number(head[2]) if head else 0
        return next((kind for kind in self.learned if head and kind.one.match(payload, end)), None)

    def _one_by_one(self, payload: bytes, count: int, asked: frozenset[bytes]) -> list[StatusRow]:
        """As `with_status`, whatever the records are."""
        at, found, size = 0, list[StatusRow](), 3 + len(self.layout.partition)
        # The bytes in front of the last path, and what they say: most records repeat them.
        head, length, snapshot, wanted = b"", 0, None, False
        for _ in range(count):
            if not head or not payload.startswith(head, at):
                head, length, snapshot = _beginning(payload, at)
                wanted = head[:1] in asked
            begin, body = at + len(head), None
            for kind in self.learned if head else ():
                body = kind.one.match(payload, begin + length)
                if body is not None:
                    break
            try:
                path = payload[begin : begin + length].decode() if body and wanted else ""
            except UnicodeDecodeError:
                body = None
            if body is None:
                rows, at = self._decode_one(payload, at, asked)
                found += rows
                continue
            if wanted:
                found.append((snapshot, path, _number(body[size])))
            at = body.end()
        if at != len(payload):
            raise TxlogCorrupt(f"{len(payload) - at} bytes behind the last record of a block")
        return found

    def _decode_one(self, payload: bytes, at: int, asked: frozenset[bytes]) -> tuple[list[StatusRow], int]:
        """The record at `at`, if its status is asked for, and where it ends."""
        row = self._decode(payload, at)
        if row.entry is None or row.entry.status not in {raw[0] >> 1 for raw in asked}:
            return [], row.end
        return [(row.entry.snapshot_id, row.path, row.size_bytes)], row.end

    def _match(self, payload: bytes, at: int) -> EntrySummary | None:
        head = HEAD.match(payload, at)
        if head is None:
            return None
        begin = head.end()
        end = begin + _number(head[2])
        for kind in self.learned:
            body = kind.one.match(payload, end)
            if body is not None:
                return self._row(head, body, payload[begin:end], kind.shape)
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
        file, prefix = entry.data_file, PREFIX.match(payload, at)
        if self.layout.standard and HEAD.match(payload, at) is not None and len(columns_of(file)) <= _MOST_COLUMNS:
            with self.learning:  # tables of the same columns share a skimmer
                self._learn(entry)
        return EntrySummary(
            at,
            end,
            prefix[0] if prefix else b"",
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
            one = expression_for(entry, self.layout.partition, rigid, self.column)
            made = Learned(one, shape, entry, rigid, self.layout.partition)
            self.learned = [made, *self.learned][:_MOST_EXPRESSIONS]
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


def _beginning(payload: bytes, at: int) -> tuple[bytes, int, int | None]:
    """The bytes in front of a record's path, its length, and the snapshot id; no bytes where none match."""
    match = HEAD.match(payload, at)
    if match is None:
        return b"", 0, None
    return match[0], _number(match[2]), read_prefix(match[1]).snapshot_id


def _bytes(raw: bytes) -> bytes:
    # Up to 63 bytes have a length of one byte, more have one of two.
    return raw[1:] if raw[0] < 0x80 else raw[2:]
