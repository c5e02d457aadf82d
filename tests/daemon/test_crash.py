"""Crashes and errors at every operation of a tick, by enumeration: afterwards every row is there exactly once."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bookkeeper.core.errors import BookkeeperError, Retry, StorageUnavailable
from bookkeeper.core.settings import Retention
from bookkeeper.ledger import merge
from bookkeeper.replaying import replay
from tests.daemon.lake import Lake, Saved, Writes, live_files
from tests.faults.enumerated import Point, crash_points, crashed, erred, error_points, recorded
from tests.faults.faults import Faults


class Scene:
    """A lake in which the next ticks have something of everything to do."""

    def __init__(self, root: Path) -> None:
        keep = Retention(keep=timedelta(hours=12), brake=1.0)
        self.lake = lake = Lake(root, retention=keep)
        self.merged = ["m1", "m2", "m3", "m4"]
        self.expected = [*self.merged, "p1", "p2", "p3", "q1", "q2", "q4", "q5"]
        old, chained, plain = Writes(lake, "old"), Writes(lake, "chained"), Writes(lake, "plain")
        replayed = plain.publish("q1", created_ms=int((lake.clock.now + timedelta(hours=2)).timestamp() * 1000))
        old.publish("expired", at=lake.clock.now - timedelta(days=1))
        chained.goes_on(b"1", "p1")
        old.publish("m1")
        book = lake.book(retention=Retention())
        lake.tick(book)
        for key in ("m2", "m3", "m4"):
            old.publish(key)
        lake.tick(book)
        lake.clock.move(hours=2)
        lake.folder.replay(replayed)
        plain.publish("q2")
        missing = plain.publish("q3")
        lake.folder.delete([missing])
        plain.publish("q4")
        self.bad = str(Writes(lake, "bad").publish("x", table_uuid="another"))
        self.chain = [str(chained.goes_on(b"2", "p2")), str(chained.goes_on(b"3", "p3"))]
        fork = Writes(lake, "chained")
        fork.position = b"1"
        lake.clock.move(seconds=1)
        self.fork = str(fork.goes_on(b"x", "fork"))
        name, data = plain.encoded([plain.file(["q5"])])
        lake.folder.publish(name, data)
        for spoiled in ("pending/stranger.txlog.avro", "marks.json"):
            lake.put(spoiled, b"spoiled")
        self.saved: Saved = lake.saved()

    def act(self, faults: Faults) -> None:
        """What a bookkeeper does of it: two ticks, the second late enough for the sweep."""
        book = self.lake.book(faults)
        for seconds in (1, 70):
            with suppress(Retry):
                self.lake.tick(book, seconds=seconds)

    def check(self) -> None:
        """Everything published is in once, what is bad is rejected, and the books agree."""
        lake = self.lake
        book = lake.book()
        lake.tick(book)
        lake.tick(book, minutes=2)
        assert lake.pending() == []
        keys = lake.keys()
        if "fork" in keys:  # p2 could not be read in time: then the other branch won, whole
            assert keys == ["fork", *self.merged, "p1", "q1", "q2", "q4", "q5"]
            assert set(lake.rejected()) == {self.bad, *self.chain}
        else:
            assert keys == self.expected
            assert set(lake.rejected()) == {self.bad, self.fork}
        assert lake.folder.store.size("rejected/stranger.txlog.avro") == 7
        assert lake.folder.marks().marks == lake.view().marks  # type: ignore[union-attr]
        files, said = live_files(lake), lake.table().current_snapshot().summary.additional_properties
        assert int(said["total-data-files"]) == len(files) == len({file.file_path for file in files})
        assert int(said["total-records"]) == sum(file.record_count for file in files)


@pytest.fixture(scope="module", autouse=True)
def _merges_soon() -> Iterator[None]:
    """Three manifests of a kind are merged, so that the one commit of the scene merges too."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(merge, "FAN", 3)
        yield


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    # In memory where the system has that: the disk is put back hundreds of times.
    ram = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with TemporaryDirectory(dir=ram, prefix="bookkeeper-test-") as path:
        yield Scene(Path(path) / "lake")


def tried(scene: Scene, points: Iterator[Point], run: Callable[[Point], None]) -> list[str]:
    """Runs from the same beginning for every point; says which of them end badly."""
    failed = []
    for point in points:
        scene.saved.restore()
        run(point)
        try:
            scene.check()
        except (AssertionError, BookkeeperError) as error:
            failed.append(f"{point}: {str(error)[:200]}")
    return failed


def test_the_scene_has_something_of_everything(scene: Scene) -> None:
    scene.saved.restore()
    seen = recorded(scene.act)
    scene.check()
    assert scene.lake.operations() == ["append", "append", "append", "replace", "delete"]
    for part in (
        "commit_table",
        "replace folder/marks.json",
        "create metadata/snap-",
        "-r0.avro",
        "create folder/rejected/bad.",
        "create folder/rejected/stranger",
        "delete folder/pending/",
        "delete folder/rejected/plain.",
        "replace folder/clock",
    ):
        assert any(part in operation for operation in seen), part


def test_a_crash_at_any_operation_of_a_tick_loses_and_doubles_nothing(scene: Scene) -> None:
    scene.saved.restore()
    seen = recorded(scene.act)
    ended = []
    failed = tried(scene, crash_points(seen), lambda point: ended.append(crashed(scene.act, point)))
    assert failed == []
    assert len(ended) > 60
    assert all(ended)


def test_an_error_at_any_operation_of_a_tick_loses_and_doubles_nothing(scene: Scene) -> None:
    scene.saved.restore()
    seen = recorded(scene.act)

    def error(operation: str) -> Exception:
        return TimeoutError(operation) if "_table" in operation else StorageUnavailable(operation)

    assert tried(scene, error_points(seen), lambda point: erred(scene.act, point, error)) == []


def test_a_crash_at_any_operation_of_a_forced_replay_lets_the_txlog_in_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    writer = Writes(lake)
    writer.publish("a")
    lake.tick()
    lake.clock.move(days=2)
    Writes(lake, "other").publish("b")
    lake.tick()
    old = writer.publish("old", created_ms=int((lake.clock.now - timedelta(days=2)).timestamp() * 1000))
    lake.tick()
    saved = lake.saved()

    def act(faults: Faults) -> None:
        book = lake.book(faults)
        replay(book.folder, book.ledger, lake.settings, old, lake.clock.now, force=True)

    for point in crash_points(recorded(act)):
        saved.restore()
        assert crashed(act, point)
        with suppress(BookkeeperError):
            act(Faults())  # the person tries again
        lake.drain()
        lake.tick(minutes=2)
        assert (str(point), lake.keys(), lake.rejected()) == (str(point), ["a", "b", "old"], {})
