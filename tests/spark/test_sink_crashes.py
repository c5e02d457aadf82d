"""A crash at each step of a micro-batch: Spark gives it again, and its rows are in the table once."""

import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from bookkeeper.errors import Backpressure, BookkeeperError, Fenced, NotPossible, StorageUnavailable, UnknownOutcome
from bookkeeper.stores.open import open_store
from tests.support.enumerated import Point, crash_points, crashed, error_points, late_points, recorded
from tests.support.faults import AFTER, Faults, crash
from tests.support.micro_batches import KeyedBatches, MicroBatches
from writers import Task, TaskWriter

#: three txlogs; metadata, and the plans and commits of four batches
TXLOGS, OF_SPARK = 3, 9
#: five rows in a file each, and of a keyed table a delete file each
UPLOADS = {MicroBatches: 5, KeyedBatches: 10}
CHANGES = (("0a", "0b"), ("1b!",), (), ("3a", "3c"))
Made = Callable[..., MicroBatches]
MINUTE = timedelta(minutes=1)


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


def test_a_driver_that_stands_still_past_orphan_age_at_any_operation_loses_and_doubles_nothing(made: Made) -> None:
    """Its files may be swept meanwhile: then they are written again, also where their txlog was on its way."""
    ended = Counter[str]()
    for number, operation in enumerate(recorded(made().run)):
        query, faults = made(), Faults()
        faults.hooks.append((at(faults, number), partial(stand_still, query)))
        try:
            query.run(faults)
        except BookkeeperError as error:
            ended[type(error).__name__] += 1
        for _ in range(2):
            with suppress(Fenced):
                query.run()
        query.ledger.tick()
        assert query.keys() == query.all(), operation
    assert ended["NotPossible"] and ended["UnknownOutcome"], ended


def at(faults: Faults, number: int) -> Callable[[str], bool]:
    """Before the operation with this number."""
    return lambda operation: len(faults.seen) == number + 1


def stand_still(query: MicroBatches) -> None:
    query.desk.stand_still(query.ledger.txlogs)


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


def stored(query: MicroBatches) -> int:
    return len([*open_store(f"{query.desk.root}/data").list("")])


def named(query: MicroBatches) -> int:
    return sum(len(item.every_path) for item in query.ledger.txlogs)


@pytest.mark.parametrize("new_driver", [True, False])
def test_a_task_of_a_failed_job_that_goes_on_writes_nothing_that_counts(made: Made, new_driver: bool) -> None:
    query, zombies = made(), list[TaskWriter]()
    rightly, sink = query.tasks, query.publisher()

    def fails(task: Task, batch: int) -> list[bytes]:
        zombies.append(task.open(stores=query.stores, clock=query.desk.clock, wait=lambda seconds: True))
        raise ValueError("another task")

    def beside(task: Task, batch: int) -> list[bytes]:
        for zombie in zombies:
            with zombie:
                query._write(zombie, query.batches[0][0])
            results.append(zombie.result)
        zombies.clear()
        return rightly(task, batch)

    results = list[bytes]()
    query.tasks = fails  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="another task"):
        query.run(sink=sink)
    query.tasks = beside  # type: ignore[method-assign]
    query.run(sink=None if new_driver else sink, upto=1)
    assert stored(query) == named(query) + len(query.ledger.txlogs[0].every_path) // 2
    query.tasks = lambda task, batch: [*rightly(task, batch), *results]  # type: ignore[method-assign]
    with pytest.raises(NotPossible, match="result 1"):
        query.run()
    query.tasks = rightly  # type: ignore[method-assign]
    query.run()
    assert query.keys() == query.all()


def test_of_two_attempts_of_a_task_the_files_of_one_count(made: Made) -> None:
    """Spark runs a slow task twice, speculatively, and takes the result of the first that ends."""
    query = made()
    rightly = query._part

    def twice(task: Task, key: str) -> bytes:
        with task.open(stores=query.stores, clock=query.desk.clock, wait=lambda seconds: True) as slow:
            quick = rightly(task, key)
            query._write(slow, key)
        return quick

    query._part = twice  # type: ignore[method-assign]
    query.run()
    assert query.keys() == query.all()
    assert stored(query) == 2 * named(query)


