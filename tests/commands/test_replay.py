"""Replay: a rejected txlog that is given back gets in exactly once, or is rejected again."""

from contextlib import suppress
from dataclasses import dataclass

import pytest

from bookkeeper.commands.replay import replay
from bookkeeper.contract.names import TxlogName
from bookkeeper.errors import DuplicatePath, NotPossible, PositionTaken
from tests.support.compactor import commit, compacted, live
from tests.support.faults import AFTER, BEFORE, Crash, Faults, crash
from tests.support.lake import Lake, Writes, append_by_others


def give_back(lake: Lake, name: TxlogName) -> None:
    replay(lake.folder, lake.book().ledger, lake.settings, name, lake.clock.now)


def test_a_replayed_txlog_gets_in_exactly_once_and_only_then_leaves_rejected(lake: Lake, writer: Writes) -> None:
    file = writer.file(["a"])
    name, data = writer.encoded([file])
    path = lake.store(file.path.rsplit("/", 1)[0])
    path.delete_many([file.path.rsplit("/", 1)[1]])
    lake.folder.publish(name, data)
    writer.publish("b")
    book = lake.book()
    lake.tick(book)
    assert lake.rejected() == {str(name): "FileMissing"}
    writer.file(["a"])
    give_back(lake, name)
    assert list(lake.rejected()) == lake.pending() == [str(name)]
    lake.tick(book)
    assert (lake.keys(), lake.pending()) == (["a", "b"], [])
    lake.tick(book, minutes=2)
    assert lake.rejected() == {}
    with pytest.raises(NotPossible):
        give_back(lake, name)


def test_after_the_data_path_moved_the_hint_brings_what_was_pending_in(lake: Lake, writer: Writes) -> None:
    name, before = writer.publish("a"), f"{lake.table().metadata.location}/data"
    for place, rejected in ((f"{before}-2", {str(name): "PathRefused"}), (before, {str(name): "PathRefused"})):
        with lake.table().transaction() as change:
            change.set_properties({"write.data.path": place})
        lake.tick(lake.book(), seconds=1)
        assert lake.rejected() == rejected
    assert "write.data.path was changed" in lake.folder.reason(name)["hint"]
    give_back(lake, name)
    lake.tick(lake.book(), seconds=1)
    assert (lake.keys(), lake.pending()) == (["a"], [])


def test_a_second_replay_of_the_same_bytes_is_recognised(lake: Lake, writer: Writes) -> None:
    name, data = writer.encoded([writer.file(["a"])], created_ms=int(lake.clock.now.timestamp() * 1000) + 2 * 3_600_000)
    lake.folder.publish(name, data)
    writer.publish("b")
    book = lake.book()
    lake.tick(book)
    lake.clock.move(hours=3)
    for _ in range(2):
        lake.folder.publish(name, data)  # by hand, past every check of `replay`
        lake.tick(book)
    assert (lake.keys(), lake.pending()) == (["a", "b"], [])


def test_a_replay_that_is_still_bad_is_rejected_again(lake: Lake, writer: Writes) -> None:
    name, data = writer.encoded([writer.file(["a"])], table_uuid="another")
    lake.folder.publish(name, data)
    lake.tick()
    lake.folder.replay(name)
    lake.tick()
    assert (lake.rejected(), lake.pending()) == ({str(name): "WrongTable"}, [])


def test_a_txlog_whose_position_was_taken_is_not_replayed(lake: Lake, writer: Writes) -> None:
    lost = Writes(lake).goes_on(b"x", "b")
    lake.clock.move(seconds=-1)
    writer.goes_on(b"1", "a")
    lake.tick()
    assert lake.rejected() == {str(lost): "PositionTaken"}
    with pytest.raises(PositionTaken):
        give_back(lake, lost)
    assert (lake.pending(), lake.keys()) == ([], ["a"])


def test_a_txlog_whose_file_was_compacted_since_is_not_replayed(lake: Lake, writer: Writes) -> None:
    file = writer.file(["a"])
    future = int(lake.clock.now.timestamp() * 1000) + 2 * 3_600_000
    name, data = writer.encoded([file], created_ms=future)
    lake.folder.publish(name, data)
    book = lake.book()
    lake.tick(book)
    assert lake.rejected() == {str(name): "FromTheFuture"}
    append_by_others(lake, file)
    lake.clock.move(hours=3)
    with pytest.raises(NotPossible, match="is in the table already"):
        give_back(lake, name)
    commit(lake, compacted(lake, live(lake)))
    assert lake.keys() == ["a"]
    with pytest.raises(NotPossible, match="was in the table until snapshot"):
        give_back(lake, name)
    assert lake.pending() == []


def double(lake: Lake, writer: Writes) -> TxlogName:
    """A txlog that names the file of another, rejected by a version that looked at paths."""
    file = writer.file(["a"])
    for _ in range(2):
        name, data = writer.encoded([file])
        lake.folder.publish(name, data)
        if writer.name.sequence == 1:
            lake.tick()
    lake.folder.reject(name, DuplicatePath("it is named by another"), lake.clock.now)
    return name


def rejected_double_of_a_compacted_file(lake: Lake, writer: Writes) -> TxlogName:
    """The snapshot that took the file out is expired; its file is still on the disk."""
    name = double(lake, writer)
    commit(lake, compacted(lake, live(lake)))
    writer.publish("b")
    lake.tick()
    lake.table().maintenance.expire_snapshots().older_than(lake.clock.now).commit()
    return name


