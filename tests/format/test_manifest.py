"""Manifests: what was written is read back, by us and by Iceberg; what is no manifest is refused."""

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform

from bookkeeper.errors import TxlogCorrupt, TxlogTooLarge
from bookkeeper.format import avro, decoder, manifest
from bookkeeper.format.avro import Block, encode_bytes, encode_long
from bookkeeper.format.entries import DataFile, Entry, added
from tests.format.strategies import SCHEMA, entries, header_of, spec_of, specs

MOST = 2**24
FILE = DataFile("file:///lake/data/x.parquet", "PARQUET", (), 10, 100, {1: 5}, {1: 10}, {1: 0})
PLAIN = header_of(UNPARTITIONED_PARTITION_SPEC)


def decoded(data: bytes) -> tuple[Entry, ...]:
    return manifest.decode(data, MOST).entries


@given(st.data(), specs)
def test_entries_are_read_as_they_were_written(data: st.DataObject, spec: PartitionSpec) -> None:
    header = header_of(spec)
    written = data.draw(st.lists(entries(header), max_size=4))
    encoded = manifest.encode(header, written)
    found = manifest.decode(encoded, MOST)
    assert found.entries == tuple(written)
    assert {key: value for key, value in avro.read_header(encoded).meta.items() if key != "avro.codec"} == header
    assert [number for number, _ in found.layout.partition] == [field.field_id for field in spec.fields]
    assert manifest.encode(header, found.entries) == encoded


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -0.0])
def test_a_partition_may_be_any_float(value: float) -> None:
    header = header_of(spec_of((4, IdentityTransform()), (5, IdentityTransform())))
    file = DataFile("x", "PARQUET", (value, value), 1, 1)
    (found,) = decoded(manifest.encode(header, [added(file)]))
    assert repr(found.data_file.partition) == repr((value, value))


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 2500])
def test_any_number_of_entries_is_read_back_in_order(count: int) -> None:
    written = [added(DataFile(f"file:///x/{number}", "PARQUET", (), number + 1, 1)) for number in range(count)]
    assert decoded(manifest.encode(PLAIN, written)) == tuple(written)


def test_the_same_entries_are_the_same_bytes() -> None:
    one = DataFile("x", "PARQUET", (), 1, 1, {1: 1, 2: 2}, lower_bounds={7: b"a", 1: b"b"})
    other = DataFile("x", "PARQUET", (), 1, 1, {2: 2, 1: 1}, lower_bounds={1: b"b", 7: b"a"})
    assert manifest.encode(PLAIN, [added(one)]) == manifest.encode(PLAIN, [added(other)])


def test_pyiceberg_reads_what_we_write(tmp_path: Path) -> None:
    spec = spec_of((2, BucketTransform(16)), (6, IdentityTransform()), (11, DayTransform()), (13, IdentityTransform()))
    header = header_of(spec)
    partition = (7, (12345).to_bytes(5, "big", signed=True), 20_000, bytes(range(16)))
    file = DataFile(
        "file:///lake/data/x.parquet", "PARQUET", partition, 10, 100, {1: 5}, {1: 10}, {1: 0}, {}, {1: b"a"}, {1: b"b"},
        (4,), 0,
    )  # fmt: skip
    path = tmp_path / "m.avro"
    path.write_bytes(manifest.encode(header, [added(file)] * 3))
    listed = ManifestFile.from_args(
        manifest_path=f"file://{path}",
        manifest_length=path.stat().st_size,
        partition_spec_id=3,
        content=ManifestContent.DATA,
        sequence_number=5,
        min_sequence_number=5,
        added_snapshot_id=77,
    )
    found = listed.fetch_manifest_entry(PyArrowFileIO())
    assert [(entry.snapshot_id, entry.sequence_number) for entry in found] == [(77, 5)] * 3
    read = found[0].data_file
    assert (read.file_path, read.record_count, read.file_size_in_bytes) == (file.path, 10, 100)
    assert [str(value) for value in read.partition] == ["7", "123.45", "20000", "00010203-0405-0607-0809-0a0b0c0d0e0f"]
    assert (read.column_sizes, read.lower_bounds, read.upper_bounds) == ({1: 5}, {1: b"a"}, {1: b"b"})
    assert (read.split_offsets, read.sort_order_id, read.value_counts) == ([4], 0, {1: 10})


