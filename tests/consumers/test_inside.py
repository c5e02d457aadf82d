"""Fields inside of others as consumers read them, of Avro files as of Parquet: each by its id, and null where it is."""

import io
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, writer
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from bookkeeper.consumers import avro_rows
from tests.consumers.consumers import committed, opened
from tests.support.lake import Lake
from writers.files.avro import avro_schema
from writers.writer import Writer


def box(number: int, name: str) -> StructType:
    return StructType(
        NestedField(number, "x", IntegerType(), required=False),
        NestedField(number + 1, name, StringType(), required=False),
    )


SCHEMA = Schema(
    NestedField(1, "timestamp", TimestamptzType(), required=False),
    NestedField(2, "box", box(3, "odd name"), required=False),
    NestedField(5, "boxes", ListType(6, box(7, "y"), element_required=False), required=False),
    NestedField(9, "by number", MapType(10, IntegerType(), 11, box(12, "y"), value_required=False), required=False),
)
ROWS = [
    {"box": {"x": 1, "odd name": "a"}, "boxes": [{"x": 2, "y": "b"}, None], "by number": [(3, {"x": 4, "y": "c"})]},
    {"box": None, "boxes": None, "by number": None},
    {"box": None, "boxes": [], "by number": []},
]


@pytest.fixture(params=["parquet", "avro"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    lake = Lake(tmp_path, schema=SCHEMA, file_format=request.param, compression="gzip")
    with Writer.open(lake.made.folder, "w") as writing:
        writing.write(ROWS)
        writing.publish()
    lake.tick()
    return lake


def consumed(lake: Lake) -> list[dict[str, Any]]:
    with opened(lake, columns=("box", "boxes", "by number")) as consumer:
        return [row for batch in committed(consumer) for row in batch.table.to_pylist()]


def test_a_field_inside_of_another_is_read_whatever_its_name(lake: Lake) -> None:
    assert consumed(lake) == ROWS


def test_a_field_inside_of_another_is_read_on_once_it_is_renamed(lake: Lake) -> None:
    with lake.table().update_schema() as change:
        for place in ("box.odd name", "boxes.element.y", "by number.value.y"):
            change.rename_column(place, "now")
        change.update_column("box.x", LongType())
    there = {"boxes": [{"x": 2, "now": "b"}, None], "by number": [(3, {"x": 4, "now": "c"})]}
    assert consumed(lake) == [{"box": {"x": 1, "now": "a"}, **there}, *ROWS[1:]]


def test_a_field_that_was_dropped_is_not_read_as_a_new_one_of_its_name(lake: Lake) -> None:
    with lake.table().update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("box.x")
    with lake.table().update_schema() as change:
        change.add_column(("box", "x"), IntegerType())
    assert [row["box"] for row in consumed(lake)] == [{"odd name": "a", "x": None}, None, None]


def test_a_column_that_the_file_does_not_have_is_what_its_partition_says() -> None:
    there = Schema(NestedField(1, "key", StringType(), required=False))
    wanted = Schema(*there.fields, NestedField(2, "day", DateType(), required=False), NestedField(3, "no", LongType()))
    out = io.BytesIO()
    writer(out, parse_schema(avro_schema(there)), [{"key": "a"}])
    out.seek(0)
    asked = list[set[int]]()

    def absent(ids: set[int]) -> dict[int, Any]:
        asked.append(ids)
        return {2: 20_000}

    assert [*avro_rows.rows(out, wanted, absent)] == [{"key": "a", "day": 20_000, "no": None}]
    assert asked == [{2, 3}]
