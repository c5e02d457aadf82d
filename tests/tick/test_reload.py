"""A reload keeps what has not changed, and nothing else; after an error it keeps nothing."""

from dataclasses import replace
from typing import Any

import pytest

from bookkeeper.errors import CatalogUnavailable, CommitUnknown, HistoryChanged, Missing
from bookkeeper.manifests.reader import Manifests
from tests.support.faults import AFTER, BEFORE, Faults
from tests.support.lake import Lake, Writes, append_by_others


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The snapshots whose manifest lists were read."""
    read: list[int] = []
    real = Manifests.lists

    def counted(reader: Manifests, snapshots: Any) -> Any:
        asked = [*snapshots]
        read.extend(snapshot.snapshot_id for snapshot in asked)
        return real(reader, asked)

    monkeypatch.setattr(Manifests, "lists", counted)
    return read


def reads(faults: Faults, since: int = 0) -> list[str]:
    """What was read of the folder's records and of the table since then."""
    wanted = ("read folder/card.json", "read folder/marks.json", "load_table")
    return [operation for operation in faults.seen[since:] if operation in wanted]


def test_a_reload_reads_card_and_marks_and_then_the_table_each_once(lake: Lake, writer: Writes) -> None:
    faults = Faults()
    book = lake.book(faults)
    writer.publish("a")
    lake.tick(book)
    since = len(faults.seen)
    lake.tick(book, seconds=11)
    assert reads(faults, since)[:3] == ["read folder/card.json", "read folder/marks.json", "load_table"]
    assert reads(faults, since).count("read folder/card.json") == 1


def test_a_manifest_list_that_it_wrote_is_never_read_again(lake: Lake, writer: Writes, lists: list[int]) -> None:
    book = lake.book()
    for number in range(4):
        writer.publish(f"a{number}")
        lake.tick(book, seconds=11)
    assert lists == []
    assert len(lake.keys()) == 4


def test_after_a_commit_whose_answer_was_lost_it_is_read_and_nothing_is_doubled(
    lake: Lake, writer: Writes, lists: list[int]
) -> None:
    faults = Faults()
    book = lake.book(faults)
    for key in "ab":
        writer.publish(key)
        lake.tick(book)
    faults.on("commit_table", AFTER, CommitUnknown, times=1)
    writer.publish("c")
    lake.tick(book)
    writer.publish("d")
    lake.tick(book)
    assert len(lists) == 1
    assert lake.keys() == ["a", "b", "c", "d"]


def test_after_an_error_nothing_is_remembered(lake: Lake, writer: Writes) -> None:
    faults = Faults()
    book = lake.book(faults)
    writer.publish("a")
    lake.tick(book)
    lake.tick(book, seconds=11)
    forgotten, forget = [], book.folder.forget
    book.folder.forget = lambda: forgotten.append(forget())  # type: ignore[method-assign,func-returns-value]
    faults.on("commit_table", BEFORE, CommitUnknown, times=1)
    writer.publish("b")
    lake.tick(book)
    assert len(forgotten) == 1 and lake.keys() == ["a", "b"]
    faults.on("load_table", BEFORE, CatalogUnavailable, times=1)
    with pytest.raises(CatalogUnavailable):
        lake.tick(book, seconds=11)
    lake.tick(book)
    assert len(forgotten) == 2


@pytest.mark.parametrize("spot", ["read folder/card.json", "read folder/marks.json", "load_table"])
@pytest.mark.parametrize("fresh", [False, True])
def test_another_bookkeeper_that_commits_anywhere_in_a_reload_halts_nothing(
    lake: Lake, writer: Writes, spot: str, fresh: bool
) -> None:
    faults = Faults()
    book, other = lake.book(faults), lake.book()
    writer.publish("a")
    lake.tick(book)
    lake.tick(book, seconds=11)
    for number in range(3):
        if fresh:
            book.loaded.forget()
        writer.publish(f"b{number}")
        faults.between(spot, lambda: other.tick(lake.clock.now))
        lake.tick(book, seconds=11)
    writer.publish("c")
    lake.tick(book)
    assert lake.keys() == ["a", "b0", "b1", "b2", "c"]
    assert (lake.pending(), lake.rejected()) == ([], {})


def test_commits_of_others_are_seen_and_built_on(lake: Lake, writer: Writes, lists: list[int]) -> None:
    book = lake.book()
    writer.publish("a")
    lake.tick(book)
    append_by_others(lake, Writes(lake, "foreign").file(["x"]))
    writer.publish("b")
    lake.tick(book, seconds=11)
    assert lake.keys() == ["a", "b", "x"] and len(lists) >= 1
    del lists[:]
    with lake.table().transaction() as change:  # moves the metadata, and not `main`
        change.set_properties(other="1")
    writer.publish("c")
    lake.tick(book, seconds=11)
    assert lists == [] and book.view.metadata.properties["other"] == "1"  # type: ignore[union-attr]
    assert lake.keys() == ["a", "b", "c", "x"]


def test_a_rollback_beneath_what_is_remembered_halts_the_table(lake: Lake, writer: Writes) -> None:
    book = lake.book()
    for key in "ab":
        writer.publish(key)
        lake.tick(book)
    first = lake.table().metadata.snapshots[0].snapshot_id
    lake.table().manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    writer.publish("c")
    with pytest.raises(HistoryChanged):
        lake.tick(book, seconds=11)
    assert len(lake.pending()) == 1


def test_an_expiry_of_others_changes_nothing_of_what_is_committed(lake: Lake, writer: Writes, lists: list[int]) -> None:
    book = lake.book()
    for number in range(3):
        writer.publish(f"a{number}")
        lake.tick(book)
    old = [snapshot.snapshot_id for snapshot in lake.table().metadata.snapshots[:-1]]
    lake.table().maintenance.expire_snapshots().by_ids(old).commit()
    del lists[:]
    writer.publish("b")
    lake.tick(book, seconds=11)
    assert lake.keys() == ["a0", "a1", "a2", "b"]
    assert len(lake.table().metadata.snapshots) == 2


def test_marks_that_are_gone_or_went_back_are_mended_though_their_tag_is_known(
    lake: Lake, writer: Writes, caplog: pytest.LogCaptureFixture
) -> None:
    book = lake.book()
    writer.publish("a")
    lake.tick(book)
    older = lake.folder.store.read("marks.json")
    writer.publish("b")
    lake.tick(book)
    lake.tick(book, seconds=11)
    lake.folder.store.delete_many(["marks.json"])
    lake.tick(book, seconds=11)
    assert lake.folder.marks() == lake.view().marks_copy
    lake.put("marks.json", older)
    lake.tick(book, seconds=11)
    assert lake.folder.marks() == lake.view().marks_copy
    assert [record.action for record in caplog.records].count("mend") == 2  # type: ignore[attr-defined]


def test_a_card_that_another_writes_between_is_seen_at_the_next_reload(lake: Lake) -> None:
    faults = Faults()
    book = lake.book(faults)
    lake.tick(book)
    ours = lake.folder.card()
    theirs = replace(ours, pending_limit=ours.pending_limit + 1)
    faults.between("load_table", lambda: lake.folder.write_card(theirs))
    lake.tick(book, seconds=11)
    assert lake.folder.card() == theirs
    lake.tick(book, seconds=11)
    assert lake.folder.card() == ours
    lake.folder.store.delete_many(["card.json"])
    with pytest.raises(Exception, match=r"card\.json"):
        lake.tick(book, seconds=11)
    with pytest.raises(Missing):
        lake.folder.card()
