"""One writer is one order on a keyed table: an old version of a row never comes back."""

from pathlib import Path
from typing import Any

import pytest

from bookkeeper.commands.discard import discard, outlook
from bookkeeper.commands.replay import replay
from bookkeeper.contract.marks import Mark, Marks, WriterMarks
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import PENDING
from bookkeeper.errors import IncarnationPruned, OutOfOrder, TxlogCorrupt
from bookkeeper.tick.plan_batch import CheckedTxlogs
from bookkeeper.tick.writer_order import WriterOrder, is_overtaken
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.keyed_rows import state
from tests.support.lake import Lake
from tests.support.plans import TWO, good, marks, name, names, planned, txlog
from tests.support.work import ComparedName, work


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return keyed_lake(tmp_path / "lake")


def later_run(lake: Lake) -> Steps:
    lake.clock.move(seconds=60)
    return Steps(lake)


def take(lake: Lake, about: TxlogName) -> bytes:
    """A txlog that is not there yet: its create is still under way."""
    data = lake.folder.store.read(f"{PENDING}{about}")
    lake.folder.delete([about])
    return data


def drain(lake: Lake) -> Any:
    """Two ticks of one bookkeeper: what its second listing shows too."""
    book = lake.book()
    lake.tick(book)
    return lake.tick(book, seconds=11)


# between incarnations


def test_an_older_run_s_txlog_that_appears_after_a_newer_one_s_is_rejected(lake: Lake) -> None:
    old = Steps(lake)
    late = old.publish_steps(Step(upserts={1: "old"}))
    data = take(lake, late)
    later_run(lake).publish_steps(Step(upserts={1: "new"}))
    drain(lake)
    lake.folder.publish(late, data)
    drain(lake)
    assert lake.rejected() == {str(late): "OutOfOrder"}
    assert state(lake) == {1: "new"}


def test_an_insert_is_not_back_after_its_delete_though_it_comes_late(lake: Lake) -> None:
    late = Steps(lake).publish_rows({1: "old"})
    data = take(lake, late)
    later_run(lake).publish_steps(Step(deletes=[1]))
    drain(lake)
    lake.folder.publish(late, data)
    drain(lake)
    assert state(lake) == {}


def test_a_newer_run_waits_while_a_txlog_of_an_older_one_cannot_be_read(lake: Lake) -> None:
    old, new = Steps(lake), later_run(lake)
    held = old.publish_steps(Step(upserts={1: "old"}))
    name_, data = new.encoded_steps(*new.files_of(Step(upserts={1: "new"})))
    path = Path(lake.root, "demo/events/_bookkeeper/pending", str(held))
    whole = path.read_bytes()
    path.write_bytes(with_version(whole, b"9"))
    lake.folder.publish(name_, data)
    drain(lake)
    assert state(lake) == {}
    assert len(lake.pending()) == 2
    path.write_bytes(whole)
    drain(lake)
    assert state(lake) == {1: "new"}
    assert lake.pending() == []


def with_version(data: bytes, version: bytes) -> bytes:
    from tests.support.txlogs import own, with_header

    return with_header(data, own(version=version))


def test_runs_that_are_pending_together_are_one_commit_in_their_order(lake: Lake) -> None:
    old = Steps(lake)
    for value in "abc":
        old.publish_steps(Step(upserts={1: value}))
    later_run(lake).publish_steps(Step(upserts={1: "new"}))
    drain(lake)
    assert lake.operations() == ["delete", "append"]
    assert state(lake) == {1: "new"}


