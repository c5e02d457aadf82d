"""Files by many, published by one: a task is given out, its results are taken, once and all together, or discarded."""

import os
import pickle
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from bookkeeper.errors import NotPossible, SchemaRefused, StorageUnavailable, UnknownOutcome, WrongFolder
from bookkeeper.stores.open import open_store
from tests.support.desk import PLAIN, SCHEMA, START, Desk, Tampered, noisy_rows, only, rows
from tests.support.upserts import keyed_card
from writers import Task, TaskWriter
from writers.files import rolling_writer

HOUR = 3_600_000
COUNTED = Schema(*SCHEMA.fields, NestedField(4, "count", LongType(), required=False))


def done(desk: Desk, task: Task, *keys: str, at: Any = START) -> bytes:
    """What another process does: one row for each key."""
    task = pickle.loads(pickle.dumps(task))
    with task.open(clock=desk.clock, wait=desk.clock.wait, stores=desk.stores) as files:
        for key in keys:
            files.write(rows(key, at=at))
    return files.result


def stored(desk: Desk) -> set[str]:
    """Names of data files in the storage."""
    return {item.key.rpartition("/")[2] for item in open_store(f"{desk.root}/data").list("")}


def named(desk: Desk) -> set[str]:
    """Names of data files in pending txlogs."""
    return {file.path.rpartition("/")[2] for item in desk.txlogs() for file in item.files}


def test_files_of_tasks_and_of_the_writer_itself_are_published_in_one_txlog(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("before"))
        task = writer.task()
        results = [done(desk, task, "a", "b"), done(desk, task, "c", at=START + timedelta(days=1))]
        assert desk.txlogs() == []
        assert writer.take(results) == 3
        assert writer.unpublished_rows == 4
        writer.write(rows("after"))
        name = writer.publish()
        assert (writer.figures.rows, writer.figures.files, writer.unpublished_rows) == (5, 4, 0)
    txlog = only(desk.txlogs())
    assert (txlog.name, desk.keys()) == (name, ["a", "after", "b", "before", "c"])
    prefix = f"w1-{writer.incarnation}-0000000001-"
    assert all(file.startswith(prefix) for file in named(desk))
    assert named(desk) == stored(desk)


def test_a_task_is_small_and_one_task_serves_any_number_of_processes(desk: Desk) -> None:
    with desk.writer() as writer:
        task = writer.task()
        assert writer.task() == task
        assert len(pickle.dumps(task)) < 4096
        results = [done(desk, task, f"{number:02d}") for number in range(30)]
        writer.take(results)
    assert desk.keys() == [f"{number:02d}" for number in range(30)]
    assert len(named(desk)) == 30


def test_the_same_rows_given_again_have_other_file_names_so_a_late_attempt_writes_over_nothing(desk: Desk) -> None:
    with desk.writer() as writer:
        task = writer.task()
        taken = done(desk, task, "a")
        writer.take([taken])
        writer.publish()
        before = {
            name: open_store(f"{desk.root}/data").read(f"timestamp_day=2026-03-01/{name}") for name in stored(desk)
        }
        done(desk, task, "zombie")  # of the same task, behind its publish
        after = {name: open_store(f"{desk.root}/data").read(f"timestamp_day=2026-03-01/{name}") for name in before}
    assert after == before
    assert desk.keys() == ["a"]


def test_a_task_without_rows_has_a_result_that_adds_no_file(desk: Desk) -> None:
    with desk.writer() as writer:
        assert writer.take([done(desk, writer.task())]) == 0
        assert not writer.due()
        assert writer.publish() is None
    assert desk.txlogs() == []


@pytest.mark.parametrize(
    "act",
    [
        lambda writer: writer.write(rows("b")),
        lambda writer: writer.publish(),
        lambda writer: writer.roll(),
        lambda writer: writer.ask([]),
    ],
)
def test_until_its_tasks_are_taken_a_run_takes_no_rows_and_publishes_nothing(
    desk: Desk, act: Callable[[Any], Any]
) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        task = writer.task()
        desk.clock.move(hours=1)
        assert not writer.due()
        with pytest.raises(NotPossible, match="waits for the results of its tasks") as caught:
            act(writer)
        assert "discard(results)" in caught.value.hint
        writer.take([done(desk, task, "t")])
        assert writer.due()
    assert desk.keys() == ["a", "t"]


