"""A table that changes under a running writer."""

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import BinaryType, DoubleType, FloatType, IntegerType, LongType, NestedField, StringType

from bookkeeper.errors import SchemaRefused
from tests.support.desk import BY_DAY, PLAIN, SCHEMA, Desk, only, rows

BY_DAY_AND_KEY = PartitionSpec(*BY_DAY.fields, PartitionField(2, 1001, BucketTransform(4), "key_bucket"), spec_id=1)


def _with(*fields: NestedField, schema_id: int = 1) -> Schema:
    return Schema(*fields, schema_id=schema_id)


def _more(*columns: tuple[str, pa.Array], keys: tuple[str, ...] = ("b",)) -> pa.Table:
    table = rows(*keys)
    for name, values in columns:
        table = table.append_column(name, values)
    return table


COUNT = NestedField(4, "count", LongType())


def test_an_added_column_is_taken_at_the_next_publish_and_null_when_missing(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        writer.publish()
        desk.set_card(_with(*SCHEMA.fields, COUNT))
        writer.write(_more(("count", pa.array([5]))))
        writer.write(rows("c"))
    assert [item.schema_id for item in desk.txlogs()] == [0, 1]
    assert [row.get("count") for row in desk.rows()] == [None, 5, None]


def test_an_added_column_is_taken_at_once_beside_unpublished_rows(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        desk.set_card(_with(*SCHEMA.fields, COUNT))
        writer.write(_more(("count", pa.array([5]))))
    item = only(desk.txlogs())
    assert (item.schema_id, len(item.files)) == (1, 2)
    assert [row.get("count") for row in desk.rows()] == [None, 5]


def test_a_column_that_the_table_lacks_is_refused_and_the_writer_lives_on(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        with pytest.raises(SchemaRefused, match="'count'") as caught:
            writer.write(_more(("count", pa.array([5]))))
        assert "Add the column" in caught.value.hint
        writer.write(rows("b"))
    assert desk.keys() == ["a", "b"]


def test_a_renamed_column_is_known_under_both_names(desk: Desk) -> None:
    renamed = NestedField(2, "name", StringType(), required=True)
    with desk.writer() as writer:
        writer.write(rows("a"))
        writer.publish()
        desk.set_card(_with(SCHEMA.fields[0], renamed, SCHEMA.fields[2]))
        writer.roll()
        writer.write(rows("b"))
        writer.write(rows("c").rename_columns(["timestamp", "name", "value"]))
    assert [row.get("key") or row.get("name") for row in desk.rows()] == ["a", "b", "c"]
    second = desk.txlogs()[1]
    assert desk.read(second.files[0]).schema.field("name").metadata == {b"PARQUET:field_id": b"2"}


def test_a_new_run_knows_only_the_new_name(desk: Desk) -> None:
    desk.set_card(_with(SCHEMA.fields[0], NestedField(2, "name", StringType(), required=True), SCHEMA.fields[2]))
    with desk.writer() as writer, pytest.raises(SchemaRefused, match="'key'"):
        writer.write(rows("b"))


def test_widened_columns_are_written_in_their_new_type(desk: Desk) -> None:
    narrow = [NestedField(4, "count", IntegerType()), NestedField(5, "share", FloatType())]
    wide = [NestedField(4, "count", LongType()), NestedField(5, "share", DoubleType())]
    desk.set_card(_with(*SCHEMA.fields, *narrow))
    columns = (("count", pa.array([7], pa.int32())), ("share", pa.array([0.5], pa.float32())))
    with desk.writer() as writer:
        writer.write(_more(*columns))
        desk.set_card(_with(*SCHEMA.fields, *wide, schema_id=2))
        writer.roll()
        writer.write(_more(*columns))
        writer.write(_more(("count", pa.array([2**40]))))
    files = only(desk.txlogs()).files
    assert [str(desk.read(file).schema.field("count").type) for file in files] == ["int32", "int64"]
    assert [row["count"] for row in desk.rows()] == [7, 7, 2**40]
    assert [len(file.lower_bounds[4]) for file in files] == [4, 8]


def test_a_new_spec_waits_for_the_publish_of_what_is_open(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        desk.set_card(spec=BY_DAY_AND_KEY)
        writer.roll()
        assert writer.due()
        writer.write(rows("b"))
        writer.publish()
        writer.write(rows("c"))
    first, second = desk.txlogs()
    assert (first.spec_id, second.spec_id) == (0, 1)
    assert [len(file.partition) for file in first.files] == [1, 1]
    assert len(only(second.files).partition) == 2
    assert desk.keys() == ["a", "b", "c"]


def test_a_new_spec_is_taken_at_once_when_nothing_is_open(desk: Desk) -> None:
    with desk.writer() as writer:
        desk.set_card(spec=PLAIN)
        writer.roll()
        writer.write(rows("a"))
    assert only(only(desk.txlogs()).files).partition == ()


def test_a_column_that_came_with_a_new_spec_asks_for_a_publish_first(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        desk.set_card(_with(*SCHEMA.fields, COUNT), spec=BY_DAY_AND_KEY)
        with pytest.raises(SchemaRefused) as caught:
            writer.write(_more(("count", pa.array([5]))))
        assert "publish()" in caught.value.hint
        writer.publish()
        writer.write(_more(("count", pa.array([5]))))
    assert [(item.schema_id, item.spec_id) for item in desk.txlogs()] == [(0, 0), (1, 1)]


def test_a_dropped_column_waits_for_the_publish_of_what_is_open(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        desk.set_card(_with(*SCHEMA.fields[:2]))
        writer.roll()
        writer.write(rows("b"))
        writer.publish()
        with pytest.raises(SchemaRefused, match="'value'"):
            writer.write(rows("c"))
        writer.write(rows("c").drop_columns(["value"]))
    first, second = desk.txlogs()
    assert (first.schema_id, second.schema_id) == (0, 1)
    assert 3 in first.files[0].value_counts
    assert 3 not in only(second.files).value_counts


def test_a_column_dropped_and_added_anew_is_another_column(desk: Desk) -> None:
    again = NestedField(4, "value", BinaryType())
    with desk.writer() as writer:
        desk.set_card(_with(*SCHEMA.fields[:2]))
        writer.roll()
        desk.set_card(_with(*SCHEMA.fields[:2], again, schema_id=2))
        writer.roll()
        writer.write(rows("a"))
    assert set(only(only(desk.txlogs()).files).value_counts) == {1, 2, 4}


def test_files_of_another_format_may_share_a_txlog(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        desk.set_card(file_format="avro", compression="gzip")
        writer.roll()
        writer.write(rows("b"))
    assert [file.file_format for file in only(desk.txlogs()).files] == ["PARQUET", "AVRO"]


def test_a_card_that_cannot_be_read_just_now_changes_nothing(desk: Desk, caplog: Any) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        card = desk.folder.store.read("card.json")
        desk.folder.store.delete_many(["card.json"])
        writer.roll()
        writer.write(rows("b"))
        desk.folder.store.create("card.json", card)  # without it nothing is published, see test_folder_gone
    assert desk.keys() == ["a", "b"]
    assert ("card", "WARNING") in {(record.action, record.levelname) for record in caplog.records}


def test_day_and_bucket_partitions_hold_what_their_values_say(desk: Desk) -> None:
    desk.set_card(spec=BY_DAY_AND_KEY)
    with desk.writer() as writer:
        writer.write(rows(*"abcdefgh"))
    bucket = BucketTransform(4).transform(StringType())
    for file in only(desk.txlogs()).files:
        assert {bucket(row["key"]) for row in desk.rows([file])} == {file.partition[1]}
