"""Files of a fold that was never committed go as orphans; what a fold has committed stays."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from bookkeeper.stores.open import open_store
from reaper import orphans
from reaper.context import ReaperContext
from tests.histories.decoded import local
from tests.support.folds import data, fold, keys, lake_of, live, paths, planned, put, state
from tests.support.main_moved import move_main


def rows(*ids: int) -> list[dict[str, object]]:
    return [{"id": number, "name": "x"} for number in ids]


def test_files_of_a_fold_that_was_not_committed_are_swept_and_no_others(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    put(lake, data(lake, rows(1, 2, 3)), data(lake, rows(4, 5)))
    put(lake, keys(lake, rows(2)))
    fold(lake)
    put(lake, keys(lake, rows(3, 4)))
    computed = planned(lake)
    assert computed.plan is not None
    unnamed = {item.positions.data_file.path for item in computed.plan.files.values() if item.positions is not None}
    gone, now = set[str](), datetime.now(UTC) + timedelta(days=4)
    move_main(lake.catalog, lake.settings.identifier, now)
    before, named = state(lake), paths(live(lake))
    for hours in (0, 2):
        context = ReaperContext.of(lake.settings, lake.catalog, open_store, now + timedelta(hours=hours))
        gone |= set(orphans.sweep(context, now + timedelta(hours=hours)))
    assert gone == unnamed and len(gone) == 2
    assert all(local(path).exists() for path in named) and state(lake) == before
