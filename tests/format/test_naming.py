"""Stepping through a manifest for its locations: what a full decode finds, in bounded memory."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionSpec

from bookkeeper.errors import TxlogCorrupt, TxlogTooLarge
from bookkeeper.format import avro, manifest
from bookkeeper.format.decoder import RECORD_BYTES
from bookkeeper.format.entries import DataFile, added
from bookkeeper.format.locations import locations
from tests.format.strategies import entries, header_of, specs

MOST = 2**24
PLAIN = header_of(PartitionSpec())


def named(data: bytes, most_bytes: int = MOST, most_entries: int = 1000) -> list[str]:
    return list(locations(data, avro.read_header(data), most_bytes, most_entries))


@given(st.data(), specs, st.sampled_from(["null", "deflate"]))
def test_the_locations_are_those_of_a_full_decode(data: st.DataObject, spec: PartitionSpec, codec: str) -> None:
    header = header_of(spec)
    written = data.draw(st.lists(entries(header), max_size=4))
    encoded = avro.encode(header, manifest.encode_blocks(header["avro.schema"], written), codec)
    assert named(encoded) == [entry.data_file.path for entry in written]


@given(st.data(), st.binary(max_size=8))
def test_whatever_the_bytes_are_nothing_that_decodes_is_passed_over(data: st.DataObject, noise: bytes) -> None:
    written = data.draw(st.lists(entries(PLAIN), min_size=1, max_size=3))
    encoded = bytearray(manifest.encode(PLAIN, written))
    at = data.draw(st.integers(0, len(encoded)))
    broken = bytes(encoded[:at] + noise + encoded[at + len(noise) :])
    try:
        full = [entry.data_file.path for entry in manifest.decode(broken, MOST).entries]
    except (TxlogCorrupt, TxlogTooLarge):
        full = []
    try:
        found = named(broken)
    except (TxlogCorrupt, TxlogTooLarge):
        found = []
    assert not full or found == full


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_records_are_found_across_the_pieces_of_a_large_block(codec: str) -> None:
    counts = {number: number for number in range(20_000)}
    bounds = {number: bytes(number % 70) for number in range(5_000)}
    files = [DataFile("f", "P", (), 1, 1, counts, counts), DataFile("g", "P", (), 1, 1, lower_bounds=bounds)]
    records = [manifest.encode_record(PLAIN["avro.schema"], added(file)) for file in files]
    payload = b"".join(records) * 30
    assert len(payload) > 2 * RECORD_BYTES
    assert named(avro.encode(PLAIN, [avro.Block(60, payload)], codec), 2**28) == ["f", "g"] * 30


def test_entries_are_counted_before_anything_is_decompressed() -> None:
    data = avro.encode(PLAIN, [avro.PackedBlock(6, b"no deflate"), avro.PackedBlock(5, b"no")])
    with pytest.raises(TxlogTooLarge, match="11 entries, at most 10 are allowed"):
        named(data, most_entries=10)


def test_a_bomb_takes_no_more_memory_than_a_piece() -> None:
    record = manifest.encode_record(PLAIN["avro.schema"], added(DataFile("f", "P", (), 1, 1)))
    data = avro.encode(PLAIN, [avro.Block(1000, record * 1000), avro.Block(1, bytes(2**27))])
    tracemalloc.start()
    with pytest.raises(TxlogCorrupt):
        named(data, 2**28, 10_000)
    assert tracemalloc.get_traced_memory()[1] < 6 * RECORD_BYTES
    tracemalloc.stop()


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_more_bytes_than_are_allowed_are_refused_once_decompressed(codec: str) -> None:
    file = DataFile("f", "PARQUET", (), 1, 1, upper_bounds={1: bytes(100_000)})
    blocks = [block for _ in range(3) for block in manifest.encode_blocks(PLAIN["avro.schema"], [added(file)])]
    data = avro.encode(PLAIN, blocks, codec)
    assert len(named(data, 2**20)) == 3
    with pytest.raises(TxlogTooLarge):
        named(data, 250_000)


def test_a_record_larger_than_a_record_may_be_is_refused() -> None:
    file = DataFile("f", "PARQUET", (), 1, 1, upper_bounds={1: bytes(RECORD_BYTES)})
    with pytest.raises(TxlogCorrupt):
        named(manifest.encode(PLAIN, [added(file)]), 2**28)
