"""Slots: offsets of many channels in one txlog, across runs, crashes, rejects and bookkeepers that know none."""

import pickle
from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.contract import marks as marks_format
from bookkeeper.contract.marks_json import MarksCopy
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.offsets import FORGOTTEN, MOST_IN_TXLOG
from bookkeeper.errors import Fenced, NotPossible, StorageUnavailable, TxlogCorrupt
from bookkeeper.stores.open import open_store
from tests.support.desk import Desk, Ledger, Tampered, only, rows
from writers import Writer
from writers.runtime import Runtime

KNOWN, OF_TODAY = (1, 2, 3), (1, 2, 3, 4)
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _knows_offsets(desk: Desk) -> None:
    desk.set_card(txlog_versions=KNOWN)


def published(desk: Desk, *keys: str, **offsets: str) -> TxlogName:
    """One run of the slot w1."""
    with desk.writer() as writer:
        writer.write(rows(*keys), offsets=offsets)
        name = writer.publish()
    assert name is not None
    return name


def test_offsets_of_all_writes_are_in_one_txlog_with_a_position_of_its_own(desk: Desk) -> None:
    with desk.writer() as writer:
        assert (writer.offsets, writer.position) == ({}, None)
        writer.write(rows("a"), offsets={"p0": "7", "p1": "3"})
        writer.write(rows("b"), offsets={"p1": "4"})
        assert writer.offsets == {}
        one = writer.publish()
        assert writer.offsets == {"p0": "7", "p1": "4"}
        writer.write(rows("c"), offsets={"p2": "1"})
        two = writer.publish()
        assert writer.offsets == {"p0": "7", "p1": "4", "p2": "1"}
    assert one is not None and two is not None
    reached = [f"{name.incarnation}.{name.sequence:010d}".encode() for name in (one, two)]
    assert [(item.previous_position, item.position) for item in desk.txlogs()] == [
        (None, reached[0]),
        (reached[0], reached[1]),
    ]
    assert [dict(item.offsets) for item in desk.txlogs()] == [{"p0": "7", "p1": "4"}, {"p2": "1"}]


