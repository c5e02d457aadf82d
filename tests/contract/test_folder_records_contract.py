"""What the txlog folder guarantees on every backend: marks.json and card.json."""

import json
from functools import partial
from typing import Any

import pytest

from bookkeeper.contract.marks import Mark, Marks, WriterMarks
from bookkeeper.contract.marks_json import MarksCopy
from bookkeeper.contract.txlog_folder import MARKS, Folder
from bookkeeper.errors import Missing, StorageUnavailable, WrongFolder
from bookkeeper.stores.store import ObjectVersion, Store
from tests.support.cards import card
from tests.support.crashing_store import POINTS, CrashingStore, survived
from tests.support.stores import Opener, rounds
from tests.support.threads import at_once


def copy(sequence: int, table: str = "t1", last: int = 0, folder: str = "f1") -> MarksCopy:
    writers = {"w1": WriterMarks(b"\x00\xff", {"i": Mark(last or sequence, (), 5)})}
    return MarksCopy(table, sequence, Marks(folder, 1, 0, writers))


def test_there_are_no_marks_before_the_first_commit(folder: Folder) -> None:
    assert folder.marks() is None


def test_published_marks_are_read_back(folder: Folder) -> None:
    assert folder.publish_marks(copy(1))
    assert folder.marks() == copy(1)


def test_marks_are_one_line_of_json(store: Store) -> None:
    # An indent takes Python's own encoder, five times as long: at 1,000 writers 6 ms of each commit.
    Folder(store).publish_marks(copy(1))
    data = store.read(MARKS)
    assert data.count(b"\n") == 1
    assert json.loads(data)["sequence-number"] == 1


def test_newer_marks_replace_older_ones(folder: Folder) -> None:
    folder.publish_marks(copy(1))
    assert folder.publish_marks(copy(2))
    assert folder.marks() == copy(2)


def test_marks_are_never_replaced_by_older_ones(folder: Folder) -> None:
    folder.publish_marks(copy(2))
    assert not folder.publish_marks(copy(1))
    assert folder.marks() == copy(2)


def test_the_same_marks_are_not_written_again(store: Store) -> None:
    Folder(store).publish_marks(copy(1))
    counting = CrashingStore(store)
    assert not Folder(counting).publish_marks(copy(1))
    assert "replace" not in counting.calls


def test_marks_that_follow_those_that_were_written_here_are_one_conditional_put(store: Store) -> None:
    counting = CrashingStore(store)
    folder = Folder(counting)
    assert folder.publish_marks(copy(1))
    counting.calls.clear()
    for number in range(2, 5):
        assert folder.publish_marks(copy(number))
    assert counting.calls == ["replace"] * 3
    assert Folder(store).marks() == copy(4)


@pytest.mark.parametrize(
    ("there", "after"),
    [(copy(2), copy(5)), (copy(5), copy(5)), (copy(9), copy(9)), (copy(9, table="another"), copy(5)), (None, copy(5))],
    ids=["older", "the same", "newer", "another table's", "gone"],
)
def test_marks_that_changed_since_they_were_written_here_are_read_and_compared(
    store: Store, there: MarksCopy | None, after: MarksCopy
) -> None:
    folder = Folder(store)
    folder.publish_marks(copy(4))
    store.delete_many(["marks.json"])
    if there is not None:
        Folder(store).publish_marks(there)
    assert folder.publish_marks(copy(5)) == (there != after)
    assert Folder(store).marks() == folder.marks() == after
    assert folder.publish_marks(copy(10))
    assert Folder(store).marks() == copy(10)


def test_marks_whose_reply_was_lost_are_found_to_be_written(store: Store) -> None:
    for number in (1, 3):
        lossy = CrashingStore(store)
        folder = Folder(lossy)
        folder.publish_marks(copy(number))
        lossy._lost = {"replace": StorageUnavailable("no answer")}
        with pytest.raises(StorageUnavailable):
            folder.publish_marks(copy(number + 1))
        assert not folder.publish_marks(copy(number + 1))
        assert Folder(store).marks() == copy(number + 1)


def test_other_marks_of_the_same_sequence_number_are_mended(folder: Folder) -> None:
    folder.publish_marks(copy(1, last=7))
    assert folder.publish_marks(copy(1, last=8))
    assert folder.marks() == copy(1, last=8)


def test_marks_of_another_table_give_way_however_new(folder: Folder) -> None:
    folder.publish_marks(copy(99, table="dropped"))
    assert folder.publish_marks(copy(1, table="made again"))
    assert folder.marks() == copy(1, table="made again")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"table-uuid": "t1", "sequence-number": "9", "marks": {"version": 1, "folder": "f", "snapshot": null, '
        b'"pruned-before-ms": 0, "writers": {}}}',
        b'{"table-uuid": "t1", "sequence-number": 9, "marks": {"version": 2}}',
        b'{"table-uuid": "t1", "sequence-number": 9, "marks": {"version": 1, "folder": "f", "snapshot": null, '
        b'"pruned-before-ms": 0, "writers": {"w": {"incarnations": {"i": {"last": "1", "seen-ms": 1}}}}}}',
    ],
)
def test_marks_that_cannot_be_used_are_mended(folder: Folder, text: bytes) -> None:
    folder.store.create("marks.json", text)
    assert folder.marks() is None
    assert folder.publish_marks(copy(1))
    assert folder.marks() == copy(1)


def test_of_two_that_publish_marks_at_once_the_newer_stay(stores: Opener) -> None:
    for number in range(2, rounds(stores, 60), 2):
        older, newer = copy(number), copy(number + 1)
        outcomes = at_once([partial(Folder(stores()).publish_marks, marks) for marks in (newer, older)])
        assert outcomes[0] is True, outcomes
        assert Folder(stores()).marks() == newer


