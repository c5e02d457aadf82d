"""Skimming says of every record exactly what decoding it in full says, or refuses it like that does."""

import random
from dataclasses import replace

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
from bookkeeper.format.layout import Layout
from bookkeeper.format.skim import EntrySummary, Skimmer, StatusRow, columns_of

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


def _entry(file: DataFile, status: int, snapshot: int | None) -> Entry:
    return Entry(status, snapshot, 7 if snapshot else None, None, 0, None, None, file)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(files(), st.sampled_from([0, 1, 2]), st.none() | st.integers(1, 2**63 - 1)), min_size=1),
    st.sampled_from([0, 1, 2]),
)
def test_those_of_one_status_are_what_decoding_in_full_says(
    written: list[tuple[DataFile, int, int | None]], status: int
) -> None:
    block, skims = _block([_entry(*item) for item in written]), _skimmer()
    truth = [(snapshot, file.path, file.size_bytes) for file, its, snapshot in written if its == status]
    for _ in range(3):  # the later rounds meet expressions that the first ones made
        assert skims.with_status(block.payload, block.count, status) == truth


def _decoded(block: avro.Block, layout: Layout, status: int) -> list[StatusRow] | None:
    """The rows of one status, decoded in full; None where a path is no text."""
    try:
        found = decode_block(block, layout)
    except TxlogCorrupt as exc:
        if "utf-8" in str(exc):
            return None
        raise
    return [
        (item.snapshot_id, item.data_file.path, item.data_file.size_bytes) for item in found if item.status == status
    ]


@pytest.mark.parametrize("status", [0, 1, 2])
def test_one_status_of_a_block_with_a_flipped_byte_is_what_decoding_in_full_says_or_refused(status: int) -> None:
    entries = [_entry(_file(number), number % 3, number // 2 or None) for number in range(9)]
    block, skims = _block(entries), _skimmer()
    skims.rows(block.payload, block.count)
    flips, refused = random.Random(status), 0
    for _ in range(3_000):
        payload = bytearray(block.payload)
        payload[flips.randrange(len(payload))] = flips.randrange(256)
        broken = avro.Block(block.count, bytes(payload))
        try:
            rows = skims.with_status(broken.payload, broken.count, status)
        except TxlogCorrupt:
            refused += 1
            continue
        # Of a record with another status the path is not read: it need not be text.
        assert _decoded(broken, skims.layout, status) in (rows, None)
    assert refused


def _run_of(*statuses: int) -> avro.Block:
    """Records whose statistics name the same columns, with bounds of the same length."""
    same = [replace(_file(number), lower_bounds={1: b"8" * 8}, upper_bounds={1: b"9" * 8}) for number in range(60)]
    return _block([_entry(file, statuses[n % len(statuses)], n // 20 or None) for n, file in enumerate(same)])


@pytest.mark.parametrize("statuses", [(1,), (2,), (0, 2, 1)])
@pytest.mark.parametrize("status", [0, 1, 2])
def test_records_of_one_kind_are_read_as_a_run(
    statuses: tuple[int, ...], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    block, skims = _run_of(*statuses), _skimmer()
    skims.rows(block.payload, block.count)
    monkeypatch.setattr(Skimmer, "_one_by_one", None)
    assert skims.with_status(block.payload, block.count, status) == _decoded(block, skims.layout, status)


def test_a_run_with_a_flipped_byte_is_what_decoding_in_full_says_or_refused() -> None:
    block, skims = _run_of(1, 1, 2), _skimmer()
    skims.rows(block.payload, block.count)
    flips, runs, refused = random.Random(11), 0, 0
    for _ in range(3_000):
        payload = bytearray(block.payload)
        payload[flips.randrange(len(payload))] = flips.randrange(256)
        broken = avro.Block(block.count, bytes(payload))
        rows = skims._run(broken.payload, broken.count, frozenset({b"\x02"}))
        if rows is None:
            refused += 1
            continue
        runs += 1
        assert _decoded(broken, skims.layout, 1) in (rows, None)
    assert runs > 1_000 and refused > 300


def test_a_path_that_holds_what_follows_a_path_is_read_by_its_length() -> None:
    same = {"lower_bounds": {1: b"8" * 8}, "upper_bounds": {1: b"9" * 8}}
    paths = ["file:///x/\x0ePARQUET/y", "file:///a\nfile:///b", "", "file:///\x0e"]
    block = _block([_entry(replace(_file(n), path=path, **same), 2, None) for n, path in enumerate(paths)])
    plain, skims = _run_of(2), _skimmer()
    skims.rows(plain.payload, plain.count)
    assert [path for _, path, _ in skims.with_status(block.payload, block.count, 2)] == paths


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
        for status in (0, 1):
            with pytest.raises(TxlogCorrupt):
                skims.with_status(payload, block.count, status)
    run = _run_of(2)
    skims.rows(run.payload, run.count)
    for payload in (run.payload[:-cut], run.payload + b"\0" * cut, run.payload + run.payload):
        with pytest.raises(TxlogCorrupt):
            skims.with_status(payload, run.count, 2)
