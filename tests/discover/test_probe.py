"""Probing: the next txlog of each known writer is asked for, by name."""

from pathlib import Path

from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.discover.discovery import LOOK
from bookkeeper.discover.find_pending import PendingIndex
from bookkeeper.discover.probe import Probe
from tests.support.lake import Lake, Writes

RUN = TxlogName("w1", new_incarnation(1, bytes(10)), 1)


def test_after_a_listing_new_txlogs_of_known_writers_are_found_without_one(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    book, writes, other = lake.book(), Writes(lake, "w1"), Writes(lake, "w2")
    book.inbox.pending_index = PendingIndex(Probe(), look_every=5)
    writes.publish("a1")
    lake.tick(book)  # lists
    for key in ("a2", "a3", "a4"):
        writes.publish(key)
    other.publish("b1")
    assert lake.tick(book).commit.txlogs == 3
    assert lake.keys() == ["a1", "a2", "a3", "a4"]
    for _ in range(5):
        lake.tick(book)
    assert lake.keys() == ["a1", "a2", "a3", "a4", "b1"]


def test_a_run_that_is_idle_for_long_is_asked_for_no_more() -> None:
    probe = Probe()
    probe.after([RUN])
    asked = [bool(probe.hints()) for _ in range(150)]
    assert asked[0] and not asked[-1]
    probe.after([RUN.at(5)])
    assert probe.hints() == {RUN.at(6)}


def test_it_never_goes_back() -> None:
    probe = Probe()
    probe.after([RUN.at(5), RUN.at(3)])
    assert probe.hints() == {RUN.at(6)}


def test_of_one_that_goes_on_as_before_a_request_too_many_ends_the_asking() -> None:
    probe = Probe()
    probe.after([RUN])
    assert probe.hints() == {RUN.at(2)}
    assert probe.after([RUN.at(2)], [RUN.at(2)]) == {RUN.at(3), RUN.at(4)}
    assert probe.after([RUN.at(3)], [RUN.at(3), RUN.at(4)]) == frozenset()
    assert probe.hints() == {RUN.at(4), RUN.at(5), RUN.at(6)}
    assert probe.after([RUN.at(4)], [RUN.at(4), RUN.at(5), RUN.at(6)]) == frozenset()
    assert probe.hints() == {RUN.at(5), RUN.at(6)}
    assert probe.after([], [RUN.at(5), RUN.at(6)]) == frozenset()
    assert probe.hints() == {RUN.at(5)}


def test_one_that_was_missed_beside_its_successor_is_asked_for_again() -> None:
    """The answers are not of one moment: 2 may appear after its answer and before that of 3."""
    probe = Probe()
    probe.after([RUN])
    assert probe.after([RUN.at(3)], [RUN.at(2), RUN.at(3)]) == frozenset()
    assert RUN.at(2) in probe.hints()


def test_however_much_one_publishes_a_wave_of_requests_is_bounded() -> None:
    probe = Probe()
    probe.after([RUN])
    asked = probe.hints()
    for _ in range(10):
        asked = probe.after(asked, asked)  # type: ignore[arg-type]
    assert len(asked) == 16


def test_while_there_are_many_writers_every_tick_lists_and_none_waits() -> None:
    probe = Probe()
    many = [TxlogName(f"w{number}", RUN.incarnation, 1) for number in range(201)]
    probe.after(many)
    assert probe.hints() == LOOK
    for _ in range(150):
        probe.after(many[:3])
        hints = probe.hints()
    assert hints == {name.at(2) for name in many[:3]}
    probe.close()
    assert probe.hints() == frozenset()
