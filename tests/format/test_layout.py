"""Layouts: any library's, found by field ids, held against the spec of format v2; everything else is refused."""

import copy
import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from bookkeeper.errors import TxlogCorrupt
from bookkeeper.format import manifest
from bookkeeper.format.entries import DataFile, Entry, added
from bookkeeper.format.layout import parse_layout, physical
from tests.format.strategies import SCHEMA, header_of, spec_of

MOST = 2**24
TWO_OF_EACH = spec_of(*[(source, IdentityTransform()) for source in (6, 13, 6, 13, 14)])


def schema_of(spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(header_of(spec)["avro.schema"])
    return parsed


def fields_of(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """
    Every field of both records by its name.
    """
    outer = {item["name"]: item for item in schema["fields"]}
    return outer | {item["name"]: item for item in outer["data_file"]["type"]["fields"]}


def bare(schema: Any) -> Any:
    """
    Without logical types, so that fastavro takes physical values.
    """
    if isinstance(schema, list):
        return [bare(item) for item in schema]
    if isinstance(schema, dict):
        return {key: bare(value) for key, value in schema.items() if key != "logicalType"}
    return schema


def written(schema: dict[str, Any], *records: dict[str, Any]) -> bytes:
    """
    A manifest that another Avro library wrote.
    """
    out = io.BytesIO()
    fastavro.writer(out, bare(schema), records, codec="deflate", metadata={"content": "data"})
    return out.getvalue()


RECORD = {
    "status": 1,
    "data_file": {
        "content": 0,
        "file_path": "file:///x",
        "file_format": "PARQUET",
        "partition": {},
        "record_count": 10,
        "file_size_in_bytes": 100,
        "column_sizes": [{"key": 1, "value": 5}],
        "equality_ids": None,
    },
}
ENTRY = added(DataFile("file:///x", "PARQUET", (), 10, 100, {1: 5}))


def decoded(data: bytes) -> tuple[Entry, ...]:
    return manifest.decode(data, MOST).entries


def test_what_another_avro_library_writes_is_read() -> None:
    assert decoded(written(schema_of(), RECORD, RECORD)) == (ENTRY, ENTRY)


def test_fields_are_found_by_their_ids_in_any_order() -> None:
    schema = schema_of()
    schema["fields"].reverse()
    fields_of(schema)["data_file"]["type"]["fields"].reverse()
    assert decoded(written(schema, RECORD)) == (ENTRY,)


def test_names_and_documentation_do_not_matter() -> None:
    schema = schema_of()
    for name, item in fields_of(schema).items():
        item |= {"name": f"other_{name}", "doc": "whatever", "aliases": [name]}
    record = {f"other_{key}": value for key, value in RECORD.items() if key != "data_file"}
    record["other_data_file"] = {f"other_{key}": value for key, value in RECORD["data_file"].items()}  # type: ignore[attr-defined]
    assert decoded(written(schema, record)) == (ENTRY,)


def test_a_field_that_is_optional_in_our_layout_may_be_required_or_absent() -> None:
    schema = schema_of(spec_of((2, IdentityTransform())))
    data_file = fields_of(schema)["data_file"]["type"]
    partition = fields_of(schema)["partition"]["type"]["fields"][0]
    partition["type"] = "int"
    del partition["default"]
    absent = ("referenced_data_file", "key_metadata", "sort_order_id", "nan_value_counts")
    data_file["fields"] = [item for item in data_file["fields"] if item["name"] not in absent]
    record = copy.deepcopy(RECORD)
    record["data_file"]["partition"] = {partition["name"]: 7}  # type: ignore[index]
    file = DataFile("file:///x", "PARQUET", (7,), 10, 100, {1: 5})
    assert decoded(written(schema, record)) == (added(file),)


def test_a_field_that_is_required_in_our_layout_may_be_optional() -> None:
    schema = schema_of()
    fields_of(schema)["record_count"]["type"] = ["null", "long"]
    assert decoded(written(schema, RECORD)) == (ENTRY,)


def test_equality_ids_may_be_long_as_pyiceberg_writes_them() -> None:
    schema = schema_of()
    fields_of(schema)["equality_ids"]["type"][1]["items"] = "long"
    record = copy.deepcopy(RECORD)
    record["data_file"]["equality_ids"] = [1, 2]  # type: ignore[index]
    (found,) = decoded(written(schema, record))
    assert found.equality_ids == (1, 2)


def test_a_fixed_type_may_be_defined_once_and_then_named_as_java_does() -> None:
    schema = schema_of(TWO_OF_EACH)
    partition = fields_of(schema)["partition"]["type"]["fields"]
    assert [item["type"][1]["size"] for item in partition] == [5, 16, 5, 16, 7]
    partition[2]["type"] = ["null", partition[0]["type"][1]["name"]]
    partition[3]["type"] = ["null", partition[1]["type"][1]["name"]]
    layout = parse_layout(json.dumps(schema).encode())
    sizes = [kind[1] for _, kind in layout.partition if isinstance(kind, tuple)]
    assert sizes == [5, 16, 5, 16, 7]
    record = copy.deepcopy(RECORD)
    values = (b"12345", b"u" * 16, None, b"v" * 16, b"7654321")
    record["data_file"]["partition"] = dict(zip((item["name"] for item in partition), values, strict=True))  # type: ignore[index]
    (found,) = decoded(written(schema, record))
    assert found.data_file.partition == values


def test_a_name_that_was_not_defined_is_refused() -> None:
    schema = schema_of(TWO_OF_EACH)
    fields_of(schema)["partition"]["type"]["fields"][0]["type"] = ["null", "uuid_fixed"]
    with pytest.raises(TxlogCorrupt, match="no primitive type"):
        parse_layout(json.dumps(schema).encode())


def test_our_own_layout_is_that_of_iceberg_java() -> None:
    schema = schema_of(TWO_OF_EACH)
    assert [item["field-id"] for item in schema["fields"]] == [0, 1, 3, 4, 2]
    data_file = fields_of(schema)["data_file"]["type"]["fields"]
    ids = [134, 100, 101, 102, 103, 104, 108, 109, 110, 137, 125, 128, 131, 132, 135, 140, 143]
    assert [item["field-id"] for item in data_file] == ids
    assert all(item["type"][0] == "null" for item in fields_of(schema)["partition"]["type"]["fields"])


V3 = [
    (142, "first_row_id", ["null", "long"]),
    (144, "content_offset", ["null", "long"]),
    (145, "content_size_in_bytes", ["null", "long"]),
    (999, "whatever", ["null", "string"]),
]


@pytest.mark.parametrize(("number", "name", "kind"), V3)
def test_a_field_that_format_v2_does_not_have_is_refused(number: int, name: str, kind: Any) -> None:
    schema = schema_of()
    item = {"name": name, "type": kind, "default": None, "field-id": number}
    fields_of(schema)["data_file"]["type"]["fields"].append(item)
    with pytest.raises(TxlogCorrupt, match=f"field '{name}' of data_file has the id {number}, not one of format v2"):
        decoded(written(schema, RECORD))


def change(name: str, **changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda schema: fields_of(schema)[name].update(changes)


def without(name: str) -> Callable[[dict[str, Any]], None]:
    def drop(schema: dict[str, Any]) -> None:
        for owner in (schema, fields_of(schema).get("data_file", {}).get("type", {})):
            owner["fields"] = [item for item in owner["fields"] if item["name"] != name]

    return drop


BROKEN: dict[str, Callable[[dict[str, Any]], object]] = {
    "not a record": lambda schema: schema.update(type="enum"),
    "no fields": lambda schema: schema.pop("fields"),
    "fields no list": lambda schema: schema.update(fields={"a": 1}),
    "a field no object": lambda schema: schema["fields"].append("x"),
    "no field id": lambda schema: schema["fields"][0].pop("field-id"),
    "a field id that is a list": change("status", **{"field-id": [0]}),
    "a field id that is a number with a point": change("status", **{"field-id": 0.0}),
    "a field id that is true": change("snapshot_id", **{"field-id": True}),
    "one field id twice": lambda schema: schema["fields"].append(schema["fields"][0]),
    "an int that is a long": change("status", type="long"),
    "a long that is an int": change("record_count", type="int"),
    "a string that is bytes": change("file_path", type="bytes"),
    "no type": change("status", type=None),
    "a union of three": change("snapshot_id", type=["null", "long", "int"]),
    "null last": change("snapshot_id", type=["long", "null"]),
    "a union of one": change("snapshot_id", type=["null"]),
    "an optional of an optional": change("snapshot_id", type=["null", ["null", "long"]]),
    "a map for a list of pairs": change("column_sizes", type={"type": "map", "values": "long"}),
    "pairs of the wrong ids": change("column_sizes", type={"type": "array", "items": {"type": "record", "fields": []}}),
    "a list of strings": change("split_offsets", type={"type": "array", "items": "string"}),
    "a data file that is a string": change("data_file", type="string"),
    "a partition that is a list": change("partition", type={"type": "array", "items": "int"}),
    "no status": without("status"),
    "no path": without("file_path"),
    "no data file": lambda schema: schema.update(fields=schema["fields"][:-1]),
    "no content, as in format v1": without("content"),
}
PARTITION: dict[str, Any] = {
    "a record": {"type": "record", "name": "x", "fields": []},
    "a list": {"type": "array", "items": "int"},
    "an enum": {"type": "enum", "name": "x", "symbols": []},
    "no size": {"type": "fixed", "name": "x"},
    "a negative size": {"type": "fixed", "name": "x", "size": -1},
    "a size that is true": {"type": "fixed", "name": "x", "size": True},
    "a huge size": {"type": "fixed", "name": "x", "size": 2**40},
    "null": "null",
    "nothing": None,
    "a number": 7,
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_schema_that_is_not_that_of_manifest_entries_is_refused(broken: str) -> None:
    schema = schema_of()
    BROKEN[broken](schema)
    with pytest.raises(TxlogCorrupt):
        parse_layout(json.dumps(schema).encode())


@pytest.mark.parametrize("kind", PARTITION)
def test_a_partition_field_that_is_not_primitive_is_refused(kind: str) -> None:
    schema = schema_of(spec_of((2, IdentityTransform())))
    for written_as in (PARTITION[kind], ["null", PARTITION[kind]]):
        fields_of(schema)["partition"]["type"]["fields"][0]["type"] = written_as
        with pytest.raises(TxlogCorrupt):
            parse_layout(json.dumps(schema).encode())


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b'"string"', b"7", b"[" * 100_000, b"\xff\xfe"])
def test_a_schema_that_is_no_json_object_is_refused(text: bytes) -> None:
    with pytest.raises(TxlogCorrupt):
        parse_layout(text)


def test_a_padded_schema_is_refused_so_that_none_is_kept() -> None:
    schema = schema_of() | {"doc": "x" * 300_000}
    with pytest.raises(TxlogCorrupt, match="at most 262144 are read"):
        parse_layout(json.dumps(schema).encode())


@pytest.mark.parametrize(
    ("written_as", "kind"),
    [
        ("int", "int"),
        ({"type": "int", "logicalType": "date"}, "int"),
        ({"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}, "long"),
        (
            {"type": "fixed", "name": "d", "size": 5, "logicalType": "decimal", "precision": 10, "scale": 2},
            ("fixed", 5),
        ),
        ({"type": "string"}, "string"),
        ("date", None),
        ({"type": {"type": "int"}}, None),
        ({}, None),
        ([], None),
        (None, None),
    ],
)
def test_a_physical_type_is_the_type_without_its_logical_one(written_as: Any, kind: Any) -> None:
    assert physical(written_as) == kind


def test_the_strategies_cover_every_primitive_type() -> None:
    assert len(SCHEMA.fields) == 15
