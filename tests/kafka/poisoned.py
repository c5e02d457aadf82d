"""
One partition of many whose txlogs are rejected for what is in them: how long the others wait for that, and whether each
of their messages is in the table once.

    python -m tests.kafka.poisoned --partitions 24 --slots 4

The data files of a txlog that names the partition are deleted before it is published, as if they were lost.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from unittest import mock

from bookkeeper.contract import txlog
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import Folder
from tests.kafka.topics import Copy, Topics, queue, running
from tests.servers.kafka import kafka
from tests.support.threads import again_and_again
from writers.timing import pause

LIMIT_SECONDS = 600.0


@contextmanager
def files_lost(partition: int) -> Iterator[None]:
    """
    The data files of each txlog that names this partition are gone: the bookkeeper rejects it with FileMissing.
    """
    rightly = Folder.publish

    def publish(folder: Folder, name: TxlogName, data: bytes) -> None:
        item = txlog.decode(name, data, 2**20)
        if any(channel.endswith(f"/{partition}") for channel in item.offsets):
            for file in item.entries:
                Path(file.data_file.path.removeprefix("file://")).unlink()
        rightly(folder, name, data)

    with mock.patch.object(Folder, "publish", publish):
        yield


@dataclass(frozen=True)
class Outcome:
    """
    After how many seconds the other partitions were complete: from the start, and with what came after that, while the
    partition rests. Rows of the others that are missing and double, those of the partition before and after its files
    are no longer lost.
    """

    first: float
    more: float
    missing: int
    double: int
    poisoned: int
    healed: int

    def right(self, messages: int) -> bool:
        """Whether all is as it has to be, with so many messages of each partition."""
        return (self.missing, self.double, self.poisoned, self.healed) == (0, 0, 0, messages)


class Poisoned:
    """A topic, of which the middle partition is the one, and its copy."""

    def __init__(self, topics: Topics, folder: Path, name: str, partitions: int, slots: int, messages: int) -> None:
        self.topics, self.name, self.slots = topics, name, slots
        self.partitions, self.messages, self.bad = partitions, messages, partitions // 2
        self.table = queue(folder, roll_after=timedelta(seconds=1))
        self.copy = Copy(topics, self.table, name)
        topics.make(name, partitions)

    def play(self, limit: float = LIMIT_SECONDS) -> Outcome:
        """Two rounds of messages with the files lost, each in at most so many seconds, then the rest without."""
        with (
            files_lost(self.bad),
            again_and_again(self.table.tick, 0.1),
            running(self.copy, slots=self.slots),
        ):
            first = self._round(0, self.messages // 2, limit)
            more = self._round(self.messages // 2, self.messages, limit)
        before = self._rows()
        self.copy.run(slots=self.slots)
        after = self._rows()
        others = [(number, n) for number in range(self.partitions) if number != self.bad for n in range(self.messages)]
        healed = sum(1 for number, _ in after if number == self.bad)
        poisoned = sum(1 for number, _ in before if number == self.bad)
        double = after.total() - len(after)
        return Outcome(first, more, len({*others} - before.keys()), double, poisoned, healed)

    def _round(self, first: int, last: int, limit: float) -> float:
        """Sends messages with these numbers to each partition; the seconds until the others are complete."""
        began = time.monotonic()
        for number in range(self.partitions):
            self.topics.numbers(self.name, first, last, number)
        while self.table.table().scan().count() < (self.partitions - 1) * last:
            assert time.monotonic() - began < limit, "the other partitions do not go on"
            pause(0.05)
        return time.monotonic() - began

    def _rows(self) -> Counter[tuple[int, int]]:
        return Counter((partition, n) for _, partition, _, n in self.copy.rows())


def main() -> None:
    """Exits 1 where a row of another partition is missing or double."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--partitions", type=int, default=24)
    options.add_argument("--slots", type=int, default=4)
    options.add_argument("--messages", type=int, default=1000, help="of each partition (default: %(default)s)")
    given = options.parse_args()
    with kafka() as server, tempfile.TemporaryDirectory() as folder:
        scene = Poisoned(Topics(server), Path(folder), "poisoned", given.partitions, given.slots, given.messages)
        found = scene.play()
    print(f"the other {given.partitions - 1} partitions were complete after {found.first:.0f} s")
    print(f"what came then was in the table after {found.more:.0f} s")
    print(f"of theirs {found.missing} missing, {found.double} double")
    print(f"of the one {found.poisoned} rows, and {found.healed} of {given.messages} once its files are there")
    sys.exit(not found.right(given.messages))


if __name__ == "__main__":
    main()
