"""What only a disk can do to us: processes, kill -9, full and absent disks, names that are no files."""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import AlreadyExists, Changed, Missing, StorageUnavailable
from bookkeeper.stores.beneath import best
from bookkeeper.stores.local import LocalStore
from bookkeeper.stores.store import translated
from tests.support import forked, racers
from tests.support.crew import Crew
from tests.support.faults import Crash

PROCESSES, ROUNDS = 4, 150
TESTS = Path(__file__).parents[2]


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", "tests.support.racers", *arguments]
    done = forked.run(command, cwd=TESTS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.name != ".lock")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "lake" / "_bookkeeper"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(str(root))


def test_of_processes_that_create_at_once_exactly_one_wins(root: Path, store: LocalStore) -> None:
    spawn = multiprocessing.get_context("spawn")
    barrier, won = spawn.Barrier(PROCESSES), spawn.Queue()
    children = [
        spawn.Process(target=racers.create_each, args=(str(root), me, ROUNDS, barrier, won), daemon=True)
        for me in range(PROCESSES)
    ]
    for child in children:
        child.start()
    winners = dict(won.get(timeout=60) for _ in children)
    for child in children:
        child.join()
    assert sorted(number for mine in winners.values() for number in mine) == list(range(ROUNDS))
    assert all(store.read(f"race/{number}") == f"{me}".encode() for me, mine in winners.items() for number in mine)
    assert len([mine for mine in winners.values() if mine]) > 1, "no two ever raced"
    assert len(names(root)) == ROUNDS


