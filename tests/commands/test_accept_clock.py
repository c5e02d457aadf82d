"""A table that a clock far ahead has stamped: with accept-clock it goes on, and so do its readers."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from bookkeeper.commands.accept_clock import date_back, dated, dated_ahead
from bookkeeper.contract.marks import FUTURE_MS, Mark, Marks, WriterMarks
from bookkeeper.errors import ClockBehind, CommitConflict, NotPossible
from tests.histories import readers
from tests.support.lake import Lake, Writes

Y2038 = datetime(2038, 1, 19, tzinfo=UTC)


@pytest.fixture
def stamped(lake: Lake, writer: Writes) -> Lake:
    """Three good commits, and five by a clock that shows 2038; then the clock is right again."""
    for number in range(3):
        writer.publish(f"good{number}")
        lake.tick()
    right = lake.clock.now
    lake.clock.now = Y2038
    book = lake.book()
    for number in range(5):
        Writes(lake, f"late{number}").publish(f"late{number}")
        lake.tick(book)
    lake.clock.now = right
    lake.clock.move(seconds=5)
    return lake


def accepted(lake: Lake) -> Any:
    ledger = lake.book().ledger
    return date_back(ledger, lake.folder, dated_ahead(ledger, lake.folder))


def test_a_table_of_2038_goes_on_with_the_same_snapshots_and_rows(stamped: Lake, writer: Writes) -> None:
    running = stamped.book()
    writer.publish("after")
    Writes(stamped, "meanwhile").publish("meanwhile")
    with pytest.raises(ClockBehind) as caught:
        stamped.tick(running)
    assert "accept-clock" in caught.value.hint
    before = [(item.snapshot_id, item.manifest_list) for item in stamped.table().metadata.snapshots]
    accepted(stamped)
    metadata = stamped.table().metadata
    assert [(item.snapshot_id, item.manifest_list) for item in metadata.snapshots] == before
    stamped.tick(running, seconds=11)
    metadata, now_ms = stamped.table().metadata, stamped.clock.now.timestamp() * 1000
    times = [item.timestamp_ms for item in metadata.snapshots]
    assert times == sorted(times) and times[-1] <= now_ms
    logs = [[item.timestamp_ms for item in log] for log in (metadata.snapshot_log, metadata.metadata_log)]
    assert all(log == sorted(log) and log[-1] <= now_ms for log in logs)
    assert stamped.keys() == sorted(
        [*(f"good{n}" for n in range(3)), *(f"late{n}" for n in range(5)), "after", "meanwhile"]
    )
    assert stamped.rejected() == {}


def test_marks_are_dated_back_in_the_table_and_in_marks_json(stamped: Lake) -> None:
    after = accepted(stamped)
    now_ms = int(stamped.clock.now.timestamp() * 1000)
    seen = [mark.seen_ms for item in after.marks.writers.values() for mark in item.incarnations.values()]
    assert len(seen) == 6 and max(seen) <= now_ms
    copy = stamped.folder.marks()
    assert copy is not None and copy.marks == after.marks


def test_a_commit_in_between_is_not_undone(stamped: Lake) -> None:
    ledger = stamped.book().ledger
    found = dated_ahead(ledger, stamped.folder)
    stamped.clock.now = Y2038 + timedelta(minutes=1)
    Writes(stamped, "between").publish("between")
    stamped.tick()
    with pytest.raises(CommitConflict):
        date_back(ledger, stamped.folder, found)
    assert stamped.keys()[0] == "between"


def test_a_table_that_is_not_ahead_is_left_alone(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    with pytest.raises(NotPossible, match="not updated in the future"):
        dated_ahead(lake.book().ledger, lake.folder)


def test_a_catalog_that_writes_the_metadata_itself_is_refused_with_words(stamped: Lake, monkeypatch: Any) -> None:
    ledger = stamped.book().ledger
    monkeypatch.setattr(ledger.catalog, "replace_metadata", None)
    with pytest.raises(NotPossible, match="ahead of this clock") as caught:
        dated_ahead(ledger, stamped.folder)
    assert "register" in caught.value.hint


def test_duckdb_reads_it_the_same(stamped: Lake) -> None:
    accepted(stamped)
    location = stamped.table().metadata_location.removeprefix("file://")
    session = readers.duckdb_session()
    assert session.execute(f"SELECT count(*) FROM iceberg_scan('{location}')").fetchone() == (8,)


def test_many_late_times_keep_their_order_and_none_is_before_what_was_right(stamped: Lake) -> None:
    metadata = stamped.table().metadata
    good = metadata.snapshots[2].timestamp_ms
    back = dated(metadata, good + 2)
    times = [item.timestamp_ms for item in back.snapshots]
    assert times == sorted(times) and times[-1] == good + 2
    TableMetadataUtil.parse_raw(back.model_dump_json())


def test_nothing_pruned_by_a_clock_that_was_ahead_keeps_new_writers_out() -> None:
    marks = Marks("f", 1, 5_000_000, {"w": WriterMarks(None, {"i": Mark(3, (), 9_000_000)})}, ((1, 50), (2, 8_000_000)))
    back = marks.dated_back(1_000)
    assert back.pruned_before_ms == 1_000 + FUTURE_MS
    assert back.writer("w").incarnations["i"] == Mark(3, (), 1_000)
    assert back.times == ((1, 50), (2, 1_000))
