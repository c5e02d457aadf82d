"""
The lease: take-over within a stated bound, and switched off it costs lost races, never a row.

The bound: a kill gives the lease back at once (the kernel does it), and a standby asks at each of its ticks, so
the next commit is made at its first tick after the kill: at most `every` later, and what that tick takes.
"""

import random
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.config.settings import Daemon
from bookkeeper.leases.lease import FileLease, Lease, NoLease
from bookkeeper.serve.health import health
from bookkeeper.serve.loop import TableLoop, tick_once
from bookkeeper.tick.tick import Bookkeeper
from tests.support.crew import Crew
from tests.support.faults import Faults
from tests.support.lake import Lake, Writes

EVERY = timedelta(seconds=1)
DAEMON = Daemon(every=EVERY, backoff_most=timedelta(seconds=2))
SPOTS = ("load_table", "read folder/pending", "create metadata", "commit_table", "folder/marks.json", "delete folder")


def leased(lake: Lake, holder: str) -> Bookkeeper:
    book = lake.book()
    book.lease = lease_of(lake, holder)
    return book


def lease_of(lake: Lake, holder: str) -> FileLease:
    return FileLease(f"{lake.made.folder.removeprefix('file://')}/lease", holder)


HOLDER = """
import sys
from datetime import UTC, datetime
from bookkeeper.leases.lease import FileLease
print(FileLease(sys.argv[1], "holder").hold(datetime.now(UTC)), flush=True)
sys.stdin.read()
"""


def test_after_kill_9_of_its_holder_the_next_tick_of_a_standby_commits(lake: Lake, writer: Writes) -> None:
    slot = TableLoop("events", lambda: leased(lake, "standby"))
    path = lease_of(lake, "holder").path
    command = [sys.executable, "-c", HOLDER, path]
    with Crew({"holder": command}, lake.root) as crew:
        assert crew.start("holder", stdin=subprocess.PIPE, stdout=subprocess.PIPE).stdout.readline() == b"True\n"
        writer.publish("a")
        for _ in range(5):
            assert tick_once(slot, DAEMON, lake.clock.move(seconds=1)) is None
        assert (health(slot, DAEMON, lake.clock.now).state, lake.keys()) == ("standby", [])
        crew.kill("holder")
        killed = lake.clock.now
    tick_once(slot, DAEMON, lake.clock.move(seconds=EVERY.total_seconds()))
    assert lake.keys() == ["a"]
    assert lake.clock.now - killed <= EVERY


def test_a_table_whose_lease_cannot_be_asked_for_waits_as_for_any_storage(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    slot, place = TableLoop("events", lambda: leased(lake, "me")), Path(lease_of(lake, "me").path)
    place.mkdir()  # it cannot be opened as a file
    tick_once(slot, DAEMON, lake.clock.move(seconds=1))
    assert (slot.trouble, lake.keys()) == ("StorageUnavailable", [])
    place.rmdir()
    tick_once(slot, DAEMON, lake.clock.move(seconds=5))
    assert lake.keys() == ["a"]


class Workload:
    """Three bookkeepers in the daemon's loop, whose ticks the others interrupt wherever they are."""

    def __init__(self, root: Path, seed: int, lease: bool) -> None:
        self.lake, self.dice = Lake(root), random.Random(seed)
        self.faults = [Faults() for _ in range(3)]
        self.slots = [TableLoop("events", self._opened(number, lease)) for number in range(3)]
        self.writers = [Writes(self.lake, f"w{number}") for number in range(3)]
        self.expected: list[str] = []

    def _opened(self, number: int, lease: bool) -> Any:
        def opened() -> Bookkeeper:
            book = self.lake.book(self.faults[number])
            held: Lease = lease_of(self.lake, f"b{number}") if lease else NoLease()
            book.lease = held
            return book

        return opened

    def run(self, rounds: int) -> None:
        for number in range(rounds):
            for writer in self.writers:
                self.expected.append(f"{writer.name.writer}-{number:03d}")
                writer.goes_on(b"%d" % (number + 1), self.expected[-1])
            first, second = self.dice.sample(range(3), 2)
            self.faults[first].between(self.dice.choice(SPOTS), lambda other=second: self._turn(other))  # type: ignore[misc]
            self._turn(first)
            self.faults[first].clear()
        for _ in range(5):
            for index in range(3):
                self._turn(index)

    def _turn(self, index: int) -> None:
        tick_once(self.slots[index], DAEMON, self.lake.clock.move(seconds=3))

    @property
    def refused(self) -> int:
        """Commits that were tried and refused."""
        tried = sum(faults.seen.count("commit_table") for faults in self.faults)
        return tried - len(self.lake.table().metadata.snapshots)


@pytest.mark.parametrize("seed", range(3))
def test_switching_the_lease_off_changes_how_much_work_is_lost_and_not_one_row(tmp_path: Path, seed: int) -> None:
    work = {lease: Workload(tmp_path / f"lease-{lease}", seed, lease) for lease in (True, False)}
    for one in work.values():
        one.run(20)
        assert one.lake.keys() == sorted(one.expected)
        assert (one.lake.pending(), one.lake.rejected()) == ([], {})
    assert work[True].refused == 0 < work[False].refused
    marks = [{name: found.position for name, found in one.lake.view().marks.writers.items()} for one in work.values()]
    assert marks[0] == marks[1] == {f"w{number}": b"20" for number in range(3)}
