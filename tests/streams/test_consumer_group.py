"""A group shares the files: each row once, and a member that is gone is stood in for."""

import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import ConfigInvalid, ConsumerFenced, NotPossible, Overwritten, RolledBack
from bookkeeper.streams import ConsumerGroup, FolderPlace, SqlitePlace
from bookkeeper.streams.consumer import Limits
from bookkeeper.streams.source import Source, registered_at
from tests.packaging.project import ROOT
from tests.streams.consumers import SqliteOutput, keys, settings_of
from tests.streams.test_consumer import changed
from tests.streams.test_consumer_kills import config_of
from tests.support.lake import Lake, Writes, append_by_others


def member(lake: Lake, share: str, place: Any = FolderPlace, **how: Any) -> ConsumerGroup:
    return ConsumerGroup.open(
        settings_of(lake), name="group", share=share, place=place, clock=lake.clock, wait=lambda _: True, **how
    )


def taken(group: ConsumerGroup) -> list[str]:
    found = []
    for batch in group.batches(follow=False):
        found += keys(batch)
        group.commit(batch)
    return found


def commits(lake: Lake, writer: Writes, first: int, count: int) -> list[str]:
    book, found = lake.book(), []
    for number in range(first, first + count):
        found += [f"{number}.a", f"{number}.b"]
        writer.publish(*found[-2:])
        lake.tick(book)
    return found


def test_each_row_is_read_by_one_member(lake: Lake, writer: Writes) -> None:
    wanted = commits(lake, writer, 0, 40)  # a share without a file has odds of one in a million
    with member(lake, "1/3") as one, member(lake, "2/3") as two, member(lake, "3/3") as three:
        parts = [taken(group) for group in (one, two, three)]
        assert all(parts) and sorted(key for part in parts for key in part) == sorted(wanted)
        more = commits(lake, writer, 40, 12)
        assert sorted(key for group in (one, two, three) for key in taken(group)) == sorted(more)


def test_a_share_that_is_free_is_borrowed_and_given_back(lake: Lake, writer: Writes) -> None:
    wanted = commits(lake, writer, 0, 12)
    with member(lake, "1/2") as one:
        found = taken(one)
        assert one.held == [1] and len(found) < len(wanted)
        lake.clock.move(seconds=4)
        found += taken(one)
        assert one.held == [1, 2] and sorted(found) == sorted(wanted)
        with member(lake, "2/2") as two:
            assert taken(two) == [] and two.held == []
            lake.clock.move(minutes=1)
            more = commits(lake, writer, 12, 6)
            found = taken(one)
            assert one.held == [1]
            found += taken(two)
            assert two.held == [2] and sorted(found) == sorted(more)


def test_a_member_that_lost_its_share_unnoticed_commits_nothing(lake: Lake, writer: Writes, tmp_path: Path) -> None:
    wanted = commits(lake, writer, 0, 6)
    connections = [SqliteOutput(tmp_path).connect() for _ in range(2)]
    one, two = (member(lake, "1/1", lambda c=c: SqlitePlace(c), limits=Limits(4)) for c in connections)  # type: ignore[misc]
    zombie = next(one.batches(follow=False))
    one._leases[1].release()
    found = []
    for batch in two.batches(follow=False):
        with connections[1]:
            found += keys(batch)
            two.commit(batch)
    with pytest.raises(ConsumerFenced), connections[0]:
        connections[0].execute("INSERT INTO output VALUES ('zombie')")
        one.commit(zombie)
    two.close()
    assert found == wanted
    assert SqliteOutput(tmp_path).keys() == []
    for connection in connections:
        connection.close()


def test_a_group_keeps_its_number_of_shares(lake: Lake) -> None:
    member(lake, "1/2").close()
    with pytest.raises(NotPossible, match="2 shares, not 3"):
        member(lake, "1/3")
    with pytest.raises(ConfigInvalid, match="share"):
        member(lake, "3/2")


def test_a_share_that_is_opened_late_begins_where_the_group_began(lake: Lake, writer: Writes) -> None:
    with member(lake, "1/2", start="end") as one:
        wanted = commits(lake, writer, 0, 12)
        with member(lake, "2/2", start="end") as two:
            assert sorted(taken(one) + taken(two)) == sorted(wanted)


def test_a_group_of_which_a_crash_left_one_share_registered_begins_there(lake: Lake, writer: Writes) -> None:
    source = Source.of(settings_of(lake), None)
    registered_at(source.load, source.registration("group-1of2", lake.clock), "end")
    wanted = commits(lake, writer, 0, 12)
    with member(lake, "1/2", start="end") as one, member(lake, "2/2", start="end") as two:
        assert sorted(taken(one) + taken(two)) == sorted(wanted)


def test_an_overwrite_of_others_is_passed_over_on_demand(lake: Lake, writer: Writes) -> None:
    with member(lake, "1/1") as careful:
        assert taken(careful) == []
    wanted = commits(lake, writer, 0, 3)
    overwritten = changed(lake, "overwrite")
    with member(lake, "1/1") as careful, pytest.raises(Overwritten):
        careful._source = replace(careful._source, load=overwritten)
        taken(careful)
    with member(lake, "1/1", skip_overwrites=True) as group:
        group._source = replace(group._source, load=overwritten)
        assert taken(group) == wanted[4:]


def test_after_a_rollback_each_member_goes_on_with_its_shares(lake: Lake, writer: Writes) -> None:
    before = commits(lake, writer, 0, 12)
    with member(lake, "1/2") as one, member(lake, "2/2") as two:
        assert sorted(taken(one) + taken(two)) == sorted(before)
    fourth = lake.table().metadata.snapshots[3].snapshot_id
    lake.table().manage_snapshots().rollback_to_snapshot(fourth).commit()
    after = [f"other-{number}" for number in range(12)]
    for key in after:
        append_by_others(lake, writer.file([key]))
    with member(lake, "1/2") as one, member(lake, "2/2") as two:
        for number, group in enumerate((one, two), start=1):
            with pytest.raises(RolledBack):
                taken(group)
            moved = group.skip_lost()
            assert [*moved] == [number] and moved[number].place.snapshot == fourth
        parts = [taken(one), taken(two)]
        assert all(parts) and sorted(parts[0] + parts[1]) == sorted(after)


@pytest.mark.slow
def test_of_a_group_of_three_one_is_killed(lake: Lake, writer: Writes, tmp_path: Path) -> None:
    where = tmp_path / "output.db"
    output = sqlite3.connect(where, timeout=30)
    with output:
        output.execute("PRAGMA journal_mode = WAL")
        output.execute("CREATE TABLE output (key TEXT, share TEXT)")
    command = [sys.executable, "-m", "tests.streams.endless_member", config_of(lake)]
    members = [
        subprocess.Popen(
            [*command, f"{number}/3", str(where)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in (1, 2, 3)
    ]
    try:
        for process in members:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        commits(lake, writer, 0, 20)
        members[1].kill()
        commits(lake, writer, 20, 20)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            ((count,),) = output.execute("SELECT count(*) FROM output").fetchall()
            if count >= len(writer.keys):
                break
            time.sleep(0.2)
    finally:
        for process in members:
            process.communicate()
    found = [key for (key,) in output.execute("SELECT key FROM output")]
    output.close()
    assert sorted(found) == sorted(writer.keys)
    assert [process.returncode for process in members] == [0, -9, 0]