def test_a_new_run_is_listed_twice_before_its_first_txlog_goes_in(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first listing misses the older run's txlog, as one that takes long may."""
    old = Steps(lake)
    first = old.publish_steps(Step(upserts={1: "old"}))
    later_run(lake).publish_steps(Step(upserts={1: "new"}))
    book = lake.book()
    look, calls = book.folder.look, list[int]()

    def misses() -> Any:
        found, misnamed = look()
        calls.append(len(found))
        return ([item for item in found if item.name != first] if len(calls) == 1 else found), misnamed

    monkeypatch.setattr(book.folder, "look", misses)
    lake.tick(book)
    assert len(calls) == 2
    drain(lake)
    assert lake.rejected() == {}
    assert state(lake) == {1: "new"}


def test_another_writer_does_not_wait(lake: Lake) -> None:
    broken = Steps(lake, "k1")
    held = broken.publish_steps(Step(upserts={1: "a"}))
    path = Path(lake.root, "demo/events/_bookkeeper/pending", str(held))
    path.write_bytes(with_version(path.read_bytes(), b"9"))
    Steps(lake, "k2").publish_steps(Step(upserts={2: "b"}))
    drain(lake)
    assert state(lake) == {2: "b"}


def test_a_new_run_that_only_the_second_listing_shows_waits_for_the_next_tick() -> None:
    """That listing may have missed what was there before it."""
    order = WriterOrder(Marks("f"), names(1, run=TWO), before=frozenset())
    assert planned(names(1, run=TWO), CheckedTxlogs(good(name(1, TWO)), order=order)).names == []


# rejected txlogs


def test_a_rejected_txlog_without_a_position_holds_its_writer_until_it_is_replayed(lake: Lake) -> None:
    writer = Steps(lake)
    first = writer.publish_steps(Step(upserts={1: "a"}))
    data, deletes = writer.files_of(Step(upserts={1: "b"}))
    gone = Path(deletes[0].file.path.removeprefix("file://"))
    content = gone.read_bytes()
    gone.unlink()
    second, encoded = writer.encoded_steps(data, deletes)
    lake.folder.publish(second, encoded)
    writer.publish_steps(Step(upserts={1: "c"}))
    later = later_run(lake)
    later.publish_steps(Step(upserts={1: "d"}))
    other = Steps(lake, "k2")
    other.publish_steps(Step(upserts={9: "z"}))
    book = lake.book()
    for _ in range(3):
        result = lake.tick(book, seconds=11)
    assert lake.rejected() == {str(second): "FileMissing"}
    assert state(lake) == {1: "a", 9: "z"}
    assert {item.incarnation for item in result.held} == {first.incarnation} and len(lake.pending()) == 2
    gone.write_bytes(content)
    replay(lake.folder, lake.book().ledger, lake.settings, second, lake.clock.now)
    drain(lake)
    assert state(lake) == {1: "d", 9: "z"}
    assert lake.pending() == []


def test_a_rejected_txlog_that_is_given_up_lets_its_writer_go_on(lake: Lake) -> None:
    writer = Steps(lake)
    writer.publish_steps(Step(upserts={1: "a"}))
    bad = writer.name.at(2)
    lake.put(f"{PENDING}{bad}", b"no txlog")
    writer.name = bad
    drain(lake)
    newer = later_run(lake)
    newer.publish_steps(Step(upserts={1: "c"}))
    drain(lake)
    assert (state(lake), lake.rejected()) == ({1: "a"}, {str(bad): "TxlogCorrupt"})
    ledger = lake.book().ledger
    view, given = outlook(lake.folder, ledger, bad)
    assert given.lost == (2,)
    discard(lake.folder, ledger, view, given, lake.clock.now)
    drain(lake)
    assert state(lake) == {1: "c"}
    lake.clock.move(minutes=2)
    drain(lake)
    assert lake.rejected() == {}


def test_a_source_with_positions_goes_on_after_a_reject(lake: Lake) -> None:
    writer = Steps(lake)
    writer.publish_steps(Step(upserts={1: "a"}), position=b"1")
    bad = writer.name.at(2)
    lake.put(f"{PENDING}{bad}", b"no txlog")
    drain(lake)
    again = later_run(lake)
    again.publish_steps(Step(upserts={1: "b"}), position=b"2", previous_position=b"1")
    drain(lake)
    assert state(lake) == {1: "b"}


def test_an_insert_is_not_replayed_after_a_delete(lake: Lake) -> None:
    writer = Steps(lake)
    data, deletes = writer.files_of(Step(writes={1: "a"}, upserts={2: "x"}))
    path = Path(data[0].file.path.removeprefix("file://"))
    content = path.read_bytes()
    path.unlink()
    insert, encoded = writer.encoded_steps(data, deletes, position=b"1")
    lake.folder.publish(insert, encoded)
    drain(lake)
    assert lake.rejected() == {str(insert): "FileMissing"}
    later_run(lake).publish_steps(Step(deletes=[1]), position=b"1")
    drain(lake)
    path.write_bytes(content)
    with pytest.raises(OutOfOrder):
        replay(lake.folder, lake.book().ledger, lake.settings, insert, lake.clock.now)
    lake.folder.replay(insert)  # as a person does by hand
    drain(lake)
    assert state(lake) == {}
    assert lake.rejected() == {str(insert): "OutOfOrder"}


def test_the_marks_of_the_newest_run_outlive_pruning(lake: Lake) -> None:
    old = Steps(lake)
    late = old.publish_steps(Step(upserts={1: "old"}))
    data = take(lake, late)
    later_run(lake).publish_steps(Step(upserts={1: "new"}))
    drain(lake)
    lake.clock.move(days=3)
    Steps(lake, "k2").publish_steps(Step(upserts={2: "x"}))
    drain(lake)
    lake.folder.publish(late, data)
    drain(lake)
    assert lake.rejected()[str(late)] == "OutOfOrder"
    assert state(lake)[1] == "new"


def pruned(lake: Lake) -> list[TxlogName]:
    """Two txlogs of a run that arrive after marks were pruned past their time."""
    writer = Steps(lake)
    late = [writer.publish_steps(Step(upserts={1: f"old {number}"})) for number in range(2)]
    data = {about: take(lake, about) for about in late}
    Steps(lake, "k2").publish_steps(Step(upserts={2: "x"}))
    drain(lake)
    later_run_of_k2 = later_run(lake)
    later_run_of_k2.name = replace_writer(later_run_of_k2.name, "k2")
    later_run_of_k2.publish_steps(Step(upserts={2: "y"}))
    drain(lake)
    lake.clock.move(days=3)
    later_run_of_k2.publish_steps(Step(upserts={2: "z"}))
    drain(lake)
    for about in late:
        lake.folder.publish(about, data[about])
    return late


def give_up(lake: Lake, about: TxlogName) -> None:
    ledger = lake.book().ledger
    view, given = outlook(lake.folder, ledger, about)
    discard(lake.folder, ledger, view, given, lake.clock.now)


def test_a_forced_replay_of_a_pruned_run_is_refused_and_says_what_else_to_do(lake: Lake) -> None:
    late = pruned(lake)
    drain(lake)
    assert lake.rejected() == {str(late[0]): "IncarnationPruned"}
    with pytest.raises(IncarnationPruned) as refused:
        replay(lake.folder, lake.book().ledger, lake.settings, late[0], lake.clock.now, force=True)
    for hint in (refused.value.hint, lake.folder.reason(late[0])["hint"]):
        assert "bookkeeper discard" in hint and "replay" not in hint


def test_a_writer_that_a_txlog_of_a_pruned_run_holds_goes_on_once_that_is_given_up(lake: Lake) -> None:
    late = pruned(lake)
    later = later_run(lake).publish_steps(Step(upserts={1: "new"}))
    for about in late:
        drain(lake)
        assert lake.rejected() == {str(about): "IncarnationPruned"}
        assert str(later) in lake.pending()
        give_up(lake, about)
        lake.clock.move(seconds=60)
    drain(lake)
    assert (lake.rejected(), lake.pending(), state(lake)[1]) == ({}, [], "new")


def test_what_else_is_of_a_pruned_run_that_was_given_up_in_part_stays_rejected(lake: Lake) -> None:
    """Where its writer was forgotten it is unknown whether that is in: after its mark is there again, too."""
    late = pruned(lake)
    given, other = late[0], take(lake, late[1])
    drain(lake)
    give_up(lake, given)
    lake.folder.publish(late[1], other)
    drain(lake)
    assert lake.rejected()[str(late[1])] == "IncarnationPruned"
    assert 1 not in state(lake)


def replace_writer(about: TxlogName, writer: str) -> TxlogName:
    return TxlogName(writer, about.incarnation, about.sequence)


# the rule alone


def test_what_is_overtaken() -> None:
    known = marks(one=Mark(5, (3, 5)))
    assert [is_overtaken(known, name(number)) for number in (2, 3, 4, 5, 6)] == [True, True, False, False, False]
    assert is_overtaken(marks(one=Mark(5), two=Mark(1)), name(6))
    assert not is_overtaken(marks(two=Mark(1)), name(2, TWO))
    assert not is_overtaken(Marks("f", writers={"v": WriterMarks(None, {TWO: Mark(9)})}), name(1))


def test_a_hole_is_not_filled_once_a_later_one_is_in() -> None:
    before = marks(one=Mark(5, (3,)))
    known = CheckedTxlogs(good(*names(3, 6)), order=WriterOrder(before, names(3, 6)))
    batch = planned(names(3, 6), known, before)
    assert isinstance(batch.rejected[name(3)], OutOfOrder)
    # 3 lies in rejected/ from now on, and can never come back: it holds nothing.
    again = CheckedTxlogs(good(*names(6)), order=WriterOrder(before, names(6), names(3)))
    assert planned(names(6), again, before).names == names(6)


def test_one_that_is_too_late_holds_nothing() -> None:
    order = [*names(2), name(2, TWO)]
    before = marks(one=Mark(1), two=Mark(1))
    batch = planned(order, CheckedTxlogs(good(*order), order=WriterOrder(before, order)), before)
    assert ([*batch.rejected], batch.names, batch.held) == (names(2), [name(2, TWO)], {})


def test_a_bad_one_holds_what_comes_after_it_of_any_run_of_its_writer() -> None:
    order = [*names(1, 2, 3), name(1, TWO)]
    bad = {name(2): TxlogCorrupt("cut")}
    known = CheckedTxlogs(good(*names(1, 3), name(1, TWO)), bad, order=WriterOrder(Marks("f"), order))
    batch = planned(order, known)
    assert batch.names == names(1)
    assert [*batch.held] == [name(3)]
    assert name(1, TWO).incarnation_key in batch.blocked


def test_a_later_run_that_waits_does_not_keep_a_position_from_being_refused() -> None:
    stale = txlog(name(1), position=b"9", after=b"8")
    fresh = txlog(name(1, TWO), position=b"1", after=None)
    order = [stale.name, fresh.name]
    batch = planned(order, CheckedTxlogs(good(stale, fresh), order=WriterOrder(Marks("f"), order)))
    assert [*batch.rejected] == [stale.name]
    assert batch.names == [fresh.name]


def test_four_times_the_txlogs_of_one_writer_are_four_times_the_work() -> None:
    def counted(count: int) -> int:
        order: list[TxlogName] = [ComparedName(*about) for about in names(*range(1, count + 1))]
        txlogs = good(*order)

        def planning() -> None:
            known = CheckedTxlogs(txlogs, order=WriterOrder(Marks("f"), order))
            assert planned(order, known).names == order

        return work(planning)

    few = counted(250)
    assert 3 * few < counted(1000) < 5 * few
