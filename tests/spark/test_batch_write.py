"""A batch job that writes one txlog: begun, written in tasks and committed by processes that share nothing."""

import pickle
import uuid
from collections import Counter
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from bookkeeper.errors import (
    Backpressure,
    BookkeeperError,
    ConfigInvalid,
    Fenced,
    NotPossible,
    SchemaRefused,
    StorageUnavailable,
    UnknownOutcome,
)
from bookkeeper.stores.open import open_store
from spark_jobs.batch_write import BatchJob, Target, begin, is_done
from tests.support.desk import SCHEMA, Desk, Ledger, rows
from tests.support.enumerated import Point, crash_points, crashed, error_points, late_points, recorded
from tests.support.faults import Faults, FaultyStore
from tests.support.upserts import keyed_card
from writers.runtime import Runtime

KEYS = ("a", "b")


def in_turn(acts: Any) -> list[Any]:
    return [act() for act in acts]


class Job:
    """A job of two rows, each in a task, into a table in memory; a bookkeeper ticks while it waits."""

    def __init__(self) -> None:
        self.desk = Desk(f"memory://{uuid.uuid4()}")
        self.desk.set_card()
        self.ledger = Ledger(self.desk)
        self.tasks = 0

    def wait(self, seconds: float) -> object:
        self.desk.clock.wait(seconds)
        return self.ledger.tick()

    def target(self, faults: Faults | None = None, **options: Any) -> Target:
        self.desk.clock.move(seconds=1)
        label = {f"{self.desk.root}/data": "data"}
        stores: Any = lambda url: FaultyStore(open_store(url), faults or Faults(), label.get(url, "folder"))  # noqa: E731
        names = {key: options.pop(key, text) for key, text in (("name", "job"), ("position", "1"))}
        runtime = Runtime(stores, **{"clock": self.desk.clock, "wait": self.wait, "at_once": in_turn} | options)
        return Target(f"{self.desk.root}/_bookkeeper", runtime, **names)

    def results(self, job: BatchJob, keys: Any = KEYS) -> list[Any]:
        def one(key: str) -> pa.Table:
            self.tasks += job.handed is not None
            return rows(key)

        return [job.write(batch for batch in one(key).to_batches()) for key in keys]

    def run(self, faults: Faults | None = None, keys: Any = KEYS, **options: Any) -> int:
        """What Spark does: it aborts what it cannot commit."""
        job = begin(self.target(faults, **options), rows().schema)
        results: list[Any] = [None] * len(keys)
        try:
            for at, key in enumerate(keys):
                results[at : at + 1] = self.results(job, [key])
            return job.commit(results)
        except Exception:
            with suppress(BookkeeperError):
                job.abort(results)
            raise

    def keys(self) -> list[str]:
        return self.ledger.keys()

    def stored(self) -> int:
        return len([*open_store(f"{self.desk.root}/data").list("")])

    def check(self, point: Point) -> None:
        """All rows once; files that no txlog names are all that is left."""
        self.ledger.tick()
        assert self.keys() == list(KEYS), point
        assert {key for key in self.desk.left() if not key.startswith("rejected/")} == {"card.json", "marks.json"}, (
            point
        )


def test_a_crash_at_each_operation_and_the_job_run_again_loses_and_doubles_nothing() -> None:
    tried = Counter[str]()
    for point in [Point(0, "", "none"), *crash_points(recorded(lambda faults: Job().run(faults) and None))]:
        job = Job()
        if point.when != "none":
            assert crashed(lambda faults, job=job: job.run(faults) and None, point), point  # type: ignore[misc]
            tried[" ".join(point.operation.split("/")[:1])] += 1
        job.run()
        job.check(point)
        assert job.run() == 0
    assert tried == {"upload data": 6, "create folder": 3}


@pytest.mark.parametrize("points", [error_points, late_points])
def test_an_error_or_a_late_put_at_each_operation_and_the_abort_behind_it_lose_and_double_nothing(points: Any) -> None:
    for point in points(recorded(lambda faults: Job().run(faults) and None)):
        job = Job()
        with suppress(BookkeeperError):
            job.run(Faults().at(point.number, point.when, StorageUnavailable, point.delay))
        for _ in range(3):
            with suppress(Fenced, UnknownOutcome):
                job.run()
        job.check(point)


def test_a_job_that_was_done_runs_no_task_and_the_next_position_is_another_job() -> None:
    job = Job()
    assert not is_done(job.target())
    assert job.run() == 2
    assert (is_done(job.target()), is_done(job.target(position="2"))) == (True, False)
    assert job.run() == 0
    assert job.tasks == 2
    assert job.run(keys=["c"], position="2") == 1
    assert job.keys() == ["a", "b", "c"]
    assert job.ledger.marks.writer("job").position == b"spark-batch/2"


