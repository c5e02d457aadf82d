"""Files of older schemas, and of other programs, as rows of the table's schema now: by field id, never by name."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import DecimalType, DoubleType, LongType, StringType

from reaper.compactor.worker import CannotRewrite
from tests.reaper.compactor.stage import Stage, with_ids
from tests.support.compactions import committed, rewritten, scanned
from tests.support.compactor import live

A, B = {"name": "a", "type": "int"}, {"name": "b", "type": "string"}
BOX = {
    "type": "struct",
    "fields": [
        {"id": 90, "name": "x", "type": "int", "required": False},
        {"id": 91, "name": "y", "type": "string", "required": False},
    ],
}
BOXES = {"type": "list", "element-id": 92, "element": BOX, "element-required": False}
COUNTS = {"type": "map", "key-id": 93, "key": "string", "value-id": 94, "value": BOX, "value-required": False}


def test_columns_that_changed_their_names_with_each_other_are_told_apart(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"name": "a", "type": "string"}, B)
    stage.put(stage.arrow({"a": "1", "b": "x"}))
    with stage.lake.table().update_schema() as update:
        update.rename_column("a", "c")
    with stage.lake.table().update_schema() as update:
        update.rename_column("b", "a")
    with stage.lake.table().update_schema() as update:
        update.rename_column("c", "b")
    stage.put(stage.arrow({"a": "y", "b": "2"}))
    assert stage.rewritten() == [{"b": "1", "a": "x"}, {"b": "2", "a": "y"}]


def test_a_column_that_was_dropped_and_added_again_under_its_name_is_another_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path, A, B)
    stage.put(stage.arrow({"a": 1, "b": "old"}))
    with stage.lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("b")
    with stage.lake.table().update_schema() as update:
        update.add_column("b", StringType())
    stage.put(stage.arrow({"a": 2, "b": "new"}))
    assert stage.rewritten() == [{"a": 1, "b": None}, {"a": 2, "b": "new"}]


def test_columns_are_moved_added_dropped_and_widened(tmp_path: Path) -> None:
    stage = Stage(tmp_path, A, B, {"name": "f", "type": "float"}, {"name": "d", "type": "decimal(5, 2)"})
    stage.put(stage.arrow({"a": -1, "b": "x", "f": 0.5, "d": Decimal("1.25")}))
    with stage.lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.update_column("a", LongType())
        update.update_column("f", DoubleType())
        update.update_column("d", DecimalType(20, 2))
        update.add_column("n", LongType())
        update.delete_column("b")
        update.move_first("d")
    stage.put(stage.arrow({"a": 2**40, "f": 0.1, "d": Decimal("123456789012345678.25"), "n": 7}))
    assert stage.rewritten() == [
        {"d": Decimal("1.25"), "a": -1, "f": 0.5, "n": None},
        {"d": Decimal("123456789012345678.25"), "a": 2**40, "f": 0.1, "n": 7},
    ]


@pytest.mark.parametrize("kind", [BOX, BOXES, COUNTS], ids=["struct", "list", "map"])
def test_fields_inside_structs_lists_and_maps_change_too(tmp_path: Path, kind: dict[str, Any]) -> None:
    def box(wrapped: Any) -> Any:
        return wrapped if kind is BOX else [wrapped, None] if kind is BOXES else [("k", wrapped), ("l", None)]

    where = {"struct": "box", "list": "box.element", "map": "box.value"}[kind["type"]]
    stage = Stage(tmp_path, A, {"name": "box", "type": kind})
    empty = None if kind is BOX else []
    stage.put(
        stage.arrow({"a": 1, "box": box({"x": 1, "y": "p"})}, {"a": 2, "box": None}, {"a": 3, "box": empty}, {"a": 4})
    )
    with stage.lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.rename_column(f"{where}.y", "z")
        update.update_column(f"{where}.x", LongType())
        update.add_column((*where.split("."), "new"), StringType())
    with stage.lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.move_first(f"{where}.z")
    stage.put(stage.arrow({"a": 5, "box": box({"x": 2**40, "z": "q", "new": "n"})}))
    boxes = [row["box"] for row in stage.rewritten()]
    assert boxes == [
        box({"z": "p", "x": 1, "new": None}),
        None,
        empty,
        None,
        box({"z": "q", "x": 2**40, "new": "n"}),
    ]


def test_a_struct_of_which_only_new_fields_are_left_is_null_where_it_was(tmp_path: Path) -> None:
    stage = Stage(tmp_path, A, {"name": "box", "type": BOX})
    stage.put(stage.arrow({"a": 1, "box": {"x": 1, "y": "p"}}, {"a": 2, "box": None}))
    with stage.lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.add_column(("box", "new"), StringType())
        update.delete_column("box.x")
        update.delete_column("box.y")
    stage.put(stage.arrow({"a": 3, "box": {"new": "n"}}))
    assert [row["box"] for row in stage.rewritten()] == [{"new": None}, None, {"new": "n"}]


def test_a_file_of_which_no_column_is_left_keeps_its_rows(tmp_path: Path) -> None:
    stage = Stage(tmp_path, A)
    stage.put(stage.arrow({"a": 1}, {"a": 2}))
    with stage.lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.add_column("b", StringType())
        update.delete_column("a")
    stage.put(stage.arrow({"b": "x"}))
    assert [row["b"] for row in stage.rewritten()] == [None, None, "x"]


def test_an_identity_column_that_files_lack_comes_from_the_partition(tmp_path: Path) -> None:
    columns = [A, B, {"name": "day", "type": "date"}, {"name": "c", "type": "decimal(9, 2)"}]
    stage = Stage(tmp_path, *columns, partition_by=("b", "day", "c"))
    day = date(2026, 11, 22)
    values = ("p", (day - date(1970, 1, 1)).days, Decimal("-1.25"))
    stage.put(stage.arrow({"a": 1}).select(["a"]), values)
    stage.put(stage.arrow({"a": 2, "b": "p", "day": day, "c": Decimal("-1.25")}), values)
    assert {tuple(item.file.partition) for item in live(stage.lake)} == {("p", values[1], b"\xff\xff\xff\x83")}
    rest = {"b": "p", "day": day, "c": Decimal("-1.25")}
    assert stage.rewritten() == [{"a": 1, **rest}, {"a": 2, **rest}]
    (new,) = live(stage.lake)
    assert new.file.path.rpartition("/")[0].endswith("/data/b=p/day=2026-11-22/c=-1.25")


def test_files_without_ids_are_read_by_the_name_mapping(tmp_path: Path) -> None:
    stage = Stage(tmp_path, A, B, {"name": "box", "type": BOXES})
    mapping = (
        '[{"field-id": 1, "names": ["a", "old"]}, {"field-id": 2, "names": ["b"]}, {"field-id": 3, "names": ["box"],'
        ' "fields": [{"field-id": 4, "names": ["element"], "fields": [{"field-id": 5, "names": ["x"]},'
        ' {"field-id": 6, "names": ["y"]}]}]}]'
    )
    with stage.lake.table().transaction() as change:
        change.set_properties({"schema.name-mapping.default": mapping})
    box = pa.list_(pa.struct([("y", pa.string()), ("x", pa.int32())]))
    theirs = pa.schema([("b", pa.string()), ("old", pa.int32()), ("box", box)])
    row = {"b": "x", "old": 1, "box": [{"y": "p", "x": 3}]}
    stage.put(pa.Table.from_pylist([row], schema=theirs))
    assert stage.rewritten() == [{"a": 1, "b": "x", "box": [{"x": 3, "y": "p"}]}]
    unmapped = theirs.append(pa.field("unmapped", pa.int32()))
    stage.put(pa.Table.from_pylist([row], schema=unmapped))
    with pytest.raises(CannotRewrite, match="name mapping has no column 'unmapped'"):
        rewritten(stage.lake)


def test_what_other_programs_spell_otherwise_is_the_same_value(tmp_path: Path) -> None:
    moment = datetime(2026, 11, 22, 17, tzinfo=UTC)
    columns = [A, B, {"name": "t", "type": "timestamptz"}, {"name": "r", "type": "binary"}]
    stage = Stage(tmp_path, *columns)
    kinds = {
        "a": (1, pa.int16()),
        "b": (2, pa.dictionary(pa.int32(), pa.string())),
        "t": (3, pa.timestamp("us", "Europe/Berlin")),
        "r": (4, pa.large_binary()),
    }
    row = {"a": -3, "b": "x", "t": moment, "r": b"\xff"}
    stage.put(pa.Table.from_pylist([row], schema=with_ids(kinds)), store_schema=True)
    rewritten(stage.lake)
    committed(stage.lake)
    assert scanned(stage.lake) == [row]


REFUSED = {
    "no ids": (pa.schema([("a", pa.int32()), ("b", pa.string())]), "no field ids"),
    "some ids": (with_ids({"a": (1, pa.int32())}).append(pa.field("b", pa.string())), "'b' has no field id"),
    "two of one id": (with_ids({"a": (1, pa.int32()), "b": (1, pa.int32())}), "belongs to two"),
    "text for a number": (with_ids({"a": (1, pa.string())}), "not read as int"),
    "narrowed": (with_ids({"a": (1, pa.int64())}), "not read as int"),
    "unsigned": (with_ids({"a": (1, pa.uint16())}), "not read as int"),
    "bytes for text": (with_ids({"b": (2, pa.binary())}), "not read as string"),
    "a struct": (with_ids({"a": (1, pa.struct(list(with_ids({"x": (9, pa.int32())}))))}), "not read as int"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_certain_is_refused(tmp_path: Path, name: str) -> None:
    schema, text = REFUSED[name]
    stage = Stage(tmp_path, A, B)
    stage.put(stage.arrow({"a": 1, "b": "x"}))
    stage.put(pa.Table.from_pylist([{}], schema=schema))
    with pytest.raises(CannotRewrite, match=text) as caught:
        rewritten(stage.lake)
    assert "own/4.parquet: " in str(caught.value)
    assert len(live(stage.lake)) == 2
    assert not list(Path(stage.lake.root).rglob("*-00001.parquet"))


def test_times_of_another_unit_or_zone_are_refused(tmp_path: Path) -> None:
    for number, kind in enumerate([pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.int64()]):
        stage = Stage(tmp_path / str(number), {"name": "t", "type": "timestamptz"})
        stage.put(pa.Table.from_pylist([{}], schema=with_ids({"t": (1, kind)})))
        with pytest.raises(CannotRewrite, match="not read as timestamptz"):
            rewritten(stage.lake)


def test_a_null_or_no_value_where_the_table_requires_one_is_refused(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {**A, "required": True}, B)
    stage.put(pa.Table.from_pylist([{"b": "x"}], schema=with_ids({"b": (2, pa.string())})))
    with pytest.raises(CannotRewrite, match="lacks the required column 'a'"):
        rewritten(stage.lake)
    stage.put(pa.Table.from_pylist([{"b": "x"}], schema=with_ids({"a": (1, pa.int32()), "b": (2, pa.string())})))
    with pytest.raises(CannotRewrite, match="'a' holds nulls"):
        rewritten(stage.lake, live(stage.lake)[1:])


def test_a_required_field_of_a_null_struct_is_no_null(tmp_path: Path) -> None:
    inner = {**BOX, "fields": [{**BOX["fields"][0], "required": True}]}  # type: ignore[index]
    stage = Stage(tmp_path, {"name": "box", "type": inner})
    stage.put(stage.arrow({"box": None}, {"box": {"x": 1}}))
    assert stage.rewritten() == [{"box": None}, {"box": {"x": 1}}]
