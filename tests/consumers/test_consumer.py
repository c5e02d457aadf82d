"""A consumer in Python: every appended row once, whatever happens to it and to the table."""

import json
import os
import random
import signal
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.types import LongType, StringType

from bookkeeper.catalogs.commit import replace_metadata
from bookkeeper.config.settings import Retention
from bookkeeper.consumers import ConsumerGroup, DuckDBPlace, FolderPlace, ParquetPlace, SqlitePlace
from bookkeeper.consumers.consumer import Limits
from bookkeeper.consumers.lag import added_files, lag
from bookkeeper.consumers.place import Place, parse
from bookkeeper.consumers.place_on_main import after_lost
from bookkeeper.errors import (
    ConfigInvalid,
    ConsumerFenced,
    FileGone,
    NotPossible,
    Overwritten,
    PlaceExpired,
    PlaceRefused,
    RolledBack,
    StorageUnavailable,
)
from bookkeeper.history.consumer_state import ASIDE, CUT_OFF, LIVE
from bookkeeper.history.main_history import MainHistory
from bookkeeper.history.registry import Registry, key_of, reader, spark
from bookkeeper.stores.local import LocalStore
from tests.consumers.consumers import (
    NAME,
    Output,
    ParquetOutput,
    SqliteOutput,
    commit,
    committed,
    expire,
    keys,
    opened,
    settings_of,
    state,
    take,
    taken,
)
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.lake import Lake, Writes, append_by_others

COLUMNS = [
    {"name": "timestamp", "type": "timestamptz"},
    {"name": "key", "type": "string"},
    {"name": "n", "type": "int"},
]
HOUR = timedelta(hours=1)
UUID = "6c1f0f1e-9a3b-4c52-8e0e-000000000001"


# What is read.


def test_every_row_is_read_once_in_the_order_of_the_commits(lake: Lake, writer: Writes, output: Output) -> None:
    commit(lake, writer, "ba", "dcx", "e")
    output.take(lake)
    assert output.keys() == list("badcxe")
    output.take(lake)
    commit(lake, writer, "f", "gh")
    output.take(lake)
    assert output.keys() == list("badcxefgh")


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_batches_are_bounded_and_a_run_goes_on_after_any_of_them(lake: Lake, writer: Writes, rows: int) -> None:
    commit(lake, writer, "abc", "d", "efghi")
    for most in range(1, 10):
        name = f"c{rows}-{most}"
        first = taken(lake, most, rows=rows, name=name)
        assert len(first) == min(most * rows, 9)
        assert first + taken(lake, rows=rows, name=name) == list("abcdefghi")


