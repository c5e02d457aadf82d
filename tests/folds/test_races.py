"""
Folds beside what else commits: no row that was deleted ever returns, none that was not is lost.

Both orders of a fold and of each other commit are tried, with plans and rewrites made before either of them.
"""

import io
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table.snapshots import Operation

from bookkeeper.contract.rewrite import decode, encode
from bookkeeper.errors import DeletesNotApplied, FoldOutdated
from bookkeeper.format.entries import DATA, EQUALITY_DELETES, POSITION_DELETES, DataFile
from bookkeeper.ledger import merge
from bookkeeper.retention.scan import find
from tests.support import compactor
from tests.support.compactor import base_of
from tests.support.folds import Put, committed, data, fold, keys, lake_of, live, planned, put, state
from tests.support.lake import Lake


def rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number}"} for number in ids]


def ids(lake: Lake) -> list[Any]:
    return [row[0] for row in state(lake)]


def files_of(lake: Lake) -> list[compactor.ReplacedFile]:
    return compactor.live(lake)


def rewrite_of(lake: Lake, old: Any, gone: tuple[int, ...] = (), applied: tuple[str, ...] = ()) -> Any:
    """A rewrite of these files as a compactor publishes it, with their rows less the `gone`."""
    rewrite_id, card = str(uuid.uuid4()), lake.folder.card()
    stored = [pq.read_table(io.BytesIO(compactor._stored(lake, item.file.path))) for item in old]
    kept = [row for table in stored for row in table.to_pylist() if row["id"] not in gone]
    out, name = io.BytesIO(), f"{rewrite_id}-00001.parquet"
    pq.write_table(pa.Table.from_pylist(kept, schema=schema_to_pyarrow(card.schema)), out)
    lake.store(card.data_path).upload(name, out.getvalue())
    new = DataFile(f"{card.data_path}/{name}", "PARQUET", (), len(kept), out.tell())
    made = encode(rewrite_id, base_of(lake, applied), card.schema, card.spec, [new], old)
    return decode(rewrite_id, made, compactor.MOST)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two data files, of which an equality delete hides a row; nothing is folded."""
    lake = lake_of(tmp_path)
    put(lake, data(lake, rows(1, 2, 3)), operation=Operation.APPEND)
    put(lake, data(lake, rows(4, 5)), operation=Operation.APPEND)
    put(lake, keys(lake, rows(2)))
    return lake


# the bookkeeper's own compactor


def blind(lake: Lake) -> Any:
    """Made before the delete came: it knows nothing of it, and the delete outlives it."""
    return rewrite_of(lake, files_of(lake))


def applying(lake: Lake) -> Any:
    """It applied the equality delete."""
    (delete,) = live(lake, EQUALITY_DELETES)
    return rewrite_of(lake, files_of(lake), (2,), (delete.file["file_path"],))


@pytest.mark.parametrize("made", [blind, applying])
def test_a_fold_after_a_rewrite_of_its_files_is_refused(lake: Lake, made: Callable[[Lake], Any]) -> None:
    computed, rewrite = planned(lake), made(lake)
    assert len(compactor.commit(lake, rewrite).good) == 1
    assert ids(lake) == [1, 3, 4, 5]
    with pytest.raises(FoldOutdated):
        committed(lake, computed)
    assert ids(lake) == [1, 3, 4, 5]
    fold(lake)
    assert ids(lake) == [1, 3, 4, 5] and live(lake, EQUALITY_DELETES) == []


@pytest.mark.parametrize("made", [blind, applying])
def test_a_rewrite_after_a_fold_of_its_files_is_refused(lake: Lake, made: Callable[[Lake], Any]) -> None:
    computed, rewrite = planned(lake), made(lake)
    committed(lake, computed)
    checked = compactor.commit(lake, rewrite)
    assert [type(why) for why in checked.rejected.values()] == [DeletesNotApplied]
    assert ids(lake) == [1, 3, 4, 5]


def test_a_rewrite_of_files_without_dead_rows_goes_in_after_a_fold_and_refuses_one_before(lake: Lake) -> None:
    computed, rewrite = planned(lake), rewrite_of(lake, files_of(lake)[1:])
    committed(lake, computed)
    assert len(compactor.commit(lake, rewrite).good) == 1
    assert ids(lake) == [1, 3, 4, 5]


def test_a_fold_that_dropped_a_file_refuses_its_rewrite(lake: Lake) -> None:
    put(lake, keys(lake, rows(4, 5)))
    computed, rewrite = planned(lake), rewrite_of(lake, files_of(lake)[1:])
    committed(lake, computed)
    assert compactor.commit(lake, rewrite).good == [] and ids(lake) == [1, 3]


# files that come and go between plan and commit


def drop(lake: Lake, path: str) -> None:
    """Retention takes a data file out."""
    ledger, view = lake.book().ledger, lake.view()
    ledger.drop(view, find(ledger, view, None, lambda _: True, lambda row, _: row.path == path))


def test_a_file_that_is_gone_is_dropped_from_the_plan(lake: Lake) -> None:
    first, second = files_of(lake)
    put(lake, keys(lake, rows(4)))
    computed = planned(lake)
    drop(lake, first.file.path)
    committed(lake, computed)
    assert ids(lake) == [5] and live(lake, EQUALITY_DELETES) == []
    assert [item.file["referenced_data_file"] for item in live(lake, POSITION_DELETES)] == [second.file.path]


def test_newer_rows_and_newer_deletes_between_plan_and_commit_stay(lake: Lake) -> None:
    computed = planned(lake)
    put(lake, data(lake, rows(2, 6)))
    put(lake, keys(lake, rows(6, 1)))
    before = state(lake)
    committed(lake, computed)
    assert state(lake) == before and len(live(lake, EQUALITY_DELETES)) == 1


def test_an_older_row_that_comes_between_plan_and_commit_refuses_the_fold(lake: Lake) -> None:
    computed = planned(lake)
    put(lake, data(lake, rows(2, 6), number=1))
    before = state(lake)
    with pytest.raises(FoldOutdated, match="came since"):
        committed(lake, computed)
    assert state(lake) == before


def test_a_merge_of_manifests_between_plan_and_commit_is_no_obstacle(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed, before = planned(lake), state(lake)
    monkeypatch.setattr(merge, "FAN", 2)
    ledger, view = lake.book().ledger, lake.view()
    ledger.append(view, [], view.marks)
    after = {item.manifest_path for item in ledger.manifests(lake.view())}
    assert not after & computed.plan.manifests  # type: ignore[union-attr]
    committed(lake, computed)
    assert state(lake) == before and live(lake, EQUALITY_DELETES) == []


def test_a_data_file_that_is_added_again_refuses_the_fold(lake: Lake) -> None:
    first, computed = files_of(lake)[0].file, planned(lake)
    put(lake, Put(DATA, first, 0))
    with pytest.raises(FoldOutdated):
        committed(lake, computed)


def test_a_data_file_that_is_live_twice_is_left_alone(lake: Lake) -> None:
    put(lake, Put(DATA, files_of(lake)[0].file, 0))
    computed = fold(lake)
    assert computed.plan is None and set(computed.left.values()) == {"a data file is named twice"}


def test_an_equality_delete_that_is_gone_refuses_the_fold(lake: Lake) -> None:
    computed = planned(lake)
    committed(lake, planned(lake))
    before = state(lake)
    with pytest.raises(FoldOutdated, match="not live"):
        committed(lake, computed)
    assert state(lake) == before


def test_a_plan_is_good_for_twenty_minutes_and_for_its_table(lake: Lake) -> None:
    computed = planned(lake)
    assert computed.plan is not None
    with pytest.raises(FoldOutdated, match="made anew"):
        committed(lake, replace(computed, plan=replace(computed.plan, table_uuid="another")))
    lake.clock.move(minutes=20)
    with pytest.raises(FoldOutdated, match="ago"):
        committed(lake, computed)


def test_two_folds_of_one_table_are_one(lake: Lake) -> None:
    first, second = planned(lake), planned(lake)
    committed(lake, first)
    with pytest.raises(FoldOutdated):
        committed(lake, second)
    assert ids(lake) == [1, 3, 4, 5] and len(live(lake, POSITION_DELETES)) == 1
