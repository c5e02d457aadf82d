"""Opening below a directory: no symbolic link on the way is followed, however it is swapped in."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.stores import beneath
from bookkeeper.stores.beneath import FOLDER, MOST_OPEN, Folders, LinkRefused, Open, open_beneath, walk

READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="openat2 is Linux's")


def by_kernel() -> Open:
    found = beneath.by_kernel()
    if found is None:
        pytest.skip("this kernel has no openat2, or forbids it")
    return found


@pytest.fixture(params=["kernel", "walk"])
def opened(request: pytest.FixtureRequest) -> Open:
    return walk if request.param == "walk" else by_kernel()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for place in ("root/a/b/c", "secret/b/c"):
        (tmp_path / place).mkdir(parents=True)
    for place, text in (("root/a/b/c/f", "own"), ("secret/f", "secret"), ("secret/b/c/f", "secret")):
        (tmp_path / place).write_text(text)
    return tmp_path / "root"


def read(opened: Open, root: Path, path: str, flags: int = READ) -> str:
    handle = opened(str(root), path, flags, 0)
    try:
        return os.read(handle, 100).decode()
    finally:
        os.close(handle)


def test_what_no_link_leads_to_is_opened_however_deep(root: Path, opened: Open) -> None:
    assert read(opened, root, "a/b/c/f") == "own"
    (root / "f").write_text("first")
    assert read(opened, root, "f") == "first"
    for folder in ("", "a", "a/b"):
        handle = opened(str(root), folder, FOLDER, 0)
        assert os.path.samestat(os.fstat(handle), os.stat(root / folder))
        os.close(handle)


@pytest.mark.parametrize(
    "flags", [READ, FOLDER, os.O_WRONLY | os.O_CREAT | os.O_TRUNC], ids=["read", "folder", "write"]
)
@pytest.mark.parametrize(
    ("link", "target", "path"),
    [
        ("x", "../secret", "x/f"),
        ("x", "../secret", "x/new"),
        ("a/x", "../../secret", "a/x/b/c/f"),
        ("a/b/x", "../../../secret/b", "a/b/x/c/f"),
        ("a/b/c/x", "../../../../secret/f", "a/b/c/x"),
        ("inside", "a/b", "inside/c/f"),
        ("a/here", ".", "a/here/b/c/f"),
        ("a/up", "..", "a/up/a/b/c/f"),
        ("a/out", "../..", "a/out/secret/f"),
        ("gone", "nowhere", "gone/f"),
        ("gone", "nowhere", "gone"),
        ("loop", "loop", "loop/f"),
        ("root", "/", "root/etc/hostname"),
        ("magic", "/proc/self/cwd", "magic/f"),
    ],
)
def test_a_link_below_is_refused_and_named_wherever_it_leads(
    root: Path, opened: Open, link: str, target: str, path: str, flags: int
) -> None:
    (root / link).symlink_to(target)
    with pytest.raises(LinkRefused) as refused:
        opened(str(root), path, flags, 0o600)
    assert refused.value.link == f"{root}/{link}" and refused.value.errno == errno.ELOOP
    assert not (root.parent / "secret" / "new").exists()


def test_of_a_chain_of_links_the_first_one_is_named(root: Path, opened: Open) -> None:
    (root / "last").symlink_to("a")
    (root / "middle").symlink_to("last")
    (root / "first").symlink_to("middle")
    with pytest.raises(LinkRefused, match="first is a symbolic link"):
        read(opened, root, "first/b/c/f")


def test_the_directory_itself_may_be_a_link_and_be_reached_through_links(
    root: Path, opened: Open, tmp_path: Path
) -> None:
    (tmp_path / "lakes").symlink_to(tmp_path)
    (tmp_path / "lake").symlink_to("lakes/root")
    for place in (tmp_path / "lake", tmp_path / "lakes" / "root"):
        assert read(opened, place, "a/b/c/f") == "own"
        (root / "x").symlink_to("a")
        with pytest.raises(LinkRefused) as refused:
            read(opened, place, "x/b/c/f")
        assert refused.value.link == f"{place}/x"
        (root / "x").unlink()


@pytest.mark.skipif(not os.path.ismount("/proc"), reason="needs a disk that is mounted below a directory")
def test_a_disk_that_is_mounted_below_is_no_link(opened: Open) -> None:
    assert read(opened, Path("/"), "proc/version")


def test_what_is_not_there_is_told_from_a_link(root: Path, opened: Open) -> None:
    for path in ("new", "new/f", "a/new/f"):
        with pytest.raises(FileNotFoundError):
            read(opened, root, path)
    for path in ("a/b/c/f/x", "a/b/c/f/x/y"):
        with pytest.raises(NotADirectoryError):
            read(opened, root, path)
    with pytest.raises(FileNotFoundError):
        read(opened, root.parent / "away", "a")
    with pytest.raises(ValueError, match="null"):
        read(opened, root, "a/b\0/c")


def test_a_file_is_created_with_its_mode_and_never_through_its_name(root: Path, opened: Open) -> None:
    before = os.umask(0o027)
    try:
        os.close(opened(str(root), "a/new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
    finally:
        os.umask(before)
    assert (root / "a" / "new").stat().st_mode & 0o777 == 0o640


def swap(folder: Path, target: Path) -> None:
    """A link takes a folder's place."""
    folder.rename(folder.with_name("away"))
    folder.symlink_to(target)


