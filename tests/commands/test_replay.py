"""Replay: a rejected txlog that is given back gets in exactly once, or is rejected again."""

from contextlib import suppress

import pytest

from bookkeeper.commands.replay import replay
from bookkeeper.core.folder import Folder
from bookkeeper.core.names import TxlogName
from bookkeeper.errors import NotPossible
from tests.support.compactor import commit, compacted, live
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


def rejected_double_of_a_compacted_file(lake: Lake, writer: Writes) -> TxlogName:
    """The snapshot that took the file out is expired; its file is still on the disk."""
    file = writer.file(["a"])
    for _ in range(2):
        name, data = writer.encoded([file])
        lake.folder.publish(name, data)
    lake.tick()
    commit(lake, compacted(lake, live(lake)))
    writer.publish("b")
    lake.tick()
    lake.table().maintenance.expire_snapshots().older_than(lake.clock.now).commit()
    return name


@pytest.mark.parametrize("broken", [False, True], ids=["", "without the rule its row is double"])
def test_what_a_double_named_was_compacted_and_expired(
    lake: Lake, writer: Writes, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    name = rejected_double_of_a_compacted_file(lake, writer)
    assert (lake.rejected(), lake.keys()) == ({str(name): "DuplicatePath"}, ["a", "b"])
    if broken:
        monkeypatch.setattr(Folder, "reason", lambda *_: {})
    with suppress(NotPossible):
        replay(lake.folder, lake.book().ledger, lake.settings, name, lake.clock.now, force=True)
    monkeypatch.undo()
    lake.tick()
    assert lake.keys() == (["a", "a", "b"] if broken else ["a", "b"])


def test_a_txlog_that_names_files_of_another_is_never_replayed(lake: Lake, writer: Writes) -> None:
    file = writer.file(["a"])
    first, data = writer.encoded([file])
    lake.folder.publish(first, data)
    second, again = writer.encoded([file])
    lake.folder.publish(second, again)
    lake.tick()
    assert lake.rejected() == {str(second): "DuplicatePath"}
    commit(lake, compacted(lake, live(lake)))
    commit(lake, compacted(lake, live(lake)))  # what the first took out is known no more once that expires
    with pytest.raises(NotPossible, match="names files that another txlog brought in"):
        replay(lake.folder, lake.book().ledger, lake.settings, second, lake.clock.now, force=True)
    assert lake.keys() == ["a"]
