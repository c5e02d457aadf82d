"""A consumer whose unread snapshots are expired: what it passes over, reads after all, or reads again."""

import logging
import random
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bookkeeper.cli.main import main
from bookkeeper.config.settings import Retention
from bookkeeper.consumers import FolderPlace, SqlitePlace
from bookkeeper.consumers.lag import added_files, lag
from bookkeeper.consumers.lost import Skipped
from bookkeeper.consumers.snapshot_files import SnapshotFiles
from bookkeeper.errors import ConfigInvalid, NotPossible, PlaceExpired, RolledBack
from bookkeeper.history.consumer_state import CUT_OFF
from bookkeeper.history.registry import Registry
from bookkeeper.ledger import merge
from tests.consumers.consumers import (
    NAME,
    Output,
    ParquetOutput,
    SqliteOutput,
    commit,
    committed,
    expire,
    keys,
    member,
    opened,
    state,
    take,
    taken,
)
from tests.support import compactions
from tests.support.compactor import live
from tests.support.configured import configured
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.lake import Lake, Writes, append_by_others


def cut_off(lake: Lake, writer: Writes, *unread: str, then: str = "") -> None:
    """Commits of what no consumer reads, whose snapshots expire but for the last, and then more."""
    commit(lake, writer, *unread)
    forgotten(lake, lambda: expire(lake))
    commit(lake, writer, *then)


def forgotten(lake: Lake, act: Callable[[], object]) -> None:
    """Something that happens while the reaper knows of no consumer."""
    registry = Registry(lake.folder.store)
    known = registry.all()
    for consumer in known:
        registry.remove(consumer.name)
    act()
    for consumer in known:
        registry.add(consumer)


def committed_rewrite(lake: Lake, of: Callable[[Any], bool] = lambda item: True) -> None:
    """The compactor's rewrite of the live files that are meant, committed."""
    compactions.rewritten(lake, [item for item in live(lake) if of(item)])
    compactions.committed(lake)


def test_numbers_that_commits_beside_main_took_are_no_loss(lake: Lake) -> None:
    """A consumer that began in an empty table, where one was staged and one went to a branch: main begins with 3."""
    assert taken(lake) == []
    for beside in (None, "branch"):
        with lake.table().transaction() as transaction, transaction.update_snapshot(branch=beside).fast_append():
            pass
    commit(lake, Writes(lake), "ab", "c")
    assert [item.sequence_number for item in lake.table().snapshots()] == [1, 2, 3, 4]
    assert taken(lake) == ["a", "b", "c"]
    began = lake.clock.now - timedelta(days=1)
    assert taken(lake, name="since", start=began) == ["a", "b", "c"]
    forgotten(lake, lambda: expire(lake))
    with pytest.raises(PlaceExpired):
        taken(lake, name="late", start=began)


# What is passed over is said.


def test_skip_lost_says_how_many_live_rows_and_files_it_passes_over(
    lake: Lake, writer: Writes, caplog: pytest.LogCaptureFixture
) -> None:
    commit(lake, writer, "ab")
    assert taken(lake) == ["a", "b"]
    cut_off(lake, writer, "cde", "f", "g", then="h")
    with opened(lake) as consumer, caplog.at_level(logging.WARNING):
        assert isinstance(consumer.lost(), PlaceExpired)
        found = consumer.skip_lost()
        assert (found.files, found.rows, found.exact) == (2, 4, True)
        assert consumer.place == found.place and consumer.lost() is None
        assert take(consumer) == ["g", "h"]
        assert consumer.skip_lost() == Skipped(consumer.place)
    (line,) = [record for record in caplog.records if getattr(record, "action", "") == "consumer-skip-lost"]
    assert (line.rows, line.files, line.consumer) == (4, 2, NAME)  # type: ignore[attr-defined]


