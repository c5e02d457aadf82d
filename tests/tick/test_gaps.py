"""Gaps: a listing is no snapshot; a hole lets its txlog in exactly once, whenever it comes."""

from collections.abc import Sequence, Set
from datetime import timedelta

import pytest

from bookkeeper.commands.replay import replay
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import Folder, Found
from bookkeeper.errors import NotPossible, PositionTaken, StorageUnavailable
from bookkeeper.tick.tick import Bookkeeper
from tests.support.faults import BEFORE, Faults
from tests.support.lake import Lake, Writes


class Blind(Folder):
    """A folder whose next listings of pending/ miss some names, as a listing may that races with their writer."""

    #: the names that each of the next listings misses
    missed: Sequence[Set[TxlogName]] = ()

    def look(self) -> tuple[list[Found], list[str]]:
        found, strangers = super().look()
        missed, self.missed = (self.missed[0], self.missed[1:]) if self.missed else (frozenset[TxlogName](), ())
        return [item for item in found if item.name not in missed], strangers


def blind(lake: Lake, *missed: TxlogName, times: int = 1) -> Blind:
    folder = Blind(lake.store(lake.made.folder))
    folder.missed = [frozenset(missed)] * times
    return folder


def test_a_missing_txlog_that_is_there_by_name_is_waited_for(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    unlisted = writer.publish("b")
    writer.publish("c")
    book = Bookkeeper(lake.settings, blind(lake, unlisted), lake.book().ledger, store=lake.store)
    result = lake.tick(book)
    assert (lake.keys(), result.waiting, result.holes) == (["a"], 1, [])
    assert lake.tick(book).holes == []
    assert lake.keys() == ["a", "b", "c"]


@pytest.mark.parametrize("place", ["pending", "rejected"])
def test_a_gap_that_cannot_be_looked_up_is_no_hole(
    lake: Lake, writer: Writes, faults: Faults, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    """Trouble of the storage says nothing of what is there: only a definite answer does."""
    first = writer.publish("a")
    gap = writer.publish("b")
    writer.publish("c")
    folder = blind(lake, gap)
    folder.store = lake.faulty(faults.on(f"size folder/{place}/{gap}", BEFORE, StorageUnavailable))(folder.store.url)
    if place == "rejected":
        lake.folder.delete([gap])
    book = Bookkeeper(lake.settings, folder, lake.book().ledger, store=lake.store)
    result = lake.tick(book)
    assert (lake.keys(), result.waiting, result.holes) == (["a"], 1, [])
    assert isinstance(result.trouble, StorageUnavailable)
    assert lake.view().marks.mark(first).holes == ()
    assert "gap" not in [record.__dict__["action"] for record in caplog.records]
    faults.clear()
    lake.tick(book)
    assert lake.keys() == (["a", "b", "c"] if place == "pending" else ["a", "c"])


def test_a_missing_txlog_becomes_a_hole_with_a_warning(lake: Lake, writer: Writes, caplog: object) -> None:
    gone = writer.publish("a")
    writer.publish("b")
    lake.folder.delete([gone])
    result = lake.tick()
    assert (lake.keys(), result.holes) == (["b"], [gone])
    assert [(record.action, record.txlog) for record in caplog.records if record.levelname == "WARNING"] == [  # type: ignore[attr-defined]
        ("gap", str(gone))
    ]
    assert "back into pending/ under its own name" in next(
        record.hint for record in caplog.records if record.action == "gap"
    )  # type: ignore[attr-defined]


def test_a_gap_that_lies_in_rejected_is_a_silent_hole(lake: Lake, writer: Writes, caplog: object) -> None:
    bad = writer.publish("a", table_uuid="another")
    lake.tick()
    writer.publish("b")
    result = lake.tick()
    assert (lake.keys(), result.holes) == (["b"], [])
    assert {record.action for record in caplog.records if record.levelname == "WARNING"} == {"reject"}  # type: ignore[attr-defined]
    assert lake.view().marks.mark(bad).holes == (1,)


def test_a_txlog_that_comes_late_gets_in_through_its_hole(lake: Lake, writer: Writes) -> None:
    late, data = writer.encoded([writer.file(["a"])])
    writer.publish("b")
    lake.tick()
    lake.folder.publish(late, data)
    lake.tick()
    assert lake.keys() == ["a", "b"]
    assert lake.view().marks.mark(late).holes == ()


def test_another_bookkeeper_that_took_the_missing_one_is_seen_in_its_marks(lake: Lake, writer: Writes) -> None:
    slow, quick = lake.book(), lake.book()
    lake.tick(slow)
    writer.publish("a")
    lake.tick(quick)
    writer.publish("b")
    result = lake.tick(slow)  # its view is from before `a`
    assert (lake.keys(), result.holes) == (["a", "b"], [])
    assert lake.view().marks.mark(writer.name).holes == ()


def test_more_than_64_missing_hold_the_incarnation_loudly_and_no_other(lake: Lake, writer: Writes) -> None:
    far = writer.publish("far", sequence=66)
    Writes(lake, "w2").publish("x")
    book = lake.book()
    results = [lake.tick(book) for _ in range(2)]
    assert [result.held for result in results] == [[far], [far]]
    assert (lake.keys(), lake.pending(), lake.rejected()) == (["x"], [str(far)], {})


def test_64_missing_are_passed_over(lake: Lake, writer: Writes) -> None:
    writer.publish("far", sequence=65)
    assert len(lake.tick().holes) == 64
    assert lake.keys() == ["far"]


def test_a_held_incarnation_goes_on_when_its_missing_txlogs_come(lake: Lake, writer: Writes) -> None:
    late = [writer.encoded([writer.file([f"a{number:02}"])]) for number in range(65)]
    writer.publish("far")
    book = lake.book()
    assert len(lake.tick(book).held) == 1
    for name, data in late:
        lake.folder.publish(name, data)
    assert lake.tick(book).held == []
    assert len(lake.keys()) == 66


def test_the_sweep_takes_lost_positions_by_age_and_leaves_every_other_reject(lake: Lake) -> None:
    winner, loser = Writes(lake), Writes(lake)
    winner.goes_on(b"1", "a")
    lake.clock.move(seconds=1)
    lost = loser.goes_on(b"x", "b")
    bad = Writes(lake, "w2").publish("c", table_uuid="another")
    book = lake.book()
    lake.tick(book)
    assert lake.rejected() == {str(lost): "PositionTaken", str(bad): "WrongTable"}
    lake.tick(book, days=2)
    assert len(lake.rejected()) == 2
    lake.clock.move(days=2)
    ours, lake.clock.now = lake.clock.now, lake.clock.now - timedelta(hours=1)
    book.tick(ours)  # an hour ahead of the storage: no age is known
    assert len(lake.rejected()) == 2
    lake.clock.now = ours
    lake.tick(book, minutes=2)
    assert list(lake.rejected()) == [str(bad)]
    with pytest.raises((PositionTaken, NotPossible)):
        replay(lake.folder, lake.book().ledger, lake.settings, lost, lake.clock.now)


# what a crash leaves


def test_unfinished_local_writes_are_swept_by_age_and_young_ones_are_left_alone(lake: Lake, writer: Writes) -> None:
    for key in ("pending/old.avro.0123.tmp", "card.json.0123.tmp", "rejected/old.0123.tmp"):
        lake.put(key, b"half")
    lake.clock.move(days=4)
    lake.put("pending/young.avro.4567.tmp", b"half")
    name = writer.publish("a")
    lake.tick()
    left = [item.key for item in lake.store(lake.made.folder).list("") if item.key.endswith(".tmp")]
    assert left == ["pending/young.avro.4567.tmp"]
    assert (lake.keys(), name.sequence) == (["a"], 1)
