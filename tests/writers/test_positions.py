"""Positions: the chain a source's rows hang on, across runs, crashes and rejects."""

import logging
from dataclasses import replace

import pytest

from bookkeeper.contract.marks import WriterMarks
from bookkeeper.contract.marks_json import MarksCopy
from bookkeeper.contract.names import TxlogName
from bookkeeper.errors import Fenced, StorageUnavailable, TxlogCorrupt
from bookkeeper.stores.open import open_store
from tests.support.desk import Desk, Ledger, Tampered, only, rows
from writers.timing import millis


def _publish(desk: Desk, key: str, position: bytes, name: str = "w1") -> TxlogName:
    with desk.writer(name) as writer:
        writer.write(rows(key))
        published = writer.publish(position=position)
    assert published is not None
    return published


def test_every_txlog_with_a_position_says_which_one_it_continues(desk: Desk) -> None:
    with desk.writer() as writer:
        assert writer.position is None
        for position in (b"1", b"2"):
            writer.write(rows("r" + position.decode()))
            writer.publish(position=position)
            assert writer.position == position
    assert [(item.previous_position, item.position) for item in desk.txlogs()] == [(None, b"1"), (b"1", b"2")]


def test_a_txlog_without_a_position_leaves_the_chain_alone(desk: Desk) -> None:
    with desk.writer() as writer:
        for position in (b"1", None, b"2"):
            writer.write(rows("r"))
            writer.publish(position=position)
    assert [(item.previous_position, item.position) for item in desk.txlogs()] == [
        (None, b"1"),
        (None, None),
        (b"1", b"2"),
    ]


