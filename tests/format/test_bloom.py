"""Bloom filters by Iceberg's table properties, as readers find them; what cannot have one is said, not guessed."""

import io
import logging
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bookkeeper.contract.card import dumps, loads
from bookkeeper.format import bloom
from bookkeeper.format.bloom import PREFIX, bloom_filters
from bookkeeper.format.bounds import leaves
from bookkeeper.format.parquet_writer import ParquetFile
from bookkeeper.stores.locations import local_path
from tests.support import wide
from tests.support.cards import card
from tests.support.compactions import committed, rewritten
from tests.support.compactor import live
from tests.support.lake import Lake, Writes
from tests.support.writer_queue import Queue

ON = f"{PREFIX}enabled.column.text"
LEAVES = leaves(wide.SCHEMA, {})


def written(rows: int, **properties: str) -> bytes:
    found = {PREFIX + key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()}
    file = ParquetFile(wide.ARROW, LEAVES, "zstd", 2**20, None, bloom_filters(LEAVES, found))
    file.add(pa.Table.from_pylist([{"text": f"key-{number}", "truth": True} for number in range(rows)], wide.ARROW))
    return bytes(file.finish().data)


def length(data: bytes, column: str = "text") -> int | None:
    footer = pq.ParquetFile(io.BytesIO(data)).metadata
    chunks = [footer.row_group(0).column(index) for index in range(footer.num_columns)]
    found: int | None = next(chunk.bloom_filter_length for chunk in chunks if chunk.path_in_schema == column)
    return found


def test_without_properties_the_bytes_are_as_before() -> None:
    plain = ParquetFile(wide.ARROW, LEAVES, "zstd", 2**20)
    plain.add(pa.Table.from_pylist([{"text": "a"}], wide.ARROW))
    same = ParquetFile(wide.ARROW, LEAVES, "zstd", 2**20, None, bloom_filters(LEAVES, {ON: "false"}))
    same.add(pa.Table.from_pylist([{"text": "a"}], wide.ARROW))
    assert bytes(plain.finish().data) == bytes(same.finish().data)


def test_a_filter_is_as_large_as_its_values_need_and_never_larger_than_said() -> None:
    sizes = [length(written(rows, enabled__column__text="true")) or 0 for rows in (1, 1000, 20_000)]
    assert sizes == sorted(sizes) and 0 < sizes[0] < 100 and 20_000 < sizes[2] < 70_000
    bounded = length(written(20_000, enabled__column__text="true", max_bytes="1024")) or 0
    assert 0 < bounded < 1100
    careless = length(written(20_000, enabled__column__text="true", fpp__column__text="0.5")) or 0
    assert 0 < careless < sizes[2]
    assert length(written(20_000, enabled__column__text="true"), "blob") is None


def test_readers_find_the_filter(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(written(1000, enabled__column__text="true"))
    probe = "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, 'text', ?)"
    answers = [duckdb.execute(probe, [str(path), key]).fetchall() for key in ("key-7", "no-such-key")]
    assert answers == [[(False,)], [(True,)]]


@pytest.mark.parametrize(
    "properties",
    [
        {f"{PREFIX}enabled.column.nosuch": "true"},
        {f"{PREFIX}enabled.column.truth": "true"},
        {f"{PREFIX}enabled.column.tags.element": "true"},
        {ON: "true", f"{PREFIX}fpp.column.text": "1.5"},
        {ON: "true", f"{PREFIX}fpp.column.text": "much"},
        {ON: "true", f"{PREFIX}fpp.column.text": "1e-60"},  # for one value, a filter of 64 MiB
        {ON: "true", f"{PREFIX}fpp.column.text": "1e-300"},
        {ON: "true", f"{PREFIX}fpp.column.text": "1e-16", f"{PREFIX}max-bytes": "32"},
        {ON: "true", f"{PREFIX}max-bytes": "many"},
        {ON: "true", f"{PREFIX}ndv.column.text": "?"},
    ],
)
def test_what_cannot_be_written_is_left_out_with_a_warning(
    properties: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    bloom._warn.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert bloom_filters(LEAVES, properties) == {}
        assert bloom_filters(LEAVES, properties) == {}
    assert [(record.action, record.levelname) for record in caplog.records] == [("bloom-filter", "WARNING")]


@pytest.mark.parametrize("most", ["-5", "0", "31", "33", "999999999999"])
def test_a_bound_in_bytes_is_kept_within_what_a_filter_can_have(most: str) -> None:
    options: Any = bloom_filters(LEAVES, {ON: "true", f"{PREFIX}max-bytes": most})["text"]
    assert 1 <= options["ndv"] < 2**28


def test_writers_and_compactors_write_them(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "queue", partition_by=())
    lake = Lake(tmp_path / "lake", partition_by=())
    for table in (queue.table(), lake.table()):
        with table.transaction() as change:
            change.set_properties({f"{PREFIX}enabled.column.key": "true"})
    queue.tick()
    with queue.writer() as writer:
        writer.write(pa.Table.from_pylist([{"timestamp": queue.clock(), "key": "a", "value": b"v"}]))
    queue.tick()
    (task,) = queue.table().scan().plan_files()
    writes, book = Writes(lake), lake.book()
    for key in "ab":
        writes.publish(key)
        lake.tick(book)
    rewritten(lake)
    committed(lake)
    for path in (task.file.file_path, live(lake)[0].file.path):
        assert length(Path(local_path(path) or "").read_bytes(), "key")


def test_a_card_has_them_only_when_the_table_has() -> None:
    assert b'parquet": {' not in dumps(card())
    some = card(parquet={ON: "true"})
    assert loads(dumps(some)) == some
    assert loads(dumps(card())).parquet == {}
