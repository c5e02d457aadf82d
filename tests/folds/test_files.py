"""Files as older schemas and other programs write them, and hostile ones: read right, or left as they are."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.types import LongType, StringType

from bookkeeper.folds import position_deletes, read
from bookkeeper.folds.budget import OVER_BUDGET, UNREADABLE, Budget
from bookkeeper.folds.select import DROPPED
from bookkeeper.format.entries import EQUALITY_DELETES, POSITION_DELETES
from tests.histories.decoded import local
from tests.support.folds import NAME, Put, data, fold, keys, lake_of, live, paths, positions, put, state
from tests.support.lake import Lake

SHAPES = {
    "int": ([1, 2, 3], [2]),
    "long": ([1, 2**60, 3], [2**60]),
    "string": (["a", "ü", ""], ["ü", ""]),
    "date": ([0, 1, 20_000], [1]),
    "timestamptz": ([0, 1, 2], [1]),
    "boolean": ([True, False, True], [False]),
    "binary": ([b"", b"\xff", b"b"], [b"\xff"]),
    "decimal(20,2)": (["1.00", "2.50", "3.00"], ["2.50"]),
    "uuid": ([b"a" * 16, b"b" * 16, b"c" * 16], [b"b" * 16]),
    "fixed[3]": ([b"abc", b"abd", b"xyz"], [b"abd"]),
}


def value(kind: str, given: Any) -> Any:
    made: dict[str, Callable[[Any], Any]] = {"decimal(20,2)": Decimal, "uuid": lambda raw: UUID(bytes=raw)}
    return made.get(kind, lambda raw: raw)(given)


@pytest.mark.parametrize("kind", SHAPES)
def test_keys_of_any_type(tmp_path: Path, kind: str) -> None:
    lake = lake_of(tmp_path, columns=({"name": "id", "type": kind}, {"name": "n", "type": "int"}))
    held, deleted = SHAPES[kind]
    put(lake, data(lake, [{"id": value(kind, raw), "n": at} for at, raw in enumerate(held)] + [{"id": None, "n": 9}]))
    put(lake, keys(lake, [{"id": value(kind, raw)} for raw in deleted]))
    before = state(lake)
    fold(lake)
    assert state(lake) == before and len(before) == len(held) + 1 - len(deleted)
    assert live(lake, EQUALITY_DELETES) == [] and len(live(lake, POSITION_DELETES)) == 1


def rows(*ids: int | None) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number}"} for number in ids]


def test_a_key_that_was_widened_renamed_and_moved(tmp_path: Path) -> None:
    columns = ({"name": "id", "type": "int"}, {"name": "name", "type": "string"})
    lake = lake_of(tmp_path, columns=columns)
    put(lake, data(lake, rows(1, 2, 3)))
    put(lake, keys(lake, rows(1)))
    with lake.table().update_schema() as change:
        change.update_column("id", LongType())
    with lake.table().update_schema() as change:
        change.rename_column("id", "number")
    with lake.table().update_schema() as change:
        change.move_after("number", "name")
    put(lake, keys(lake, [{"number": 2}]))
    put(lake, data(lake, [{"number": 2**40}, {"number": 2**40 + 1}]))
    put(lake, keys(lake, [{"number": 2**40}]))
    fold(lake)
    assert sorted(row[1] for row in state(lake)) == [3, 2**40 + 1] and live(lake, EQUALITY_DELETES) == []


def test_a_column_that_is_newer_than_the_data_file_is_null_there(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, columns=({"name": "id", "type": "long"},))
    put(lake, data(lake, [{"id": 1}, {"id": 2}]))
    with lake.table().update_schema() as change:
        change.add_column("extra", StringType())
    put(lake, data(lake, [{"id": 1, "extra": "x"}]))
    put(lake, keys(lake, [{"id": 1, "extra": None}], (1, 2)))
    before = state(lake)
    fold(lake)
    assert state(lake) == before == [(1, "x"), (2, None)]


def left(lake: Lake, why: str, **more: Any) -> None:
    """Nothing is folded for this reason, and nothing changes."""
    before, files = state(lake), sorted(item.file["file_path"] for item in live(lake))
    computed = fold(lake, **more)
    assert computed.plan is None and [why in each for each in computed.left.values()] == [True]
    assert state(lake) == before and sorted(item.file["file_path"] for item in live(lake)) == files


def test_a_float_in_the_key_is_left(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, columns=({"name": "id", "type": "double"}, {"name": "n", "type": "int"}))
    put(lake, data(lake, [{"id": 0.0, "n": 1}]))
    put(lake, keys(lake, [{"id": -0.0}]))
    left(lake, "float")


def test_a_data_file_that_cannot_be_read_keeps_the_deletes_that_apply_to_it(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, "region")
    torn, whole = data(lake, rows(1, 2), ("a",)), data(lake, rows(1, 2), ("b",))
    put(lake, torn, whole)
    put(lake, keys(lake, rows(1), partition=("a",)), keys(lake, rows(1), partition=("b",)))
    path = local(torn.path)
    good = path.read_bytes()
    path.write_bytes(b"x" * len(good))
    computed = fold(lake)
    assert computed.plan is not None and len(computed.left) == 1
    path.write_bytes(good)
    assert len(live(lake, EQUALITY_DELETES)) == 1 and sorted(row[0] for row in state(lake)) == [2, 2]
    fold(lake)
    assert live(lake, EQUALITY_DELETES) == [] and sorted(row[0] for row in state(lake)) == [2, 2]


def test_a_data_file_in_another_format_keeps_them_too(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    plain = data(lake, rows(1, 2))
    put(lake, replace(plain, file=replace(plain.file, file_format="AVRO")))
    put(lake, keys(lake, rows(1)))
    left(lake, "only Parquet")


def test_a_missing_data_file_keeps_them_too(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    first = data(lake, rows(1, 2))
    put(lake, first)
    put(lake, keys(lake, rows(1)))
    local(first.path).rename(tmp_path / "away")
    computed = fold(lake)
    assert computed.plan is None and len(computed.left) == 1


def test_deletes_are_folded_beside_one_of_their_scope_that_cannot_be_read(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    put(lake, data(lake, rows(1, 2, 3, 4)))
    put(lake, keys(lake, rows(1)))
    odd = keys(lake, rows(2))
    put(lake, replace(odd, file=replace(odd.file, record_count=7)))
    put(lake, keys(lake, rows(3)))
    computed = fold(lake)
    assert computed.plan is not None and len(computed.plan.folded) == 2
    ((key, why),) = computed.left.items()
    assert key == odd.path and why.startswith(UNREADABLE) and "1 rows, the table says 7" in why
    assert paths(live(lake, EQUALITY_DELETES)) == {odd.path} and [row[0] for row in state(lake)] == [4]


def test_a_delete_file_without_its_key_column_is_left(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    put(lake, data(lake, rows(1, None)))
    given = keys(lake, rows(1))
    lying = replace(given, equality_ids=(NAME,), file=replace(given.file, lower_bounds={}, upper_bounds={}))
    put(lake, lying)
    computed = fold(lake)
    assert computed.plan is None and "lacks the column" in next(iter(computed.left.values()))


@pytest.mark.parametrize("key_ids", [(), (99,), None])
def test_key_columns_that_the_table_does_not_have_are_left(tmp_path: Path, key_ids: tuple[int, ...] | None) -> None:
    lake = lake_of(tmp_path)
    put(lake, data(lake, rows(1)))
    put(lake, replace(keys(lake, rows(1)), equality_ids=key_ids))
    computed = fold(lake)
    assert computed.plan is None and len(computed.left) == 1


@pytest.mark.parametrize("budget", [Budget(deleted_keys=1), Budget(files=1), Budget(bytes=10), Budget(rows=3)], ids=str)
def test_what_is_over_the_budget_is_left_and_said(tmp_path: Path, budget: Budget) -> None:
    lake = lake_of(tmp_path)
    put(lake, data(lake, rows(1, 2)), data(lake, rows(1, 3)))
    put(lake, keys(lake, rows(1, 5)))
    left(lake, OVER_BUDGET, budget=budget)


def test_deletes_that_are_too_many_keep_no_others_from_being_folded(tmp_path: Path) -> None:
    """Those that fit are folded, the oldest first: the others have their turn in a later fold."""
    lake = lake_of(tmp_path, "region")
    put(lake, data(lake, rows(1, 2, 3, 4, 5), ("a",)), data(lake, rows(1, 2), ("b",)))
    too_many = [keys(lake, rows(3, 4, 7), partition=("a",)), keys(lake, rows(11, 12, 13, 14, 15), partition=("a",))]
    for given in (too_many[1], keys(lake, rows(1, 2), partition=("a",)), too_many[0]):
        put(lake, given)
    put(lake, keys(lake, rows(1), partition=("b",)))
    before = state(lake)
    computed = fold(lake, budget=Budget(deleted_keys=4))
    assert computed.plan is not None and set(computed.left.values()) == {OVER_BUDGET}
    assert {item.file["file_path"] for item in live(lake, EQUALITY_DELETES)} == {item.path for item in too_many}
    assert state(lake) == before
    fold(lake, budget=Budget(deleted_keys=4))
    assert [item.file["file_path"] for item in live(lake, EQUALITY_DELETES)] == [too_many[1].path]
    assert state(lake) == before


def test_a_position_delete_file_is_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(position_deletes, "PART_ROWS", 2)
    lake = lake_of(tmp_path)
    put(lake, data(lake, rows(1, 2, 3, 4, 5, 6, 7)))
    put(lake, keys(lake, rows(1, 2, 4, 5, 7)))
    before = state(lake)
    fold(lake)
    assert state(lake) == before and [row[0] for row in before] == [3, 6]
    (made,) = live(lake, POSITION_DELETES)
    assert made.file["record_count"] == 5 and live(lake, EQUALITY_DELETES) == []


def long_keys(lake: Lake, count: int) -> Put:
    """Deleted keys that take 10,000 bytes each in memory, and next to nothing in the file."""
    found = keys(lake, [{"name": "x" * 10_000}] * count, (NAME,))
    return replace(found, file=replace(found.file, lower_bounds={}, upper_bounds={}))


def test_a_file_that_is_small_until_it_is_read_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "MOST_ARROW_BYTES", 2**20)
    lake = lake_of(tmp_path)
    put(lake, data(lake, rows(1, 2)))
    given = long_keys(lake, 200)
    assert given.file.size_bytes < 50_000
    put(lake, given)
    left(lake, "bytes in memory")


def test_deleted_keys_of_many_files_are_left_before_they_fill_the_memory(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    put(lake, data(lake, rows(1, 2)))
    put(lake, *(long_keys(lake, 20) for _ in range(10)))
    put(lake, keys(lake, rows(1)))
    before = state(lake)
    computed = fold(lake, budget=Budget(deleted_bytes=2**20))
    assert computed.plan is not None and set(computed.left.values()) == {OVER_BUDGET}
    assert len(live(lake, EQUALITY_DELETES)) == 10 and state(lake) == before


def test_a_scope_that_fits_is_folded_beside_one_that_does_not(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, "region")
    for _ in range(3):
        put(lake, data(lake, rows(1, 2), ("a",)))
    put(lake, data(lake, rows(1, 2), ("b",)))
    put(lake, keys(lake, rows(1), partition=("a",)))
    put(lake, keys(lake, rows(1), partition=("b",)))
    before = state(lake)
    computed = fold(lake, budget=Budget(files=2))
    assert computed.plan is not None and [*computed.left.values()] == [OVER_BUDGET]
    assert state(lake) == before
    (stays,) = live(lake, EQUALITY_DELETES)
    assert stays.file["partition"] == {"region": "a"}


def test_files_that_by_their_bounds_have_no_deleted_key_are_not_read(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    for begin in range(0, 50, 10):
        put(lake, data(lake, rows(*range(begin, begin + 10))))
    put(lake, keys(lake, rows(12, 13)))
    before = state(lake)
    computed = fold(lake)
    assert computed.read == 1 and state(lake) == before and live(lake, EQUALITY_DELETES) == []


def test_files_of_a_spec_whose_column_was_dropped_keep_the_deletes_that_apply_to_them(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, "region")
    put(lake, data(lake, rows(1, 2), (None,)))
    with lake.table().update_spec() as change:
        change.remove_field("region")
    spec = lake.table().spec()
    put(lake, keys(lake, rows(1), partition=(None,) * len(spec.fields), spec_id=spec.spec_id))
    view = lake.view()
    held = view.schema_for

    class Dropped:
        """The view of a table that has the column in no schema any more."""

        def __getattr__(self, name: str) -> Any:
            return getattr(view, name)

        def schema_for(self, spec_id: int) -> Any:
            return None if spec_id == 0 else held(spec_id)

    computed = fold(lake, view=Dropped())
    assert computed.plan is None and set(computed.left.values()) == {DROPPED}


def test_a_position_delete_file_with_impossible_positions_is_no_predecessor(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    first = data(lake, rows(1, 2, 3))
    put(lake, first)
    wrong = positions(lake, {first.path: [1, 77]})
    put(lake, wrong, keys(lake, rows(1)))
    fold(lake)
    assert wrong.path in {item.file["file_path"] for item in live(lake, POSITION_DELETES)}
    assert [row[0] for row in state(lake)] == [3]