def test_without_a_position_the_rows_are_written_each_time() -> None:
    job = Job()
    assert [job.run(position=None), job.run(position=None, name=None)] == [2, 2]
    assert job.keys() == ["a", "a", "b", "b"]


def test_a_commit_that_is_not_in_yet_fails_and_the_abort_behind_it_deletes_nothing() -> None:
    job = Job()
    with pytest.raises(Backpressure, match="not in the table yet") as caught:
        job.run(wait=lambda seconds: True)
    assert "goes on waiting" in caught.value.hint
    with pytest.raises(Backpressure):
        job.run(wait=lambda seconds: True)
    assert job.run() == 0
    assert (job.keys(), job.tasks) == (["a", "b"], 2)


def test_of_a_job_with_a_failed_task_the_files_of_the_others_are_deleted() -> None:
    job = Job()
    begun = begin(job.target(), rows().schema)
    results = [*job.results(begun), b"", None]
    assert job.stored() == 2
    with pytest.raises(NotPossible, match="a task has no result"):
        begun.commit(results)
    assert begun.abort(results) == 2
    assert (job.stored(), job.desk.txlogs()) == (0, [])
    assert job.run() == 2


def test_of_two_runs_of_one_job_at_the_same_time_one_writes() -> None:
    job = Job()
    first, second = (begin(job.target(), rows().schema) for _ in range(2))
    results = job.results(first), job.results(second)
    assert first.commit(results[0]) == 2
    with pytest.raises(Fenced, match="not in the table"):
        second.commit(results[1])
    assert job.run() == 0
    assert job.keys() == ["a", "b"]


def test_a_rejected_txlog_is_said_and_the_job_run_again_writes_its_rows() -> None:
    job = Job()

    def rejects(seconds: float) -> None:
        for item in job.desk.txlogs():
            job.ledger._reject(item)

    with pytest.raises(Fenced) as caught:
        job.run(wait=rejects)
    assert "writes the rows again" in caught.value.hint
    assert job.run() == 2
    assert job.keys() == ["a", "b"]


def test_a_job_waits_for_the_one_before_it() -> None:
    """If that is rejected, this one's chain is broken: better before its tasks than behind them."""
    job = Job()
    with pytest.raises(Backpressure):
        job.run(wait=lambda seconds: True)
    with pytest.raises(Backpressure):
        begin(job.target(position="2", wait=lambda seconds: True), rows().schema)


def test_a_column_that_is_added_while_the_tasks_run_costs_nothing() -> None:
    job = Job()
    begun = begin(job.target(), rows().schema)
    results = job.results(begun)
    job.desk.set_card(Schema(*SCHEMA.fields, NestedField(4, "count", LongType(), required=False), schema_id=1))
    assert begun.commit(results) == 2


def test_a_job_without_rows_publishes_nothing() -> None:
    job = Job()
    assert job.run(keys=()) == 0
    begun = begin(job.target(), rows().schema)
    assert begun.commit([begun.write(rows().to_batches()), b""]) == 0
    assert job.desk.left() == {"card.json"}


def test_a_job_is_pickled_where_its_stores_and_clocks_are_the_real_ones(tmp_path: Any) -> None:
    desk = Desk(f"file://{tmp_path}")
    desk.set_card()
    begun = begin(Target(f"{desk.root}/_bookkeeper", Runtime(), "job", "1"), rows().schema)
    again = pickle.loads(pickle.dumps(begun))
    assert again == begun
    assert len(pickle.dumps(begun)) < 8192


def test_what_a_job_cannot_write_is_refused_before_its_tasks() -> None:
    job = Job()
    with pytest.raises(SchemaRefused):
        begin(job.target(), pa.schema([("key", pa.string()), ("unknown", pa.int64())]))
    with job.desk.writer("job") as writer:
        writer.write(rows("x"), position=b"5")
    with pytest.raises(NotPossible, match="another source than a batch job"):
        job.run()
    keyed = Job()
    keyed_card(keyed.desk)
    with pytest.raises(NotPossible, match="is keyed by"):
        keyed.run()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": None}, "Give a name, too"),
        ({"position": "a b"}, "1 to 100"),
        ({"name": "No Name"}, "not valid"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: Any, said: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        Job().target(**options)
    assert said in f"{caught.value} {caught.value.hint}"
