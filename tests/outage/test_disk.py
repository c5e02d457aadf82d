"""
A disk that is full, and permissions that are gone, at every call of a whole cycle: nothing is lost, and it goes on.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.config.settings import Daemon, Retention
from bookkeeper.errors import BookkeeperError, Retry
from bookkeeper.serve.health import health
from bookkeeper.serve.loop import TableLoop, tick_once
from tests.support.disk import LOOKS, WRITES, Disk, mounted
from tests.support.lake import Lake, Writes

DAEMON = Daemon(every=timedelta(seconds=1), backoff_most=timedelta(seconds=4), not_ready_after=3)
PARTS = [(errno.ENOSPC, WRITES), (errno.EACCES, (*WRITES, *LOOKS))]


def scene(root: Path) -> Lake:
    """Something of everything: commits behind it, txlogs good and bad, files past retention."""
    lake = Lake(root / "lake", retention=Retention(keep=timedelta(days=1), every=timedelta(seconds=1), brake=1.0))
    old, writer = Writes(lake, "old"), Writes(lake, "w1")
    old.publish("gone", at=lake.clock.now - timedelta(days=2))
    writer.publish("a")
    lake.book(retention=replace(lake.settings.retention, keep=None)).tick(lake.clock.move(seconds=1))
    writer.publish("b")
    Writes(lake, "bad").publish("x", table_uuid="another")
    lake.folder.delete([writer.publish("lost")])
    writer.publish("c")
    return lake


def cycle(lake: Lake) -> None:
    """A tick as the daemon does it: nothing may come out of it but what the loop waits for."""
    with suppress(Retry):
        lake.book().tick(lake.clock.now)


def is_sound(lake: Lake, what: str) -> None:
    lake.drain(2)
    assert lake.keys() == ["a", "b", "c"], what
    assert (lake.pending(), list(lake.rejected().values())) == ([], ["WrongTable"]), what
    assert lake.folder.marks() == lake.view().marks_copy, what


@pytest.mark.parametrize(("error", "calls"), PARTS, ids=[errno.errorcode[error] for error, _ in PARTS])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
def test_a_tick_that_the_disk_refuses_anything_at_all_loses_nothing(
    tmp_path: Path, error: int, calls: tuple[str, ...], lasting: bool
) -> None:
    lake = scene(tmp_path)
    saved = lake.saved()
    with mounted(Disk()) as disk:
        cycle(lake)
    points = [number for number, call in enumerate(disk.seen) if call in calls]
    assert len(points) > 40
    for point in points[:: 1 if len(points) < 80 and not lasting else 2]:
        saved.restore()
        with mounted(Disk(refusing(point, calls, lasting), error)):
            cycle(lake)
        is_sound(lake, f"{errno.errorcode[error]} at call {point}: {disk.seen[point]}")


def refusing(point: int, calls: tuple[str, ...], lasting: bool) -> Callable[[int, str], bool]:
    """Refuses that call, and with `lasting` all such calls after it."""
    return lambda number, call: call in calls and (number >= point if lasting else number == point)


@pytest.mark.parametrize(("error", "calls"), PARTS, ids=["ENOSPC", "EACCES"])
def test_a_publish_that_the_disk_refuses_is_there_whole_or_not_at_all(
    tmp_path: Path, error: int, calls: tuple[str, ...]
) -> None:
    lake = Lake(tmp_path / "lake")
    name, data = Writes(lake).encoded([Writes(lake).file(["a"])])
    with mounted(Disk()) as disk:
        lake.folder.publish(name, data)
    for point in [number for number, call in enumerate(disk.seen) if call in calls]:
        lake.folder.delete([name])
        with mounted(Disk(refusing(point, calls, lasting=False), error)), suppress(BookkeeperError):
            lake.folder.publish(name, data)
        there = lake.folder.store.read(f"pending/{name}") if lake.pending() else data
        assert there == data, disk.seen[point]
        lake.folder.publish(name, data)  # the writer's retry: the same bytes under the same name
        assert lake.pending() == [str(name)], disk.seen[point]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EACCES])
def test_a_disk_that_stays_full_is_said_waited_for_and_forgotten(
    tmp_path: Path, error: int, caplog: pytest.LogCaptureFixture
) -> None:
    lake = scene(tmp_path)
    slot, states = TableLoop("events", lake.book), []
    with mounted(Disk(lambda _, call: call in WRITES, error)):
        for _ in range(12):
            tick_once(slot, DAEMON, lake.clock.move(seconds=1))
            states.append(health(slot, DAEMON, lake.clock.now).state)
        found = health(slot, DAEMON, lake.clock.now)
    assert [states[0], states[-1]] == ["failing", "not ready"]
    assert (found.ready, "credentials" in found.hint or found.hint != "") == (False, True)
    assert any(word in found.why for word in ("No space left", "Permission denied", "commits in a row"))
    assert slot.failures < 12  # it backs off
    tick_once(slot, DAEMON, lake.clock.move(seconds=5))
    assert health(slot, DAEMON, lake.clock.now).state == "ready"
    is_sound(lake, "after the outage")
    said = [record.action for record in caplog.records if record.action in ("postpone", "not-ready", "recover")]  # type: ignore[attr-defined]
    assert said[:2] == ["postpone", "not-ready"]
