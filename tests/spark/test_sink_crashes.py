"""A crash at each step of a micro-batch: Spark gives it again, and its rows are in the table once."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from bookkeeper.errors import BookkeeperError, Fenced, StorageUnavailable, UnknownOutcome
from tests.support.enumerated import Point, crash_points, crashed, error_points, late_points, recorded
from tests.support.faults import AFTER, Faults, crash
from tests.support.micro_batches import KeyedBatches, MicroBatches

#: three txlogs; metadata, and the plans and commits of four batches
TXLOGS, OF_SPARK = 3, 9
#: five rows in a file each, and of a keyed table a delete file each
UPLOADS = {MicroBatches: 5, KeyedBatches: 10}
CHANGES = (("0a", "0b"), ("1b!",), (), ("3a", "3c"))
Made = Callable[..., MicroBatches]


@pytest.fixture(params=[MicroBatches, KeyedBatches])
def made(request: pytest.FixtureRequest) -> Made:
    """A query that appends, and one that upserts and deletes."""
    kind: type[MicroBatches] = request.param
    return partial(kind, batches=CHANGES) if kind is KeyedBatches else kind


def check(query: MicroBatches, point: Point) -> None:
    """All rows once; files that no txlog names are all that is left."""
    assert query.keys() == query.all(), point
    query.ledger.tick()
    assert query.desk.left() == {"card.json", "marks.json"}, point


def test_a_crash_at_each_operation_of_a_driver_its_tasks_and_spark_loses_and_doubles_nothing(made: Made) -> None:
    tried = Counter[str]()
    for point in [Point(0, "", "none"), *crash_points(recorded(made().run))]:
        query = made()
        if point.when != "none":
            assert crashed(query.run, point), point
            tried[" ".join(point.operation.split("/")[:1])] += 1
        query.run()
        check(query, point)
        assert max(query.jobs.values()) <= 2, point
    uploads = UPLOADS[type(made())]
    wanted = {"upload data": uploads, "create folder": TXLOGS, "create checkpoint": OF_SPARK}
    assert tried == {operation: 3 * count for operation, count in wanted.items()}


@pytest.mark.parametrize("where", ["create folder/pending/", "create checkpoint/commits/"])
def test_no_task_runs_again_for_a_batch_whose_txlog_was_published(made: Made, where: str) -> None:
    operations = [number for number, text in enumerate(recorded(made().run)) if text.startswith(where)]
    for number in operations:
        query = made()
        when = AFTER if "pending" in where else "before"
        assert crashed(query.run, Point(number, where, when))
        query.run()
        assert query.keys() == query.all()
        published = {batch: count for batch, count in query.jobs.items() if query.batches[batch]}
        assert set(published.values()) == {1}, number


@pytest.mark.parametrize("points", [error_points, late_points])
def test_an_error_or_a_late_put_at_each_operation_loses_and_doubles_nothing(made: Made, points: Any) -> None:
    for point in points(recorded(made().run)):
        query = made()
        with suppress(BookkeeperError):
            query.run(Faults().at(point.number, point.when, StorageUnavailable, point.delay))
        for _ in range(3):
            with suppress(Fenced, UnknownOutcome):
                query.run()
        query.ledger.tick()
        assert query.keys() == query.all(), point


@pytest.mark.parametrize("arrives", range(16))
def test_a_txlog_that_arrives_late_and_the_one_of_the_next_run_get_in_once(made: Made, arrives: int) -> None:
    """Whichever of the two comes first: the other one continues from a position that is taken."""
    query = made(batches=[("a",), ("b",)])
    lost = Faults().on("create folder/pending/", "late", StorageUnavailable, times=8)
    with pytest.raises(UnknownOutcome):
        query.run(lost)
    others = Faults()
    sink = query.publisher(others)
    others.hooks.append((lambda operation: len(others.seen) > arrives, lost.arrive))
    for _ in range(3):
        with suppress(Fenced, UnknownOutcome):
            query.run(sink=sink)
    query.ledger.tick()
    assert query.keys() == ["a", "b"]


def test_a_driver_killed_while_the_bookkeeper_is_away_finds_its_pending_txlog(made: Made) -> None:
    query = made(batches=[("a",), ("b",)])

    def away(seconds: float) -> None:
        raise crash("wait")

    assert crashed(lambda faults: query.run(sink=query.publisher(faults, wait=away)), Point(10**6, "", AFTER))
    assert (query.keys(), len(query.desk.folder.pending())) == ([], 1)
    query.run()
    assert (query.keys(), query.jobs) == (["a", "b"], {0: 1, 1: 1})
