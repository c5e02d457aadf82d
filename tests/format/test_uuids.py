"""UUID columns have neither bounds nor statistics: Iceberg Java compares UUIDs otherwise than bounds are ordered."""

import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StructType, UUIDType

from bookkeeper.format.bounds import leaves
from bookkeeper.format.open_file import OpenFile
from bookkeeper.format.parquet_writer import ParquetFile
from writers.files.avro import AvroFile

FLAT = Schema(NestedField(1, "id", UUIDType(), required=True), NestedField(2, "a.b", LongType(), required=False))
INSIDE = StructType(NestedField(5, "u", UUIDType(), required=False), NestedField(6, "n", LongType(), required=False))
NESTED = Schema(
    *FLAT.fields,
    NestedField(3, "l", ListType(4, INSIDE, element_required=False), required=False),
    NestedField(7, "s", INSIDE, required=False),
)


def uuids(*firsts: int) -> pa.Array:
    raw = [uuid.UUID(int=first << 120).bytes for first in firsts]
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(raw, pa.binary(16)))


def rows() -> pa.Table:
    arrow = schema_to_pyarrow(NESTED)
    inside = pa.StructArray.from_arrays([uuids(1, 0xF0), pa.array([1, 2])], fields=[*arrow.field("s").type])
    listed = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), inside)
    columns = [uuids(0x10, 0xF0), pa.array([3, 4]), listed.cast(arrow.field("l").type), inside]
    return pa.Table.from_arrays(columns, schema=arrow)


def test_of_all_columns_of_a_parquet_file_only_those_of_uuids_have_no_statistics() -> None:
    file = ParquetFile(schema_to_pyarrow(NESTED), leaves(NESTED, {"default": "full"}), "zstd", 2**30)
    file.add(rows())
    done = file.finish()
    group = pq.read_metadata(pa.BufferReader(done.data)).row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    assert [column.path_in_schema for column in columns if not column.is_stats_set] == [
        "id",
        "l.list.element.u",
        "s.u",
    ]
    assert pq.read_table(pa.BufferReader(done.data)).to_pylist() == rows().to_pylist()
    assert {*done.metrics.lower_bounds} == {*done.metrics.upper_bounds} == {2, 6}


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_a_file_of_either_format_has_no_bounds_of_uuids(kind: str) -> None:
    columns = leaves(FLAT, {})
    if kind == "avro":
        file: OpenFile = AvroFile(FLAT, columns, "zstd", 2**30)
    else:
        file = ParquetFile(schema_to_pyarrow(FLAT), columns, "zstd", 2**30)
    file.add(rows().select(["id", "a.b"]))
    metrics = file.finish().metrics
    assert {*metrics.lower_bounds} == {*metrics.upper_bounds} == {2}
    assert metrics.value_counts == {1: 2, 2: 2}
