"""Batches of a real Spark by `sink.write`: upserted, spread by partition, once by their position."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bookkeeper.contract import card as cards
from bookkeeper.errors import ConfigInvalid, NotPossible
from spark_jobs.sink import into, write
from spark_jobs.sink_spread import _folders
from tests.support import keyed_rows
from tests.support.keyed import keyed_lake
from tests.support.lake import Lake
from tests.support.micro_batches import ticked
from writers.files.write_spec import WriteSpec

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCHEMA = "timestamp timestamp, key string, value binary"


def files_by_partition(lake: Lake) -> Counter[Any]:
    """How many files there are of each day."""
    return Counter(tuple(item.data_file.partition) for item in keyed_rows.entries(lake))


def test_rows_that_are_spread_by_partition_make_a_file_of_each(spark: Any, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", file_names="strict")
    made = [(NOON + timedelta(days=number % 3), f"{number:02d}", b"v") for number in range(60)]
    rows = spark.createDataFrame(made, SCHEMA).repartition(4)
    given: dict[str, Any] = {"name": "job", "runtime": ticked(lake)}
    assert write(rows, lake.made.folder, position="1", **given) == 60
    before = files_by_partition(lake)
    assert len(before) == 3 and min(before.values()) > 1
    for position, adaptive in (("2", False), ("3", True)):
        spark.conf.set("spark.sql.adaptive.enabled", adaptive)
        try:
            assert write(rows, lake.made.folder, position=position, distribution="hash", **given) == 60
        finally:
            spark.conf.set("spark.sql.adaptive.enabled", False)
        before += Counter([*before])
        assert files_by_partition(lake) == before
    assert write(rows, lake.made.folder, position="3", distribution="hash", **given) == 0
    assert lake.keys() == sorted([key for _, key, _ in made] * 3)


def test_a_batch_is_upserted_once(spark: Any, tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path / "lake", file_names="strict")
    given: dict[str, Any] = {"name": "job", "runtime": ticked(lake), "order_by": "at", "deletes": "gone"}

    def upserts(position: str, *changes: Any) -> int:
        rows = spark.createDataFrame(changes, "id string, value string, at long, gone boolean").repartition(3)
        return write(rows, lake.made.folder, mode="upsert", position=position, **given)

    first = ("1", "a", 1, False), ("01", "b", 2, False), ("2", "a", 1, False), ("3", "a", 1, False)
    assert upserts("1", *first) == 3
    assert upserts("1", ("1", "not written", 9, False)) == 0
    assert upserts("2", ("2", None, 1, True), ("3", "c", 2, False)) == 2
    assert keyed_rows.state(lake) == {1: "b", 3: "c"}
    with pytest.raises(NotPossible, match="is keyed by id: rows are not appended") as caught:
        write(spark.range(3), lake.made.folder, runtime=ticked(lake))
    assert "mode='upsert'" in caught.value.hint
    with pytest.raises(NotPossible, match="the rows are a stream"):
        write(spark.readStream.format("rate").load(), lake.made.folder)
    assert lake.pending() == []


def test_of_each_row_the_partition_is_asked_of_the_writer(tmp_path: Path) -> None:
    lake = Lake(tmp_path, partition_by=("day(timestamp)", "bucket(4, key)", "truncate(1, value)"))
    card, dice = lake.folder.card(), random.Random(3)
    times = [NOON + timedelta(hours=dice.randrange(72)) for _ in range(200)]
    keys = [dice.choice([None, f"{dice.random()}"]) for _ in times]
    values = [bytes([dice.randrange(3), 1]) for _ in times]
    utc = pa.timestamp("us", "UTC")
    whole = pa.table({"timestamp": pa.array(times, utc), "key": pa.array(keys, pa.string()), "value": values})
    for names in (["timestamp", "key", "value"], ["timestamp", "key"]):
        rows = whole.select(names)
        found = _folders(cards.dumps(card), rows.to_struct_array().combine_chunks())
        assert found.to_pylist() == [_folder(card, rows.slice(at, 1)) for at in range(rows.num_rows)]
        assert len({*found.to_pylist()}) > 10
    assert len(_folders(cards.dumps(card), rows.slice(0, 0).to_struct_array().combine_chunks())) == 0


def _folder(card: cards.Card, row: pa.Table) -> str:
    for name in ("timestamp", "key", "value"):
        if name not in row.column_names:
            row = row.append_column(name, pa.nulls(1, pa.binary()))
    (part,) = WriteSpec.of(card).splitter.split(row)
    return part.path


def test_a_distribution_that_does_not_fit_is_refused() -> None:
    given = {"name": "query", "checkpoint": "/cp"}
    with pytest.raises(ConfigInvalid, match="'none' or 'hash' is expected"):
        into("/lake", distribution="range", **given)
    with pytest.raises(ConfigInvalid, match="mode='upsert' moves them by key"):
        into("/lake", mode="upsert", distribution="hash", **given)
