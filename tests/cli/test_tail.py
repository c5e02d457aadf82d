"""`bookkeeper tail`: every row once, in commit order, whatever happens to the table; and a pipe like any other."""

import io
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.types import ListType, StringType

from bookkeeper import errors
from bookkeeper.cli.tail import Pump, _json_line, _text_line, start_of
from bookkeeper.config.settings import Reaper, Retention
from bookkeeper.console.pipe import Pipe
from bookkeeper.console.signals import StopSignal
from bookkeeper.consumers.place_on_main import ahead
from bookkeeper.consumers.selection import Selection
from bookkeeper.consumers.tail import Follower, Position
from bookkeeper.history.main_history import MainHistory
from reaper.run import reap
from tests.support.crew import Crew
from tests.support.lake import Lake, Writes, append_by_others
from writers.writer import Writer as WriterOfUsers


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def follower(lake: Lake, start: str = "beginning", columns: tuple[str, ...] = ("key",)) -> Follower:
    table = lake.table()
    place = start_of(table, start, lake.clock.now)
    return Follower(lake.table, Selection.of(table, columns), place, str(table.metadata.table_uuid))


def keys(following: Follower, most: int | None = None) -> list[str]:
    """What is new, or the first rows of it; the position is after the last of them."""
    found = []
    for row, _ in following.news():
        if row is not None:
            found.append(row["key"])
            if len(found) == most:
                break
    return found


def commit(lake: Lake, writer: Writes, *groups: str) -> None:
    for group in groups:
        writer.publish(*group)
        lake.tick()


def expire(lake: Lake, keep: int = 1) -> None:
    """What the reaper does once everything but the last snapshots is old."""
    settings = replace(lake.settings, reaper=Reaper(older_than=timedelta(0), retain_last=keep))
    reap(lake.catalog, settings, lake.clock.move(hours=1), release_brake=True, open_store=lake.store)


def test_rows_come_in_the_order_they_were_committed(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "ba", "dc", "e")
    assert keys(follower(lake)) == list("badce")
    following = follower(lake, "end")
    assert keys(following) == []
    commit(lake, writer, "f")
    assert (keys(following), keys(following)) == (["f"], [])


def test_it_goes_on_after_any_row(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "abc", "def", "g")
    for most in range(1, 8):
        first = follower(lake)
        seen = keys(first, most)
        assert seen + keys(follower(lake, str(first.position))) == list("abcdefg")