def test_the_position_given_with_the_rows_is_published_with_them(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"), position=b"1")
        writer.write(rows("b"), position=b"2")
        writer.publish()
        writer.write(rows("c"), position=b"3")
    assert [item.position for item in desk.txlogs()] == [b"2", b"3"]


def test_rows_behind_the_last_position_are_left_to_the_next_run(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        writer.publish(position=b"1")
        writer.write(rows("b"))
    assert desk.keys() == ["a"]
    assert ("leave", logging.WARNING) in {(record.action, record.levelno) for record in caplog.records}


def test_a_position_does_not_move_without_rows(desk: Desk) -> None:
    with desk.writer() as writer:
        assert writer.publish(position=b"1") is None
        assert writer.position is None


def test_a_position_that_is_too_long_is_refused_before_anything_is_sent(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        with pytest.raises(ValueError, match="1025 bytes"):
            writer.publish(position=b"x" * 1025)
        writer.publish(position=b"1")
    assert only(desk.txlogs()).position == b"1"


def test_a_new_run_continues_behind_what_is_pending(desk: Desk) -> None:
    _publish(desk, "a", b"1")
    _publish(desk, "b", b"2")
    assert desk.writer().position == b"2"
    assert desk.writer("other").position is None


def test_a_new_run_continues_behind_what_is_committed(desk: Desk) -> None:
    ledger = Ledger(desk)
    _publish(desk, "a", b"1")
    ledger.tick()
    assert desk.txlogs() == []
    assert desk.writer().position == b"1"
    _publish(desk, "b", b"2")
    ledger.tick()
    assert ledger.keys() == ["a", "b"]


def test_pending_txlogs_that_are_in_already_do_not_count(desk: Desk) -> None:
    ledger = Ledger(desk)
    name = _publish(desk, "a", b"1")
    data = desk.folder.store.read(f"pending/{name}")
    ledger.tick()
    _publish(desk, "b", b"2")
    ledger.tick()
    desk.folder.publish(name, data)
    assert desk.writer().position == b"2"


def test_a_source_that_goes_back_does_not_lead_the_chain_in_circles(desk: Desk) -> None:
    ledger = Ledger(desk)
    _publish(desk, "a", b"1")
    name = _publish(desk, "b", b"2")
    data = desk.folder.store.read(f"pending/{name}")
    _publish(desk, "a again", b"1")
    assert desk.writer().position == b"1"
    ledger.tick()
    desk.folder.publish(name, data)  # it is in, though its name came back
    assert desk.writer().position == b"1"


def test_a_stale_marks_copy_is_made_up_for_by_what_is_still_pending(desk: Desk) -> None:
    ledger = Ledger(desk)
    _publish(desk, "a", b"1")
    ledger.tick()
    _publish(desk, "b", b"2")
    ledger.marks = ledger.marks.advanced([desk.txlogs()[0].name], {"w1": b"2"}, 1)  # committed, copy not yet made
    assert desk.writer().position == b"2"


def test_marks_of_another_table_do_not_count(desk: Desk) -> None:
    ledger = Ledger(desk)
    _publish(desk, "a", b"1")
    ledger.tick()
    copy = desk.folder.marks()
    assert copy is not None
    desk.folder.store.delete_many(["marks.json"])
    desk.folder.publish_marks(MarksCopy("another", copy.sequence_number, copy.marks))
    assert desk.writer().position is None


def test_a_commit_between_listing_and_reading_is_seen_in_the_marks(desk: Desk) -> None:
    ledger = Ledger(desk)
    _publish(desk, "a", b"1")

    def commit_after_the_listing(operation: str, key: str) -> None:
        if operation == "list":
            ledger.tick()

    desk.stores = lambda url: Tampered(open_store(url), after=commit_after_the_listing)
    assert desk.writer().position == b"1"


def test_a_pending_txlog_that_cannot_be_read_now_keeps_the_writer_from_starting(desk: Desk) -> None:
    _publish(desk, "a", b"1")

    def unreadable(operation: str, key: str) -> None:
        if operation == "read_many":
            raise StorageUnavailable("503")

    desk.stores = lambda url: Tampered(open_store(url), before=unreadable)
    with pytest.raises(StorageUnavailable):
        desk.writer()


def test_a_pending_txlog_that_is_no_txlog_is_passed_over(desk: Desk) -> None:
    name = _publish(desk, "a", b"1")
    desk.folder.publish(name.at(2), b"not avro")
    assert desk.writer().position == b"1"


def test_of_two_runs_that_fork_the_chain_one_is_fenced_and_its_rows_come_again(desk: Desk) -> None:
    ledger = Ledger(desk)
    first, second = desk.writer(), desk.writer()
    first.write(rows("1-by-first"))
    first.publish(position=b"1")
    second.write(rows("1-by-second"))
    second.publish(position=b"1")
    ledger.tick()
    desk.clock.move(seconds=2)
    second.write(rows("2-by-second"))
    with pytest.raises(Fenced, match="was rejected"):
        second.publish(position=b"2")
    first.write(rows("2-by-first"))
    first.publish(position=b"2")
    ledger.tick()
    assert ledger.keys() == ["1-by-first", "2-by-first"]
    assert desk.writer().position == b"2"


def test_a_reject_in_the_middle_of_a_chain_fences_the_run(desk: Desk) -> None:
    ledger = Ledger(desk)
    writer = desk.writer()
    for position in (b"1", b"2", b"3"):
        writer.write(rows(position.decode()))
        writer.publish(position=position)
    desk.folder.reject(desk.txlogs()[1].name, TxlogCorrupt("bad luck"), desk.clock())
    ledger.tick()
    desk.clock.move(seconds=2)
    writer.write(rows("4"))
    with pytest.raises(Fenced, match="bad luck"):
        writer.publish(position=b"4")
    assert ledger.keys() == ["1"]
    assert desk.writer().position == b"1"


def test_committed_txlogs_are_no_reason_to_fence(desk: Desk) -> None:
    ledger = Ledger(desk)
    writer = desk.writer()
    for number in range(4):
        writer.write(rows(str(number)))
        writer.publish(position=str(number).encode())
        ledger.tick()
        desk.clock.move(seconds=2)
    assert ledger.keys() == ["0", "1", "2", "3"]
    assert len(writer._monitor._own) <= 1, "what is in is followed no longer"


@pytest.mark.parametrize("at_end", [True, False])
def test_a_txlog_whose_mark_was_pruned_before_its_run_looked_is_in(desk: Desk, at_end: bool) -> None:
    """A run that was idle for a day would else wait for it for ever; where the table is elsewhere it waits."""
    ledger, writer = Ledger(desk), desk.writer()
    writer.write(rows("a"), position=b"1")
    writer.publish()
    [item] = desk.txlogs()
    ledger.tick()
    desk.clock.move(days=2)
    marks = {"w1": WriterMarks(b"1" if at_end else b"0")}
    ledger.marks = replace(ledger.marks, writers=marks, pruned_before_ms=millis(desk.clock()) - 10**8)
    ledger.files.append(ledger.files[0])  # a later commit
    ledger._publish_marks(item)
    writer.look()
    assert writer.all_committed == at_end
    writer.write(rows("b"), position=b"2")
    writer.publish()
    ledger._reject(desk.txlogs()[0])
    desk.clock.move(seconds=2)
    with pytest.raises(Fenced, match="was rejected"):
        writer.look()
