"""A txlog folder that was moved away or deleted: a writer keeps its rows, says so, and puts nothing in its place."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bookkeeper.errors import StorageUnavailable, WrongFolder
from bookkeeper.stores.open import open_store
from tests.support.desk import Desk, rows


def take_away(desk: Desk) -> Callable[[], None]:
    """Moves the folder away; what puts it back."""
    url = f"{desk.root}/_bookkeeper"
    if desk.root.startswith("file:"):
        path = Path(url.removeprefix("file://"))
        path.rename(path.with_name("away"))
        return lambda: shutil.move(path.with_name("away"), path)
    store = open_store(url)
    kept = {item.key: store.read(item.key) for item in store.list("")}
    store.delete_many(kept)

    def back() -> None:
        for key, data in kept.items():
            store.create(key, data)

    return back


def what_is_there(desk: Desk) -> list[str]:
    path = Path(f"{desk.root}/_bookkeeper".removeprefix("file://"))
    if desk.root.startswith("file:"):
        return sorted(map(str, path.rglob("*"))) + ([str(path)] if path.exists() else [])
    return [item.key for item in open_store(f"{desk.root}/_bookkeeper").list("")]


def test_a_publish_into_a_folder_that_is_gone_fails_keeps_the_rows_and_works_when_it_is_back(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        writer.publish()
        writer.write(rows("b"))
        back = take_away(desk)

        for _ in range(2):
            with pytest.raises((StorageUnavailable, WrongFolder)) as gone:
                writer.publish()
            assert "put it back" in gone.value.hint.lower() or "put the folder back" in gone.value.hint
        assert what_is_there(desk) == []
        assert writer.unpublished_rows == 1

        back()
        assert writer.publish() is not None
    assert desk.keys() == ["a", "b"]


def test_a_folder_without_its_card_is_none(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        card = desk.folder.store.read("card.json")
        desk.folder.store.delete_many(["card.json"])

        with pytest.raises(WrongFolder, match=r"no card\.json any more; 1 rows are not published") as gone:
            writer.publish()
        assert "They are kept" in gone.value.hint and desk.txlogs() == []

        desk.folder.store.create("card.json", card)
        writer.publish()
    assert desk.keys() == ["a"]


def test_another_folder_in_its_place_gets_nothing(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        desk.set_card(folder="another")

        with pytest.raises(WrongFolder, match="another txlog folder"):
            writer.publish()
        assert desk.txlogs() == [] and writer.unpublished_rows == 1

        desk.set_card()
        writer.publish()
    assert desk.keys() == ["a"]


def test_a_folder_that_vanishes_in_the_middle_of_a_publish_is_not_made_again(
    local: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bookkeeper.stores import disk

    path = Path(f"{local.root}/_bookkeeper".removeprefix("file://"))
    make, made = disk.make_folder, list[str]()

    def gone_now(folder: int, name: str) -> None:
        if name == "pending" and path.exists():
            made.append(name)
            path.rename(path.with_name("away"))
        make(folder, name)

    with local.writer() as writer:
        writer.write(rows("a"))
        monkeypatch.setattr(disk, "make_folder", gone_now)
        with pytest.raises(Exception, match=r"vanished|is not there"):
            writer.publish()
        writer.close()
    assert made and not path.exists()


def test_a_new_writer_where_no_folder_is_makes_none(desk: Desk) -> None:
    take_away(desk)

    with pytest.raises(Exception, match=r"not there|no card") as refused:
        desk.writer()

    assert "bookkeeper init` first" not in getattr(refused.value, "hint", "")
    assert what_is_there(desk) == []
