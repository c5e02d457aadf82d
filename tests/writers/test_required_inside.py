"""An optional struct with a required field in it: null structs are rows, a missing field is a bad line."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType, TimestamptzType

from bookkeeper.errors import SchemaRefused
from tests.support.desk import Desk
from writers.loader.formats import Format
from writers.loader.lines import BadLines, Loader

POINT = StructType(NestedField(10, "x", LongType(), required=True), NestedField(11, "name", StringType()))
SCHEMA = Schema(
    NestedField(1, "timestamp", TimestamptzType(), required=True),
    NestedField(2, "at", POINT, required=False),
    NestedField(3, "path", ListType(12, StructType(NestedField(13, "x", LongType(), required=True)), False)),
)
WHEN = datetime(2026, 3, 1, tzinfo=UTC)
VALUES = [(None, None), ({"x": 1, "name": "a"}, [{"x": 1}, None]), ({"x": 2, "name": None}, []), (None, [None])] * 8
BAD = [({"x": None}, None), ({"name": "b"}, None), (None, [{"x": None}])]


def lines(values: list[tuple[object, object]]) -> str:
    return "".join(json.dumps({"timestamp": WHEN.isoformat(), "at": at, "path": path}) + "\n" for at, path in values)


def load(desk: Desk, name: str, form: Format, bad: Path) -> Loader:
    with desk.writer("import") as writer, BadLines(bad) as bad_lines:
        loader = Loader(writer, form, bad_lines, desk.clock)
        loader.load_files([name])
        return loader


def found(desk: Desk) -> list[tuple[object, object]]:
    return [(row["at"], row["path"]) for row in desk.rows()]


@pytest.mark.parametrize("file_format", ["parquet", "avro"])
@pytest.mark.parametrize("by_line", [True, False])
def test_lines_with_null_structs_are_rows_and_others_are_bad_lines(
    local: Desk, tmp_path: Path, by_line: bool, file_format: str
) -> None:
    local.set_card(SCHEMA, file_format=file_format)
    (tmp_path / "a.ndjson").write_text(lines(VALUES[:17] + BAD + VALUES[17:]))
    loader = load(local, str(tmp_path / "a.ndjson"), Format("ndjson", by_line=by_line), tmp_path / "bad")
    assert (loader.rows, loader.bad_lines.count) == (32, 3)
    if file_format == "parquet":
        assert found(local) == VALUES


def test_rows_of_a_parquet_file_with_null_structs_are_rows_and_others_are_bad(local: Desk, tmp_path: Path) -> None:
    local.set_card(SCHEMA)
    loose = pa.schema(
        [
            ("timestamp", pa.timestamp("us", "UTC")),
            ("at", pa.struct([("x", pa.int64()), ("name", pa.string())])),
            ("path", pa.list_(pa.struct([("x", pa.int64())]))),
        ]
    )
    rows = [{"timestamp": WHEN, "at": at, "path": path} for at, path in VALUES[:17] + BAD + VALUES[17:]]
    pq.write_table(pa.Table.from_pylist(rows, loose), tmp_path / "a.parquet")
    loader = load(local, str(tmp_path / "a.parquet"), Format("ndjson"), tmp_path / "bad")
    assert (loader.rows, loader.bad_lines.count) == (32, 3)
    assert found(local) == VALUES


def test_arrow_rows_of_the_tables_own_type_are_checked_too(local: Desk) -> None:
    local.set_card(SCHEMA)
    with local.writer() as writer:
        kinds = writer._spec.arrow
        rows = [{"timestamp": WHEN, "at": at, "path": path} for at, path in VALUES]
        writer.write(pa.Table.from_pylist(rows, kinds))
        with pytest.raises(SchemaRefused, match=r"required .path\.element\.x. is null"):
            writer.write(pa.Table.from_pylist([{"timestamp": WHEN, "at": None, "path": [{"x": None}]}], kinds))
    assert found(local) == VALUES