def test_a_counter_that_processes_increment_by_tag_loses_nothing(root: Path, store: LocalStore) -> None:
    store.create("counter", b"0")
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(PROCESSES)
    children = [
        spawn.Process(target=racers.increment, args=(str(root), 50, barrier), daemon=True) for _ in range(PROCESSES)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * PROCESSES
    assert store.read("counter") == str(50 * PROCESSES).encode()


@pytest.mark.parametrize(("act", "old"), [("create", ""), ("replace", ""), ("replace", "old")])
def test_a_writer_killed_at_any_line_leaves_the_name_missing_or_whole(root: Path, act: str, old: str) -> None:
    before = "old" if old else None
    outcomes = [json.loads(line) for line in run("kills", str(root), act, old).splitlines()]
    published = [found.pop("a", None) for found in outcomes]
    assert published[0] == before
    assert published[-1] == "new"
    assert set(published) == {before, "new"}
    # What else a crash leaves is swept by its ending.
    left = {name for found in outcomes for name in found}
    assert left, "never killed between the temporary file and the name"
    assert all(name.endswith(".tmp") for name in left)


def test_a_writer_killed_at_random_in_large_writes_leaves_no_torn_object(root: Path) -> None:
    endless = (
        "import sys; from bookkeeper.stores.local import LocalStore; store = LocalStore(sys.argv[1]); n = 0\n"
        "print('ready', flush=True)\n"
        "while True: n += 1; store.create(f'{n:06d}', bytes([n % 251]) * 3_000_000)\n"
    )
    for moment in range(6):
        place = root / str(moment)
        place.mkdir()
        command = [sys.executable, "-c", endless, str(place)]
        with Crew({"writer": command}, root.parent) as crew:
            crew.start("writer", cwd=TESTS, stdout=subprocess.PIPE).stdout.readline()
            while not any(place.iterdir()):
                time.sleep(0.001)
            time.sleep(0.0137 * moment)
            crew.kill("writer")
        for name in names(place):
            data = (place / name).read_bytes()
            assert name.endswith(".tmp") or data == bytes([int(name) % 251]) * 3_000_000
        shutil.rmtree(place)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[tuple[str, str]]:
    """
    What is made durable or visible, in order, by the last part of its path.
    """
    done: list[tuple[str, str]] = []
    sync, link, rename = os.fsync, os.link, os.rename

    def note(act: str, path: str) -> None:
        done.append((act, ".tmp" if path.endswith(".tmp") else os.path.basename(path)))

    def noted_sync(handle: int) -> None:
        note("sync", os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    def noted_link(source: str, target: str, **how: Any) -> None:
        note("link", target)
        link(source, target, **how)

    def noted_rename(source: str, target: str, **how: Any) -> None:
        note("rename", target)
        rename(source, target, **how)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "link", noted_link)
    monkeypatch.setattr(os, "rename", noted_rename)
    return done


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs Linux's /proc")


@needs_proc
@pytest.mark.parametrize(
    ("act", "order"),
    [
        ("create", [("sync", ".tmp"), ("link", "a"), ("sync", "pending")]),
        ("replace", [("sync", ".tmp"), ("rename", "a"), ("sync", "pending")]),
        ("upload", [("sync", "a"), ("sync", "pending")]),
    ],
)
def test_bytes_are_durable_before_their_name_and_the_name_before_it_returns(
    store: LocalStore, root: Path, steps: list[tuple[str, str]], act: str, order: list[tuple[str, str]]
) -> None:
    (root / "pending").mkdir()
    getattr(store, act)("pending/a", b"1")
    assert steps == order


@needs_proc
def test_every_new_directory_is_durable(store: LocalStore, steps: list[tuple[str, str]]) -> None:
    store.create("x/y/z", b"1")
    assert steps == [("sync", "_bookkeeper"), ("sync", "x"), ("sync", ".tmp"), ("link", "z"), ("sync", "y")]


@needs_proc
def test_a_writer_that_finds_its_own_bytes_may_rely_on_them(store: LocalStore, steps: list[tuple[str, str]]) -> None:
    # The first attempt may have been cut off between the link and the sync of its directory.
    store.create("a", b"1")
    steps.clear()
    with pytest.raises(AlreadyExists):
        store.create("a", b"1")
    assert ("sync", "_bookkeeper") in steps


def test_a_missing_root_is_trouble_and_no_proof_that_something_was_deleted(root: Path, store: LocalStore) -> None:
    store.create("pending/a", b"1")
    shutil.move(root, root.parent / "unmounted")
    for act in (store.read, store.read_tagged, store.size, lambda key: list(store.list(key))):
        with pytest.raises(StorageUnavailable, match="is not there"):
            act("pending/a")
    with pytest.raises(StorageUnavailable):
        store.delete_many(["pending/a"])
    for outcomes in (store.read_many(["pending/a"]), store.sizes(["pending/a"])):
        assert isinstance(outcomes["pending/a"], StorageUnavailable)


def test_a_root_that_vanished_is_not_made_again_by_a_write(root: Path, store: LocalStore) -> None:
    # Else a txlog would be published onto the disk below the mount point, where no bookkeeper finds it.
    store.create("pending/a", b"1")
    shutil.move(root, root.parent / "unmounted")
    for act in (store.create, store.replace, store.upload):
        with pytest.raises(StorageUnavailable, match="is not there"):
            act("pending/b", b"2")
    assert not root.exists()
    shutil.move(root.parent / "unmounted", root)
    store.create("pending/b", b"2")
    assert names(root) == ["pending/a", "pending/b"]


def test_a_root_that_was_never_there_is_made_by_the_first_write(tmp_path: Path) -> None:
    LocalStore(str(tmp_path / "new" / "lake")).create("card.json", b"{}")
    assert (tmp_path / "new" / "lake" / "card.json").read_bytes() == b"{}"


@pytest.mark.parametrize(("folder", "step"), [("", 1), ("a/b/", 1), ("a/b/", 2), ("a/b/", 3)])
def test_a_root_that_another_thread_makes_meanwhile_has_not_vanished(tmp_path: Path, folder: str, step: int) -> None:
    missing = list[str]()

    def opened(root: str, path: str, flags: int, mode: int = 0o666) -> int:
        try:
            return best()(root, path, flags, mode)
        except FileNotFoundError:
            missing.append(path)
            if len(missing) == step:
                store.create(f"{folder}second", b"2")  # right after this thread found that it is missing
            raise

    store = LocalStore(str(tmp_path / "new" / "lake"), opened)
    store.create(f"{folder}first", b"1")
    assert step <= len(missing)
    assert names(tmp_path / "new" / "lake") == sorted(f"{folder}{name}" for name in ("first", "second"))


def test_a_root_that_is_a_file_is_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    store = LocalStore(str(tmp_path / "file"))
    for act in (store.read, store.size, lambda key: list(store.list(key))):
        with pytest.raises(StorageUnavailable):
            act("a")
    for act in (store.create, store.replace, store.upload):
        with pytest.raises(StorageUnavailable):
            act("a", b"1")


def test_a_disk_that_gives_no_permission_is_trouble_whatever_is_asked(tmp_path: Path) -> None:
    root = tmp_path / "closed"
    root.mkdir()
    (root / "a").write_text("1")
    root.chmod(0)
    try:
        answers = json.loads(run("nobody", str(root)))
    finally:
        root.chmod(0o700)
    assert set(answers.values()) <= {"StorageUnavailable", "FolderUnavailable"}, answers


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs Linux's /proc, a file that fails to read")
def test_an_input_output_error_is_trouble_and_hides_no_other_file() -> None:
    store = LocalStore("/proc/self")
    with pytest.raises(StorageUnavailable, match="Input/output error"):
        store.read("mem")
    read = store.read_many(["mem", "comm", "gone"])
    assert [type(outcome) for outcome in read.values()] == [StorageUnavailable, bytes, Missing]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's /dev/full")
def test_a_full_disk_is_trouble() -> None:
    with pytest.raises(StorageUnavailable, match="No space left"):
        LocalStore("/dev").upload("full", b"1" * 100_000)


@pytest.mark.parametrize("act", ["create", "replace"])
def test_a_write_that_fails_leaves_no_temporary_file(root: Path, store: LocalStore, act: str) -> None:
    (root / "a").mkdir()
    with pytest.raises(StorageUnavailable):
        getattr(store, act)("a", b"1")
    assert names(root) == []


def test_a_lost_race_leaves_no_temporary_file(root: Path, store: LocalStore) -> None:
    store.create("a", b"1")
    with pytest.raises(AlreadyExists):
        store.create("a", b"2")
    assert names(root) == ["a"]


def test_unfinished_writes_are_listed_so_that_they_can_be_swept(root: Path, store: LocalStore) -> None:
    (root / "pending").mkdir()
    (root / "pending" / "a.0123.tmp").write_text("1")
    store.replace("card.json", b"{}")
    assert sorted(item.key for item in store.list("")) == ["card.json", "pending/a.0123.tmp"]


def test_what_is_no_regular_file_is_not_listed(root: Path, store: LocalStore) -> None:
    # A pipe would hang the reader, a link to itself would fail every listing.
    (root / "pending").mkdir()
    os.mkfifo(root / "pending" / "pipe")
    (root / "pending" / "loop").symlink_to("loop")
    (root / "pending" / "dangling").symlink_to("nowhere")
    (root / "pending" / "folder").symlink_to(root)
    (root / "pending" / "good").write_text("1")
    assert [item.key for item in store.list("pending/")] == ["pending/good"]


def test_new_directories_may_be_many_levels_deep(store: LocalStore) -> None:
    store.create("a/b/c/d/e", b"1")
    assert store.read("a/b/c/d/e") == b"1"


def test_the_root_may_be_spelled_with_dots(tmp_path: Path) -> None:
    assert LocalStore(f"{tmp_path}/a/../b").url == f"file://{tmp_path}/b"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk_is_said_with_what_makes_room() -> None:
    with (
        pytest.raises(StorageUnavailable, match="put x: No space left on device") as caught,
        translated("put x"),
        open("/dev/full", "wb", buffering=0) as file,
    ):
        file.write(b"x")
    assert "Make room" in caught.value.hint and "goes on by itself" in caught.value.hint


@pytest.mark.parametrize("step", range(8))
def test_a_file_replaced_while_it_is_deleted_by_its_tag_outlives_a_crash_at_any_step(
    root: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    tag = store.replace("a/b", b"old")
    calls, rename = [], os.rename

    def counted(name: str) -> Callable[..., Any]:
        act = getattr(os, name)

        def call(*given: Any, **named: Any) -> Any:
            if name == "rename" and given[0] == "b":
                (root / "new").write_bytes(b"newer")
                rename(root / "new", root / "a" / "b")
            if len(calls) == step:
                raise Crash("")
            calls.append(name)
            return act(*given, **named)

        return call

    with monkeypatch.context() as patch:
        for name in ("rename", "link", "unlink", "fsync"):
            patch.setattr(os, name, counted(name))
        with pytest.raises((Crash, Changed)):
            store.delete_if("a/b", tag)
    with suppress(Changed):
        store.delete_if("a/b", tag)
    assert store.read("a/b") == b"newer"
    assert names(root / "a") == ["b"]


def test_a_file_that_was_replaced_after_a_crash_is_not_put_back_over(root: Path, store: LocalStore) -> None:
    tag = store.replace("a", b"newest")
    (root / ".a.deleting").write_bytes(b"before it")
    with pytest.raises(Changed):
        store.delete_if("a", "another")
    assert store.read("a") == b"newest"
    store.delete_if("a", tag)
    assert names(root) == []


def test_a_file_of_another_user_is_put_back_where_links_are_forbidden(
    root: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / ".a.deleting").write_bytes(b"1")
    monkeypatch.setattr(os, "link", lambda *given, **named: (_ for _ in ()).throw(PermissionError(1, "forbidden")))
    with pytest.raises(Changed):
        store.delete_if("a", "another")
    assert store.read("a") == b"1"
