"""A keyed table under expiry and the orphan sweep: delete files stay as long as a reader or a txlog needs them."""

from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Reaper, Retention
from bookkeeper.ledger import merge
from reaper import orphans, reap
from reaper.context import ReaperContext
from reaper.files import txlogs
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.keyed_rows import entries, state
from tests.support.lake import Lake
from tests.support.main_moved import move_main

RULES = Reaper(older_than=timedelta(minutes=10), retain_last=2, metadata_keep=timedelta(hours=1))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(merge, "FAN", 3)
    retention = Retention(max_age=timedelta(hours=4), brake=1.0)
    return keyed_lake(tmp_path / "lake", reaper=RULES, retention=retention)


def files(lake: Lake) -> set[str]:
    return {path.name for path in Path(lake.root).rglob("*.parquet")}


def listed(lake: Lake) -> set[str]:
    return {entry.data_file.file_path.rpartition("/")[2] for entry in entries(lake)}


def history(lake: Lake) -> Steps:
    """Commits, merges, and delete files that went with their data files."""
    writer, book = Steps(lake), lake.book()
    for turn in range(7):
        writer.publish_steps(Step(upserts={1: str(turn), 2: "x"}), Step(deletes=[2]), Step(upserts={turn: "y"}))
        lake.tick(book, minutes=50)
    return writer


def test_expiry_deletes_what_went_and_nothing_that_is_needed(lake: Lake) -> None:
    writer, keeps_all = history(lake), lake.book(retention=Retention())
    for _ in range(2):  # what retention dropped is behind what is kept
        writer.publish_steps(Step(upserts={9: "z"}))
        lake.tick(keeps_all)
    before, all_files = state(lake), files(lake)
    gone = all_files - listed(lake)
    assert gone and {"delete", "append", "replace"} <= {*lake.operations()}
    lake.clock.move(hours=1)
    for _ in range(3):
        reap(open_catalog(lake.catalog_settings), lake.settings, lake.clock.now, open_store=lake.store)
    assert files(lake) == listed(lake) == all_files - gone
    assert state(lake) == before


def test_the_sweep_keeps_live_delete_files_and_those_of_a_waiting_txlog(lake: Lake) -> None:
    writer = history(lake)
    waiting = writer.publish_steps(Step(upserts={50: "w"}), Step(deletes=[1]))
    needed = listed(lake) | {path.rpartition("/")[2] for path in named_by(lake, str(waiting))}
    orphan = Path(lake.root, "demo/events/data/lost.parquet")
    orphan.write_bytes(b"PAR1")
    sweep_twice(lake)
    assert not orphan.exists()
    assert needed <= files(lake)


def named_by(lake: Lake, waiting: str) -> set[str]:
    found = txlogs.named(lake.folder.store)
    assert waiting in lake.pending() and len(found) >= 4
    return found


def sweep_twice(lake: Lake) -> None:
    """Long after these files were written, and once main has moved on."""
    lake.clock.move(days=4)
    move_main(lake.catalog, lake.settings.identifier, lake.clock.now)
    for _ in range(2):
        lake.clock.move(hours=2)
        context = ReaperContext.of(lake.settings, lake.catalog, lake.store, lake.clock.now)
        orphans.sweep(context, lake.clock.now)