def test_a_snapshot_means_what_came_after_it(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a", "b", "c")
    first = lake.table().metadata.snapshots[0].snapshot_id
    assert keys(follower(lake, str(first))) == ["b", "c"]
    assert keys(follower(lake, f"{first}:0")) == ["a", "b", "c"]


def test_it_may_start_at_a_time_or_an_age(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a")
    then = lake.clock.move(minutes=10)
    commit(lake, writer, "b", "c")
    assert keys(follower(lake, then.isoformat())) == ["b", "c"]
    assert keys(follower(lake, "1m")) == ["b", "c"]
    assert keys(follower(lake, "1h")) == ["a", "b", "c"]
    lake.clock.move(minutes=10)
    assert keys(follower(lake, "1m")) == []


def test_an_empty_table_is_followed_from_its_first_row_on(lake: Lake, writer: Writes) -> None:
    for start in ("end", "beginning", "1h"):
        following = follower(lake, start)
        assert keys(following) == []
        assert str(following.position) == "beginning"
    commit(lake, writer, "a")
    assert keys(following) == ["a"]


@pytest.mark.parametrize("start", ["4711", "4711:3", "4711:all:3"])
def test_a_snapshot_that_is_not_there_is_refused(lake: Lake, writer: Writes, start: str) -> None:
    with pytest.raises(errors.RolledBack, match="main has no snapshot"):
        follower(lake, start)
    commit(lake, writer, "a")
    with pytest.raises(errors.PlaceExpired, match="the place is snapshot 4711, and"):
        follower(lake, start)


@pytest.mark.parametrize("start", ["yesterday", "12x", "-1", "1:some:2", ""])
def test_what_is_no_place_is_refused_with_what_is(lake: Lake, start: str) -> None:
    with pytest.raises(errors.NotPossible, match="is expected"):
        start_of(lake.table(), start, lake.clock.now)


def test_the_beginning_of_a_table_with_expired_snapshots_is_all_that_is_live(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, *"abcdefghijklmnopqrst")
    expire(lake)
    assert len(lake.table().metadata.snapshots) < 5
    first = follower(lake)
    seen = keys(first, 7)
    assert str(first.position).partition(":")[2] == "all:7"
    commit(lake, writer, "u")
    assert seen + keys(follower(lake, str(first.position))) == list("abcdefghijklmnopqrstu")


def test_an_expired_position_is_said_and_nothing_is_guessed(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "abc")
    following, part = follower(lake), follower(lake)
    assert (keys(following), keys(part, 2)) == (list("abc"), list("ab"))
    commit(lake, writer, "d")
    on_time = follower(lake, str(following.position))
    assert keys(on_time) == ["d"]
    expire(lake)
    assert keys(on_time) == []
    commit(lake, writer, "e", "f")
    expire(lake)
    for late in (following, part):
        with pytest.raises(errors.PlaceExpired, match="is expired"):
            keys(late)
    with pytest.raises(errors.PlaceExpired, match="is unknown"):
        follower(lake, "30d")


def test_a_position_whose_own_snapshot_alone_is_expired_goes_on(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a", "b", "c")
    metadata = lake.table().metadata
    first, second, third = metadata.snapshots
    java = metadata.model_copy(update={"snapshots": [second, third]})  # which leaves the parent of the oldest named
    history, uuid = MainHistory(java), str(metadata.table_uuid)
    assert ahead(history, Position(first.snapshot_id).before(uuid)) == [second, third]
    for gone in (Position(first.snapshot_id, 1), Position(first.parent_snapshot_id), Position()):
        with pytest.raises(errors.PlaceExpired):
            ahead(history, gone.before(uuid))


def test_a_file_that_is_expired_while_it_is_read_is_a_position_that_is_expired(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a", "b")
    following = follower(lake)
    news = following.news()
    assert next(news).row == {"key": "a"}
    commit(lake, writer, "c")
    lake.drain()
    expire(lake)
    for path in lake.root.rglob("*b.parquet"):
        path.unlink()
    for path in lake.root.rglob("snap-*.avro"):
        path.unlink()
    with pytest.raises(errors.PlaceExpired):
        list(news)


def test_a_file_that_is_lost_is_no_position_that_is_expired(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a")
    for path in lake.root.rglob("*.parquet"):
        path.unlink()
    with pytest.raises(errors.StorageUnavailable, match="is not there"):
        keys(follower(lake))


def test_a_rollback_is_said(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a", "b")
    following = follower(lake, "end")
    first = lake.table().metadata.snapshots[0].snapshot_id
    lake.table().manage_snapshots().set_current_snapshot(first).commit()
    with pytest.raises(errors.RolledBack, match="rolled back"):
        keys(following)


def test_another_table_of_the_same_name_is_said(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a")
    following = follower(lake)
    following._table._uuid = "another"
    with pytest.raises(errors.NotPossible, match="another table") as refused:
        keys(following)
    assert "--from beginning" in refused.value.hint


def test_a_file_that_is_missing_is_waited_for(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a", "b")
    following = follower(lake)
    files = lake.table().inspect.data_files()["file_path"].to_pylist()
    path = Path(next(file for file in files if file.endswith("-b.parquet")).removeprefix("file://"))
    path.rename(path.with_suffix(".away"))
    with pytest.raises(errors.StorageUnavailable, match=r"-b\.parquet"):
        keys(following)
    path.with_suffix(".away").rename(path)
    assert keys(following) == ["b"]


def test_columns_come_as_they_are_called_now(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a")
    with lake.table().update_schema() as change:
        change.rename_column("key", "name")
        change.add_column("more", StringType())
    following = follower(lake, columns=("name", "more"))
    assert [row for row, _ in following.news() if row] == [{"name": "a", "more": None}]


@pytest.mark.parametrize("operation", ["replace", "overwrite"])
def test_files_that_only_took_the_place_of_others_are_passed_over(
    lake: Lake, writer: Writes, operation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(lake, writer, "a", "b", "c")
    table, following, out = lake.table(), follower(lake), io.BytesIO()
    first, second, third = table.metadata.snapshots
    summary = Summary(Operation(operation), **second.summary.additional_properties)
    rewritten = [first, second.model_copy(update={"summary": summary}), third]
    table.metadata = table.metadata.model_copy(update={"snapshots": rewritten})
    following._table._load = lambda: table
    pump(following, out, leave=True).run()
    assert out.getvalue() == b"a\nc\n"
    assert ("is an overwrite" in capsys.readouterr().err) == (operation == "overwrite")


def test_rows_of_others_are_shown_too(lake: Lake, writer: Writes) -> None:
    following = follower(lake)
    append_by_others(lake, writer.file(["foreign"]))
    assert keys(following) == ["foreign"]


@pytest.mark.parametrize("seed", range(3))
def test_every_row_once_across_merges_retention_expiry_and_kills(tmp_path: Any, seed: int) -> None:
    lake = Lake(tmp_path, retention=Retention(keep=timedelta(hours=5), every=timedelta(0), brake=1.0))
    writer, dice, book = Writes(lake), random.Random(seed), lake.book()
    following, seen, wanted, number, operations = follower(lake), [], [], 0, set()
    for _ in range(60):
        group = [f"{number + index:05d}" for index in range(dice.randint(1, 4))]
        number += len(group)
        # Every third is old enough for retention to drop it soon.
        age = timedelta(hours=dice.choice([0, 0, 4.9]))
        writer.publish(*group, at=lake.clock.now - age)
        wanted += group
        lake.tick(book, minutes=dice.choice([1, 10]))
        operations |= set(lake.operations())
        if dice.random() < 0.7:
            seen += keys(following, dice.choice([1, 3, 100]))
        if dice.random() < 0.3:
            following = follower(lake, str(following.position))  # killed, and started where it said
        if dice.random() < 0.2:
            seen += keys(following)
            expire(lake, keep=dice.choice([1, 3]))
    assert seen + keys(following) == wanted
    assert lake.keys() != wanted, "retention has dropped nothing"
    assert len(lake.table().metadata.snapshots) < 60, "nothing was expired"
    assert operations == {"append", "delete", "replace"}


# The command around it.


def pump(following: Follower, out: io.BytesIO, answers: Any = (), **how: Any) -> Pump:
    """It is told to go on by the answers, and to stop when they are over."""
    left = iter(answers)
    wait: Callable[[float], bool] = lambda seconds: seconds > 0 and next(left, True)  # noqa: E731
    return Pump(following, _text_line(False), Pipe(out), wait, **how)


def test_it_shows_what_is_there_and_waits_for_more_until_it_is_told_to_stop(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a")
    out = io.BytesIO()

    def answers() -> Any:
        commit(lake, writer, "b")
        yield False
        yield False

    pumping = pump(follower(lake), out, answers())
    pumping.run()
    assert out.getvalue() == b"a\nb\n"
    assert str(pumping.seen) == str(lake.table().metadata.current_snapshot_id)


def test_it_ends_after_so_many_rows_and_says_where(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "abc", "def")
    out = io.BytesIO()
    first = pump(follower(lake), out, count=4)
    first.run()
    pump(follower(lake, str(first.seen)), out, leave=True).run()
    assert out.getvalue().decode().split() == list("abcdef")


def test_trouble_is_waited_out_and_said_once_but_not_when_it_should_end(
    lake: Lake, writer: Writes, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(lake, writer, "a")
    following, out, load = follower(lake), io.BytesIO(), lake.table

    def down() -> Any:
        raise errors.CatalogUnavailable("no catalog")

    def answers() -> Any:
        yield from (False, False)
        following._table._load = load
        yield False

    following._table._load = down
    pump(following, out, answers()).run()
    assert (out.getvalue(), capsys.readouterr().err) == (b"a\n", "waiting: no catalog\n")
    following._table._load = down
    with pytest.raises(errors.CatalogUnavailable):
        pump(following, out, leave=True).run()


def test_a_value_can_neither_end_the_line_nor_move_the_cursor() -> None:
    row = {"a": "x\ty\n\x1b[2J", "b": None, "c": b"\xff\x00", "d": {"e": [1.5, float("nan")]}, "f": "ü"}
    assert _text_line(False)(row) == 'x\\ty\\n\\x1b[2J\t-\t\\xff\\x00\t{"e": [1.5, "nan"]}\tü'
    assert json.loads(_json_line(True)(row)) == {
        "a": "x\ty\n\x1b[2J",
        "b": None,
        "c": "/wA=",
        "d": {"e": [1.5, "nan"]},
        "f": "ü",
    }


def test_a_pipe_without_a_reader_is_noticed_without_writing() -> None:
    read, write = os.pipe()
    stream = os.fdopen(write, "wb")
    pipe = Pipe(stream)
    assert not pipe.gone()
    os.close(read)
    assert pipe.gone()
    pipe.write("x")
    assert pipe.flush() is False
    stream.close()


def test_the_command_as_a_person_uses_it(lake: Lake, writer: Writes, run: Any) -> None:
    commit(lake, writer, "ab", "c")
    done = run("tail", "events", "--exit", "--columns", "key,value")
    assert (done.exit_code, done.stdout) == (0, "a\tv\nb\tv\nc\tv\n")
    assert done.stderr == f"position: {lake.table().metadata.current_snapshot_id}\n"
    assert run("tail", "--exit", "--columns", "value,key", "--count", "1").stdout == "v\ta\n"
    rows = [json.loads(line) for line in run("tail", "--exit", "--json").stdout.splitlines()]
    assert [row["key"] for row in rows] == ["a", "b", "c"]
    assert list(rows[0]) == ["timestamp", "key", "value"]
    wrong = run("tail", "--exit", "--columns", "kex")
    assert (wrong.exit_code, "Did you mean key?" in wrong.stderr) == (1, True)
    wrong = run("tail", "evnts", "--exit")
    assert (wrong.exit_code, "Did you mean events?" in wrong.stderr) == (1, True)


def test_a_time_that_python_does_not_hold_is_shown_as_text_and_stops_nothing(lake: Lake, run: Any) -> None:
    times = [0, 253_402_300_800_000_000, -(10**17)]  # 1970, the year 10000, before the year 1
    with WriterOfUsers.open(lake.folder.store.url, "w", clock=lake.clock) as writer:
        for key, micros in zip("abc", times, strict=True):
            at = pa.array([micros], pa.int64()).cast(pa.timestamp("us", "UTC"))
            writer.write(pa.table({"timestamp": at, "key": [key]}))
    lake.tick()
    for more in ((), ("--consumer", "shown"), ("--consumer", "people", "--json")):
        done = run("tail", "events", "--exit", *more, "--columns", "timestamp,key")
        assert done.exit_code == 0, done.stderr
        assert len(done.stdout.splitlines()) == 3
        assert "10000-01-01 00:00:00" in done.stdout and "1970-01-01T00:00:00+00:00" in done.stdout


def test_json_has_columns_that_came_later_and_goes_on_without_those_that_went(
    lake: Lake, writer: Writes, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(lake, writer, "a")

    def wait(signal: StopSignal, seconds: float) -> bool:
        if len(lake.table().metadata.snapshots) == 1:
            with lake.table().update_schema() as update:
                update.add_column("later", StringType())
                update.delete_column("value")
            row = {"timestamp": lake.clock.now, "key": "b", "later": "x"}
            lake.table().append(pa.Table.from_pylist([row], schema=schema_to_pyarrow(lake.table().schema())))
        return False

    monkeypatch.setattr(StopSignal, "wait", wait)
    done = run("tail", "events", "--json", "--from", "beginning", "--count", "2", "--every", "1ms")
    assert done.exit_code == 0, done.stderr
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert (first["value"], second["later"], "value" in second) == ("v", "x", False)


def test_head_and_ctrl_c_end_it_quietly(lake: Lake, writer: Writes, run: Any, tmp_path: Any) -> None:
    commit(lake, writer, *(f"{number:03d}" for number in range(3)))
    words = [sys.executable, "-m", "bookkeeper", "tail", "--config", str(tmp_path / "bookkeeper.toml")]
    words += ["--from", "beginning", "--columns", "key"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Crew({"tail": words}, tmp_path) as crew:
        process = crew.start("tail", **pipes)
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        said = process.stderr.read().decode()
        assert (crew.wait("tail"), "Traceback" in said, said.startswith("position: ")) == (0, False, True)
        process = crew.start("tail", **pipes)
        shown = [process.stdout.readline() for _ in range(9)]
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()
        assert (process.stdout.read(), len(shown), crew.wait("tail")) == (b"", 9, 0)
        assert said == f"position: {lake.table().metadata.current_snapshot_id}\n"
    assert Position.parse(said.split()[1]) is not None


NESTED = [
    {"name": "timestamp", "type": "timestamptz", "required": True},
    {"name": "key", "type": "string", "required": True},
    {"name": "tags", "type": {"type": "list", "element-id": 90, "element": "string", "element-required": False}},
    {
        "name": "counts",
        "type": {
            "type": "map",
            "key-id": 91,
            "key": "string",
            "value-id": 92,
            "value": "long",
            "value-required": False,
        },
    },
    {
        "name": "deep",
        "type": {
            "type": "list",
            "element-id": 93,
            "element-required": False,
            "element": {
                "type": "struct",
                "fields": [
                    {"id": 94, "name": "n", "type": "int", "required": False},
                    {
                        "id": 95,
                        "name": "more",
                        "required": False,
                        "type": {
                            "type": "map",
                            "key-id": 96,
                            "key": "int",
                            "value-id": 97,
                            "value": "string",
                            "value-required": False,
                        },
                    },
                ],
            },
        },
    },
]


def test_lists_and_maps_are_shown(tmp_path: Path) -> None:
    lake = Lake(tmp_path, columns=NESTED, partition_by=())
    row = {
        "timestamp": lake.clock.now,
        "key": "a",
        "tags": ["x", None, "y"],
        "counts": {"one": 1, "two": None},
        "deep": [{"n": 1, "more": {7: "seven"}}, None],
    }
    empty = {"timestamp": lake.clock.now, "key": "b", "tags": None, "counts": None, "deep": []}
    lake.table().append(pa.Table.from_pylist([row, empty], schema=schema_to_pyarrow(lake.table().schema())))

    shown = [item for item, _ in follower(lake, columns=("tags", "counts", "deep")).news() if item is not None]

    assert [json.loads(_json_line(False)(item)) for item in shown] == [
        {
            "tags": ["x", None, "y"],
            "counts": [["one", 1], ["two", None]],
            "deep": [{"n": 1, "more": [[7, "seven"]]}, None],
        },
        {"tags": None, "counts": None, "deep": []},
    ]
    assert _text_line(False)(shown[0]).startswith('["x", null, "y"]\t[["one", 1]')
    assert keys(follower(lake)) == ["a", "b"]


def test_a_list_that_is_younger_than_a_file_is_null_there(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    commit(lake, Writes(lake), ("a",))
    with lake.table().update_schema() as update:
        update.add_column("tags", ListType(900, StringType(), False))

    shown = [row for row, _ in follower(lake, columns=("key", "tags")).news() if row is not None]
    assert shown == [{"key": "a", "tags": None}]