def test_a_writer_without_offsets_writes_what_it_always_wrote(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        name = writer.publish(position=b"1")
    assert b"bookkeeper.version\x021" in desk.folder.store.read(f"pending/{name}")


def test_what_is_left_is_published_at_the_end_with_its_offsets(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"), offsets={"p0": "7"})
        writer.publish()
        writer.write(rows("b"), offsets={"p0": "8"})
    assert [dict(item.offsets) for item in desk.txlogs()] == [{"p0": "7"}, {"p0": "8"}]


# where a slot goes on


def test_a_slot_that_is_opened_goes_on_behind_pending_and_committed_txlogs(desk: Desk) -> None:
    ledger = Ledger(desk)
    published(desk, "a", p0="7", p1="1")
    ledger.tick()
    published(desk, "b", p0="8")
    published(desk, "c", p2="1")
    writer = desk.writer()
    assert writer.offsets == {"p0": "8", "p1": "1", "p2": "1"}
    assert writer.committed_offsets() == {"p0": "7", "p1": "1"}
    ledger.tick()
    assert writer.committed_offsets() == writer.offsets == desk.writer().offsets
    assert desk.writer("other").offsets == {}


def test_offsets_are_read_from_pending_first_and_from_the_marks_second(desk: Desk) -> None:
    """In the other order a txlog that is committed and deleted in between is in neither."""
    ledger = Ledger(desk)
    published(desk, "a", p0="7")

    def commit_after_the_listing(operation: str, key: str) -> None:
        if operation == "list":
            ledger.tick()

    desk.stores = lambda url: Tampered(open_store(url), after=commit_after_the_listing)
    assert desk.writer().offsets == {"p0": "7"}


def test_a_rejected_txlog_and_what_hangs_on_it_says_no_offsets(desk: Desk) -> None:
    ledger = Ledger(desk)
    published(desk, "a", p0="7")
    ledger.tick()
    bad = published(desk, "b", p0="8", p1="1")
    published(desk, "c", p0="9")
    desk.folder.reject(bad, TxlogCorrupt("bad luck"), desk.clock())
    assert desk.writer().offsets == {"p0": "7"}  # the last one is pending, and continues from nowhere
    ledger.tick()
    assert (desk.writer().offsets, ledger.keys()) == ({"p0": "7"}, ["a"])


def test_a_pending_txlog_that_is_in_already_does_not_set_offsets_back(desk: Desk) -> None:
    ledger = Ledger(desk)
    name = published(desk, "a", p0="7")
    data = desk.folder.store.read(f"pending/{name}")
    ledger.tick()
    published(desk, "b", p0="8")
    ledger.tick()
    desk.folder.publish(name, data)
    assert desk.writer().offsets == {"p0": "8"}


def test_marks_of_another_table_say_no_offsets(desk: Desk) -> None:
    ledger = Ledger(desk)
    published(desk, "a", p0="7")
    ledger.tick()
    copy = desk.folder.marks()
    assert copy is not None
    desk.folder.store.delete_many(["marks.json"])
    desk.folder.publish_marks(MarksCopy("another", copy.sequence_number, copy.marks))
    assert (desk.writer().offsets, desk.writer().committed_offsets()) == ({}, {})


def test_of_two_runs_that_fork_all_of_one_is_rejected_and_its_offsets_with_it(desk: Desk) -> None:
    """It publishes twice before it learns of the other: were positions counted, its second txlog would fit."""
    ledger = Ledger(desk)
    first, second = desk.writer(), desk.writer()
    first.write(rows("first 1"), offsets={"p0": "1"})
    first.publish()
    for count in "12":
        second.write(rows(f"second {count}"), offsets={"p0": f"x{count}", f"q{count}": "1"})
        second.publish()
    ledger.tick()
    assert ledger.keys() == ["first 1"]
    assert desk.writer().offsets == {"p0": "1"}
    desk.clock.move(seconds=2)
    second.write(rows("more"), offsets={"p0": "x3"})
    with pytest.raises(Fenced) as fenced:
        second.publish()
    assert fenced.value.rejected == "PositionTaken"


def test_fenced_says_for_what_the_first_txlog_was_rejected(desk: Desk) -> None:
    """Behind any reject but PositionTaken a slot publishes channel by channel, so that one stops alone."""
    writer = desk.writer()
    for count in "123":
        writer.write(rows(count), offsets={f"p{count}": count})
        writer.publish()
    desk.folder.reject(desk.txlogs()[1].name, TxlogCorrupt("bad luck"), desk.clock())
    Ledger(desk).tick()
    desk.clock.move(seconds=2)
    writer.write(rows("4"), offsets={"p0": "4"})
    with pytest.raises(Fenced, match="bad luck") as fenced:
        writer.publish()
    assert (fenced.value.rejected, fenced.value.channels) == ("TxlogCorrupt", {"p2"})


# offsets over nothing


def test_offsets_without_rows_wait_for_rows(desk: Desk) -> None:
    with desk.writer() as writer:
        assert writer.publish(offsets={"p0": "7"}) is None
        assert (writer.offsets, writer.due()) == ({}, False)
        writer.write(rows("a"), offsets={"p1": "1"})
        writer.publish()
    assert dict(only(desk.txlogs()).offsets) == {"p0": "7", "p1": "1"}


def test_offsets_without_rows_are_published_alone_once_an_hour_at_most(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"), offsets={"p0": "7"})
        writer.publish()
        for count in range(1, 13):
            desk.clock.move(minutes=10)
            name = writer.publish(offsets={"p0": str(7 + count)})
            assert (name is not None) == (count in (6, 12)), count
        assert writer.publish(offsets={"p0": "20"}) is None
    assert [(len(item.rows), dict(item.offsets)) for item in desk.txlogs()] == [
        (1, {"p0": "7"}),
        (0, {"p0": "13"}),
        (0, {"p0": "19"}),
    ]


def test_it_is_time_to_publish_offsets_that_have_waited_for_an_hour(desk: Desk) -> None:
    with desk.writer() as writer:
        desk.clock.move(hours=2)
        assert not writer.due()
        writer.publish(offsets={"p0": "7"})  # nothing was published for an hour
        assert len(desk.txlogs()) == 1
        writer.publish(offsets={"p0": "8"})
        assert not writer.due()
        desk.clock.move(hours=1)
        assert writer.due()
        writer.publish()
    assert [dict(item.offsets) for item in desk.txlogs()] == [{"p0": "7"}, {"p0": "8"}]


def test_offsets_that_still_wait_at_the_end_are_left_to_the_next_run(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.publish(offsets={"p0": "7"})
    assert (desk.txlogs(), desk.writer().offsets) == ([], {})


# what is refused, and that nothing was taken


def test_offsets_are_refused_before_rows_are_taken_where_the_card_does_not_name_version_3(desk: Desk) -> None:
    desk.set_card()  # as a bookkeeper of the last release writes it
    writer = desk.writer()
    with pytest.raises(NotPossible, match="knows no txlogs with offsets") as refused:
        writer.write(rows("a"), offsets={"p0": "7"})
    assert "Upgrade" in refused.value.hint and writer.unpublished_rows == 0
    writer.write(rows("b"))
    writer.publish()
    assert desk.keys() == ["b"]
    desk.set_card(txlog_versions=KNOWN)
    writer.write(rows("c"), offsets={"p0": "7"})
    writer.publish()
    assert [dict(item.offsets) for item in desk.txlogs()] == [{}, {"p0": "7"}]


def test_a_bookkeeper_that_was_set_back_gets_no_offsets_and_the_rows_are_kept(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"), offsets={"p0": "7"})
        desk.set_card()
        with pytest.raises(NotPossible, match="knows no txlogs with offsets"):
            writer.publish()
        assert (writer.unpublished_rows, desk.txlogs()) == (1, [])
        desk.set_card(txlog_versions=KNOWN)
        writer.publish()
    assert (desk.keys(), dict(only(desk.txlogs()).offsets)) == (["a"], {"p0": "7"})


def test_offsets_out_of_bounds_are_refused_before_rows_are_taken(desk: Desk) -> None:
    writer = desk.writer()
    for offsets in ({"p 0": "7"}, {"p0": "7 "}, {"p0": 7}, {"p" * 201: "7"}):
        with pytest.raises(ValueError, match="expected"):
            writer.write(rows("a"), offsets=offsets)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="expected"):
            writer.publish(offsets=offsets)  # type: ignore[arg-type]
    assert writer.unpublished_rows == 0
    writer.write(rows("b"), offsets={"p0": "7"})
    writer.publish()
    assert dict(only(desk.txlogs()).offsets) == {"p0": "7"}


def test_a_run_with_offsets_takes_no_position_and_no_rows_without(desk: Desk) -> None:
    writer = desk.writer()
    with pytest.raises(ValueError, match="offsets or a position"):
        writer.write(rows("a"), position=b"1", offsets={"p0": "7"})
    writer.write(rows("a"))
    with pytest.raises(NotPossible, match="1 unpublished rows were written without offsets"):
        writer.write(rows("b"), offsets={"p0": "7"})
    writer.publish()
    writer.write(rows("b"), offsets={"p0": "7"})
    with pytest.raises(ValueError, match="offsets or a position"):
        writer.publish(position=b"1")
    with pytest.raises(NotPossible, match="come without"):
        writer.write(rows("c"))
    writer.publish()
    assert desk.keys() == ["a", "b"]


def test_rows_with_an_offset_that_follows_are_not_published_without_it(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"), offsets={})
        writer.write(rows("b"), offsets={"p0": "7"})
        writer.publish()
        writer.write(rows("c"), offsets={})
        with pytest.raises(NotPossible, match="came without an offset"):
            writer.publish()
        writer.publish(offsets={"p0": "8"})
        writer.write(rows("d"), offsets={})
    assert desk.keys() == ["a", "b", "c"]  # the source still has the last one
    assert desk.writer().offsets == {"p0": "8"}


def test_a_channel_is_forgotten_only_where_the_card_names_version_4(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"), offsets={"p0": "7", "p1": "1"})
        assert not writer.may_forget
        with pytest.raises(NotPossible, match=r"knows no txlogs that forget channels \(version 4\)") as refused:
            writer.write(rows("b"), offsets={"p0": FORGOTTEN})
        assert "Upgrade" in refused.value.hint
        desk.set_card(txlog_versions=OF_TODAY)
        writer.publish()
        assert writer.may_forget
        writer.publish(offsets={"p0": FORGOTTEN}, alone=True)
        assert writer.offsets == {"p1": "1"}
    with desk.writer() as writer:  # as the chain of pending txlogs says
        assert writer.offsets == {"p1": "1"}
        writer.write(rows("c"), offsets={"p0": "1"})
        writer.publish()
    assert [dict(item.offsets) for item in desk.txlogs()] == [{"p0": "7", "p1": "1"}, {"p0": FORGOTTEN}, {"p0": "1"}]


def test_a_rejected_txlog_puts_no_channel_under_suspicion_that_it_only_forgets(desk: Desk) -> None:
    desk.set_card(txlog_versions=OF_TODAY)
    ledger = Ledger(desk)
    with desk.writer() as writer:
        writer.write(rows("a"), offsets={"p0": "7", "p1": "1"})
        writer.publish()
        ledger.tick()
        writer.write(rows("b"), offsets={"p0": FORGOTTEN, "p1": "2"})
        name = writer.publish()
        assert name is not None
        desk.folder.reject(name, TxlogCorrupt("bad luck"), desk.clock())
        desk.clock.move(seconds=2)
        with pytest.raises(Fenced) as fenced:
            writer.look()
        assert fenced.value.channels == {"p1"}


def test_a_txlog_has_room_for_a_thousand_channels(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"), offsets={f"p{number}": "1" for number in range(MOST_IN_TXLOG)})
        with pytest.raises(NotPossible, match="at most 1000 channels"):
            writer.write(rows("b"), offsets={"one-more": "1"})
        writer.write(rows("c"), offsets={"p0": "2"})
        writer.publish()
        writer.write(rows("b"), offsets={"one-more": "1"})
    assert [len(item.offsets) for item in desk.txlogs()] == [1000, 1]


def test_channels_past_the_room_of_the_table_are_refused_before_rows_are_taken(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks_format, "MOST_CHANNELS", 4)
    ledger = Ledger(desk)
    other = desk.writer("other")
    other.write(rows("x"), offsets={"q0": "1", "q1": "1"})
    other.publish()
    ledger.tick()
    with desk.writer() as writer:
        writer.write(rows("a"), offsets={"p0": "1", "p1": "1"})
        with pytest.raises(NotPossible, match="offsets of 5 channels, it has room for 4") as refused:
            writer.write(rows("b"), offsets={"p2": "1"})
        assert "forget WRITER --channel" in refused.value.hint
        writer.write(rows("c"), offsets={"p0": "2"})
    ledger.tick()
    assert ledger.keys() == ["a", "c", "x"]


def test_the_room_is_asked_for_only_where_channels_are_new(local: Desk) -> None:
    asked: list[str] = []

    def note(operation: str, key: str) -> None:
        if "marks.json" in key:
            asked.append(operation)

    local.set_card(txlog_versions=KNOWN)
    local.stores = lambda url: Tampered(open_store(url), before=note)
    writer = local.writer()
    asked.clear()
    for count in range(5):
        writer.write(rows(str(count)), offsets={"p0": str(count)})
    assert len(asked) == 1


def test_a_storage_that_does_not_answer_takes_no_rows(desk: Desk) -> None:
    def unreadable(operation: str, key: str) -> None:
        if "marks.json" in key and broken:
            raise StorageUnavailable("503")

    broken: list[int] = []
    desk.stores = lambda url: Tampered(open_store(url), before=unreadable)
    writer = desk.writer()
    broken.append(1)
    with pytest.raises(StorageUnavailable):
        writer.write(rows("a"), offsets={"p0": "7"})
    broken.clear()
    assert writer.unpublished_rows == 0
    writer.write(rows("a"), offsets={"p0": "7"})
    writer.publish()
    assert desk.keys() == ["a"]


# tasks


def test_offsets_of_what_tasks_wrote_come_with_it_also_where_the_run_is_handed_over(desk: Desk) -> None:
    writer = desk.writer()
    writer.write(rows("a"), offsets={"p0": "7"})
    writer.publish()
    task = writer.task()
    with task.open(clock=desk.clock, wait=desk.clock.wait, stores=desk.stores) as files:
        files.write(rows("b"))
    handed = pickle.loads(pickle.dumps(writer.hand_over()))
    folder = f"{desk.root}/_bookkeeper"
    second = Writer.taking_over(folder, handed, Runtime(desk.stores, desk.clock, desk.clock.wait))
    assert second.offsets == {"p0": "7"}
    with pytest.raises(ValueError, match="expected"):
        second.take([files.result], offsets={"p 1": "1"})
    second.take([files.result], offsets={"p1": "1"})
    second.publish()
    assert [(dict(item.offsets), item.previous_position) for item in desk.txlogs()] == [
        ({"p0": "7"}, None),
        ({"p1": "1"}, desk.txlogs()[0].position),
    ]
    assert desk.writer().offsets == {"p0": "7", "p1": "1"}


def test_a_publish_that_failed_is_done_again_with_all_offsets(desk: Desk, tmp_path: Path) -> None:
    broken = [1]

    def unreadable(operation: str, key: str) -> None:
        if broken and operation == "upload":
            raise StorageUnavailable("503")

    desk.stores = lambda url: Tampered(open_store(url), before=unreadable)
    with desk.writer() as writer:
        writer.write(rows("a"), offsets={"p0": "7"})
        with pytest.raises(StorageUnavailable):
            writer.publish(offsets={"p1": "1"})
        broken.clear()
        writer.publish()
    assert dict(only(desk.txlogs()).offsets) == {"p0": "7", "p1": "1"}
