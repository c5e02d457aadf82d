"""Skimming says of every record exactly what decoding it in full says, or refuses it like that does."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import BooleanType, DoubleType, LongType, NestedField, StringType, TimestamptzType, UUIDType

from bookkeeper.errors import TxlogCorrupt
from bookkeeper.format import avro, manifest
from bookkeeper.format.decoder import decode_block
from bookkeeper.format.entries import DataFile, Entry, added
from bookkeeper.format.skim import EntrySummary, Skimmer, columns_of

SCHEMA = Schema(
    NestedField(1, "ts", TimestamptzType(), required=False),
    NestedField(2, "n", LongType(), required=False),
    NestedField(3, "s", StringType(), required=False),
    NestedField(70, "d", DoubleType(), required=False),
    NestedField(4, "u", UUIDType(), required=False),
    NestedField(5, "b", BooleanType(), required=False),
)
SPEC = PartitionSpec(
    PartitionField(1, 1000, DayTransform(), "day"),
    PartitionField(3, 1001, IdentityTransform(), "s"),
    PartitionField(4, 1002, IdentityTransform(), "u"),
    PartitionField(5, 1003, IdentityTransform(), "b"),
    PartitionField(70, 1004, IdentityTransform(), "d"),
)
HEADER = manifest.header(SCHEMA, SPEC)
COLUMNS = [1, 2, 3, 70, 4, 5]


@st.composite
def files(draw: st.DrawFn) -> DataFile:
    columns = draw(st.sampled_from([COLUMNS, COLUMNS[:2], [], [70, 3]]))
    natural = st.integers(0, 2**62)
    counts = st.fixed_dictionaries(dict.fromkeys(columns, natural))
    widths = {1: 8, 2: 8, 70: 8, 4: 16, 5: 1}
    bounds = st.fixed_dictionaries(
        {
            n: st.binary(min_size=widths[n], max_size=widths[n]) if n in widths else st.binary(max_size=20)
            for n in columns
        }
    )
    partition = (
        draw(st.none() | st.integers(-(2**31), 2**31 - 1)),
        draw(st.none() | st.text(max_size=40)),
        draw(st.none() | st.binary(min_size=16, max_size=16)),
        draw(st.none() | st.booleans()),
        draw(st.none() | st.floats(allow_nan=False)),
    )
    return DataFile(
        draw(st.text(min_size=1, max_size=200)),
        draw(st.sampled_from(["PARQUET", "AVRO", "ORC", "x-unknown"])),
        partition,
        draw(natural),
        draw(natural),
        draw(counts),
        draw(counts),
        draw(counts),
        draw(st.fixed_dictionaries(dict.fromkeys([70] if 70 in columns else [], natural))),
        draw(bounds),
        draw(bounds),
        draw(st.none() | st.lists(natural, max_size=12).map(tuple)),
        draw(st.none() | st.integers(-5, 2**31 - 1)),
        draw(st.none() | st.binary(max_size=3)),
    )


def _block(entries: list[Entry]) -> avro.Block:
    (block,) = avro.decode(manifest.encode(HEADER, entries), 2**24).blocks
    return block


def _skimmer(column: int | None = None) -> Skimmer:
    return Skimmer(manifest.parse_layout(HEADER["avro.schema"]), column)


def _said(row: EntrySummary) -> tuple[object, ...]:
    return (row.path, row.file_format, row.partition, row.record_count, row.size_bytes, row.sort_order_id)


def _truth(file: DataFile) -> tuple[object, ...]:
    return (file.path, file.file_format, file.partition, file.record_count, file.size_bytes, file.sort_order_id)


@settings(max_examples=60, deadline=None)
@given(st.lists(files(), min_size=1, max_size=12))
def test_it_says_what_decoding_in_full_says(written: list[DataFile]) -> None:
    block, skims = _block([added(file) for file in written]), _skimmer()
    for _ in range(3):  # the later rounds meet expressions that the first ones made
        rows = list(skims.rows(block.payload, block.count))
        assert [_said(row) for row in rows] == [_truth(file) for file in written]
        assert [row.shape.columns for row in rows] == [columns_of(file) for file in written]
        assert b"".join(block.payload[row.start : row.end] for row in rows) == block.payload


@settings(max_examples=60, deadline=None)
@given(st.lists(files(), min_size=1, max_size=12), st.sampled_from(COLUMNS))
def test_it_says_of_one_column_what_decoding_in_full_says(written: list[DataFile], column: int) -> None:
    block, skims = _block([added(file) for file in written]), _skimmer(column)
    truth = [(file.null_value_counts.get(column), file.upper_bounds.get(column)) for file in written]
    for _ in range(3):
        assert [(row.nulls, row.upper) for row in skims.rows(block.payload, block.count)] == truth


def test_records_of_one_kind_are_not_decoded_after_the_second() -> None:
    block = _block([added(_file(number)) for number in range(50)])
    rows = list(_skimmer().rows(block.payload, block.count))
    assert [row.entry is not None for row in rows] == [True, True] + [False] * 48


def _file(number: int) -> DataFile:
    counts = dict.fromkeys(COLUMNS, number)
    bounds = {1: b"8" * 8, 2: b"8" * 8, 3: b"s" * (number % 17), 70: b"8" * 8, 4: b"u" * 16, 5: b"b"}
    tuples = (number, f"s{number}", None, True, 0.5)
    nans = {70: 0}
    return DataFile(
        f"file:///x/{number}",
        "PARQUET",
        tuples,
        number + 1,
        7919 * number + 1,
        counts,
        counts,
        counts,
        nans,
        bounds,
        bounds,
    )


def test_a_flipped_byte_is_never_accepted_where_decoding_in_full_refuses_it() -> None:
    block, skims = _block([added(_file(number)) for number in range(6)]), _skimmer()
    assert len(list(skims.rows(block.payload, block.count))) == 6
    flips = random.Random(7)
    for _ in range(6_000):
        payload = bytearray(block.payload)
        payload[flips.randrange(len(payload))] = flips.randrange(256)
        broken = avro.Block(block.count, bytes(payload))
        try:
            rows = list(skims.rows(broken.payload, broken.count))
        except TxlogCorrupt:
            continue
        entries = decode_block(broken, skims.layout)
        assert [_said(row) for row in rows] == [_truth(entry.data_file) for entry in entries]
        for row, entry in zip(rows, entries, strict=True):
            if row.entry is None:
                _is_proven(row, entry)


def _is_proven(row: EntrySummary, entry: Entry) -> None:
    file = entry.data_file
    assert (entry.content, entry.equality_ids, entry.referenced_data_file) == (0, None, None)
    counts = (file.column_sizes, file.value_counts, file.null_value_counts, file.nan_value_counts)
    assert all(value >= 0 for named in counts for value in named.values())
    for named in (file.lower_bounds, file.upper_bounds):
        for number, value in named.items():
            assert row.shape.widths[number] in (None, len(value))


@pytest.mark.parametrize("cut", [1, 7, 100])
def test_a_block_that_is_cut_or_too_long_is_refused(cut: int) -> None:
    block, skims = _block([added(_file(number)) for number in range(6)]), _skimmer()
    for payload in (block.payload[:-cut], block.payload + b"\0" * cut):
        with pytest.raises(TxlogCorrupt):
            list(skims.rows(payload, block.count))
