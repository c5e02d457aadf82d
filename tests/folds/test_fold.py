"""What a fold does to a table: the state stays, equality deletes go, and position deletes say the same."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bookkeeper.folds.budget import OVER_BUDGET, Budget
from bookkeeper.format.entries import DATA, EQUALITY_DELETES, POSITION_DELETES
from tests.histories.decoded import local
from tests.support.folds import FILE_PATH, ID, NAME, data, fold, keys, lake_of, live, paths, positions, put, state


def rows(*ids: int | None, region: str | None = None) -> list[dict[str, object]]:
    return [{"id": number, "name": f"n{number}", "region": region} for number in ids]


def seen(lake: object) -> list[object]:
    return sorted((row[0] for row in state(lake)), key=repr)  # type: ignore[arg-type]


def test_dead_rows_become_positions_and_live_rows_stay(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    first = data(lake, rows(1, 2, 3, 4))
    put(lake, first)
    put(lake, keys(lake, rows(2, 4)), data(lake, rows(2, 9)))
    put(lake, keys(lake, rows(9)))
    before = state(lake)
    computed = fold(lake)
    assert state(lake) == before and seen(lake) == [1, 2, 3]
    assert live(lake, EQUALITY_DELETES) == []
    found = {item.file["referenced_data_file"]: item.file for item in live(lake, POSITION_DELETES)}
    assert computed.dead_rows == 3 and len(found) == 2
    file = found[first.path]
    stored = pq.read_table(local(file["file_path"]))
    assert stored.column("pos").to_pylist() == [1, 3]
    assert stored.column("file_path").to_pylist() == [first.path] * 2
    bounds = [{pair["key"]: pair["value"] for pair in file[name]} for name in ("lower_bounds", "upper_bounds")]
    assert bounds[0][FILE_PATH] == bounds[1][FILE_PATH] == first.path.encode()
    assert file["record_count"] == 2 and file["sort_order_id"] is None


def test_the_snapshot_is_a_delete_with_exact_counts(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    put(lake, data(lake, rows(1, 2, 3)), data(lake, rows(7, 8)))
    put(lake, keys(lake, rows(2, 7, 8)))
    fold(lake)
    head = lake.table().current_snapshot()
    assert head.summary.operation.value == "delete"
    said = head.summary.additional_properties
    wanted = {"added-position-deletes": "1", "removed-equality-deletes": "3", "deleted-records": "2"}
    wanted |= {"total-delete-files": "1", "total-position-deletes": "1", "total-data-files": "1", "total-records": "3"}
    assert {key: said[key] for key in wanted} == wanted
    assert lake.table().properties["bookkeeper.marks"].count(str(head.snapshot_id)) == 1


def test_a_data_file_without_a_row_left_goes_with_its_position_deletes(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    gone, stays = data(lake, rows(1, 2, 3)), data(lake, rows(4))
    put(lake, gone, stays)
    put(lake, positions(lake, {gone.path: [1]}))
    put(lake, keys(lake, rows(1, 3)))
    fold(lake)
    assert seen(lake) == [4] and paths(live(lake)) == {stays.path}


def test_a_row_as_new_as_the_delete_is_alive(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    put(lake, data(lake, rows(1), number=1))
    put(lake, data(lake, rows(1, 5), number=2), keys(lake, rows(1), number=2))
    fold(lake)
    assert seen(lake) == [1, 5] and live(lake, EQUALITY_DELETES) == []


def test_the_newest_delete_of_a_key_decides(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    put(lake, data(lake, rows(1, 2)))
    put(lake, keys(lake, rows(1)))
    put(lake, data(lake, rows(1, 2)))
    put(lake, keys(lake, rows(2)))
    before = state(lake)
    fold(lake)
    assert state(lake) == before and seen(lake) == [1]


def test_a_predecessor_is_replaced_and_partition_wide_files_stay(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    first, second = data(lake, rows(1, 2, 3, 4)), data(lake, rows(5, 6, 7))
    put(lake, first, second)
    wide = positions(lake, {first.path: [0], second.path: [0]}, referenced=False)
    own = positions(lake, {first.path: [1]})
    put(lake, wide, own)
    put(lake, keys(lake, rows(3)))
    before = state(lake)
    fold(lake)
    assert state(lake) == before and seen(lake) == [4, 6, 7]
    found = live(lake, POSITION_DELETES)
    assert wide.path in paths(found) and own.path not in paths(found) and len(found) == 2
    new = next(item for item in found if item.file["file_path"] != wide.path)
    assert pq.read_table(local(new.file["file_path"])).column("pos").to_pylist() == [1, 2]


def test_rows_that_are_in_a_position_delete_file_already_make_no_new_one(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    first = data(lake, rows(1, 2))
    put(lake, first)
    own = positions(lake, {first.path: [1]})
    put(lake, own, keys(lake, rows(2)))
    fold(lake)
    assert (
        seen(lake) == [1] and paths(live(lake, POSITION_DELETES)) == {own.path} and live(lake, EQUALITY_DELETES) == []
    )


def test_a_position_delete_file_that_is_older_than_its_data_file_is_no_predecessor(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    first = data(lake, rows(1, 2, 3), number=2)
    put(lake, positions(lake, {first.path: [0]}, number=1))
    put(lake, first)
    put(lake, keys(lake, rows(2)))
    fold(lake)
    assert seen(lake) == [1, 3] and len(live(lake, POSITION_DELETES)) == 2


def test_a_predecessor_that_speaks_of_another_file_too_stays(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    first, second = data(lake, rows(1, 2, 3)), data(lake, rows(4, 5))
    put(lake, first, second)
    lying = positions(lake, {first.path: [0], second.path: [0]})
    put(lake, lying, keys(lake, rows(2)))
    fold(lake)
    assert lying.path in paths(live(lake, POSITION_DELETES)) and seen(lake) == [3, 5]


def test_nulls_in_keys_are_equal(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    put(lake, data(lake, [*rows(1, None), {"id": None, "name": None}]))
    put(lake, keys(lake, [{"id": None, "name": None}], (ID, NAME)))
    before = state(lake)
    fold(lake)
    assert state(lake) == before and len(before) == 2
    put(lake, keys(lake, [{"id": None}]))
    fold(lake)
    assert seen(lake) == [1] and live(lake, EQUALITY_DELETES) == []


def test_a_bound_delete_holds_in_its_partition_of_its_spec_and_a_global_one_everywhere(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, "region")
    put(lake, data(lake, rows(1, 2, region="a"), ("a",)), data(lake, rows(1, 2, region="b"), ("b",)))
    with lake.table().update_spec() as change:
        change.remove_field("region")
    unpartitioned = lake.table().spec().spec_id
    void = (None,) * len(lake.table().spec().fields)
    put(lake, data(lake, rows(1, 2, region="a"), void, unpartitioned))
    put(lake, keys(lake, rows(1), partition=("a",)))
    put(lake, keys(lake, rows(2), partition=void, spec_id=unpartitioned))
    before = state(lake)
    fold(lake)
    assert state(lake) == before and seen(lake) == [1, 1] and live(lake, EQUALITY_DELETES) == []


@pytest.mark.parametrize("void", ["null", "no"])
def test_a_partition_of_null_is_a_partition(tmp_path: Path, void: str) -> None:
    lake = lake_of(tmp_path, "region")
    put(lake, data(lake, rows(1, 2), (None,)), data(lake, rows(1, 2, region="b"), ("b",)))
    put(lake, keys(lake, rows(1), partition=(None,) if void == "null" else ("b",)))
    before = state(lake)
    fold(lake)
    assert state(lake) == before and len(before) == 3


def test_a_fold_of_nothing_is_nothing(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    assert fold(lake).plan is None
    put(lake, data(lake, rows(1)))
    assert fold(lake).plan is None and len(live(lake, DATA)) == 1


def test_equality_deletes_that_apply_to_nothing_go(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    put(lake, keys(lake, rows(1)))
    put(lake, data(lake, rows(1)))
    fold(lake)
    assert seen(lake) == [1] and live(lake, EQUALITY_DELETES) == []


def test_deletes_that_apply_to_no_file_any_more_go_unread_whatever_their_size(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    put(lake, data(lake, rows(1), number=1))
    # The greatest number that applies to nothing, and the smallest that applies.
    dangling, needed = keys(lake, rows(1, 2, 3), number=1), keys(lake, rows(1), number=2)
    put(lake, dangling, needed)
    before = state(lake)
    local(dangling.file.path).unlink()
    computed = fold(lake, budget=Budget(deleted_keys=0))
    assert state(lake) == before and [*computed.left.values()] == [OVER_BUDGET]
    assert paths(live(lake, EQUALITY_DELETES)) == {needed.file.path}
    fold(lake)
    assert state(lake) == before == [] and live(lake) == []