def test_of_two_runs_of_one_query_at_once_one_ends_and_each_row_is_there_once(made: Made) -> None:
    query = made()
    first = query.publisher()
    query.run(sink=first, upto=1)
    second = query.copied()
    rightly = second.tasks

    def meanwhile(task: Task, batch: int) -> list[bytes]:
        query.run(sink=first, upto=2)
        return rightly(task, batch)

    second.tasks = meanwhile  # type: ignore[method-assign]
    with pytest.raises(Fenced):
        second.run()
    second.tasks = rightly  # type: ignore[method-assign]
    second.run()
    assert query.keys() == query.all()


def test_a_bookkeeper_that_is_away_for_a_minute_again_and_again_ends_no_query(made: Made) -> None:
    """Or its catalog, which is the same from here."""
    query = made()
    back = query.desk.clock() + MINUTE

    def away(seconds: float) -> None:
        nonlocal back
        query.desk.clock.wait(seconds)
        if query.desk.clock() >= back:
            query.ledger.tick()
            back = query.desk.clock() + MINUTE

    began = query.desk.clock()
    query.run(sink=query.publisher(wait=away))
    assert query.desk.clock() - began >= TXLOGS * MINUTE
    assert (query.keys(), query.runs, {*query.jobs.values()}) == (query.all(), 1, {1})


def taking_over(old: MicroBatches, position: str | None = None) -> MicroBatches:
    """A new query of the same name on the table, with a checkpoint of its own."""
    query = type(old)([("x",), (), ("y", "z")], old.desk, old.name)
    query.ledger, query.runs = old.ledger, old.runs + 50
    query.take_over = position or last(old)
    return query


def last(query: MicroBatches) -> str:
    return (query.ledger.marks.writer(query.name).position or b"").decode()


def test_a_query_takes_the_name_of_another_over_once_whatever_is_killed(made: Made) -> None:
    for point in [Point(0, "", "none"), *crash_points(recorded(taking_over(done(made)).run))]:
        old = done(made)
        query = taking_over(old)
        if point.when != "none":
            assert crashed(query.run, point), point
        query.run()
        assert query.keys() == sorted([*old.all(), "x", "y", "z"]), point
        with pytest.raises(NotPossible, match="continues the query"):
            old.give(old.publisher(), 3)
        query.batches.append(("w",))
        query.run()
        assert query.keys() == sorted([*old.all(), "w", "x", "y", "z"]), "what it took over is behind it"


def done(made: Made) -> MicroBatches:
    query = made()
    query.run()
    return query


def test_a_name_is_not_taken_over_while_txlogs_are_pending_or_behind_another_position(made: Made) -> None:
    old = made(batches=[("0a",), ("1b",)])
    old.run(upto=1)
    before = last(old)
    with pytest.raises(Backpressure):
        old.run(sink=old.publisher(wait=lambda seconds: True))
    (pending,) = (str(item.name) for item in old.desk.folder.pending())
    query = taking_over(old, before)
    with pytest.raises(NotPossible, match="continues the query") as caught:
        query.run()
    (position,) = re.findall("take_over='([^']*)'", caught.value.hint)
    query = taking_over(old, position)
    with pytest.raises(NotPossible, match=f"1 txlogs .{pending}"):
        query.run()
    old.ledger.tick()
    assert position == last(old)
    query.run()
    assert query.keys() == ["0a", "1b", "x", "y", "z"]


def test_an_old_checkpoint_of_the_same_query_takes_nothing_over(made: Made) -> None:
    query = made()
    query.run(upto=1)
    copy = query.copied()
    query.run()
    copy.take_over = last(query)
    with pytest.raises(NotPossible, match="an old or a second one of its query"):
        copy.run()
