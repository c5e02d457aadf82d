"""Retention by size: the oldest commits' files go, whole commits at a time, and never less stays than was asked for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

from bookkeeper.config.settings import Retention
from bookkeeper.format import records
from bookkeeper.retention.apply import apply_retention, without_bounds
from tests.support.faults import Faults
from tests.support.lake import Lake, Writes, live_files
from tests.tick.test_history import change


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Twenty commits of one file each, in manifests of small blocks; size number i is a thousand times i."""
    monkeypatch.setattr(records, "BLOCK_BYTES", 700)
    lake = Lake(tmp_path / "lake", check_files=False)
    writer, book = Writes(lake), lake.book()
    for number in range(1, 21):
        file = replace(writer.file([f"k{number:02d}"]), size_bytes=number * 1000)
        name, data = writer.encoded([file])
        lake.folder.publish(name, data)
        lake.tick(book)
    return lake


def retain(lake: Lake, faults: Faults | None = None, **rule: Any) -> Any:
    book = lake.book(faults)
    view = book.ledger.load(lake.folder.card().folder)
    return apply_retention(book.ledger, view, Retention(**{"brake": 1.0, **rule}), lake.clock.move(seconds=1))


def left(lake: Lake) -> list[int]:
    return sorted(file.file_size_in_bytes // 1000 for file in live_files(lake))


@pytest.mark.parametrize("keep", [1, 20_000, 39_000, 100_000, 206_999, 207_000, 209_000, 210_000, 999_999])
def test_the_oldest_commits_go_as_long_as_enough_stays(lake: Lake, keep: int) -> None:
    expected = list(range(1, 21))
    while expected and sum(expected[1:]) * 1000 >= keep:
        expected.pop(0)
    retain(lake, keep_bytes=keep)
    assert left(lake) == expected
    assert len(lake.keys()) == len(expected)


def test_again_and_again_it_stays_so(lake: Lake) -> None:
    retain(lake, keep_bytes=100_000)
    before = left(lake)
    assert retain(lake, keep_bytes=100_000).files == 0
    assert left(lake) == before


def test_below_the_limit_no_manifest_is_read(lake: Lake) -> None:
    faults = Faults()
    retain(lake, faults, keep_bytes=210_000)
    read = [operation for operation in faults.seen if operation.startswith("read metadata/")]
    assert [operation for operation in read if "/snap-" not in operation] == []


def test_files_of_one_commit_go_together(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", check_files=False)
    writer = Writes(lake)
    for number in range(3):
        files = [replace(writer.file([f"k{number}{part}"]), size_bytes=1000) for part in range(4)]
        name, data = writer.encoded(files)
        lake.folder.publish(name, data)
        lake.tick()
    retain(lake, keep_bytes=6_000)
    assert len(left(lake)) == 8


def test_the_brake_holds_for_it_too(lake: Lake) -> None:
    found = retain(lake, keep_bytes=1, brake=0.5)
    assert "retention.brake" in found.held_back
    assert len(left(lake)) == 20


@pytest.mark.parametrize("behind", [False, True])
def test_a_snapshot_of_another_program_without_a_total_does_not_end_it(lake: Lake, behind: bool) -> None:
    head = lake.table().current_snapshot()
    own = {"snapshot_id": 1, "parent_snapshot_id": head.snapshot_id, "sequence_number": head.sequence_number + 1}
    bare = head.model_copy(update={**own, "summary": Summary(Operation.APPEND)})  # as DuckDB 1.4 writes it
    change(lake, AddSnapshotUpdate(snapshot=bare), SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=1))
    if behind:
        Writes(lake, "w2").publish("k21")
        lake.tick()
    retain(lake, keep_bytes=39_000)
    assert left(lake) == [1] * behind + [19, 20]


@pytest.mark.parametrize("stated", [400_000, 10**15])
def test_a_total_that_another_program_got_wrong_drops_nothing_too_early(lake: Lake, stated: int) -> None:
    """Each later commit goes on from it."""
    head = lake.table().current_snapshot()
    own = {"snapshot_id": 1, "parent_snapshot_id": head.snapshot_id, "sequence_number": head.sequence_number + 1}
    summary = Summary(Operation.APPEND, **{"total-files-size": str(stated)})
    wrong = head.model_copy(update={**own, "summary": summary})
    change(lake, AddSnapshotUpdate(snapshot=wrong), SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=1))
    lake.settings = replace(lake.settings, retention=Retention(keep_bytes=210_000, brake=1.0))
    book = lake.book()
    lake.tick(book, minutes=2)
    assert left(lake) == [*range(1, 21)]
    lake.settings = replace(lake.settings, retention=Retention(keep_bytes=39_000, brake=1.0))
    lake.tick(lake.book(), minutes=2)
    assert left(lake) == [19, 20]


def test_the_daemon_does_it_by_itself(lake: Lake) -> None:
    limits = Retention(keep_bytes=39_000, brake=1.0)
    lake.settings = replace(lake.settings, retention=limits)
    lake.tick(lake.book())
    assert left(lake) == [19, 20]


def test_files_that_cannot_tell_their_age_are_counted(lake: Lake) -> None:
    writer = Writes(lake, "w2")
    name, data = writer.encoded([replace(writer.file(["dark"]), lower_bounds={}, upper_bounds={})])
    lake.folder.publish(name, data)
    book = lake.book()
    lake.tick(book)
    view = book.ledger.load(lake.folder.card().folder)
    limits = Retention(keep=lake.clock.now - lake.clock.now.replace(year=2000))
    assert without_bounds(book.ledger, view, limits, lake.clock.now) == 1
    assert without_bounds(book.ledger, view, Retention(keep_bytes=1), lake.clock.now) == 0
