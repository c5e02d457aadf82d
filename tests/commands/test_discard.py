"""Discard: what is nowhere is given up by a commit, and nothing that exists ever is."""

from pathlib import Path

import pytest

from bookkeeper.commands.discard import Discard, discard, outlook
from bookkeeper.contract.names import TxlogName
from bookkeeper.errors import CommitConflict, NotPossible
from bookkeeper.ledger.view import View
from tests.support.enumerated import crash_points, crashed, recorded
from tests.support.faults import Faults, FaultyStore
from tests.support.lake import Lake, Writes


def planned(lake: Lake, run: TxlogName, up_to: int) -> tuple[View, Discard]:
    return outlook(lake.folder, lake.book().ledger, run.at(up_to))


def give_up(lake: Lake, run: TxlogName, up_to: int) -> Discard:
    view, given = planned(lake, run, up_to)
    discard(lake.folder, lake.book().ledger, view, given, lake.clock.now)
    return given


def test_a_run_held_for_too_many_missing_txlogs_goes_on(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    far = writer.publish("far", sequence=70)
    assert lake.tick().held == [far]
    given = give_up(lake, far, 69)
    assert (given.lost, given.mark) == (tuple(range(2, 70)), 1)
    lake.tick()
    writer.publish("further")
    lake.tick()
    assert (lake.keys(), lake.pending()) == (["a", "far", "further"], [])
    assert lake.view().marks.mark(far).holes == ()  # type: ignore[union-attr]


def test_an_unknown_run_goes_on_too(lake: Lake, writer: Writes) -> None:
    far = writer.publish("far", sequence=100)
    lake.tick()
    give_up(lake, far, 99)
    lake.tick()
    assert lake.keys() == ["far"]


def test_a_given_up_txlog_that_turns_up_stays_out_and_leaves_pending(lake: Lake, writer: Writes) -> None:
    late, data = writer.encoded([writer.file(["late"])])
    far = writer.publish("far", sequence=70)
    give_up(lake, far, 69)
    lake.folder.publish(late, data)
    lake.tick()
    assert (lake.keys(), lake.pending()) == (["far"], [])


def test_what_lies_in_rejected_stays_a_hole_and_can_be_replayed(lake: Lake, writer: Writes) -> None:
    name, data = writer.encoded([writer.file(["a"])], created_ms=int(lake.clock.now.timestamp() * 1000) + 2 * 3_600_000)
    lake.folder.publish(name, data)
    lake.tick()
    far = writer.publish("far", sequence=70)
    assert give_up(lake, far, 69).holes == (1,)
    lake.tick()
    lake.clock.move(hours=3)
    lake.folder.replay(name)
    lake.tick()
    assert lake.keys() == ["a", "far"]


def test_holes_that_piled_up_are_closed_and_later_ones_stay(lake: Lake, writer: Writes) -> None:
    for number in range(3):
        lake.folder.delete([writer.publish(f"gone{number}")])
        writer.publish(f"a{number}")
    lake.tick()
    assert lake.view().marks.mark(writer.name).holes == (1, 3, 5)  # type: ignore[union-attr]
    give_up(lake, writer.name, 4)
    assert lake.view().marks.mark(writer.name).holes == (5,)  # type: ignore[union-attr]
    assert lake.view().marks.mark(writer.name).last == 6  # type: ignore[union-attr]


@pytest.mark.parametrize("up_to", [70, 71, 200])
def test_a_pending_txlog_is_never_given_up(lake: Lake, writer: Writes, up_to: int) -> None:
    far = writer.publish("far", sequence=70)
    with pytest.raises(NotPossible, match="70") as refused:
        planned(lake, far, up_to)
    assert "69" in refused.value.hint


def test_where_nothing_is_missing_or_everything_is_rejected_it_is_refused(lake: Lake, writer: Writes) -> None:
    bad = writer.publish("x", table_uuid="another")
    writer.publish("a")
    lake.tick()
    with pytest.raises(NotPossible, match="rejected"):
        planned(lake, bad, 2)
    with pytest.raises(NotPossible, match="misses nothing"):
        planned(lake, Writes(lake, "w2").publish("b"), 0)


def test_a_run_whose_mark_was_pruned_is_refused(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    Writes(lake, "w2").publish("b")
    lake.tick(days=3)
    with pytest.raises(NotPossible, match="pruned"):
        planned(lake, writer.name, 50)


def test_a_commit_in_between_makes_it_look_again(lake: Lake, writer: Writes) -> None:
    far = writer.publish("far", sequence=70)
    view, given = planned(lake, far, 69)
    Writes(lake, "w2").publish("b")
    lake.tick()
    with pytest.raises(CommitConflict):
        discard(lake.folder, lake.book().ledger, view, given, lake.clock.now)
    assert lake.view().marks.mark(far) is None


def test_a_crash_at_any_operation_leaves_it_done_or_not_and_loses_nothing_else(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    far = Writes(lake).publish("far", sequence=70)
    saved = lake.saved()

    def act(faults: Faults) -> None:
        folder = type(lake.folder)(FaultyStore(lake.store(lake.made.folder), faults, "folder"))  # type: ignore[arg-type]
        ledger = lake.book(faults).ledger
        view, given = outlook(folder, ledger, far.at(69))
        discard(folder, ledger, view, given, lake.clock.now)

    for point in list(crash_points(recorded(act))):
        saved.restore()
        assert crashed(act, point), str(point)
        lake.tick(seconds=1)
        if not lake.keys():
            give_up(lake, far, 69)
        lake.drain()
        assert (lake.keys(), lake.pending()) == (["far"], []), str(point)
