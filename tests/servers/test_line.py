"""Each fault does to a request what its name says."""

import pytest

from tests.servers.line import Answered, Fault, Line, Lost

FATES = [
    (Fault.REQUEST_LOST, Lost, 0),
    (Fault.REFUSED_500, Answered, 0),
    (Fault.REFUSED_503, Answered, 0),
    (Fault.REPLY_LOST, Lost, 1),
    (Fault.APPLIED_500, Answered, 1),
    (Fault.APPLIED_503, Answered, 1),
    (Fault.LATE_BEFORE, Lost, 0),
    (Fault.LATE_AFTER, Lost, 0),
    (Fault.LATE_LAST, Lost, 0),
]


@pytest.mark.parametrize("fault, error, arrived", FATES)
def test_a_request_is_answered_and_arrives_as_its_fault_says(
    fault: Fault, error: type[Exception], arrived: int
) -> None:
    line, server = Line(fault, most=1), list[str]()
    with pytest.raises(error):
        line.play(lambda: server.append("first"))
    assert server == ["first"] * arrived
    line.play(lambda: server.append("second"))
    assert server[-1 if fault is not Fault.LATE_AFTER else 0] == "second"


def test_a_late_request_arrives_before_after_or_long_after_the_next_one() -> None:
    orders = {}
    for fault in (Fault.LATE_BEFORE, Fault.LATE_AFTER, Fault.LATE_LAST):
        line, server = Line(fault, most=1), list[str]()
        with pytest.raises(Lost):
            line.play(lambda server=server: server.append("late"))
        for name in ("next", "third"):
            line.play(lambda server=server, name=name: server.append(name))
        line.flush()
        orders[fault] = server
    assert orders[Fault.LATE_BEFORE] == ["late", "next", "third"]
    assert orders[Fault.LATE_AFTER] == ["next", "late", "third"]
    assert orders[Fault.LATE_LAST] == ["next", "third", "late"]


def test_a_doubled_request_arrives_twice_and_the_second_answer_is_told() -> None:
    line, server = Line(Fault.TWICE), list[str]()
    assert line.play(lambda: server.append("again") or len(server)) == 2


def test_another_request_overtakes_a_delayed_one() -> None:
    server = list[str]()
    line = Line(Fault.OVERTAKEN, meanwhile=lambda: server.append("rival"))
    line.play(lambda: server.append("ours"))
    assert server == ["rival", "ours"]


def test_every_second_request_is_hit_until_there_were_enough() -> None:
    line, fates = Line(Fault.REQUEST_LOST, every=2, most=2), []
    for _ in range(7):
        try:
            line.play(lambda: fates.append("arrived"))
        except Lost:
            fates.append("lost")
    assert fates == ["arrived", "lost", "arrived", "lost", "arrived", "arrived", "arrived"]
    assert (line.requests, line.injected) == (7, 2)


def test_what_a_late_request_was_answered_is_counted_not_raised() -> None:
    line = Line(Fault.LATE_LAST, arrived=lambda status: status == 200)
    for answer in (200, 409):
        with pytest.raises(Lost):
            line.play(lambda answer=answer: answer)
    with pytest.raises(Lost):
        line.play(_refuse)
    line.flush()
    assert (line.late, line.late_applied) == (3, 1)


def _refuse() -> int:
    raise ValueError("main has moved")
