"""Trays: what is found, read within bounds, rejected and listed as rejected."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bookkeeper.contract.tray import FoundObject, Tray, bytes_of
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import ColumnRefused, Missing, NotAFile, NotPossible, StorageUnavailable, TooLarge
from bookkeeper.stores.open import open_store

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
TRAY = Tray("asked/", ".json", 100, lambda name: name.startswith("mine"))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(open_store(f"file://{tmp_path}"), makes=True)


def test_an_object_is_found_read_and_settled(folder: Folder) -> None:
    TRAY.publish(folder, "mine.json", b"{}")
    TRAY.publish(folder, "mine.json", b"{}")
    folder.store.replace("asked/unfinished.tmp", b"")
    (found,) = TRAY.pending(folder)
    assert (found.name, found.size) == ("mine.json", 2)
    assert list(TRAY.read(folder, [found], 100)) == [(found, b"{}")]
    TRAY.settle(folder, [found.name])
    ((_, answer),) = TRAY.read(folder, [found], 100)
    assert (TRAY.pending(folder), type(answer)) == ([], Missing)
    with pytest.raises(Missing):
        bytes_of(answer, ColumnRefused)


def test_no_more_is_read_than_was_listed_and_may_be(folder: Folder) -> None:
    TRAY.publish(folder, "mine.json", b"x" * 50)
    (found,) = TRAY.pending(folder)
    grown, large = found._replace(size=49), found._replace(size=50)
    for listed, most in ((grown, 100), (large, 49)):
        ((_, answer),) = TRAY.read(folder, [listed], most)
        assert isinstance(answer, TooLarge)
        with pytest.raises(ColumnRefused):
            bytes_of(answer, ColumnRefused)


def test_an_object_that_cannot_be_read_costs_the_others_nothing(folder: Folder, tmp_path: Path) -> None:
    for name in ("mine-1.json", "mine-3.json"):
        TRAY.publish(folder, name, b"{}")
    (tmp_path / "asked/mine-2.json").symlink_to(tmp_path / "asked/mine-1.json")
    listed = [FoundObject(START, f"mine-{number}.json", 2) for number in range(1, 4)]
    answers = {item.name: answer for item, answer in TRAY.read(folder, listed, 100)}
    assert (answers["mine-1.json"], answers["mine-3.json"]) == (b"{}", b"{}")
    assert isinstance(answers["mine-2.json"], NotAFile)


def test_trouble_of_the_storage_is_never_the_fault_of_an_object() -> None:
    with pytest.raises(StorageUnavailable):
        bytes_of(StorageUnavailable("for a moment"), ColumnRefused)


def test_a_rejected_object_is_listed_also_where_only_its_reason_could_be_kept(folder: Folder, tmp_path: Path) -> None:
    for name in ("mine-1.json", "other.json"):
        TRAY.publish(folder, name, b"{}")
    (tmp_path / "asked/mine-2.json").symlink_to(tmp_path / "asked/mine-1.json")
    for name in ("mine-1.json", "mine-2.json", "other.json", "mine-gone.json"):
        TRAY.reject(folder, name, NotPossible("so it is"), START)
    rejected = TRAY.rejected(folder)
    assert [(item.name, item.size) for item in rejected] == [("mine-1.json", 2), ("mine-2.json", 0)]
    folder.discard_rejected([item.name for item in rejected])
    assert [path.name for path in sorted((tmp_path / "rejected").iterdir())] == ["other.json", "other.json.reason.json"]
    assert TRAY.pending(folder) == []