@pytest.mark.parametrize("after", ["a", "b", "c"])
def test_a_link_that_is_swapped_in_after_its_folder_was_opened_changes_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    rightly = beneath.open_in
    folder = {"a": root / "a", "b": root / "a" / "b", "c": root / "a" / "b" / "c"}[after]

    def open_then_swap(handle: int, name: str, *how: Any) -> int:
        found = rightly(handle, name, *how)
        if name == after:
            swap(folder, tmp_path / "secret")
        return found

    monkeypatch.setattr(beneath, "open_in", open_then_swap)
    assert read(walk, root, "a/b/c/f") == "own"
    with pytest.raises(LinkRefused):
        read(walk, root, "a/b/c/f")


def test_a_folder_that_was_a_link_a_moment_ago_is_not_taken_for_missing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def was_a_link(*given: Any, **how: Any) -> int:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    handle = os.open(root, FOLDER)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", was_a_link)
            with pytest.raises(OSError, match="was replaced while it was opened") as refused:
                beneath.open_in(handle, "a", FOLDER, f"{root}/a")
    finally:
        os.close(handle)
    assert refused.value.errno == errno.EBUSY


def test_a_link_that_is_swapped_in_and_out_all_the_time_never_leads_anywhere(root: Path, opened: Open) -> None:
    folder, ended, swaps = root / "a" / "b", threading.Event(), 0
    link = folder.with_name("link")
    link.symlink_to("../../secret/b")

    def swapping() -> None:
        nonlocal swaps
        while not ended.is_set():
            for name in (link, folder.with_name("away")):  # the link in the folder's place, then the folder again
                os.rename(folder, folder.with_name("was"))
                os.rename(name, folder)
                os.rename(folder.with_name("was"), folder.with_name("away") if name is link else link)
                swaps += 1

    found, thread = set[str](), threading.Thread(target=swapping)
    thread.start()
    try:
        for _ in range(200_000):
            found.add(outcome(lambda: read(opened, root, "a/b/c/f")))
            if {"own", "LinkRefused"} <= found and swaps > 2000:
                break
    finally:
        ended.set()
        thread.join()
    assert {"own", "LinkRefused"} <= found <= {"own", "LinkRefused", "FileNotFoundError", "OSError"}


def outcome(act: Callable[[], str]) -> str:
    try:
        return act()
    except OSError as exc:
        return type(exc).__name__


@linux
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_where_the_kernel_has_no_such_call_folders_are_walked(
    root: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    class Libc:
        class syscall:
            def __new__(cls, *given: Any) -> Any:
                beneath.ctypes.set_errno(number)
                return -1

    monkeypatch.setattr(beneath.ctypes, "CDLL", lambda *given, **how: Libc)
    beneath.best.cache_clear()
    try:
        assert beneath.by_kernel() is None and beneath.best() is walk
        handle = open_beneath(str(root), "a/b/c/f", READ)
    finally:
        beneath.best.cache_clear()
    assert os.read(handle, 10) == b"own"
    os.close(handle)


#: a container's filter: openat2 is answered with EPERM, every other call is made
FILTERED = """
import ctypes, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 437), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *rule) for rule in rules))
filter = struct.pack("=HxxxxxxQ", len(rules), ctypes.addressof(program))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.c_char_p(filter), 0, 0) == 0
from bookkeeper.stores import beneath
from bookkeeper.stores.local import LocalStore
store = LocalStore(sys.argv[1])
print(beneath.best() is beneath.walk, store.read("a/b/c/f"), type(store.read_many(["x/f"])["x/f"]).__name__)
"""


@linux
def test_a_container_that_forbids_the_call_is_no_trouble(root: Path) -> None:
    if beneath.by_kernel() is None:
        pytest.skip("this kernel has no openat2, or forbids it")
    (root / "x").symlink_to("../secret")
    command = [sys.executable, "-c", FILTERED, str(root)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.stdout == "True b'own' NotAFile\n", done.stderr


def test_folders_stay_open_up_to_a_number_and_are_closed_in_the_end(root: Path, opened: Open) -> None:
    names = [f"d{number:02d}" for number in range(MOST_OPEN + 5)]
    for name in names:
        (root / name).mkdir()
        (root / name / "f").write_text(name)
    open_now = set[int]()

    def counted(directory: str, path: str, flags: int, mode: int) -> int:
        handle = opened(directory, path, flags, mode)
        open_now.add(handle)
        return handle

    with Folders(counted, lambda path: (str(root), path)) as folders:
        for _ in range(3):
            for name in names:
                handle = folders.open(f"{name}/f", READ, f"{root}/{name}/f")
                assert os.read(handle, 10).decode() == name
                os.close(handle)
                assert os.path.samestat(os.fstat(folders[name]), os.stat(root / name))
        assert len(folders._handles) == MOST_OPEN
    for handle in open_now:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(handle)
