"""Required fields inside optional ones: a null around them is written, a null of their own is refused."""

import io
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StructType

from bookkeeper.format.bounds import leaves
from bookkeeper.format.parquet_writer import ParquetFile
from bookkeeper.format.required import settled

VALUES = [
    (pa.int64(), 7),
    (pa.bool_(), True),
    (pa.large_string(), "text"),
    (pa.binary(), b"bytes"),
    (pa.binary(16), b"0123456789abcdef"),
    (pa.uuid(), uuid.UUID(int=1)),
    (pa.decimal128(20, 2), Decimal("1.25")),
    (pa.date32(), date(2026, 1, 31)),
    (pa.timestamp("us", "UTC"), datetime(2026, 1, 31, tzinfo=UTC)),
    (pa.large_list(pa.field("element", pa.int64(), nullable=False)), [1, 2]),
    (pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)), [("a", 1)]),
    (pa.struct([pa.field("deep", pa.string(), nullable=False)]), {"deep": "x"}),
]


def nulls_below(kind: pa.DataType, value: Any) -> pa.Table:
    """A row with a struct, one without, and another with; the required child says itself that it is null."""
    child = pa.array([value, None, value], kind)
    field = pa.field("child", kind, nullable=False)
    struct = pa.StructArray.from_arrays([child], fields=[field], mask=pa.array([False, True, False]))
    return pa.table({"s": struct})


def written(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def read_back(table: pa.Table) -> list[Any]:
    read = pq.read_table(pa.BufferReader(written(table)))
    assert not read.schema.field("s").type.field(0).nullable
    return list(read["s"].to_pylist())


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_a_null_struct_with_a_required_child_is_written_as_null(kind: pa.DataType, value: Any) -> None:
    rows = nulls_below(kind, value)
    if not pa.types.is_nested(kind):
        with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
            read_back(rows)
    assert read_back(settled(rows)) == [{"child": value}, None, {"child": value}]
    assert read_back(settled(rows.slice(1))) == [None, {"child": value}]
    assert settled(settled(rows)).equals(settled(rows))


def test_the_same_inside_lists_and_maps() -> None:
    structs = nulls_below(pa.int64(), 7)["s"].combine_chunks()
    listed = pa.ListArray.from_arrays(pa.array([0, 2, 3, 3]), structs, mask=pa.array([False, False, True]))
    mapped = pa.MapArray.from_arrays(pa.array([0, 2, 3, 3]), pa.array(["a", "b", "c"]), structs)
    for array in (listed, mapped):
        for rows in (pa.table({"s": array}), pa.table({"s": array}).slice(1)):
            file = io.BytesIO()
            pq.write_table(settled(rows), file)
            assert pq.read_table(file)["s"].to_pylist() == rows["s"].to_pylist()


def test_a_required_child_that_is_null_itself_is_refused() -> None:
    struct = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    for kind, value in (
        (struct, {"x": None}),
        (pa.list_(struct), [{"x": None}]),
        (pa.map_(pa.string(), struct), [("a", {"x": None})]),
        (pa.struct([pa.field("in", struct)]), {"in": {"x": None}}),
    ):
        rows = pa.table({"s": pa.array([None, value], kind)})
        with pytest.raises(ValueError, match=r"required 's.*x' is null in 1 rows"):
            settled(rows)


def test_a_file_takes_a_struct_that_its_rows_did_not_have() -> None:
    """As a writer and a compaction add a column that was added to the table."""
    rows = pa.table({"s": pa.nulls(2, nulls_below(pa.int64(), 7)["s"].type)})
    child = NestedField(2, "child", LongType(), required=True)
    schema = Schema(NestedField(1, "s", StructType(child), required=False))
    made = ParquetFile(rows.schema, leaves(schema, {}), "zstd", 2**20)
    made.add(rows)
    made.add(nulls_below(pa.int64(), 7))
    read = pq.read_table(pa.BufferReader(made.finish().data))["s"].to_pylist()
    assert read == [None, None, {"child": 7}, None, {"child": 7}]
