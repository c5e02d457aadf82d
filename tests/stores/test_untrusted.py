"""What strangers can put on a disk that we read: huge, endless, leading elsewhere, or no file at all."""

import os
import socket
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bookkeeper.contract.marks import Marks
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import (
    AlreadyExists,
    Missing,
    NotAFile,
    NotMoved,
    StorageUnavailable,
    TooLarge,
    TxlogTooLarge,
    WrongFolder,
)
from bookkeeper.leases.lease import FileLease
from bookkeeper.stores.local import LocalStore
from bookkeeper.stores.store import Range, create_once
from tests.support.cards import card

TB = 2**40
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NAME = TxlogName("w", "0190c0de-0000-7000-8000-000000000001", 1)
WHY = TxlogTooLarge("far too large")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for place in ("pending", "rejected"):
        (tmp_path / "folder" / place).mkdir(parents=True)
    return tmp_path / "folder"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(str(root))


def sparse(path: Path, size: int = TB) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def listening(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def secret(path: Path) -> None:
    (path.parents[2] / "secret").write_bytes(b"secret")
    path.symlink_to(path.parents[2] / "secret")


STRANGE: list[Callable[[Path], None]] = [pipe, device, listening, secret]


@pytest.mark.parametrize("make", STRANGE)
def test_what_is_no_regular_file_is_neither_followed_nor_waited_for(
    root: Path, store: LocalStore, make: Callable[[Path], None]
) -> None:
    make(root / "pending" / "x")
    for act in (store.read, store.read_tagged):
        with pytest.raises(NotAFile, match="pending/x is no regular file"):
            act("pending/x", 100)
    assert isinstance(store.read_many(["pending/x"], 100)["pending/x"], NotAFile)
    (of_range,) = store.read_ranges([Range("pending/x", 0, 4)]).values()
    assert isinstance(of_range, NotAFile)


def test_a_directory_is_no_object_and_a_link_above_is_followed(root: Path, store: LocalStore, tmp_path: Path) -> None:
    (root / "pending" / "x").mkdir()
    with pytest.raises(Missing):
        store.read("pending/x", 100)
    (tmp_path / "link").symlink_to(root)
    through = LocalStore(f"{tmp_path}/link")
    through.create("pending/y", b"1")
    assert through.read("pending/y", 1) == b"1" == store.read("pending/y", 1)


def test_a_terabyte_is_refused_moved_and_replaced_without_being_read(root: Path, store: LocalStore) -> None:
    sparse(root / "marks.json")
    tracemalloc.start()
    with pytest.raises(TooLarge) as refused:
        store.read_tagged("marks.json", 2**20)
    store.move("marks.json", "rejected/marks.json")
    sparse(root / "marks.json")
    with pytest.raises(TooLarge) as refused:
        store.read_tagged("marks.json", 2**20)
    store.replace("marks.json", b"{}", if_match=refused.value.tag)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    assert store.read("marks.json", 2) == b"{}"
    assert (root / "rejected" / "marks.json").stat().st_size == TB


def test_a_file_that_grows_while_it_is_read_is_cut_off_at_the_bound(
    root: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "pending" / "x"
    path.write_bytes(b"1" * 10)
    real = os.fstat

    def stat_then_grow(handle: int) -> os.stat_result:
        found = real(handle)
        with path.open("ab") as growing:  # it never shrinks meanwhile, whichever thread asks
            growing.write(b"1" * 10_000_000)
        return found

    monkeypatch.setattr(os, "fstat", stat_then_grow)
    with pytest.raises(TooLarge, match="has 11 bytes, at most 10 are read"):
        store.read("pending/x", 10)


def test_locks_and_leases_never_touch_what_a_link_leads_to(root: Path, store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    for name in (".lock", "lease"):
        (root / name).symlink_to(tmp_path / "victim")
    with pytest.raises(StorageUnavailable):
        store.replace("a", b"1")
    with pytest.raises(StorageUnavailable):
        FileLease(f"{root}/lease", "us").hold(NOW)
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.parametrize("make", STRANGE)
def test_a_name_that_is_taken_by_no_file_is_taken(root: Path, store: LocalStore, make: Callable[[Path], None]) -> None:
    make(root / "pending" / "x")
    with pytest.raises(AlreadyExists):
        create_once(store, "pending/x", b"1")


@pytest.mark.parametrize("make", STRANGE)
def test_of_what_is_no_file_rejected_keeps_the_reason_alone(
    root: Path, store: LocalStore, make: Callable[[Path], None]
) -> None:
    make(root / "pending" / str(NAME))
    Folder(store).reject(NAME, WHY, NOW)
    assert os.listdir(root / "pending") == []
    assert os.listdir(root / "rejected") == [f"{NAME}.reason.json"]
    assert Folder(store).reason(NAME)["error"] == "TxlogTooLarge"


def test_a_secret_that_a_link_leads_to_stays_where_it_is(root: Path, store: LocalStore, tmp_path: Path) -> None:
    secret(root / "pending" / str(NAME))
    Folder(store).reject(NAME, WHY, NOW)
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert all(b"secret" not in path.read_bytes() for path in root.rglob("*") if path.is_file())


def test_terabytes_of_one_name_are_all_kept_and_none_is_read(root: Path, store: LocalStore) -> None:
    for size in (TB, TB + 1):
        sparse(root / "pending" / str(NAME), size)
        Folder(store).reject(NAME, WHY, NOW, most=2**20)
    kept = [path.stat().st_size for path in (root / "rejected").iterdir() if not path.name.endswith(".json")]
    assert sorted(kept) == [TB, TB + 1]
    assert os.listdir(root / "pending") == []


def test_what_cannot_be_moved_at_once_stays_and_its_reason_is_kept(root: Path) -> None:
    class OtherDisk(LocalStore):
        def move(self, key: str, to: str) -> None:
            raise TooLarge(f"{key} would have to be copied")

    sparse(root / "pending" / str(NAME))
    with pytest.raises(NotMoved, match="too large to be moved"):
        Folder(OtherDisk(str(root))).reject(NAME, WHY, NOW, most=2**20)
    assert sorted(path.name for path in root.rglob("w.*")) == [str(NAME), f"{NAME}.reason.json"]


@pytest.mark.parametrize("make", [sparse, *STRANGE])
def test_a_card_that_is_not_read_belongs_to_no_table_and_is_written_anew(
    root: Path, store: LocalStore, make: Callable[[Path], None]
) -> None:
    make(root / "pending" / "card")
    (root / "pending" / "card").rename(root / "card.json")
    with pytest.raises(WrongFolder, match=r"card\.json is not read") as refused:
        Folder(store).card()
    assert "init" in refused.value.hint
    assert Folder(store).write_card(card())
    assert Folder(store).card() == card()


@pytest.mark.parametrize("make", [sparse, *STRANGE])
def test_marks_and_reasons_that_are_not_read_are_as_good_as_missing(
    root: Path, store: LocalStore, make: Callable[[Path], None]
) -> None:
    from bookkeeper.contract.marks_json import MarksCopy

    make(root / "pending" / "x")
    (root / "pending" / "x").rename(root / "marks.json")
    make(root / "rejected" / f"{NAME}.reason.json")
    folder, copy = Folder(store), MarksCopy("uuid", 1, Marks("folder"))
    assert folder.marks() is None and folder.reason(NAME) == {}
    assert folder.publish_marks(copy)
    assert folder.marks() == copy