def test_many_that_publish_marks_at_once_never_go_back(stores: Opener) -> None:
    def publish(offset: int) -> list[int]:
        folder, seen = Folder(stores()), []
        for number in range(offset, rounds(stores, 120, least=24), 3):
            try:
                folder.publish_marks(copy(number))
            except StorageUnavailable:
                continue  # lost five races in a row; the next tick mends it
            there = folder.marks()
            assert there is not None
            seen.append(there.sequence_number)
        return seen

    for seen in at_once([partial(publish, offset) for offset in (1, 2, 3)]):
        assert isinstance(seen, list), seen
        assert seen == sorted(seen)


def test_marks_that_others_replace_all_the_time_are_given_up_for_now(store: Store) -> None:
    class Busy(CrashingStore):
        def __getattr__(self, name: str) -> Any:
            call = super().__getattr__(name)
            if name == "read_versions":
                Folder(store).publish_marks(copy(len(self.calls) + 1))
                answers = call({"marks.json": ""})
                Folder(store).publish_marks(copy(len(self.calls) + 2))
                return lambda known, most=None: answers
            return call

    with pytest.raises(StorageUnavailable, match="all the time"):
        Folder(Busy(store)).publish_marks(copy(1000))


def test_one_that_dies_anywhere_while_publishing_marks_leaves_the_old_or_the_new(store: Store) -> None:
    for fatal in range(POINTS):
        Folder(store).publish_marks(copy(10 * fatal + 1))
        newer = copy(10 * fatal + 2)
        through = survived(store, lambda crashing, newer=newer: Folder(crashing).publish_marks(newer), fatal)
        assert Folder(store).marks() in (copy(10 * fatal + 1), newer)
        if through:
            assert Folder(store).marks() == newer
            return
    pytest.fail("never got through")


def test_the_card_is_missing_before_init(folder: Folder) -> None:
    with pytest.raises(Missing):
        folder.card()


def test_the_card_is_written_when_something_in_it_changed_and_only_then(store: Store) -> None:
    counting = CrashingStore(store)
    folder = Folder(counting)
    assert folder.write_card(card())
    assert not folder.write_card(card())
    assert folder.write_card(card(pending_limit=2000))
    assert counting.calls.count("replace") == 2
    assert folder.card() == card(pending_limit=2000)


def test_records_that_did_not_change_are_not_transferred_again(stores: Opener) -> None:
    store, others = Recorded(stores()), Folder(stores())
    folder = Folder(store)  # type: ignore[arg-type]
    others.write_card(card())
    others.publish_marks(copy(1))
    assert [folder.records() for _ in range(2)] == [(card(), copy(1))] * 2
    assert store.answers == [{"card.json": True, "marks.json": True}, {"card.json": False, "marks.json": False}]
    others.publish_marks(copy(2))
    assert folder.records() == (card(), copy(2))
    others.write_card(card(pending_limit=2000))
    assert folder.records() == (card(pending_limit=2000), copy(2))
    assert store.answers[2:] == [{"card.json": False, "marks.json": True}, {"card.json": True, "marks.json": False}]
    folder.forget()
    assert folder.records() == (card(pending_limit=2000), copy(2))
    assert store.answers[4:] == [{"card.json": True, "marks.json": True}]


class Recorded:
    """A store that notes of each conditional read which objects came back."""

    def __init__(self, store: Store) -> None:
        self.store, self.answers = store, list[dict[str, bool]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def read_versions(self, known: dict[str, str], most: Any = None) -> Any:
        answers = self.store.read_versions(known, most)
        self.answers.append({key: isinstance(answer, ObjectVersion) for key, answer in answers.items()})
        return answers


def test_what_is_remembered_of_marks_never_hides_that_they_went_back_or_are_gone(stores: Opener) -> None:
    folder, others = Folder(stores()), stores()
    folder.write_card(card())
    Folder(stores()).publish_marks(copy(1))
    older = others.read("marks.json")
    Folder(stores()).publish_marks(copy(2))
    assert folder.records() == (card(), copy(2))
    others.replace("marks.json", older)
    assert folder.records() == (card(), copy(1))
    others.delete_many(["marks.json"])
    assert folder.records() == (card(), None)
    others.replace("marks.json", b"rubbish")
    assert [folder.records() for _ in range(2)] == [(card(), None)] * 2
    assert folder.publish_marks(copy(3)) and folder.records() == (card(), copy(3))


def test_a_card_that_is_remembered_is_mended_and_missed_like_any_other(stores: Opener) -> None:
    folder, others = Folder(stores()), stores()
    folder.write_card(card())
    assert folder.records() == (card(), None)
    others.replace("card.json", b"{")
    with pytest.raises(WrongFolder, match="not readable"):
        folder.records()
    assert folder.write_card(card()) and folder.records() == (card(), None)
    others.delete_many(["card.json"])
    with pytest.raises(Missing):
        folder.records()
    assert folder.write_card(card()) and folder.records() == (card(), None)


def test_writing_a_card_compares_with_what_was_just_read_and_asks_for_nothing(store: Store) -> None:
    Folder(store).write_card(card())
    counting = CrashingStore(store)
    folder = Folder(counting)  # type: ignore[arg-type]
    folder.records()
    assert not folder.write_card(card())
    assert folder.write_card(card(pending_limit=2000))
    assert counting.calls == ["read_versions", "replace"]


def test_a_broken_card_is_said_to_be_broken_and_is_mended(folder: Folder) -> None:
    folder.store.create("card.json", b"{")
    with pytest.raises(WrongFolder, match="not readable"):
        folder.card()
    assert folder.write_card(card())
    assert folder.card() == card()