def block_of(payload: bytes, count: int) -> bytes:
    return avro.encode(PLAIN, [Block(count, payload)])


def record() -> bytes:
    """
    The bytes of one good record.
    """
    (block,) = avro.decode(manifest.encode(PLAIN, [added(FILE)]), MOST).blocks
    return block.payload


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (record() + b"\0", 1),
        (record() * 2, 1),
        (record(), 2),
        (record()[:-1], 1),
        (b"", 1),
        (record(), 2**40),
        (b"\xff" * 100, 1),
        (b"\x02\x04" + record()[2:], 1),
    ],
    ids=["bytes behind", "a record behind", "a record short", "a byte short", "empty", "many", "noise", "bad union"],
)
def test_a_block_that_is_not_exactly_its_records_is_refused(payload: bytes, count: int) -> None:
    assert decoded(block_of(record() * 2, 2)) == (added(FILE), added(FILE))
    with pytest.raises(TxlogCorrupt):
        decoded(block_of(payload, count))


def test_a_header_without_a_schema_is_refused() -> None:
    data = avro.encode({key: value for key, value in PLAIN.items() if key != "avro.schema"}, [])
    with pytest.raises(TxlogCorrupt, match=r"no avro\.schema"):
        decoded(data)


def test_a_partition_value_wider_than_its_type_is_refused() -> None:
    # Avro's int has 32 bits; a reader in Java would fail on the manifest that we make of it.
    header = header_of(spec_of((8, DayTransform())))
    good = manifest.encode(header, [added(DataFile("p", "PARQUET", (63,), 1, 1))])
    (block,) = avro.decode(good, MOST).blocks
    wide = block.payload.replace(b"\x02" + encode_long(63), b"\x02" + encode_long(2**31))
    assert decoded(good)
    with pytest.raises(TxlogCorrupt, match="is no int"):
        decoded(avro.encode(header, [Block(1, wide)]))


def test_more_entries_than_allowed_are_refused_undecoded() -> None:
    data = manifest.encode(PLAIN, [added(FILE)] * 11)
    assert len(manifest.decode(data, MOST, 11).entries) == 11
    with pytest.raises(TxlogTooLarge, match="11 entries, at most 10 are allowed"):
        manifest.decode(data, MOST, 10)


def padded(pairs: int) -> bytes:
    """
    A record whose column sizes have this many pairs: two bytes each here, a hundred once decoded.
    """
    sizes = encode_long(pairs) + b"\x02\x02" * pairs + b"\0"
    (block,) = avro.decode(manifest.encode(PLAIN, [added(DataFile("p", "x", (), 1, 1))]), MOST).blocks
    return block.payload.replace(encode_bytes(b"x") + b"\x02\x02" + b"\0", encode_bytes(b"x") + b"\x02\x02\x02" + sizes)


def test_a_record_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decoder.RECORD_BYTES <= 2**22
    monkeypatch.setattr(decoder, "RECORD_BYTES", 2**14)
    data = block_of(padded(8_000) + record(), 2)
    assert decoded(data)[1] == added(FILE)
    tracemalloc.start()
    with pytest.raises(TxlogCorrupt):
        decoded(block_of(padded(1_000_000) + record(), 2))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * 2**20


def test_a_statistic_of_many_columns_is_no_bomb() -> None:
    wide = dict.fromkeys(range(300), 7)
    file = DataFile("p", "PARQUET", (), 1, 1, wide, wide, wide, wide, dict.fromkeys(wide, b"x" * 16))
    assert decoded(manifest.encode(PLAIN, [added(file)] * 3)) == (added(file),) * 3


def test_the_header_holds_what_the_spec_asks_for() -> None:
    header = header_of(spec_of((11, DayTransform())))
    assert header.keys() == {
        "avro.schema", "schema", "schema-id", "partition-spec", "partition-spec-id", "format-version", "content",
    }  # fmt: skip
    assert (header["schema-id"], header["partition-spec-id"]) == (str(SCHEMA.schema_id).encode(), b"3")
    assert (header["format-version"], header["content"]) == (b"2", b"data")