def test_what_a_double_named_was_compacted_and_expired(lake: Lake, writer: Writes) -> None:
    name = rejected_double_of_a_compacted_file(lake, writer)
    assert (lake.rejected(), lake.keys()) == ({str(name): "DuplicatePath"}, ["a", "b"])
    with suppress(NotPossible):
        replay(lake.folder, lake.book().ledger, lake.settings, name, lake.clock.now, force=True)
    lake.tick()
    assert lake.keys() == ["a", "b"]


def test_a_txlog_that_names_files_of_another_is_never_replayed(lake: Lake, writer: Writes) -> None:
    second = double(lake, writer)
    assert lake.rejected() == {str(second): "DuplicatePath"}
    commit(lake, compacted(lake, live(lake)))
    commit(lake, compacted(lake, live(lake)))  # what the first took out is known no more once that expires
    with pytest.raises(NotPossible, match="names files that another txlog brought in"):
        replay(lake.folder, lake.book().ledger, lake.settings, second, lake.clock.now, force=True)
    assert lake.keys() == ["a"]


@dataclass
class Late:
    """Of one run, pruned since: `first` is in the table and arrives again, `last` arrives now and is not in."""

    lake: Lake
    writer: Writes
    first: TxlogName
    data: bytes
    last: TxlogName

    @classmethod
    def arrives(cls, lake: Lake, writer: Writes, first: int = 1, last: int = 2) -> "Late":
        ms = int(lake.clock.now.timestamp() * 1000)
        old, data = writer.encoded([writer.file(["old"])], sequence=first, created_ms=ms)
        lake.folder.publish(old, data)
        lake.tick()
        lake.clock.move(days=2)
        Writes(lake, "other").publish("other")
        lake.tick()
        name, late = writer.encoded([writer.file(["late"])], sequence=last, created_ms=ms)
        lake.folder.publish(name, late)
        lake.tick()
        assert (lake.keys(), lake.rejected()) == (["old", "other"], {str(name): "IncarnationPruned"})
        return cls(lake, writer, old, data, name)

    def again(self) -> None:
        """The put of `first` is applied once more."""
        self.lake.folder.publish(self.first, self.data)

    def force(self, faults: Faults | None = None) -> None:
        book = self.lake.book(faults)
        replay(book.folder, book.ledger, self.lake.settings, self.last, self.lake.clock.now, True)

    def assert_once(self) -> None:
        self.lake.tick()
        self.lake.tick(minutes=2)
        assert self.lake.keys() == ["late", "old", "other"]
        assert (self.lake.pending(), self.last in self.lake.rejected()) == ([], False)


def test_a_forced_replay_lets_no_pending_txlog_of_its_run_in_once_more(lake: Lake, writer: Writes) -> None:
    late = Late.arrives(lake, writer)
    late.again()
    late.force()
    late.assert_once()
    assert lake.rejected() == {str(late.first): "IncarnationPruned"}


def test_a_crash_in_the_middle_of_a_reject_before_a_forced_replay_doubles_nothing(
    lake: Lake, writer: Writes, faults: Faults
) -> None:
    late = Late.arrives(lake, writer)
    late.again()
    with pytest.raises(Crash):
        lake.tick(lake.book(faults.on("delete folder/pending", BEFORE, crash)))
    assert (len(lake.pending()), len(lake.rejected())) == (1, 2)
    late.force()
    late.assert_once()


def test_what_was_rejected_beside_a_forced_replay_and_arrives_again_is_rejected_again(
    lake: Lake, writer: Writes
) -> None:
    late = Late.arrives(lake, writer)
    late.again()
    lake.tick()
    late.force()
    late.assert_once()
    late.again()
    late.assert_once()


@pytest.mark.parametrize("before", [True, False])
def test_a_later_txlog_of_the_run_that_arrives_again_beside_a_forced_replay_is_rejected(
    lake: Lake, writer: Writes, before: bool
) -> None:
    late = Late.arrives(lake, writer, first=2, last=1)
    if before:
        late.again()
    late.force()
    if not before:
        lake.tick()
        late.again()
    late.assert_once()


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("operation", ["commit_table", "replace folder/marks.json", "create folder/pending/"])
def test_a_crash_in_a_forced_replay_leaves_a_hole_that_the_next_one_uses(
    lake: Lake, writer: Writes, faults: Faults, operation: str, when: str
) -> None:
    late = Late.arrives(lake, writer)
    with pytest.raises(Crash):
        late.force(faults.on(operation, when, crash))
    late.again()
    lake.tick()
    with suppress(NotPossible):  # it is in
        late.force()
    late.assert_once()


def test_a_run_goes_on_after_a_forced_replay(lake: Lake, writer: Writes) -> None:
    late = Late.arrives(lake, writer)
    late.force()
    writer.publish("new", sequence=3)
    late.again()
    lake.tick()
    lake.tick()
    assert (lake.keys(), lake.pending()) == (["late", "new", "old", "other"], [])


def test_what_was_rejected_of_a_run_that_goes_on_and_arrives_again_is_rejected_again(
    lake: Lake, writer: Writes
) -> None:
    late = Late.arrives(lake, writer)
    late.again()
    lake.tick()
    writer.publish("new", sequence=3)
    lake.tick()
    late.again()
    lake.tick()
    assert (lake.keys(), lake.pending()) == (["new", "old", "other"], [])
    late.force()
    lake.tick()
    assert (lake.keys(), lake.pending()) == (["late", "new", "old", "other"], [])
