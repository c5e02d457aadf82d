"""Whatever happens to the table, summaries say the truth: streams trust `added-data-files`, people the totals."""

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.snapshots import Operation

from bookkeeper.config.settings import Retention
from bookkeeper.history.main_history import MainHistory
from bookkeeper.observe.metrics.table_metrics import stats_of
from tests.commands.test_verify import lying_snapshot
from tests.support.lake import Lake, Writes, append_by_others, live_files

HOUR = timedelta(hours=1)


def said(lake: Lake) -> dict[str, int]:
    head = lake.table().current_snapshot()
    found = head.summary.additional_properties if head else {}
    return {key: int(found.get(key, 0)) for key in ("total-data-files", "total-records", "total-files-size")}


def truth(lake: Lake) -> dict[str, int]:
    files = live_files(lake)
    return {
        "total-data-files": len(files),
        "total-records": sum(file.record_count for file in files),
        "total-files-size": sum(file.file_size_in_bytes for file in files),
    }


def added(snapshot: Any, io: Any) -> int:
    """How many files this snapshot really added."""
    own = [item for item in snapshot.manifests(io) if item.added_snapshot_id == snapshot.snapshot_id]
    return sum(item.added_files_count or 0 for item in own)


@pytest.mark.parametrize("seed", range(3))
def test_summaries_say_the_truth_after_every_step_of_any_history(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    lake = Lake(tmp_path / "lake", retention=Retention(keep=6 * HOUR, brake=1.0))
    writers, foreign = [Writes(lake, f"w{number}") for number in range(2)], Writes(lake, "foreign")
    book, expected = lake.book(), {}
    for step in range(30):
        act = dice.choice(["append", "append", "append", "foreign", "wait", "restart"])
        at = lake.clock.now - dice.choice([0, 1, 5]) * HOUR
        if act == "append":
            for number in range(dice.randint(1, 3)):
                key = f"{step}-{number}"
                dice.choice(writers).publish(key, key + "+", at=at)
                expected |= {key: at, key + "+": at}
        elif act == "foreign":
            append_by_others(lake, foreign.file([f"{step}-f"], at))
            expected[f"{step}-f"] = at
        elif act == "restart":
            book = lake.book()
        lake.tick(book, minutes=dice.choice([1, 2, 90]) if act == "wait" else 2)
        assert said(lake) == truth(lake)
    expected = {key: at for key, at in expected.items() if at >= lake.clock.now - 6 * HOUR}
    assert lake.keys() == sorted(expected)
    table = lake.table()
    for snapshot in table.metadata.snapshots:
        claimed = int(snapshot.summary.additional_properties.get("added-data-files", 0))
        assert claimed == added(snapshot, table.io)


def test_every_snapshot_can_still_be_read_as_it_was(lake: Lake, writer: Writes) -> None:
    book, seen = lake.book(), {}
    for number in range(20):
        writer.publish(f"a{number:02}")
        lake.tick(book)
        seen[lake.table().current_snapshot().snapshot_id] = number + 1
    for snapshot_id, rows in seen.items():
        assert lake.table().scan(snapshot_id=snapshot_id).to_arrow().num_rows == rows


def test_filtered_scans_find_rows_by_partition_and_bounds(lake: Lake, writer: Writes) -> None:
    days = [lake.clock.now - timedelta(days=number) for number in range(5)]
    for number, day in enumerate(days):
        writer.publish(f"day-{number}", at=day)
    lake.tick()
    limit = (lake.clock.now - timedelta(days=2, hours=1)).isoformat()
    found = lake.table().scan(row_filter=f"timestamp >= '{limit}'", selected_fields=("key",)).to_arrow()
    assert sorted(found["key"].to_pylist()) == ["day-0", "day-1", "day-2"]


TOTALS = ("total_data_files", "total_records", "total_files_size", "total_delete_files", "total_equality_deletes")


@pytest.mark.parametrize("said_there", ["many", "-5", "1.0", "", "9" * 25, "9" * 5000, None])
def test_what_another_program_says_that_is_no_count_stops_nothing(lake: Lake, writer: Writes, said_there: Any) -> None:
    writer.publish("a")
    lake.tick()
    lying_snapshot(lake, Operation.APPEND, added_data_files=said_there, **dict.fromkeys(TOTALS, said_there))
    writer.publish("b")
    lake.settings = replace(lake.settings, retention=Retention(keep_bytes=1, brake=1.0))
    lake.tick()
    lake.tick()
    assert lake.keys() == ["b"]
    totals = lake.table().current_snapshot().summary.additional_properties
    assert (totals["total-data-files"], totals["total-records"]) == ("1", "1")
    assert "total-files-size" not in totals  # unknown from there on
    assert stats_of(lake.view()).files == 1
    history = MainHistory(lake.table().metadata)
    assert history.bytes_after[0] > 0
    assert history.rows_before(history.snapshots[2].snapshot_id, 0) == 1
