"""
The lease file: its holder dies (kill -9) at each call to the system that taking, keeping and giving back a lease makes,
and the next process takes over at once; whatever stands in the file then, all rows get in once.
"""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from bookkeeper.leases import lease
from bookkeeper.serve.loop import TableLoop, tick_once
from tests.chaos.processes import roles
from tests.chaos.processes.ground import BRISK, Ground, now
from tests.chaos.processes.in_fork import in_fork
from tests.chaos.processes.rounds import import_what_a_round_imports, served
from tests.chaos.tally import Budget, FaultClass, Tally
from tests.servers import scratch
from tests.support.crew import Crew

BEFORE, AFTER = "before", "after"
#: what another program may have left in the file
GARBAGE = (b"", b"\0" * 4096, b"host 1 since 2020-01-01T00:00:00+00:00\n" * 100)


class Watched:
    """A module whose every call is noted; at `fatal`, a number and when, the process is killed."""

    def __init__(self, module: Any, noted: list[str], fatal: tuple[int, str] | None) -> None:
        self.module, self.noted, self.fatal = module, noted, fatal

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.module, name)
        if not callable(found) or isinstance(found, type):
            return found

        def call(*given: Any, **named: Any) -> Any:
            number = len(self.noted)
            self.noted.append(name)
            self._end_at(number, BEFORE)
            result = found(*given, **named)
            self._end_at(number, AFTER)
            return result

        return call

    def _end_at(self, number: int, when: str) -> None:
        if self.fatal == (number, when):
            os.kill(os.getpid(), signal.SIGKILL)


def _held(ground: Ground, fatal: tuple[int, str] | None) -> list[str]:
    """Takes the lease, ticks, keeps it, gives it back; the calls it made for that."""
    noted: list[str] = []
    lease.os, lease.fcntl = Watched(lease.os, noted, fatal), Watched(lease.fcntl, noted, fatal)  # type: ignore[attr-defined]
    book = ground.book(lease=True)
    for _ in range(2):
        if book.lease.hold(now()):
            book.tick(now())
    book.lease.release()
    return noted


def _taken_over(ground: Ground, end: int, where: str) -> Tally:
    """The next bookkeeper's first turn, and the account."""
    slot = TableLoop("events", lambda: ground.book(lease=True))
    tick_once(slot, BRISK, now())
    wrong = [f"{where}: no process took over"] if slot.standby or slot.trouble else []
    left = [f"{where}: {what}" for what in ground.drain()]
    done = ground.outcome(roles.source_keys(0, end), where, points=1)
    done.wrong += wrong + left
    return done


def _publish(ground: Ground, end: int) -> None:
    for _ in roles.copied(ground, "source", end):
        continue


def _round(ground: Ground, number: int, where: str, break_it: Callable[[], None]) -> Tally:
    end = roles.AT_ONCE * (number + 1)
    in_fork(partial(_publish, ground, end))
    break_it()
    done: Tally = in_fork(partial(_taken_over, ground, end, where))
    # Compared are all rows so far; published is what this round added.
    done.published = roles.AT_ONCE
    return done


def _dies(ground: Ground, fatal: tuple[int, str]) -> None:
    crew = Crew({"holder": partial(_held, ground, fatal)}, ground.root)
    crew.start("holder")
    if crew.wait("holder") != -signal.SIGKILL:
        raise AssertionError(f"{fatal} was never reached")


def _spoil(ground: Ground, content: bytes) -> None:
    Path(ground.folder.removeprefix("file://"), "lease").write_bytes(content)


def leases(seed: int, budget: Budget) -> Tally:
    """
    Every point, and every kind of garbage.
    """
    done = Tally()
    with TemporaryDirectory(dir=scratch(), prefix="bookkeeper-chaos-") as root, served("sqlite", Path(root)) as catalog:
        import_what_a_round_imports(Path(root), catalog)
        ground: Ground = in_fork(partial(Ground.make, Path(root) / "lake", catalog, 1))
        calls: list[str] = in_fork(partial(_held, ground, None))
        points = [(number, when) for number in range(len(calls)) for when in (BEFORE, AFTER)]
        for point in budget.some(points, Random(seed)):
            where = f"{point[1]} {calls[point[0]]} ({point[0]})"
            done += _round(ground, done.rounds, where, partial(_dies, ground, point))
        for content in GARBAGE:
            done += _round(ground, done.rounds, f"garbage of {len(content)} bytes", partial(_spoil, ground, content))
    return done


CLASSES = (FaultClass("kill -9 of the lease's holder, at each call", leases),)
