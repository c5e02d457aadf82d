"""A batch fits in memory whatever the file holds: dictionaries, nulls and lists make much of few bytes."""

import io
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bookkeeper.errors import CannotRead
from bookkeeper.format.batch_size import MOST_BATCH_BYTES, batch_rows
from bookkeeper.format.page_headers import pages
from tests.packaging.project import ROOT

LONG = pa.array(["x" * 2**20])


def stored(columns: dict[str, Any], **how: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **{"store_schema": False, "compression": "zstd", **how})
    return out.getvalue()


def same(rows: int) -> pa.Array:
    """One text of 1 MiB, in every row."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), LONG)


def decoded(data: bytes) -> tuple[int, int]:
    """Rows of a batch, and the bytes of the first one."""
    opened = pq.ParquetFile(pa.BufferReader(data))
    rows = batch_rows(data, opened.metadata)
    return rows, next(opened.iter_batches(rows)).nbytes


def test_one_long_text_in_every_row() -> None:
    rows, size = decoded(stored({"a": same(5000)}))
    assert rows == 64 and size < 1.1 * MOST_BATCH_BYTES


def test_one_long_text_inside_lists_and_structs() -> None:
    listed = pa.ListArray.from_arrays(pa.array(range(0, 501, 2), pa.int32()), same(500))
    boxed = pa.StructArray.from_arrays([same(1000)], ["x"])
    pairs = pa.MapArray.from_arrays(pa.array(range(501), pa.int32()), pa.array(map(str, range(500))), same(500))
    for column in (listed, boxed, pairs):
        rows, size = decoded(stored({"a": column}))
        assert rows <= 64 and size < 1.1 * MOST_BATCH_BYTES


def test_texts_that_differ_are_read_in_large_batches() -> None:
    texts = [f"{number:040}" for number in range(200_000)]
    rows, size = decoded(stored({"a": texts, "n": list(range(200_000))}))
    assert rows > 30_000 and size < MOST_BATCH_BYTES


def test_rows_of_nothing_but_nulls() -> None:
    rows, size = decoded(stored({f"c{number}": pa.nulls(1_000_000, pa.int64()) for number in range(100)}))
    assert rows > 30_000 and size < 1.1 * MOST_BATCH_BYTES


def test_a_small_file_is_one_batch_and_its_dictionaries_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    data = stored({"a": ["k", "l"] * 100, "b": list(range(200))})
    footer = pq.ParquetFile(pa.BufferReader(data)).metadata
    monkeypatch.setattr("bookkeeper.format.batch_size._limits", None)
    assert batch_rows(data, footer) >= 200


def test_large_rows_come_one_by_one() -> None:
    rows, _ = decoded(stored({"a": [bytes([number]) * 10_000_000 for number in range(4)]}, use_dictionary=False))
    assert rows == 1


def test_a_column_chunk_or_a_row_that_is_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = stored({"a": [bytes(100_000_000)]})
    monkeypatch.setattr("bookkeeper.format.batch_size.MOST_CHUNK_BYTES", 90_000_000)
    with pytest.raises(CannotRead, match=r"'a' has 1000\d+ bytes"):
        decoded(data)
    many = pa.ListArray.from_arrays(pa.array([0, 5_000_000], pa.int32()), pa.nulls(5_000_000, pa.int64()))
    with pytest.raises(CannotRead, match="a row has 5000000 values"):
        decoded(stored({"a": many}))


def long_prefixes(rows: int, groups: int = 1) -> bytes:
    """One text of 1 MiB in every row, each encoded as the one before."""
    out, schema = io.BytesIO(), pa.schema([("a", pa.string())])
    how: dict[str, Any] = {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}}
    with pq.ParquetWriter(out, schema, compression="zstd", store_schema=False, write_statistics=False, **how) as file:
        for _ in range(groups):
            file.write_batch(pa.record_batch([pa.array([LONG[0].as_py()] * rows)], schema))
    return out.getvalue()


def test_values_that_begin_as_the_one_before() -> None:
    rows, size = decoded(long_prefixes(10, groups=10))
    assert rows <= 64 and size < 1.1 * MOST_BATCH_BYTES


def test_many_values_that_begin_as_the_one_before_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookkeeper.format.batch_size.MOST_DELTA_BYTES", 5 * 2**20)
    with pytest.raises(CannotRead, match="'a' is too large for its encoding"):
        decoded(long_prefixes(70))


def test_sizes_that_a_footer_says_are_not_believed() -> None:
    data = stored({"a": same(1000)}, write_statistics=False)
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    honest, begin = decoded(data)[0], len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[begin:]
    for size in {group.total_byte_size, group.column(0).total_uncompressed_size}:
        said = number(size)
        assert said in footer
        one = bytes([0x82, *[0x80] * (len(said) - 2), 0x00])
        footer = footer.replace(said, one)
    data = data[:begin] + footer
    assert pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).total_byte_size == 1
    assert decoded(data)[0] == honest <= 64


def number(value: int) -> bytes:
    """An integer as a footer has it."""
    rest, found = value << 1, bytearray()
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*found, rest])


def test_one_row_may_have_all_values_of_a_column_of_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookkeeper.format.batch_size.MOST_LISTS_BYTES", 2**20)
    offsets = pa.array([0] + [100_000] * 50_000, pa.int32())
    with pytest.raises(CannotRead, match="have 149999 values"):
        decoded(stored({"a": pa.ListArray.from_arrays(offsets, pa.array([0] * 100_000))}))
    with pytest.raises(CannotRead, match="have more than"):
        decoded(stored({"a": pa.array([["x" * 2**10] * 2000])}))


def test_one_long_text_of_many_in_lists_and_maps_is_no_reason_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookkeeper.format.batch_size.MOST_LISTS_BYTES", 2**20)
    texts = ["x" * 2**10, *["y"] * 20_000]
    pairs = [[(str(at), text)] for at, text in enumerate(texts)]
    data = stored({"a": [[text] for text in texts], "b": pa.array(pairs, pa.map_(pa.string(), pa.string()))})
    assert decoded(data)[0] > 1000


def test_nulls_of_a_fixed_width_take_their_room() -> None:
    rows, size = decoded(stored({"a": pa.nulls(100_000, pa.binary(10_000))}))
    assert rows < 7000 and size < 1.1 * MOST_BATCH_BYTES


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_are_as_large_as_the_footer_of_a_good_file_says(version: str) -> None:
    rows = pa.Table.from_pylist([{"text": f"k{at}", "large": at, "tags": ["a"], "truth": True} for at in range(5000)])
    out = io.BytesIO()
    pq.write_table(rows, out, data_page_version=version, row_group_size=1500, data_page_size=1000, compression="zstd")
    footer = pq.ParquetFile(out).metadata
    for group in range(footer.num_row_groups):
        for at in range(footer.num_columns):
            chunk = footer.row_group(group).column(at)
            begin = chunk.dictionary_page_offset or chunk.data_page_offset
            found = pages(out.getvalue(), begin, chunk.total_compressed_size)
            assert 0 <= chunk.total_uncompressed_size - found.bytes < 100_000 // 10  # it counts headers too
            assert (found.dictionary, found.delta) == (chunk.has_dictionary_page, False)


@pytest.mark.parametrize("data", [b"\x00" * 9, b"\xff" * 50, b"\x1c" * 50, b"\x15\x00\x15\x01\x15\x02\x00", b"\x15"])
def test_what_is_no_page_is_refused(data: bytes) -> None:
    with pytest.raises(CannotRead, match="the header of a page cannot be read"):
        pages(b"PAR1" + data, 4, len(data))
    with pytest.raises(CannotRead, match="the header of a page cannot be read"):
        pages(data, 100, 5)


@pytest.mark.parametrize("seed", [2, 5])
def test_a_damaged_footer_never_ends_the_process(seed: int) -> None:
    words = [sys.executable, "-m", "tests.reaper.compactor.hostile", str(seed), "400"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
