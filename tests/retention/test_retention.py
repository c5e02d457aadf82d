"""Retention: whole files, by their newest row or by their commit; never more than a person would expect."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table.update import RemoveSnapshotsUpdate
from pyiceberg.types import DateType

from bookkeeper.config.settings import Retention
from bookkeeper.errors import StorageUnavailable
from tests.support.faults import AFTER, BEFORE, Faults, Rule
from tests.support.lake import Clock, Lake, Writes, append_by_others, live_files
from tests.tick.test_history import change

HOUR = timedelta(hours=1)
LOOSE = ({"name": "timestamp", "type": "timestamptz"}, {"name": "key", "type": "string"})


def kept(root: Path, columns: Any = (), **retention: Any) -> Lake:
    """A lake with retention; its brake is off unless the test is about it."""
    rule = Retention(**{"brake": 1.0, **retention})
    return Lake(root / "lake", columns=columns, retention=rule, partition_by=() if columns else ("day(timestamp)",))


def test_a_file_goes_when_its_newest_row_is_past_the_cutoff_and_not_before(tmp_path: Path) -> None:
    lake = kept(tmp_path, keep=HOUR)
    writer, now = Writes(lake), lake.clock.now
    writer.publish("old", at=now - 2 * HOUR)
    name, data = writer.encoded([writer.file(["old-too", "new"], now - 2 * HOUR, now - timedelta(minutes=30))])
    lake.folder.publish(name, data)
    writer.publish("newest")
    result = lake.tick()
    assert result.dropped_files == 1
    assert lake.keys() == ["new", "newest", "old-too"]
    lake.tick(minutes=29)
    assert lake.keys() == ["new", "newest", "old-too"]
    lake.tick(minutes=2)
    assert lake.keys() == ["newest"]


def test_files_go_in_a_delete_snapshot_and_leave_deleted_entries_for_expiry(tmp_path: Path) -> None:
    lake = kept(tmp_path, keep=HOUR)
    writer = Writes(lake)
    writer.publish("old", at=lake.clock.now - 2 * HOUR)
    writer.publish("new")
    lake.tick()
    assert lake.operations() == ["append", "delete"]
    table = lake.table()
    head = table.current_snapshot()
    entries = [entry for item in head.manifests(table.io) for entry in item.fetch_manifest_entry(table.io, False)]
    gone = [entry for entry in entries if entry.status == ManifestEntryStatus.DELETED]
    assert [entry.snapshot_id for entry in gone] == [head.snapshot_id]
    assert gone[0].data_file.file_path.endswith("-old.parquet")
    assert [entry.sequence_number for entry in entries] == [1, 1]
    said = head.summary.additional_properties
    assert (said["deleted-data-files"], said["deleted-records"]) == ("1", "1")
    assert (said["total-data-files"], said["total-records"]) == ("1", "1")


def test_the_data_files_themselves_are_left_to_the_reaper(tmp_path: Path) -> None:
    lake = kept(tmp_path, keep=HOUR)
    writer = Writes(lake)
    path = writer.file(["old"], lake.clock.now - 2 * HOUR, sequence=1).path
    writer.publish("old", at=lake.clock.now - 2 * HOUR)
    assert lake.tick().dropped_files == 1
    assert Path(path.removeprefix("file://")).exists()


def test_a_manifest_of_nothing_but_deleted_entries_is_dropped_by_the_next_append(tmp_path: Path) -> None:
    lake = kept(tmp_path, keep=HOUR)
    Writes(lake).publish("old", at=lake.clock.now - 2 * HOUR)
    lake.tick()
    table = lake.table()
    assert len(table.current_snapshot().manifests(table.io)) == 1
    Writes(lake).publish("new")
    lake.tick()
    table = lake.table()
    (only,) = table.current_snapshot().manifests(table.io)
    assert (only.added_files_count, only.deleted_files_count) == (1, 0)


def test_null_timestamps_and_files_without_bounds_go_by_max_age_only(tmp_path: Path) -> None:
    lake = kept(tmp_path, columns=LOOSE, keep=HOUR, max_age=timedelta(hours=10))
    writer, old = Writes(lake), lake.clock.now - 2 * HOUR
    files = [
        writer.file(["all null"], None),
        writer.file(["some null", "old 1"], None, old),
        writer.file(["no bounds"], old, lower_bounds={}, upper_bounds={}),
        writer.file(["nulls not counted"], old, null_value_counts={}),
        writer.file(["old 2"], old),
    ]
    name, data = writer.encoded(files)
    lake.folder.publish(name, data)
    lake.tick()
    left = ["all null", "no bounds", "nulls not counted", "old 1", "some null"]
    assert lake.keys() == left
    lake.tick(hours=9)
    assert lake.keys() == left
    lake.tick(minutes=62)
    assert lake.keys() == []


def test_a_bound_of_an_impossible_width_is_no_bound(tmp_path: Path) -> None:
    """Of a foreign file, for a txlog with it is refused: an empty bound is not the year 1970."""
    lake = kept(tmp_path, columns=LOOSE, keep=HOUR)
    append_by_others(lake, Writes(lake).file(["a"], upper_bounds={1: b""}))
    lake.tick()
    assert lake.operations() == ["append"]


def test_a_row_dated_2099_goes_by_the_age_of_its_commit(tmp_path: Path) -> None:
    lake = kept(tmp_path, keep=HOUR, max_age=timedelta(hours=10))
    Writes(lake).publish("future", at=datetime(2099, 1, 1, tzinfo=UTC))
    lake.tick()
    lake.tick(hours=9)
    assert lake.keys() == ["future"]
    lake.tick(minutes=62)
    assert lake.keys() == []


def test_max_age_counts_from_the_commit_also_when_its_snapshot_is_expired(tmp_path: Path) -> None:
    lake = kept(tmp_path, max_age=timedelta(hours=10))
    writer = Writes(lake)
    writer.publish("first")
    lake.tick()
    writer.publish("later")
    lake.tick(hours=5)
    change(lake, RemoveSnapshotsUpdate(snapshot_ids=[lake.table().metadata.snapshots[0].snapshot_id]))
    lake.tick(hours=5, minutes=30)
    assert lake.keys() == ["later"]
    lake.tick(hours=5)
    assert lake.keys() == []


def test_files_of_others_are_as_old_as_our_next_commit(tmp_path: Path) -> None:
    lake = kept(tmp_path, max_age=timedelta(hours=10))
    append_by_others(lake, Writes(lake).file(["theirs"]))
    Writes(lake).publish("ours")
    lake.tick(hours=1)
    lake.tick(hours=9)
    assert lake.keys() == ["ours", "theirs"]
    lake.tick(hours=1, minutes=30)
    assert lake.keys() == []


def test_an_old_file_is_not_young_again_after_a_long_pause(tmp_path: Path) -> None:
    """The bookkeeper was away for longer than two max-ages; its first commit must not forget what is old."""
    lake = kept(tmp_path, max_age=HOUR)
    writer = Writes(lake)
    writer.publish("old")
    lake.tick()
    writer.publish("new")
    lake.tick(hours=5)
    assert lake.keys() == ["new"]


def test_the_brake_holds_when_more_than_half_of_the_live_files_would_go(tmp_path: Path, caplog: Any) -> None:
    lake = kept(tmp_path, keep=HOUR, brake=0.5)
    writer = Writes(lake)
    for key in "abc":
        writer.publish(key, at=lake.clock.now - 2 * HOUR)
    for key in "xy":
        writer.publish(key)
    book = lake.book()
    lake.tick(book)
    lake.tick(book, minutes=2)
    assert lake.keys() == ["a", "b", "c", "x", "y"]
    assert [record.action for record in caplog.records if record.levelname == "WARNING"] == ["brake"]
    writer.publish("z")
    lake.tick(book, minutes=2)
    assert lake.keys() == ["x", "y", "z"]


def test_the_brake_holds_when_few_files_with_most_of_the_rows_would_go(tmp_path: Path, caplog: Any) -> None:
    lake = kept(tmp_path, keep=HOUR, brake=0.5)
    writer = Writes(lake)
    writer.publish(*"abcdefg", at=lake.clock.now - 2 * HOUR)
    for key in "xyz":
        writer.publish(key)
    book = lake.book()
    lake.tick(book)
    lake.tick(book, minutes=2)
    assert lake.keys() == [*"abcdefgxyz"]
    (braked,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert (braked.action, braked.cause) == ("brake", "7 of 10 rows would go, more than retention.brake allows")
    writer.publish(*"jklmnop")
    lake.tick(book, minutes=2)
    assert lake.keys() == [*"jklmnopxyz"]


@pytest.mark.parametrize("minutes", [-6, 6])
def test_nothing_is_dropped_or_pruned_while_our_clock_and_the_storages_differ(tmp_path: Path, minutes: int) -> None:
    lake = kept(tmp_path, keep=HOUR)
    writer = Writes(lake)
    writer.publish("a")
    lake.tick()
    lake.clock.move(days=2)
    lake.disk_clock = Clock(lake.clock.now)
    lake.disk_clock.move(minutes=minutes)
    lake.folder = lake.book().folder
    Writes(lake, "w2").publish("b")
    lake.tick()
    assert lake.keys() == ["a", "b"]
    assert lake.view().marks.mark(writer.name) is not None
    lake.disk_clock.now = lake.clock.now
    Writes(lake, "w3").publish("c")
    lake.tick(minutes=0)
    assert lake.keys() == ["b", "c"]
    assert lake.view().marks.mark(writer.name) is None


def test_a_date_column_serves_too(tmp_path: Path) -> None:
    columns = ({"name": "day", "type": "date"}, *LOOSE)
    lake = kept(tmp_path, columns=columns, keep=timedelta(days=3), column="day")
    writer = Writes(lake)
    today = (lake.clock.now.date() - datetime(1970, 1, 1).date()).days
    for age in (2, 3, 4, 5):
        bound = (today - age).to_bytes(4, "little", signed=True)
        counts = {1: 0, 2: 0, 3: 0}
        file = writer.file([f"{age} days"], lower_bounds={1: bound}, upper_bounds={1: bound}, null_value_counts=counts)
        lake.folder.publish(*writer.encoded([file]))
    lake.tick()
    assert lake.keys() == ["2 days", "3 days"]


@pytest.mark.parametrize("column", ["key", "nothing"])
def test_a_column_that_cannot_serve_is_said_and_stops_no_commit(tmp_path: Path, column: str, caplog: Any) -> None:
    lake = kept(tmp_path, keep=HOUR, column=column)
    Writes(lake).publish("a")
    lake.tick()
    assert lake.keys() == ["a"]
    assert "retention.column" in next(record.cause for record in caplog.records if record.action == "brake")


@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_a_delete_whose_outcome_is_unknown_is_looked_up(tmp_path: Path, faults: Faults, when: str) -> None:
    lake = kept(tmp_path, keep=HOUR)
    writer = Writes(lake)
    book = lake.book(faults)
    writer.publish("new")
    lake.tick(book)
    writer.publish("old", at=lake.clock.now - 2 * HOUR)
    lake.tick(book)
    faults.on("commit_table", when, TimeoutError, times=1)
    lake.tick(book, minutes=2)
    lake.tick(book, minutes=2)
    assert (lake.keys(), lake.operations()) == (["new"], ["append", "append", "delete"])


def reads_manifest(operation: str) -> bool:
    return operation.startswith("read metadata/") and "/snap-" not in operation


def test_a_manifest_that_cannot_be_read_holds_retention_back_and_stops_no_commit(
    tmp_path: Path, faults: Faults, caplog: Any
) -> None:
    lake = kept(tmp_path, keep=HOUR)
    book = lake.book(faults)
    writer = Writes(lake)
    writer.publish("old", at=lake.clock.now - 2 * HOUR)
    faults.rules.append(Rule(lambda _, operation: reads_manifest(operation), BEFORE, StorageUnavailable, 1_000_000))
    assert lake.tick(book).commit is not None
    writer.publish("new")
    assert lake.tick(book, minutes=2).commit is not None
    assert "metadata/" in book.duties.retention.held_back
    faults.clear()
    manifest = Path(live_manifests(lake)[-1].removeprefix("file://"))
    good = manifest.read_bytes()
    manifest.write_bytes(b"Obj\x01 of a library that we cannot read")
    lake.tick(lake.book(faults), minutes=2)
    assert [record.action for record in caplog.records if record.levelname == "WARNING"][-1] == "brake"
    manifest.write_bytes(good)
    lake.tick(book, minutes=2)
    assert lake.keys() == ["new"]


def live_manifests(lake: Lake) -> list[str]:
    table = lake.table()
    return [item.manifest_path for item in table.current_snapshot().manifests(table.io)]


def test_a_sweep_that_fails_does_not_hide_a_commit(lake: Lake, writer: Writes, faults: Faults) -> None:
    writer.publish("a")
    faults.on("list folder/rejected", BEFORE, StorageUnavailable)
    book = lake.book(faults)
    book.planning.prune.due.last = lake.clock.now
    assert lake.tick(book).commit is not None
    assert len(live_files(lake)) == 1


@pytest.mark.parametrize("dropped", [False, True], ids=["before it", "in its place"])
def test_another_column_of_times_drops_nothing(tmp_path: Path, dropped: bool) -> None:
    lake = kept(tmp_path, LOOSE, keep=HOUR)
    writer = Writes(lake)
    for key in ("one", "two", "three"):
        writer.publish(key)
    lake.tick()
    with lake.table().update_schema() as change:
        change.add_column("born", DateType())
        change.move_first("born")
    lake.tick(seconds=11)
    born = lake.table().schema().find_field("born").field_id
    days = to_bytes(DateType(), 0)
    file = writer.file(["four"])
    file = replace(
        file,
        null_value_counts={**file.null_value_counts, born: 0},
        lower_bounds={**file.lower_bounds, born: days},
        upper_bounds={**file.upper_bounds, born: days},
    )
    name, data = writer.encoded([file])
    lake.folder.publish(name, data)
    if dropped:
        lake.tick(lake.book(retention=Retention()))
        with lake.table().update_schema(allow_incompatible_changes=True) as change:
            change.delete_column("timestamp")
    book = lake.book()
    lake.tick(book, seconds=11)
    lake.tick(book, seconds=61)
    assert lake.keys() == ["four", "one", "three", "two"]
    assert "retention.column" in book.duties.retention.held_back