def test_what_retention_dropped_is_not_counted_as_passed_over(tmp_path: Path) -> None:
    lake = Lake(tmp_path, retention=Retention(keep=timedelta(hours=5), every=timedelta(0), brake=1.0))
    writer = Writes(lake)
    commit(lake, writer, "a")
    assert taken(lake) == ["a"]
    writer.publish("old", at=lake.clock.now - timedelta(hours=4, minutes=50))
    lake.tick()
    commit(lake, writer, "b")
    lake.clock.move(minutes=30)
    lake.drain()
    cut_off(lake, writer, "c")
    with opened(lake) as consumer:
        found = consumer.skip_lost()
    assert (found.files, found.rows, found.exact) == (1, 1, True)


def test_of_rewritten_files_it_says_how_many_rows_at_most(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "ab")
    assert taken(lake) == ["a", "b"]
    commit(lake, writer, "cd", "ef")
    committed_rewrite(lake)
    cut_off(lake, writer, "g")
    with opened(lake) as consumer:
        found = consumer.skip_lost()
    assert (found.files, found.rows, found.exact) == (1, 6, False)
    assert str(found) == "at most 6 live rows in 1 files are passed over"


def test_after_a_rollback_nothing_is_passed_over(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a", "b")
    taken(lake)
    first = lake.table().metadata.snapshots[0].snapshot_id
    lake.table().manage_snapshots().rollback_to_snapshot(first).commit()
    append_by_others(lake, writer.file(["other"]))
    with opened(lake) as consumer:
        assert isinstance(consumer.lost(), RolledBack)
        with pytest.raises(RolledBack):
            consumer.catch_up()
        found = consumer.skip_lost()
        assert (found.files, found.rows, found.exact, found.place.snapshot) == (0, 0, True, first)


# What is live is read after all, where the table can tell.


def test_catch_up_reads_every_live_row_that_was_not_read_and_no_other(
    lake: Lake,
    writer: Writes,
    output: Output,
) -> None:
    commit(lake, writer, "a", "bc")
    output.take(lake)
    cut_off(lake, writer, "d", "ef", "g", then="h")
    with output.run(lake) as run:
        assert run.consumer.catch_up() == run.consumer.place
        assert run.consumer.catch_up() == run.consumer.place, "there is nothing to do any more"
    output.take(lake)
    assert output.keys() == [*"abcdefgh"]
    commit(lake, writer, "i")
    output.take(lake)
    assert output.keys() == [*"abcdefghi"]


@pytest.mark.parametrize("kind", [SqliteOutput, ParquetOutput])
@pytest.mark.parametrize("seed", range(3))
def test_each_row_is_read_once_through_expiries_merges_retention_kills_and_catching_up(
    tmp_path: Path, seed: int, kind: Any
) -> None:
    lake = Lake(tmp_path, retention=Retention(keep=timedelta(hours=5), every=timedelta(0), brake=1.0))
    writer, dice, book, found = Writes(lake), random.Random(seed), lake.book(), kind(tmp_path / "out")
    found.take(lake)
    dropped, times, number = set[str](), 0, 0
    for _ in range(30):
        group = [f"{number + index:05d}" for index in range(dice.randint(1, 4))]
        number += len(group)
        writer.publish(*group, at=lake.clock.now - timedelta(hours=dice.choice([0, 0, 4.9])))
        lake.tick(book, minutes=dice.choice([1, 10]))
        dropped |= set(writer.keys) - set(lake.keys())
        if dice.random() < 0.4:
            try:
                with found.run(lake, dice.choice([1, 3])) as run:
                    for batch, _ in zip(run.consumer.batches(follow=False), range(dice.randint(1, 9)), strict=False):
                        run.put(run.consumer, batch)  # killed after so many, without a word
            except PlaceExpired:
                with found.run(lake) as run:
                    run.consumer.catch_up()
                times += 1
        if dice.random() < 0.3 and _is_at_the_end_of_a_snapshot(lake):
            forgotten(lake, lambda: expire(lake, keep=dice.choice([1, 2])))
    with found.run(lake) as run:
        run.consumer.catch_up()
    found.take(lake)
    rows = found.keys()
    assert len(rows) == len(set(rows))
    assert set(lake.keys()) - dropped <= set(rows) <= set(writer.keys)
    assert times, "no consumer was cut off"


def _is_at_the_end_of_a_snapshot(lake: Lake) -> bool:
    """What is read in part cannot be told once it is expired."""
    with opened(lake, FolderPlace()) as consumer:  # its place is what the output said last
        return consumer.place.files is None


def mixed(lake: Lake, writer: Writes, read: Callable[[], object]) -> None:
    """`z` and `ab` are read in one snapshot; a rewrite makes one file of `ab` and of `cd` and `ef`, which are not."""
    writer.publish("z")
    commit(lake, writer, "ab")
    read()
    commit(lake, writer, "cd", "ef")
    committed_rewrite(lake, lambda item: not item.file.path.endswith("-z.parquet"))
    cut_off(lake, writer, "g")


def test_files_that_a_rewrite_made_of_read_and_unread_rows_are_refused_and_the_place_stays(
    lake: Lake,
    writer: Writes,
    output: Output,
) -> None:
    mixed(lake, writer, lambda: output.take(lake))
    with output.run(lake) as run:
        before = run.consumer.place
        with pytest.raises(NotPossible, match="a rewrite may have made it") as caught:
            run.consumer.catch_up()
        assert run.consumer.place == before and "restart()" in caught.value.hint
    assert sorted(output.keys()) == ["a", "b", "z"]


def test_a_rewrite_of_rows_that_were_read_changes_nothing(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "ab", "cd")
    committed_rewrite(lake)
    assert taken(lake, start="beginning") == [*"abcd"]
    commit(lake, writer, "e")
    assert taken(lake) == ["e"]
    cut_off(lake, writer, "f", "g", then="h")
    with opened(lake) as consumer:
        consumer.catch_up()
        assert take(consumer) == ["f", "g", "h"]


def test_a_file_of_another_program_may_be_a_rewrite_and_is_refused(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a")
    taken(lake)
    append_by_others(lake, writer.file(["foreign"]))
    cut_off(lake, writer, "b", then="c")
    with opened(lake) as consumer, pytest.raises(NotPossible, match="not named after a txlog"):
        consumer.catch_up()


def test_a_snapshot_that_is_read_in_part_and_expired_is_refused(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "abc")
    assert taken(lake, 1, rows=2) == ["a", "b"]
    cut_off(lake, writer, "d", "e")
    with opened(lake) as consumer:
        with pytest.raises(NotPossible, match="read in part"):
            consumer.catch_up()
        found = consumer.skip_lost()
    assert (found.files, found.rows, found.exact) == (2, 4, False)


def test_a_place_of_which_nothing_is_left_in_the_table_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path, retention=Retention(keep=timedelta(hours=5), every=timedelta(0), brake=1.0))
    writer = Writes(lake)
    commit(lake, writer, "a")
    writer.publish("old", at=lake.clock.now - timedelta(hours=4, minutes=50))
    lake.tick()
    assert taken(lake) == ["a", "old"]
    commit(lake, writer, *"bcdefghijkl")
    lake.clock.move(minutes=30)
    lake.drain()
    live_keys = lake.keys()
    assert "old" not in live_keys
    cut_off(lake, writer, "x")
    with opened(lake) as consumer:
        with pytest.raises(NotPossible, match="nothing in the table came with its snapshot"):
            consumer.catch_up()
        found = consumer.skip_lost()
    assert (found.files, found.rows, found.exact) == (12, 12, False)


def test_on_a_keyed_table_with_delete_files_catching_up_is_refused(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path)
    writer = Steps(lake)
    consumer = opened(lake, start="end")
    for value in "abc":
        writer.publish_steps(Step(upserts={1: value}), Step(upserts={2: value}))
        lake.tick()
    cut_off(lake, writer)
    place = consumer.place
    for act in (consumer.catch_up, consumer.restart):
        with pytest.raises(NotPossible, match="delete files"):
            act()
    assert consumer.place == place
    assert not consumer.skip_lost().exact


def test_a_consumer_that_began_at_the_empty_table_catches_up_with_all_of_it(lake: Lake, writer: Writes) -> None:
    assert taken(lake) == []
    cut_off(lake, writer, "a", "b", then="c")
    connection = sqlite3.connect(":memory:")
    # A new run moves a beginning that expired: this one is told.
    with opened(lake, SqlitePlace(connection)) as consumer:
        consumer.catch_up()
        batch = next(consumer.batches(follow=False))
        assert keys(batch) == ["a", "b", "c"]
    connection.close()


def test_members_of_a_group_catch_up_with_their_shares(lake: Lake, writer: Writes) -> None:
    later = "ABCDEFGHIJKLMNOPQRST"  # so many that each share has some
    commit(lake, writer, *"abcdefgh")
    with member(lake, "1/2") as one, member(lake, "2/2") as two:
        assert sorted(take(one) + take(two)) == [*"abcdefgh"]
    lake.clock.move(minutes=2)  # a place that passes no rows moves now and then only
    with member(lake, "1/2") as one, member(lake, "2/2") as two:
        take(one), take(two)
    commit(lake, writer, *later)
    cut_off(lake, writer)
    with member(lake, "1/2") as one, member(lake, "2/2") as two:
        parts = []
        for group in (one, two):
            with pytest.raises(PlaceExpired):
                take(group)
            assert len(group.catch_up()) == 1
            parts.append(take(group))
    assert all(parts) and sorted(parts[0] + parts[1]) == [*later]


def test_files_are_counted_by_their_numbers_wherever_merges_put_them(
    lake: Lake, writer: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "FAN", 3)
    commit(lake, writer, *"abcdefgh")
    table = lake.table()
    files = SnapshotFiles().of(table.io, table.current_snapshot(), whole=True)  # type: ignore[arg-type]
    assert "replace" in lake.operations()
    assert [file.file_path.removesuffix(".parquet")[-1] for file in files] == [*"abcdefgh"]
    assert [file.sequence_number for file in files] == sorted(file.sequence_number for file in files)


# All rows again.


def test_restart_reads_all_live_rows_again(lake: Lake, writer: Writes, output: Output) -> None:
    commit(lake, writer, "ab")
    output.take(lake)
    cut_off(lake, writer, "c", "d", then="e")
    with output.run(lake) as run:
        run.consumer.restart()
    output.take(lake)
    assert output.keys() == [*"ab", *"abcde"]


def test_restart_moves_the_place_with_the_transaction_that_empties_the_output(
    lake: Lake, writer: Writes, tmp_path: Path
) -> None:
    commit(lake, writer, "ab")
    output = SqliteOutput(tmp_path / "out")
    output.take(lake)
    connection = output.connect()
    with opened(lake, SqlitePlace(connection)) as consumer:
        connection.execute("DELETE FROM output")
        consumer.restart()
        connection.rollback()
    connection.close()
    assert output.keys() == ["a", "b"]
    output.take(lake)
    assert output.keys() == ["a", "b"], "neither the rows nor the place went"
    connection = output.connect()
    with opened(lake, SqlitePlace(connection)) as consumer:
        with connection:
            connection.execute("DELETE FROM output")
            consumer.restart()
        expire(lake)
        assert take_into(consumer, connection) == ["a", "b"]
    connection.close()


def take_into(consumer: Any, connection: sqlite3.Connection) -> list[str]:
    found = []
    for batch in consumer.batches(follow=False):
        with connection:
            found += keys(batch)
            consumer.commit(batch)
    return found


def test_an_expiry_between_the_choice_and_the_record_is_met_by_another_choice(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a")
    taken(lake)
    cut_off(lake, writer, "b", "c", then="d")
    with opened(lake) as consumer:
        ids = [item.snapshot_id for item in lake.table().metadata.snapshots]
        move, moves = consumer._move, []

        def moved(*given: Any) -> None:
            moves.append(given[0])
            if len(moves) == 1:
                lake.table().maintenance.expire_snapshots().by_id(ids[0]).commit()
            move(*given)

        consumer._move = moved  # type: ignore[assignment, method-assign]
        consumer.restart()
        assert len(moves) == 2
        assert sorted(take(consumer)) == [*"abcd"]


def test_what_a_restart_writes_by_key_replaces_nothing_that_was_written_before(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a", "b")
    expire(lake)
    with opened(lake, start="oldest") as consumer:
        (first,) = (batch.key for batch in committed(consumer))
        consumer.restart()
        again = next(consumer.batches(follow=False))
        assert keys(again) == ["a", "b"] and again.key != first


# Where a consumer begins.


@pytest.mark.parametrize("with_consumer", [True, False])
def test_a_time_that_has_not_come_or_names_no_zone_is_refused_with_a_hint(
    lake: Lake, writer: Writes, with_consumer: bool
) -> None:
    commit(lake, writer, "a")
    to_come = lake.clock.now + timedelta(days=1)
    for start, said in ((to_come, "has not come"), (to_come.replace(tzinfo=None), "names no zone")):
        with pytest.raises(ConfigInvalid, match=said) as caught:
            opened(lake, start=start)
        assert caught.value.hint
    assert Registry(lake.folder.store).all() == []
    words = ["tail", "events", "--config", str(configured(lake)), "--exit"]
    words += ["--consumer", "new"] if with_consumer else []
    for text, said in (("9998-01-31T12:00:00Z", "has not come"), ("2020-01-31T12:00:00", "names no zone")):
        result = CliRunner().invoke(main, [*words, "--from", text])
        assert result.exit_code != 0 and said in result.output
    assert Registry(lake.folder.store).all() == []
    assert taken(lake, start=datetime(2020, 1, 31, tzinfo=UTC)) == ["a"]


def test_a_consumer_may_begin_with_what_the_kept_snapshots_added(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a", "b")
    expire(lake)
    commit(lake, writer, "c")
    assert taken(lake, start="oldest") == ["b", "c"]
    assert taken(Lake(lake.root, lake.clock), name="again", start="oldest") == ["b", "c"]


# What lag and tail say.


def test_the_lag_of_a_consumer_that_is_cut_off_is_at_least_what_is_kept(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a")
    taken(lake)
    at = lake.clock.now
    cut_off(lake, writer, "b", "cd", then="e")
    assert state(lake).state == CUT_OFF
    table = lake.table()
    found = lag(state(lake), table.metadata, added_files(table.io), lake.clock.now)
    assert found is not None
    assert (found.snapshots, found.files, found.rows) == (2, 2, 3)
    assert abs(found.behind - (lake.clock.now - at)) < timedelta(seconds=1)


def test_the_lag_of_a_place_among_all_files_counts_what_is_left_of_them(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "ab", "cd", "ef")
    expire(lake)
    assert taken(lake, 1, rows=2, start="beginning") == ["a", "b"]
    table = lake.table()
    found = lag(state(lake), table.metadata, added_files(table.io), lake.clock.now)
    assert found is not None and (found.files, found.rows) == (2, 4)


@pytest.mark.parametrize(
    ("lost", "shown", "said"),
    [
        ("catch-up", ["b", "c", "d"], "caught up"),
        ("skip", ["c", "d"], "skipped: 1 live rows in 1 files are passed over"),
        ("restart", ["a", "b", "c", "d"], "restarted"),
        (None, [], "lost to this consumer"),
    ],
)
def test_tail_does_what_it_is_asked_for_where_rows_are_lost(
    lake: Lake, writer: Writes, lost: str | None, shown: list[str], said: str
) -> None:
    words = ["tail", "events", "--config", str(configured(lake)), "--consumer", NAME, "--exit", "--columns", "key"]

    def tail(*more: str) -> Any:
        return CliRunner().invoke(main, [*words, *more])

    commit(lake, writer, "a")
    assert tail().stdout.split() == ["a"]
    cut_off(lake, writer, "b", "c", then="d")
    result = tail(*(["--lost", lost] if lost else []))
    assert (result.stdout.split(), result.exit_code) == (shown, 0 if lost else 1)
    assert said in result.stderr
    if lost:
        assert tail("--lost", lost).stdout == "", "nothing is lost any more"
