"""The driver's side of a sink: which batch is written, recognised or refused, and what it waits for."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bookkeeper.errors import Backpressure, EntryInvalid, Fenced, NotPossible, SchemaRefused
from bookkeeper.stores.open import open_store
from spark_jobs.sink_batches import BatchPublisher
from spark_jobs.sink_upserts import Upserts
from tests.support.desk import rows
from tests.support.faults import Faults
from tests.support.keyed import keyed_lake
from tests.support.micro_batches import MicroBatches
from writers.runtime import Runtime


@pytest.fixture
def query() -> MicroBatches:
    return MicroBatches()


def test_each_batch_with_rows_is_one_txlog_of_one_run_and_an_empty_one_is_none(query: MicroBatches) -> None:
    faults = Faults()
    query.run(faults)
    assert query.keys() == query.all()
    reads = [text for text in faults.seen if text.startswith("read checkpoint/offsets/")]
    assert len(reads) == len(query.batches), "one request for each batch of a run that goes on"
    (incarnation,) = query.ledger.marks.writer("query").incarnations.values()
    assert incarnation.last == 3
    position = query.ledger.marks.writer("query").position
    assert position is not None
    assert position.startswith(f"spark/{query.query}/3/".encode()) and len(position) < 128


def test_a_clock_that_is_put_back_makes_the_wait_for_the_bookkeeper_no_longer(query: MicroBatches) -> None:
    clock, jumps = query.desk.clock, iter([0.0, -3600.0])

    def wait(seconds: float) -> None:
        clock.wait(seconds)
        clock.move(seconds=next(jumps, 0.0))

    with pytest.raises(Backpressure, match="not in the table yet"):
        query.run(sink=query.publisher(wait=wait), upto=1)
    assert len(clock.waits) < 400


def test_a_batch_is_done_when_its_txlog_is_in(query: MicroBatches) -> None:
    sink, seen = query.publisher(), list[list[str]]()
    for batch in range(4):
        query.run(sink=sink, upto=batch + 1)
        seen.append(query.keys())
    assert seen == [["0a", "0b"], ["0a", "0b", "1a"], ["0a", "0b", "1a"], query.all()]


@pytest.mark.parametrize("new_driver", [True, False])
def test_a_batch_that_is_given_again_is_recognised_before_its_tasks_run(query: MicroBatches, new_driver: bool) -> None:
    sink = query.publisher()
    query.run(sink=sink, upto=2)
    other = query.publisher()
    assert query.give(other if new_driver else sink, 1) == 0
    assert (query.jobs, query.keys()) == ({0: 1, 1: 1}, ["0a", "0b", "1a"])


def test_a_batch_that_is_given_twice_in_one_run_is_refused(query: MicroBatches) -> None:
    """The function of a foreachBatch that calls the sink for two parts of its rows: the second would be passed over."""
    sink = query.publisher()
    query.run(sink=sink, upto=1)
    with pytest.raises(NotPossible, match="batch 0 was given twice") as caught:
        query.give(sink, 0)
    assert "union" in caught.value.hint
    again = query.publisher()
    assert query.give(again, 0) == 0
    with pytest.raises(NotPossible, match="batch 0 was given twice"):
        query.give(again, 0)


def test_a_batch_whose_txlog_is_pending_is_waited_for_when_it_is_given_again(query: MicroBatches) -> None:
    with pytest.raises(Backpressure):
        query.run(sink=query.publisher(wait=lambda seconds: True), upto=1)
    assert len(query.desk.folder.pending()) == 1
    assert query.give(query.publisher(), 0) == 0
    assert (query.jobs, query.keys()) == ({0: 1}, ["0a", "0b"])


def test_a_wait_for_the_bookkeeper_ends_with_the_patience(query: MicroBatches) -> None:
    began = query.desk.clock()
    with pytest.raises(Backpressure, match="published, and not in the table yet") as caught:
        query.run(sink=query.publisher(wait=query.desk.clock.wait), upto=1)
    assert timedelta(minutes=5) <= query.desk.clock() - began < timedelta(minutes=5, seconds=5)
    assert "writes no row twice" in caught.value.hint
    assert len(query.desk.clock.waits) < 400
    query.run()
    assert query.keys() == query.all()


def test_room_in_pending_is_waited_for(query: MicroBatches) -> None:
    query.desk.set_card(pending_limit=1)
    with query.desk.writer("other") as other:
        other.write(rows("o"))
    query.run()
    assert query.keys() == sorted(["o", *query.all()])


@pytest.mark.parametrize("new_driver", [True, False])
def test_a_txlog_that_is_rejected_is_raised_in_its_batch_which_is_written_when_it_is_given_again(
    query: MicroBatches, new_driver: bool
) -> None:
    query.run(upto=1)
    rejects = [True]

    def rejecting(seconds: float) -> None:
        for found in query.desk.folder.pending() if rejects else ():
            query.desk.folder.reject(found.name, EntryInvalid("a reason"), query.desk.clock())
            rejects.clear()
        query.wait(seconds)

    sink = query.publisher(wait=rejecting)
    with pytest.raises(Fenced, match="a reason") as caught:
        query.run(sink=sink)
    assert "gives the batch again" in caught.value.hint
    assert query.keys() == ["0a", "0b"]
    query.run(sink=None if new_driver else sink)
    assert (query.keys(), query.jobs[1]) == (query.all(), 2)


def test_a_pending_txlog_of_an_earlier_run_is_in_before_the_next_batch_is_written(query: MicroBatches) -> None:
    """Were it rejected, what is behind it would be too, when Spark had long gone on."""
    query.run(upto=1)
    with pytest.raises(Backpressure):
        query.run(sink=query.publisher(wait=lambda seconds: True), upto=2)
    open_store(query.checkpoint).create("commits/1", b"v1\n{}")  # by a sink that does not wait
    at = list[int]()

    def waited(seconds: float) -> object:
        at.append(query.jobs[3])
        return query.wait(seconds)

    query.run(sink=query.publisher(wait=waited))
    assert at[0] == 0 and query.keys() == query.all()


def test_a_txlog_that_gets_in_between_two_looks_is_not_taken_for_rejected(query: MicroBatches) -> None:
    query.run(upto=1)
    faults = Faults()
    sink = query.publisher(faults)
    faults.between("size folder/pending/", query.ledger.tick)
    query.run(sink=sink, upto=2)
    assert query.keys() == ["0a", "0b", "1a"]


def forked(query: MicroBatches, batch: int, content: str = "") -> MicroBatches:
    """A copy of the checkpoint, behind whose back the query goes on to `batch`."""
    query.run(upto=1)
    copy = query.copied()
    query.run(upto=batch + 1)
    copy.publisher()
    if content:
        copy.plan(1, content)
    return copy


REFUSED = "is an old or a second one of its query"


def test_a_checkpoint_that_is_older_than_the_table_is_refused(query: MicroBatches) -> None:
    copy = forked(query, 3)
    with pytest.raises(NotPossible, match=f"{REFUSED}: Spark gave batch 1, .* up to batch 3") as caught:
        copy.run()
    assert "name=" in caught.value.hint
    assert (copy.jobs, query.keys()) == ({}, query.all())


def test_a_copy_that_planned_another_batch_of_the_same_number_is_refused(query: MicroBatches) -> None:
    copy = forked(query, 1, "other rows")
    with pytest.raises(NotPossible, match=f"{REFUSED}: Spark gave batch 1"):
        copy.run()
    assert copy.jobs == {}


def test_a_copy_that_planned_the_same_batch_goes_on_with_the_next(query: MicroBatches) -> None:
    copy = forked(query, 1)
    copy.run()
    assert (query.keys(), copy.jobs[1]) == (query.all(), 0)


def test_a_copy_whose_own_batch_had_no_rows_is_refused_at_the_next(query: MicroBatches) -> None:
    """Its batch 1 published nothing, so by its number batch 3 would fit behind the batch 1 of the other."""
    copy = forked(query, 1, "other rows")
    with pytest.raises(NotPossible, match=f"{REFUSED}: its batch 1 is not the one that was published"):
        copy.give(copy.publisher(), 3)
    assert copy.jobs == {}


def test_plans_that_spark_has_removed_are_no_reason_to_refuse(query: MicroBatches) -> None:
    query.run(upto=2)
    open_store(query.checkpoint).delete_many(["offsets/0", "offsets/1"])
    query.plan(2)
    query.run()
    assert query.keys() == query.all()


def test_a_plan_that_is_missing_between_others_is(query: MicroBatches) -> None:
    query.run(upto=2)
    open_store(query.checkpoint).delete_many(["offsets/1"])
    with pytest.raises(NotPossible, match=REFUSED):
        query.run()


def test_another_query_with_the_same_name_is_refused(query: MicroBatches) -> None:
    query.run()
    other = MicroBatches([("x",)], query.desk)
    other.runs = 50
    with pytest.raises(NotPossible, match=f"the writer query continues the query {query.query}"):
        other.run()
    assert other.jobs == {}


def test_the_name_of_a_writer_with_another_source_is_refused(query: MicroBatches) -> None:
    with query.desk.writer("query") as other:
        other.write(rows("o"), position=b"12")
    query.ledger.tick()
    with pytest.raises(NotPossible, match="another source") as caught:
        query.run()
    assert "take_over='12'" in caught.value.hint
    query.take_over = "12"
    query.run()
    assert query.keys() == sorted(["o", *query.all()])


def test_two_runs_of_one_query_at_once_write_each_row_once(query: MicroBatches) -> None:
    first = query.publisher()
    query.run(sink=first, upto=1)
    second = query.copied()
    other = second.publisher()
    assert second.give(other, 0) == 0

    def meanwhile(task: Any) -> list[bytes]:
        query.run(sink=first, upto=2)
        return second.tasks(task, 1)

    second.plan(1)
    with pytest.raises(Fenced):
        other.publish(1, rows().schema, meanwhile, run="2")
    assert query.keys() == ["0a", "0b", "1a"]
    second.run()
    assert query.keys() == query.all()


def test_a_sink_that_is_used_by_a_later_run_continues_behind_the_runs_of_other_drivers(query: MicroBatches) -> None:
    first = query.publisher()
    query.run(sink=first, upto=1)
    query.run(upto=2)
    query.run(sink=first)
    assert query.keys() == query.all()


@pytest.mark.parametrize("metadata", [None, b"", b"[]", b'{"id":1}', b'{"id":"../x"}', b"[" * 100_000])
def test_a_checkpoint_that_is_not_one_is_refused(query: MicroBatches, metadata: bytes | None) -> None:
    sink = query.publisher()
    query.plan(0)
    if metadata is not None:
        open_store(query.checkpoint).create("metadata", metadata)
    with pytest.raises(NotPossible, match="metadata") as caught:
        query.give(sink, 0)
    assert "checkpointLocation" in caught.value.hint


def test_a_batch_that_the_checkpoint_did_not_plan_is_refused(query: MicroBatches) -> None:
    query.run(upto=1)
    with pytest.raises(NotPossible, match="offsets/7 is not there"):
        query.publisher().publish(7, rows().schema, lambda task: query.tasks(task, 1))
    assert query.jobs == {0: 1}


def test_columns_that_the_table_lacks_are_refused_before_a_task_runs(query: MicroBatches) -> None:
    query.plan_metadata()
    sink = query.publisher()
    query.plan(0)
    with pytest.raises(SchemaRefused, match="no column 'new'"):
        sink.publish(0, rows().schema.append(pa.field("new", pa.int64())), lambda task: query.tasks(task, 0))
    assert query.jobs == {}
    query.run()
    assert query.keys() == query.all()


def test_a_task_that_fails_ends_the_batch_and_the_same_sink_goes_on_when_it_is_given_again(query: MicroBatches) -> None:
    sink = query.publisher()

    def failing(task: Any) -> list[bytes]:
        query.tasks(task, 0)
        raise ValueError("the task")

    query.plan_metadata()
    query.plan(0)
    with pytest.raises(ValueError, match="the task"):
        sink.publish(0, rows().schema, failing)
    query.run(sink=sink)
    assert query.keys() == query.all()


def test_a_keyed_table_is_refused(query: MicroBatches, tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path)
    query.plan_metadata()
    query.plan(0)
    sink = BatchPublisher(lake.made.folder, "query", open_store(query.checkpoint), Runtime(clock=lake.clock))
    with pytest.raises(NotPossible, match="is keyed by id") as caught:
        sink.publish(0, rows().schema, lambda task: query.tasks(task, 0))
    assert "upsert" in caught.value.hint
    assert query.jobs == {}


def test_upserts_into_a_table_without_a_key_are_refused_before_a_task_runs(query: MicroBatches) -> None:
    query.changes = Upserts()
    with pytest.raises(NotPossible, match=r"\S+ has no key") as caught:
        query.run()
    assert "Append" in caught.value.hint
    assert (query.jobs, query.desk.folder.pending()) == ({}, [])