def test_a_fork_of_a_consumer_reads_nothing(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a", "b")
    with opened(lake) as consumer:
        assert take(consumer) == ["a", "b"]
        commit(lake, writer, "c", "d")
        child = os.fork()
        if child == 0:  # pragma: no cover - in another process
            signal.alarm(20)
            with suppress(NotPossible):
                take(consumer)
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert take(consumer) == ["c", "d"]


def test_a_batch_is_cut_by_bytes_too(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "abcdef")
    with opened(lake) as consumer:
        consumer.limits = Limits(1000, bytes=1)
        assert [len(keys(batch)) for batch in committed(consumer)] == [1] * 6


def test_a_new_consumer_begins_where_it_is_said(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a")
    then = lake.clock.move(minutes=10)
    commit(lake, writer, "b")
    expire(lake)
    assert taken(lake, name="all") == ["a", "b"]  # the oldest snapshot that is kept holds both
    assert taken(lake, name="new", start="end") == []
    commit(lake, writer, "c")
    assert taken(lake, name="new", start="beginning") == ["c"]
    assert taken(lake, name="since", start=then + timedelta(hours=1)) == ["c"]
    with pytest.raises(ConfigInvalid, match="start"):
        opened(lake, name="when", start="yesterday")


def test_what_was_committed_before_a_new_consumer_read_anything_is_not_lost(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a")
    opened(lake, start="end").close()
    commit(lake, writer, "b")
    assert taken(lake, start="end") == ["b"]


def test_an_empty_table_is_followed_from_its_first_row_on(lake: Lake, writer: Writes) -> None:
    assert taken(lake) == []
    assert (state(lake).state, state(lake).first) == (LIVE, 0)
    commit(lake, writer, "a")
    assert taken(lake) == ["a"]


def test_rows_of_others_are_read_too(lake: Lake, writer: Writes) -> None:
    append_by_others(lake, writer.file(["foreign"]), writer.file(["more"]))
    assert sorted(taken(lake)) == ["foreign", "more"]


def test_columns_come_as_they_are_called_now(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a")
    with opened(lake) as consumer:
        with lake.table().update_schema() as change:
            change.rename_column("key", "name")
            change.add_column("more", StringType())
        writer.publish("b")
        lake.drain()
        (batch,) = committed(consumer)
    assert batch.table.select(["name", "more"]).to_pylist() == [
        {"name": "a", "more": None},
        {"name": "b", "more": None},
    ]


def test_a_widened_column_is_read_from_old_files(tmp_path: Path) -> None:
    lake = Lake(tmp_path, columns=COLUMNS)
    writer = Writes(lake)
    commit(lake, writer, "a")
    with lake.table().update_schema() as change:
        change.update_column("n", LongType())
    with opened(lake, columns=("key", "n")) as consumer:
        (batch,) = committed(consumer)
    assert batch.table.schema.field("n").type == pa.int64()
    assert batch.table.column_names == ["key", "n"]


# What is passed over, and what is not.


def changed(lake: Lake, operation: str) -> Callable[[], Table]:
    """The table as if its second snapshot had this operation."""
    table = lake.table()
    first, second, *more = table.metadata.snapshots
    summary = Summary(Operation(operation), **second.summary.additional_properties)
    rewritten = [first, second.model_copy(update={"summary": summary}), *more]
    table.metadata = table.metadata.model_copy(update={"snapshots": rewritten})
    return lambda: table


@pytest.mark.parametrize("operation", ["replace", "delete"])
def test_rewrites_and_retention_are_passed_over(lake: Lake, writer: Writes, operation: str) -> None:
    commit(lake, writer, "a", "b", "c")
    with opened(lake) as consumer:
        consumer._table._load = changed(lake, operation)
        assert take(consumer) == ["a", "c"]


def test_an_overwrite_of_others_is_an_error_after_the_rows_before_it(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a", "b", "c")
    with opened(lake) as consumer:
        consumer._table._load = changed(lake, "overwrite")
        found = []
        with pytest.raises(Overwritten):
            for batch in committed(consumer):
                found += keys(batch)
        assert found == ["a"]
    with opened(lake, skip_overwrites=True) as consumer:
        consumer._table._load = changed(lake, "overwrite")
        assert take(consumer) == ["c"]


def test_a_file_that_retention_dropped_is_read_while_its_snapshot_is_held(tmp_path: Path) -> None:
    lake = Lake(tmp_path, retention=Retention(keep=timedelta(hours=5), every=timedelta(0), brake=1.0))
    writer = Writes(lake)
    data = Path(lake.folder.card().data_path.removeprefix("file://"))
    opened(lake).close()
    writer.publish("old", at=lake.clock.now - timedelta(hours=4, minutes=59))
    lake.tick()
    commit(lake, writer, "b")
    lake.clock.move(minutes=30)
    lake.drain()
    assert lake.keys() == ["b"]
    expire(lake)
    assert taken(lake) == ["old", "b"]
    commit(lake, writer, "c")
    assert taken(lake) == ["c"]
    assert len(list(data.rglob("*.parquet"))) == 3
    expire(lake)
    assert len(list(data.rglob("*.parquet"))) == 2, "what is read is not held any more"


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", [SqliteOutput, ParquetOutput])
def test_every_row_once_across_merges_retention_expiry_and_kills(tmp_path: Path, seed: int, kind: Any) -> None:
    lake = Lake(tmp_path, retention=Retention(keep=timedelta(hours=5), every=timedelta(0), brake=1.0))
    writer, dice, book, output = Writes(lake), random.Random(seed), lake.book(), kind(tmp_path / "out")
    output.take(lake)
    wanted, number, operations = [], 0, set()
    for _ in range(40):
        group = [f"{number + index:05d}" for index in range(dice.randint(1, 4))]
        number += len(group)
        # Every third is old enough for retention to drop it soon.
        writer.publish(*group, at=lake.clock.now - timedelta(hours=dice.choice([0, 0, 4.9])))
        wanted += group
        lake.tick(book, minutes=dice.choice([1, 10]))
        operations |= set(lake.operations())
        if dice.random() < 0.4:
            with output.run(lake, dice.choice([1, 3, 100])) as run:
                for batch, _ in zip(run.consumer.batches(follow=False), range(dice.randint(1, 5)), strict=False):
                    run.put(run.consumer, batch)  # killed after so many, without a word
        if dice.random() < 0.2:
            expire(lake, keep=dice.choice([1, 3]))
    output.take(lake)
    assert output.keys() == wanted
    assert lake.keys() != wanted, "retention has dropped nothing"
    assert len(lake.table().metadata.snapshots) < 40, "nothing was expired"
    assert operations == {"append", "delete", "replace"}


# What the reaper keeps.


def test_a_consumer_that_rests_is_held_for(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "ab")
    assert taken(lake) == ["a", "b"]
    commit(lake, writer, "c", "d", "e")
    expire(lake)
    assert len(lake.table().metadata.snapshots) == 4
    assert lag(state(lake), lake.table().metadata, added_files(lake.table().io), lake.clock.now).rows == 3
    assert taken(lake) == ["c", "d", "e"]
    assert lag(state(lake), lake.table().metadata, added_files(lake.table().io), lake.clock.now).rows == 0


def test_a_consumer_whose_place_alone_was_expired_by_others_is_held_for(lake: Lake, writer: Writes) -> None:
    """It has read all of that snapshot, and the next one is there: Java's expiry leaves the parent's id in it."""
    commit(lake, writer, "ab")
    assert taken(lake) == ["a", "b"]
    commit(lake, writer, "c")
    table = lake.table()
    later = table.metadata.snapshots[1:]
    replace_metadata(table, table.metadata.model_copy(update={"snapshots": later, "snapshot_log": []}))
    assert later[0].parent_snapshot_id is not None
    commit(lake, writer, "d", "e")
    expire(lake)
    assert (state(lake).state, state(lake).first) == (LIVE, 0)
    assert lag(state(lake), lake.table().metadata, added_files(lake.table().io), lake.clock.now).rows == 3
    assert taken(lake) == ["c", "d", "e"]


def test_the_record_never_passes_a_place_that_may_be_rolled_back(lake: Lake, writer: Writes, tmp_path: Path) -> None:
    commit(lake, writer, "a", "b", "c")
    connection = SqliteOutput(tmp_path).connect()
    with opened(lake, SqlitePlace(connection), rows=1) as consumer:
        for batch in consumer.batches(follow=False):
            connection.execute("INSERT INTO output VALUES ('x')")
            consumer.commit(batch)
            lake.clock.move(minutes=1)
        assert state(lake).first == 0
        connection.rollback()
    connection.close()
    assert state(lake).first == 0
    expire(lake)
    output = SqliteOutput(tmp_path)
    output.take(lake)
    assert output.keys() == list("abc")


def test_falling_behind_expiry_is_an_error_that_says_what_to_do(lake: Lake, writer: Writes, output: Output) -> None:
    commit(lake, writer, "a")
    output.take(lake)
    commit(lake, writer, "b", "c")
    Registry(lake.folder.store).remove(NAME)
    expire(lake)
    commit(lake, writer, "d")
    with pytest.raises(PlaceExpired, match="lost to this consumer") as caught:
        output.take(lake)
    assert "skip_lost" in caught.value.hint
    assert state(lake).state == CUT_OFF
    with output.run(lake) as run:
        run.consumer.skip_lost()
    output.take(lake)
    assert output.keys() == ["a", "c", "d"]


@pytest.mark.parametrize("dropped", [0, 1])
def test_a_beginning_that_an_expiry_under_way_takes_away_is_later_then(
    lake: Lake, writer: Writes, output: Output, dropped: int
) -> None:
    """The reaper read the consumers before this one registered, and commits after it."""
    commit(lake, writer, *"abcd")
    first, *ids = (item.snapshot_id for item in lake.table().metadata.snapshots)
    if dropped:
        lake.table().maintenance.expire_snapshots().by_id(first).commit()
    with output.run(lake, columns=["key"]) as run:
        lake.table().maintenance.expire_snapshots().by_ids([first, *ids][dropped:3]).commit()
        run.take()
    commit(lake, writer, "e")
    output.take(lake)
    assert output.keys() == [*"abcde"]


def test_a_rollback_of_main_is_an_error_that_says_what_to_do(lake: Lake, writer: Writes, output: Output) -> None:
    commit(lake, writer, "a", "b")
    output.take(lake)
    first = lake.table().metadata.snapshots[0].snapshot_id
    lake.table().manage_snapshots().rollback_to_snapshot(first).commit()
    append_by_others(lake, writer.file(["other"]))
    with pytest.raises(RolledBack):
        output.take(lake)
    with output.run(lake) as run:
        run.consumer.skip_lost()
        assert run.consumer.skip_lost().place == run.consumer.place
    output.take(lake)
    assert output.keys() == ["a", "b", "other"]


def test_after_a_rollback_whose_snapshots_are_expired_no_row_is_read_twice(
    lake: Lake, writer: Writes, output: Output
) -> None:
    commit(lake, writer, "a", "b", "c", "d")
    output.take(lake)
    _, second, *abandoned = (item.snapshot_id for item in lake.table().metadata.snapshots)
    lake.table().manage_snapshots().rollback_to_snapshot(second).commit()
    append_by_others(lake, writer.file(["x"]))
    lake.table().maintenance.expire_snapshots().by_ids(abandoned).commit()
    append_by_others(lake, writer.file(["y"]))
    assert len(lake.table().metadata.snapshots) == 4
    with pytest.raises(RolledBack):
        output.take(lake)
    with output.run(lake) as run:
        assert run.consumer.skip_lost().place.snapshot == second
        assert run.consumer.skip_lost().place == run.consumer.place
    output.take(lake)
    assert output.keys() == ["a", "b", "c", "d", "x", "y"]


def test_after_a_rollback_whose_snapshots_others_expired_unread_rows_are_held(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a", "b")
    append_by_others(lake, writer.file(["c"]))
    assert taken(lake) == ["a", "b", "c"]
    _, second, third = (item.snapshot_id for item in lake.table().metadata.snapshots)
    lake.table().manage_snapshots().rollback_to_snapshot(second).commit()
    append_by_others(lake, writer.file(["x"]))
    lake.table().maintenance.expire_snapshots().by_id(third).commit()
    append_by_others(lake, writer.file(["y"]))
    assert (state(lake).state, state(lake).first) == (ASIDE, 0)
    assert lag(state(lake), lake.table().metadata, added_files(lake.table().io), lake.clock.now) is None
    expire(lake)
    with opened(lake) as consumer:
        assert not consumer.skip_lost().rows
    assert taken(lake) == ["x", "y"]


def test_after_a_rollback_to_a_tag_that_expiry_left_no_row_is_read_twice(
    lake: Lake, writer: Writes, output: Output
) -> None:
    commit(lake, writer, "a", "b", "c")
    output.take(lake)
    first, second, third = (item.snapshot_id for item in lake.table().metadata.snapshots)
    lake.table().manage_snapshots().create_tag(first, "kept").commit()
    lake.table().maintenance.expire_snapshots().by_id(second).commit()
    commit(lake, writer, "d", "e")
    output.take(lake)
    lake.table().maintenance.expire_snapshots().by_id(third).commit()
    commit(lake, writer, "f")
    output.take(lake)
    lake.table().manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    append_by_others(lake, writer.file(["x"]))
    with output.run(lake) as run:
        assert run.consumer.skip_lost().place.snapshot == first
    output.take(lake)
    assert output.keys() == ["a", "b", "c", "d", "e", "f", "x"]


def table_of(*ids: int) -> Any:
    """The metadata of a table whose main is this chain of snapshots."""
    snapshots = [
        Snapshot(snapshot_id=one, parent_snapshot_id=before, timestamp_ms=one, manifest_list="m")
        for before, one in pairwise((None, *ids))
    ]
    main = SimpleNamespace(snapshot_id=ids[-1])
    return SimpleNamespace(snapshots=snapshots, refs={"main": main}, snapshot_log=[], table_uuid=UUID)


@pytest.mark.parametrize(("kept", "last"), [(199, 199), (136, 136), (135, 72), (72, 72), (71, None)])
def test_of_a_long_history_a_place_knows_the_last_snapshots_and_some_of_those_before(
    kept: int, last: int | None
) -> None:
    place = Place(UUID, 200, ancestors=MainHistory(table_of(*range(1, 201))).ancestors(200))
    assert len(str(place)) < 3000
    rolled_back = table_of(*range(1, kept + 1), 300)
    found = after_lost(MainHistory(rolled_back), parse(str(place), UUID, "here"))
    assert (found.snapshot, found.files) == ((last, None) if last else (1, 0))


def test_a_place_that_knows_no_ancestors_goes_on_with_the_oldest_that_is_kept() -> None:
    found = after_lost(MainHistory(table_of(1, 2, 5)), Place(UUID, 4))
    assert (found.snapshot, found.files) == (1, 0)


def test_after_an_older_table_was_restored_its_new_snapshots_are_read() -> None:
    place = Place(UUID, 10, ancestors=MainHistory(table_of(*range(1, 11))).ancestors(10))
    assert after_lost(MainHistory(table_of(1, 2, 3, 104, 105, 106)), place).snapshot == 3


def test_a_file_that_is_gone_is_an_error(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a", "b")
    path = lake.table().inspect.data_files()["file_path"].to_pylist()[0].removeprefix("file://")
    Path(path).unlink()
    with opened(lake) as consumer, pytest.raises(FileGone, match="parquet"):
        take(consumer)


def test_a_file_with_other_rows_than_the_table_counts_is_an_error(lake: Lake, writer: Writes) -> None:
    for count in (1, 3):
        append_by_others(lake, writer.file(["x", "y"], record_count=count))
        with opened(lake, name=f"c{count}", start="beginning" if count == 1 else "end") as consumer:
            if count == 3:
                append_by_others(lake, writer.file(["z", "y"], record_count=count))
            with pytest.raises(NotPossible, match="the table counts"):
                take(consumer)


def test_an_append_without_files_moves_the_place_on(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a")
    assert taken(lake) == ["a"]
    with lake.table().transaction() as transaction, transaction.update_snapshot().fast_append():
        pass
    assert taken(lake) == []
    assert state(lake).first == 1


def test_a_place_without_rows_moves_only_now_and_then(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a")
    with opened(lake) as consumer:
        assert take(consumer) == ["a"]
        with lake.table().transaction() as transaction, transaction.update_snapshot().fast_append():
            pass
        assert list(consumer.batches(follow=False)) == []
        lake.clock.move(minutes=1)
        assert [batch.table.num_rows for batch in committed(consumer)] == [0]


# Two runs, and what a place may hold.


def test_a_run_that_was_taken_over_commits_nothing(lake: Lake, writer: Writes, output: Output) -> None:
    commit(lake, writer, "abcd")
    with output.run(lake) as first:
        batches = first.consumer.batches(follow=False)
        batch = next(batches)
        with output.run(lake) as second:
            second.take()
        with pytest.raises(ConsumerFenced):
            first.put(first.consumer, batch)
    assert output.keys() == list("abcd")


def test_a_run_with_its_place_in_the_folder_is_fenced_too(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "ab")
    with opened(lake) as first:
        batch = next(first.batches(follow=False))
        with opened(lake) as second:
            assert second.place == first.place
            with pytest.raises(ConsumerFenced):
                first.commit(batch)
            assert take(second) == ["a", "b"]


def test_a_commit_whose_reply_was_lost_may_be_tried_again(
    lake: Lake, writer: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = LocalStore.replace

    def lost(store: LocalStore, *given: Any, **how: Any) -> str:
        done(store, *given, **how)
        raise StorageUnavailable("the reply is lost")

    commit(lake, writer, "ab")
    with opened(lake, FolderPlace()) as consumer:
        batch = next(consumer.batches(follow=False))
        with monkeypatch.context() as broken, pytest.raises(StorageUnavailable):
            broken.setattr(LocalStore, "replace", lost)
            consumer.commit(batch)
        lake.clock.move(seconds=5)
        consumer.commit(next(consumer.batches(follow=False)))
        assert consumer.place == batch.place
    with opened(lake, FolderPlace()) as consumer:
        assert list(consumer.batches(follow=False)) == []


def test_a_batch_that_is_not_committed_ends_the_run(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "abc")
    with opened(lake, rows=1) as consumer, pytest.raises(NotPossible, match="not committed"):
        list(consumer.batches(follow=False))


def test_a_connection_that_commits_each_statement_is_refused(lake: Lake, writer: Writes, tmp_path: Path) -> None:
    import duckdb

    commit(lake, writer, "a")
    for place in (SqlitePlace(sqlite3.connect(tmp_path / "o.db", isolation_level=None)), DuckDBPlace(duckdb.connect())):
        with opened(lake, place, name=type(place).__name__.lower()) as consumer:
            batch = next(consumer.batches(follow=False))
            with pytest.raises(NotPossible, match="commits each statement"):
                consumer.commit(batch)
            place._connection.execute("BEGIN")
            consumer.commit(batch)
            place._connection.execute("COMMIT")
        place._connection.close()


def test_a_connection_in_a_transaction_is_refused_at_the_start(lake: Lake, tmp_path: Path) -> None:
    connection = SqliteOutput(tmp_path).connect()
    connection.execute("INSERT INTO output VALUES ('x')")
    with pytest.raises(NotPossible, match="in a transaction"):
        opened(lake, SqlitePlace(connection))
    connection.close()


def test_an_output_that_lost_its_place_is_refused(lake: Lake, writer: Writes, output: Output, tmp_path: Path) -> None:
    commit(lake, writer, "a")
    output.take(lake)
    with pytest.raises(NotPossible, match="another output"):
        type(output)(tmp_path / "other").take(lake)
    Registry(lake.folder.store).remove(NAME)
    other = type(output)(tmp_path / "other")
    other.take(lake)
    assert other.keys() == ["a"]


def test_nothing_is_registered_for_a_column_that_is_not_there(lake: Lake) -> None:
    with pytest.raises(NotPossible, match="nosuch"):
        opened(lake, columns=["key", "nosuch"])
    with pytest.raises(NotPossible, match="nosuch"):
        ConsumerGroup.open(settings_of(lake), name="group", share="1/2", place=FolderPlace, columns=["nosuch"])
    assert Registry(lake.folder.store).all() == []


def test_a_name_that_a_query_has_is_refused(lake: Lake) -> None:
    Registry(lake.folder.store).add(spark(NAME, "file:///cp", lake.clock.now, by="command"))
    with pytest.raises(NotPossible, match="another kind"):
        opened(lake)
    with pytest.raises(ConfigInvalid, match="not valid"):
        opened(lake, name="No Name")


GOOD = Place(UUID, 4711, 3, 5, at=1_700_000_000_000)


def test_no_query_or_reader_takes_the_name_of_a_program_from_it(lake: Lake, writer: Writes) -> None:
    """Its record may be all that knows what it has read, and what is held for it."""
    commit(lake, writer, "ab", "c")
    assert taken(lake, 1, rows=1) == ["a"]
    there = Registry(lake.folder.store)
    snapshot = lake.table().metadata.snapshots[-1].snapshot_id
    for other in (spark(NAME, "/cp", lake.clock.now, by="command"), reader(NAME, snapshot, lake.clock.now, HOUR)):
        with pytest.raises(NotPossible, match=NAME):
            there.add(other)
    expire(lake)
    assert taken(lake) == ["b", "c"]


def test_a_place_is_read_as_it_was_written() -> None:
    for place in (GOOD, Place(UUID), Place(UUID, 1), Place(UUID, 1, 0, whole=True), Place(UUID, 3, ancestors=(2, 1))):
        assert parse(str(place), UUID, "here") == place
        assert str(parse(str(place), UUID, "here")) == str(place)
        assert parse(place.brief, UUID, "here") == replace(place, ancestors=())


def test_a_place_without_ancestors_is_written_as_before() -> None:
    assert str(GOOD) == (
        f'{{"version":1,"table":"{UUID}","snapshot":4711,"files":3,"rows":5,"whole":false,"at":1700000000000}}'
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"version": 3, "ancestors": [1]},
        {"version": True},
        {"version": "1"},
        {"ancestors": [1]},
        {"version": 2, "ancestors": []},
        {"version": 2, "ancestors": [1, "2"]},
        {"version": 2, "ancestors": {"1": 1}},
        {"version": 2, "ancestors": None},
        {"version": 2, "ancestors": [1], "snapshot": None, "files": None, "rows": 0},
        {"table": "6c1f0f1e-9a3b-4c52-8e0e-000000000002"},
        {"table": None},
        {"snapshot": "4711"},
        {"snapshot": -1},
        {"snapshot": None},
        {"files": -1},
        {"files": True},
        {"files": None},
        {"rows": 2.0},
        {"rows": 2**63},
        {"whole": 1},
        {"at": 2**62},
        {"more": 1},
    ],
)
def test_a_place_that_is_none_of_this_table_is_refused(lake: Lake, tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(PlaceRefused):
        parse(json.dumps({**json.loads(str(GOOD)), **changes}), UUID, "here")


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "x" * 5000, "[" * 4000, None, 7])
def test_rubbish_is_no_place(text: Any) -> None:
    with pytest.raises(PlaceRefused):
        parse(text, UUID, "here")


def test_a_hostile_row_in_the_output_is_refused(lake: Lake, writer: Writes, tmp_path: Path) -> None:
    commit(lake, writer, "ab")
    output = SqliteOutput(tmp_path)
    output.take(lake)
    uuid, snapshot = str(lake.table().metadata.table_uuid), lake.table().metadata.current_snapshot_id
    for place in (
        str(GOOD),
        "rubbish",
        Place(uuid, snapshot, 2),
        Place(uuid, snapshot, 1, 1),
        Place(uuid, snapshot, 0, 2),
    ):
        connection = output.connect()
        with connection:
            connection.execute("UPDATE bookkeeper_places SET place = ?", (str(place),))
        connection.close()
        with pytest.raises(PlaceRefused):
            output.take(lake)


def test_a_hostile_file_in_the_output_is_refused(lake: Lake, writer: Writes, tmp_path: Path) -> None:
    commit(lake, writer, "ab")
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / f"{NAME}-000000000001.parquet").write_bytes(b"PAR1")
    with pytest.raises(PlaceRefused):
        opened(lake, ParquetPlace(str(tmp_path / "output")))


def test_a_record_that_is_broken_is_refused_and_holds_everything(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a")
    taken(lake)
    record = json.loads(lake.folder.store.read(f"consumers/{NAME}.json"))
    for changes in ({"position": "x"}, {"version": 2}, {"place": 1}, {"start": None}):
        lake.put(f"consumers/{NAME}.json", json.dumps({**record, **changes}).encode())
        with pytest.raises(NotPossible):
            opened(lake)
        assert state(lake).first == 0
    lake.put(f"consumers/{NAME}.json", json.dumps({**record, "place": "x"}).encode())
    with pytest.raises(PlaceRefused):
        opened(lake, FolderPlace())


def test_a_consumer_that_began_before_the_first_upserts_reads_their_rows(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path)
    writer = Steps(lake)
    with opened(lake, start="end") as consumer:
        writer.publish_steps(Step(upserts={1: "a"}), Step(upserts={1: "b", 2: "c"}))
        lake.tick()
        # Each step has a number of its own: there is no snapshot 1.
        assert [item.sequence_number for item in lake.table().metadata.snapshots] == [3, 4]

        rows = list[str]()
        for batch in consumer.batches(follow=False):
            rows += batch.table["value"].to_pylist()
            consumer.commit(batch)

    assert sorted(rows) == ["a", "b", "c"]


def test_upserts_whose_predecessors_have_expired_are_not_taken_for_the_first(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path)
    writer = Steps(lake)
    consumer = opened(lake, start="end")
    for value in "abc":
        writer.publish_steps(Step(upserts={1: value}), Step(upserts={2: value}))
        lake.tick()
    lake.store(lake.made.folder).delete_many([key_of(NAME)])
    expire(lake)

    with pytest.raises(PlaceExpired):
        list(consumer.batches(follow=False))
