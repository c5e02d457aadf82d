"""A run that says it began far in the future: it is refused, and stops no other run of its writer."""

from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from bookkeeper.commands.discard import outlook
from bookkeeper.commands.replay import replay
from bookkeeper.config.units import epoch_ms
from bookkeeper.contract.marks import FUTURE_MS
from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.errors import ClockBehind, FromTheFuture, NotPossible
from bookkeeper.tick import check_txlog
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.keyed_rows import state
from tests.support.lake import Clock, Lake, Writes
from writers.writer import Writer

W = TypeVar("W", bound=Writes)

#: in ms since 1970: the year 10889, the latest that an incarnation can say
YEAR_10889 = 2**48 - 1


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return keyed_lake(tmp_path / "lake")


def run_of(writer: W, began_ms: int) -> W:
    """The same writer, as a run that says that it began then."""
    writer.name = TxlogName(writer.name.writer, new_incarnation(began_ms, bytes(10)), writer.name.sequence)
    return writer


def going_on(lake: Lake, name: TxlogName) -> Steps:
    """A run behind this txlog of it."""
    run = Steps(lake)
    run.name, run.files = name, 10 * name.sequence + 10
    return run


def allow_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule is off: a bookkeeper of version 0.1.0."""
    monkeypatch.setattr(check_txlog, "check_started", lambda *_: None)


def marked(lake: Lake, monkeypatch: pytest.MonkeyPatch, began_ms: int = YEAR_10889) -> TxlogName:
    """A table that an earlier version has let such a run into."""
    forged = run_of(Steps(lake), began_ms)
    with monkeypatch.context() as earlier:
        allow_any(earlier)
        name = forged.publish_steps(Step(upserts={1: "forged"}))
        lake.drain()
    assert state(lake) == {1: "forged"}
    return name


@pytest.mark.parametrize("ruled", [True, False], ids=["the rule", "without it"])
def test_a_run_from_the_year_10889_blocks_no_other_run_of_its_writer(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, ruled: bool
) -> None:
    if not ruled:
        allow_any(monkeypatch)
    forged = run_of(Steps(lake), YEAR_10889).publish_steps(Step(upserts={1: "forged"}))
    before = Steps(lake).publish_steps(Step(upserts={2: "before"}))
    Steps(lake, "other").publish_steps(Step(upserts={3: "other"}))
    lake.drain()
    after = Steps(lake).publish_steps(Step(upserts={1: "after"}))
    lake.drain()
    if ruled:
        assert state(lake) == {1: "after", 2: "before", 3: "other"}
        assert lake.rejected() == {str(forged): "FromTheFuture"}
    else:
        assert str(after) in lake.rejected() and str(before) not in lake.rejected()


def test_on_an_append_only_table_it_is_refused_too_and_the_others_get_in(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    forged = run_of(Writes(lake, "w1"), YEAR_10889).publish("x")
    Writes(lake, "w1").publish("a")
    Writes(lake, "w2").publish("b")
    lake.tick()
    assert (lake.keys(), lake.rejected()) == (["a", "b"], {str(forged): "FromTheFuture"})


@pytest.mark.parametrize("more", [0, 1])
def test_a_run_may_begin_an_hour_from_now_and_no_later(tmp_path: Path, more: int) -> None:
    lake = Lake(tmp_path / "lake")
    lake.clock.now = lake.clock.now.replace(microsecond=0)
    at = epoch_ms(lake.clock.now + timedelta(seconds=1)) + FUTURE_MS + more
    run_of(Writes(lake, "w1"), at).publish("a")
    lake.tick()
    assert lake.keys() == ([] if more else ["a"])


def test_a_bookkeeper_whose_clock_is_days_behind_condemns_no_run(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.clock.move(days=3)
    writer = Writes(lake, "w1")
    behind = Clock(lake.clock.now)
    behind.move(days=-2)
    writer.publish("a", created_ms=epoch_ms(behind.now))
    with pytest.raises(ClockBehind):
        lake.book(clock=behind).tick(behind.now)
    assert (lake.rejected(), len(lake.pending())) == ({}, 1)


def test_a_rejected_one_stops_no_new_run_and_can_neither_be_replayed_nor_discarded(lake: Lake) -> None:
    forged = run_of(Steps(lake), YEAR_10889).publish_steps(Step(upserts={1: "forged"}))
    with Writer.open(lake.folder, "k1", clock=lake.clock, stores=lake.store) as early:
        early.upsert([{"id": 1, "value": "beside it"}])
    lake.drain()
    assert lake.rejected() == {str(forged): "FromTheFuture"}
    ledger = lake.book().ledger
    with pytest.raises(FromTheFuture):
        replay(lake.folder, ledger, lake.settings, forged, lake.clock.now, force=True)
    with pytest.raises(FromTheFuture):  # or a mark of it would be made
        outlook(lake.folder, ledger, forged)
    with Writer.open(lake.folder, "k1", clock=lake.clock, stores=lake.store) as late:
        late.upsert([{"id": 1, "value": "later"}])
    lake.drain()
    assert state(lake) == {1: "later"}


def test_a_mark_from_the_year_10889_goes_with_forget_and_the_writer_goes_on(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = marked(lake, monkeypatch)
    with pytest.raises(NotPossible, match="10889") as refused:
        Writer.open(lake.folder, "k1", clock=lake.clock, stores=lake.store)
    assert "forget" in refused.value.hint
    view = lake.view()
    lake.book().publisher.record(view, view.marks.forgotten(["k1"], epoch_ms(lake.clock.now)), "forget k1")
    again = going_on(lake, forged.at(0)).publish_steps(Step(upserts={1: "forged again"}))
    with Writer.open(lake.folder, "k1", clock=lake.clock, stores=lake.store) as writer:
        writer.upsert([{"id": 1, "value": "mine"}])
    lake.drain()
    assert state(lake) == {1: "mine"}
    assert lake.rejected() == {str(again): "FromTheFuture"}


def test_runs_of_a_writer_whose_clock_was_years_ahead_go_on_after_the_upgrade(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions let them in, where only a rejected txlog was of that time; new runs begin behind them."""
    ahead = epoch_ms(lake.clock.now) + 5 * 366 * 86_400_000
    name = marked(lake, monkeypatch, ahead)
    going_on(lake, name).publish_steps(Step(upserts={2: "goes on"}))
    lake.drain()
    with Writer.open(lake.folder, "k1", clock=lake.clock, stores=lake.store) as writer:
        writer.upsert([{"id": 1, "value": "new"}])
    lake.drain()
    assert (state(lake), lake.rejected()) == ({1: "new", 2: "goes on"}, {})
    creeps = run_of(Steps(lake), ahead + 3 * FUTURE_MS).publish_steps(Step(upserts={1: "x"}))
    lake.drain()
    assert lake.rejected() == {str(creeps): "FromTheFuture"}