def test_leaving_the_block_with_results_that_are_not_taken_is_an_error(desk: Desk) -> None:
    with pytest.raises(NotPossible, match="waits for the results"), desk.writer() as writer:
        done(desk, writer.task(), "a")
    with pytest.raises(NotPossible, match="waits for the results"), desk.writer() as writer:
        writer.write(rows("x"), position=b"1")
        writer.write(rows("y"))
        writer.task()
    assert desk.txlogs() == []


def test_a_run_that_is_over_gives_and_takes_no_tasks(desk: Desk) -> None:
    with desk.writer() as writer:
        task = writer.task()
        result = done(desk, task, "a")
        writer.close()
        for refused in (writer.task, lambda: writer.take([result]), lambda: writer.discard([result])):
            with pytest.raises(NotPossible, match="was closed"):
                refused()
    assert len(stored(desk)) == 1


def test_a_position_moves_with_the_results(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.take([done(desk, writer.task(), "a")], position=b"7")
        writer.publish()
        assert writer.position == b"7"
    assert only(desk.txlogs()).position == b"7"
    with desk.writer() as writer:
        assert writer.position == b"7"


def test_results_are_taken_once(desk: Desk) -> None:
    with desk.writer() as writer:
        result = done(desk, writer.task(), "a")
        writer.take([result])
        for again in (lambda: writer.take([result]), lambda: writer.take([])):
            with pytest.raises(NotPossible, match="waits for no results"):
                again()
        writer.task()
        with pytest.raises(NotPossible, match=r"result 0: it is of an earlier task\(\)"):
            writer.take([result])
        writer.discard()
        writer.publish()
        writer.task()
        with pytest.raises(NotPossible, match="result 0: the header says"):
            writer.take([result])
        writer.discard()
    assert desk.keys() == ["a"]


def test_a_result_twice_in_one_call_is_refused_and_nothing_of_it_taken(desk: Desk) -> None:
    with desk.writer() as writer:
        task = writer.task()
        first, second = done(desk, task, "a"), done(desk, task, "b")
        with pytest.raises(NotPossible, match=r"the results together: .* is named twice"):
            writer.take([first, second, first])
        assert writer.unpublished_rows == 0
        writer.take([first, second])
    assert desk.keys() == ["a", "b"]


def test_another_run_and_another_writer_take_nothing_of_it(desk: Desk) -> None:
    with desk.writer() as first, desk.writer() as later, desk.writer("w2") as other:
        result = done(desk, first.task(), "a")
        for writer in (later, other):
            writer.task()
            for act in (writer.take, writer.discard):
                with pytest.raises(NotPossible, match="result 0: the header says w1"):
                    act([result])
            writer.discard()
        first.take([result])
    assert desk.keys() == ["a"]


def test_discarded_files_are_deleted_and_can_be_taken_no_more(desk: Desk) -> None:
    with desk.writer() as writer:
        task = writer.task()
        results = [done(desk, task, "a"), done(desk, task, "b")]
        assert writer.discard(results) == 2
        assert stored(desk) == set()
        assert writer.discard(results) == 2, "again: deleted before"
        writer.task()
        with pytest.raises(NotPossible, match="earlier task"):
            writer.take(results)
        writer.discard()
        writer.write(rows("c"))
    assert desk.keys() == ["c"]


def test_of_attempts_that_ran_twice_the_losers_are_discarded_after_the_take(desk: Desk) -> None:
    with desk.writer() as writer:
        task = writer.task()
        won, lost = done(desk, task, "a"), done(desk, task, "a")
        writer.take([won])
        assert writer.discard([lost]) == 1
        writer.publish()
    assert desk.keys() == ["a"]
    assert stored(desk) == named(desk)


def test_what_was_taken_or_published_is_never_deleted(desk: Desk) -> None:
    with desk.writer() as writer:
        result = done(desk, writer.task(), "a")
        writer.take([result])
        with pytest.raises(NotPossible, match="were taken: they are not deleted"):
            writer.discard([result])
        writer.publish()
        with pytest.raises(NotPossible, match="result 0: the header says"):
            writer.discard([result])
    assert desk.keys() == ["a"]


def test_after_an_unknown_outcome_nothing_is_deleted(desk: Desk) -> None:
    dark = list[bool]()

    def fail(operation: str, key: str) -> None:
        if dark:
            raise StorageUnavailable("no reply")

    def fail_after(operation: str, key: str) -> None:
        if operation == "create" and key.startswith("pending/"):
            dark.append(True)
            raise StorageUnavailable("no reply")

    desk.stores = lambda url: Tampered(open_store(url), fail, fail_after)
    with desk.writer() as writer:
        task = writer.task()
        won, lost = done(desk, task, "a"), done(desk, task, "b")
        writer.take([won])
        with pytest.raises(UnknownOutcome):
            writer.publish()
        dark.clear()
        for act in (lambda: writer.discard([won]), lambda: writer.discard([lost]), writer.task):
            with pytest.raises(UnknownOutcome):
                act()
    assert desk.keys() == ["a"]
    assert len(stored(desk)) == 2


def test_a_task_that_failed_has_no_result_and_the_others_may_be_taken(desk: Desk) -> None:
    with desk.writer() as writer:
        task = writer.task()
        with pytest.raises(ZeroDivisionError), task.open(stores=desk.stores) as failed:
            failed.write(rows("half"))
            raise ZeroDivisionError
        for refused in (lambda: failed.result, lambda: failed.write(rows("more"))):
            with pytest.raises(NotPossible):
                refused()
        with task.open(stores=desk.stores) as early, pytest.raises(NotPossible, match="no result"):
            _ = early.result
        writer.take([done(desk, task, "a")])
    assert desk.keys() == ["a"]


def test_rows_that_do_not_fit_are_refused_and_the_task_goes_on(desk: Desk) -> None:
    with desk.writer() as writer:
        with writer.task().open(stores=desk.stores) as files:
            for wrong in (rows("x").append_column("more", [[1]]), rows("x").drop_columns(["timestamp"])):
                with pytest.raises(SchemaRefused):
                    files.write(wrong)
            with pytest.raises(NotPossible, match="append-only"):
                files.upsert(rows("x"))
            files.write(rows("a"))
        writer.take([files.result])
    assert desk.keys() == ["a"]


def test_a_task_uploads_a_file_when_it_is_full_and_holds_it_no_longer(desk: Desk) -> None:
    desk.set_card(spec=PLAIN, target_file_size=100_000)
    with desk.writer() as writer:
        with writer.task().open(stores=desk.stores) as files:
            for number in range(10):
                files.write(noisy_rows([f"{number}-{row:03d}" for row in range(100)], 500))
            assert len(stored(desk)) >= 3
            assert all(item.data is None for item in files._files._finished)
        writer.take([files.result])
    assert len(desk.keys()) == 1000


def test_an_outage_in_a_task_is_waited_out_or_raised_and_leaves_files_that_nothing_names(desk: Desk) -> None:
    fails = [3]

    def fail(operation: str, key: str) -> None:
        if operation == "upload" and fails[0]:
            fails[0] -= 1
            raise StorageUnavailable("503")

    desk.stores = lambda url: Tampered(open_store(url), fail)
    with desk.writer() as writer:
        task = writer.task()
        result = done(desk, task, "a")
        fails[0] = 100
        with pytest.raises(StorageUnavailable):
            done(desk, task, "b")
        fails[0] = 0
        writer.take([result])
    assert desk.keys() == ["a"]


def test_threads_may_share_a_task_writer(desk: Desk) -> None:
    with desk.writer() as writer:
        with writer.task().open(stores=desk.stores) as files:
            threads = [threading.Thread(target=files.write, args=(rows(f"{n}"),)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        writer.take([files.result])
    assert desk.keys() == [f"{n}" for n in range(8)]


def test_a_task_writer_refuses_to_work_in_a_forked_process(local: Desk) -> None:
    with local.writer() as writer, writer.task().open(stores=local.stores) as files:
        child = os.fork()
        if child == 0:
            try:
                files.write(rows("forked"))
            except NotPossible:
                os._exit(17)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
        files.write(rows("a"))
        writer.discard()


def test_files_of_tasks_older_than_half_the_orphan_age_are_written_again(desk: Desk, monkeypatch: Any) -> None:
    monkeypatch.setattr(rolling_writer, "MOST_UPLOADED_BYTES", 1)
    desk.set_card(orphan_age_ms=HOUR)
    with desk.writer() as writer:
        task = writer.task()
        results = [done(desk, task, "a"), done(desk, task, "b")]
        desk.clock.move(minutes=31)
        writer.take(results)
        writer.publish()
    assert desk.keys() == ["a", "b"]
    assert len(stored(desk)) == 4
    assert not [name for name in named(desk) if "-t1-" in name]


def test_the_age_counts_from_the_task_whatever_the_clock_of_its_process_says(desk: Desk) -> None:
    desk.set_card(orphan_age_ms=HOUR)
    with desk.writer() as writer:
        task = writer.task()
        desk.clock.move(minutes=31)
        writer.take([done(desk, task, "a")])  # written just now, as far as its process knows
        writer.publish()
    assert not [name for name in named(desk) if "-t1-" in name]


def test_a_file_that_was_swept_before_the_publish_is_an_error_and_nothing_is_published(desk: Desk) -> None:
    desk.set_card(orphan_age_ms=HOUR)
    data = open_store(f"{desk.root}/data")
    writer = desk.writer()
    result = done(desk, writer.task(), "a")
    writer.take([result])
    desk.clock.move(minutes=61)
    data.delete_many([item.key for item in data.list("")])
    with pytest.raises(NotPossible, match="is gone") as caught:
        writer.publish()
    assert "orphan-age" in caught.value.hint
    assert desk.txlogs() == []
    writer.close()


def test_a_driver_that_stands_still_past_orphan_age_in_the_publish_does_not_confirm_it(desk: Desk) -> None:
    desk.set_card(orphan_age_ms=HOUR)

    def stand_still(operation: str, key: str) -> None:
        if operation == "create" and key.startswith("pending/"):
            desk.clock.move(minutes=61)

    desk.stores = lambda url: Tampered(open_store(url), stand_still)
    with desk.writer() as writer:
        writer.take([done(desk, writer.task(), "a")])
        with pytest.raises(UnknownOutcome, match="orphan-age"):
            writer.publish()
        with pytest.raises(UnknownOutcome):
            writer.task()


def test_a_column_added_between_task_and_take_is_null_in_its_rows(desk: Desk) -> None:
    with desk.writer() as writer:
        task = writer.task()
        desk.set_card(COUNTED)
        writer.take([done(desk, task, "a")])
        writer.publish()
        assert writer.card.schema == COUNTED
        with writer.task().open(stores=desk.stores) as files:
            files.write(rows("b").append_column("count", [[7]]))
        writer.take([files.result])
    assert [row.get("count") for row in desk.rows()] == [None, 7]


@pytest.mark.parametrize("change", [{"spec": PLAIN}, {"schema": Schema(*SCHEMA.fields[:2])}])
def test_a_spec_or_dropped_column_that_cannot_share_a_txlog_waits_for_the_publish(desk: Desk, change: Any) -> None:
    with desk.writer() as writer:
        before = writer.card
        task = writer.task()
        desk.set_card(**change)
        writer.take([done(desk, task, "a")])
        assert writer.card == before
        writer.publish()
        assert writer.card != before
    txlog = only(desk.txlogs())
    assert (txlog.schema_id, txlog.spec_id) == (before.schema.schema_id, before.spec_id)
    assert desk.keys() == ["a"]


def test_a_result_by_an_older_card_is_refused_by_a_new_reservation_with_a_new_card(desk: Desk) -> None:
    with desk.writer() as writer:
        old = done(desk, writer.task(), "a")
        writer.discard()
        desk.set_card(spec=PLAIN)
        writer.task()
        with pytest.raises(NotPossible, match="result 0"):
            writer.take([old])
        writer.discard([old])
    assert stored(desk) == set()


def test_a_table_made_anew_between_task_and_publish_gets_nothing(desk: Desk) -> None:
    writer = desk.writer()
    result = done(desk, writer.task(), "a")
    desk.set_card(table_uuid="11111111-1111-4111-8111-111111111111")
    writer.take([result])
    with pytest.raises(WrongFolder):
        writer.publish()
    writer.close()
    assert desk.txlogs() == []


def test_a_table_that_became_keyed_gives_no_task(desk: Desk) -> None:
    desk.set_card(spec=PLAIN)
    with desk.writer() as writer:
        keyed_card(desk)
        with pytest.raises(NotPossible, match="has keys now"):
            writer.task()


def test_the_task_is_by_the_newest_card(desk: Desk) -> None:
    with desk.writer() as writer:
        desk.set_card(COUNTED)
        with writer.task().open(stores=desk.stores) as files:
            files.write(rows("a").append_column("count", [[7]]))
        writer.take([files.result])
    assert [row["count"] for row in desk.rows()] == [7]


def test_task_and_task_writer_are_public() -> None:
    assert (Task.__name__, TaskWriter.__name__) == ("Task", "TaskWriter")
