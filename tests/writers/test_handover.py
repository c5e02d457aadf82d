"""A run that gives its task out in one process and takes the results in another."""

import pickle
from datetime import timedelta

import pytest

from bookkeeper.errors import Fenced, NotPossible
from tests.support.desk import Desk, only, rows
from writers import Handover, Writer
from writers.runtime import Runtime


def result(desk: Desk, handed: Handover, *keys: str) -> bytes:
    with handed.task.open(clock=desk.clock, wait=desk.clock.wait, stores=desk.stores) as files:
        files.write(rows(*keys))
    return files.result


def taken_over(desk: Desk, handed: Handover) -> Writer:
    folder = f"{desk.root}/_bookkeeper"
    return Writer.taking_over(folder, handed, Runtime(desk.stores, desk.clock, desk.clock.wait))


def handed_over(desk: Desk) -> Handover:
    writer = desk.writer()
    writer.task()
    handed: Handover = pickle.loads(pickle.dumps(writer.hand_over()))
    return handed


def test_the_run_goes_on_where_it_was(desk: Desk) -> None:
    writer = desk.writer()
    writer.write(rows("a"))
    writer.publish(position=b"1")
    writer.task()
    handed = pickle.loads(pickle.dumps(writer.hand_over()))
    with taken_over(desk, handed) as second:
        assert (second.incarnation, second.position) == (writer.incarnation, b"1")
        second.take([result(desk, handed, "b")], position=b"2")
        second.publish()
        second.write(rows("c"))
        second.publish(position=b"3")
    assert [(item.name.sequence, item.previous_position) for item in desk.txlogs()] == [(1, None), (2, b"1"), (3, b"2")]
    assert desk.keys() == ["a", "b", "c"]


def test_the_run_has_ended_where_it_was_handed_over(desk: Desk) -> None:
    writer = desk.writer()
    with pytest.raises(NotPossible, match="waits for no results"):
        writer.hand_over()
    writer.task()
    handed = writer.hand_over()
    for act in (writer.task, writer.publish, lambda: writer.take([result(desk, handed, "a")])):
        with pytest.raises(NotPossible, match="was closed"):
            act()


def test_a_run_with_rows_is_not_handed_over(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        writer.task()
        with pytest.raises(NotPossible, match="1 rows are not published"):
            writer.hand_over()
        writer.take([])
    assert desk.keys() == ["a"]


def test_of_two_processes_that_take_it_over_one_publishes(desk: Desk) -> None:
    handed = handed_over(desk)
    with taken_over(desk, handed) as first:
        first.take([result(desk, handed, "a")])
    second = taken_over(desk, handed)
    second.take([result(desk, handed, "b")])
    with pytest.raises(Fenced, match="another run published"):
        second.publish()
    assert only(desk.txlogs()) and desk.keys() == ["a"]


def test_its_files_are_as_old_as_the_task(desk: Desk) -> None:
    """Half of orphan-age later they are renewed before the publish, so that no sweep takes them behind it."""
    desk.set_card(orphan_age_ms=3_600_000)
    handed = handed_over(desk)
    done = result(desk, handed, "a")
    desk.clock.move(minutes=31)
    with taken_over(desk, handed) as second:
        second.take([done])
        assert second._files.age() == timedelta(minutes=31)
