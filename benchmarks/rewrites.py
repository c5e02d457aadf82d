"""
The commit of a rewrite of 16 files into one, among many live files; wall and CPU.

    python -m benchmarks.rewrites [--big]

What is timed is all that the bookkeeper does about it: list rewrites/, load the table, read the rewrite, look up its
new file, find the replaced files, check, commit, delete the rewrite. The newest files lie in small manifests, old ones
in the largest one.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from benchmarks.support.harness import Chosen, Timing, alone, median, now, timed
from benchmarks.support.synthetic import ROWS, Queue, data_file
from bookkeeper.contract.pending_rewrites import publish
from bookkeeper.contract.rewrite import Base, ReplacedFile, encode
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.tick import take_rewrites as duty

FAN_IN, NEW_BYTES = 16, 1000
#: that the table was made by: a queue has few files of one commit
COMMITS = 100
SIZES = {"toy": (400,), "short": (1_000, 10_000, 100_000), "big": (1_000, 10_000, 100_000, 1_000_000)}
ROUNDS = {"toy": 2, "short": 30, "big": 30}
PARTS = ("load", "check", "commit")


@dataclass
class Table:
    """A table of so many live files, and rewrites of them."""

    root: Path
    files: int

    def __post_init__(self) -> None:
        self.queue = Queue.at(self.root)
        Path(self.queue.card.data_path.removeprefix("file://")).mkdir(parents=True, exist_ok=True)
        self.book = self.queue.book()
        #: the first file of each commit, and the sequence number of that
        self.commits = list[tuple[int, int]]()
        self.old = Random(self.files)
        self.rewritten = set[int]()
        for _ in range(COMMITS):
            self.append(1, self.files // COMMITS)

    def append(self, txlogs: int, files: int) -> None:
        """One commit, as a tick makes it."""
        view, first = self.book.view, self.queue.files
        self.commits.append((first, view.metadata.last_sequence_number + 1 if view else 1))
        self.queue.publish(txlogs, files, now())
        self.book.duties.rewrites.turns.due.last = now()
        assert self.book.tick(now()).commit is not None

    def newest(self) -> Sequence[int]:
        """Files of four new commits."""
        first = self.queue.files
        for _ in range(4):
            self.append(1, FAN_IN // 4)
        return range(first, first + FAN_IN)

    def oldest(self) -> Sequence[int]:
        """Files side by side, of the largest manifests, that were not rewritten before."""
        while True:
            first = self.old.randrange(0, self.files - FAN_IN, FAN_IN)
            if first not in self.rewritten:
                self.rewritten.add(first)
                return range(first, first + FAN_IN)

    def publish(self, numbers: Sequence[int]) -> None:
        """A rewrite of these files, whose new file is there."""
        card, view = self.queue.card, self.book.view
        assert view is not None and view.head is not None
        rewrite_id = str(uuid.uuid4())
        path = f"{card.data_path}/{rewrite_id}.parquet"
        Path(path.removeprefix("file://")).write_bytes(b"PAR1".ljust(NEW_BYTES, b"\0"))
        new = data_file(card.schema, path, numbers[0], FAN_IN * ROWS, NEW_BYTES)
        old = [ReplacedFile(self._file(number), *[self._sequence(number)] * 2) for number in numbers]
        base = Base(view.uuid, view.head.snapshot_id, view.head.sequence_number or 0)
        publish(self.queue.folder, rewrite_id, encode(rewrite_id, base, card.schema, card.spec, [new], old))

    def _file(self, number: int) -> Any:
        return data_file(self.queue.card.schema, self.queue.location(number), number)

    def _sequence(self, number: int) -> int:
        return max(sequence for first, sequence in self.commits if first <= number)

    def commit(self) -> Timing:
        """The bookkeeper's duty, with this rewrite in the folder."""
        rewrites, view = self.book.duties.rewrites, self.book.view
        rewrites.turns.due.again()
        rewrites.sweep_due.take(timedelta(0), now())

        def act() -> None:
            self.book.loaded.view = rewrites.run(view, now())

        took = timed(act)
        assert rewrites.done.committed == 1, "the rewrite was not committed"
        return took


@contextmanager
def in_parts() -> Iterator[dict[str, list[Timing]]]:
    """
    What loading the table, checking and committing took, of every rewrite meanwhile.
    """
    taken: dict[str, list[Timing]] = {name: [] for name in PARTS}

    def around(name: str, whole: Callable[..., Any]) -> Callable[..., Any]:
        def act(*given: Any, **named: Any) -> Any:
            found = list[Any]()
            taken[name].append(timed(lambda: found.append(whole(*given, **named))))
            return found[0]

        return act

    with (
        patch.object(Ledger, "load", around("load", Ledger.load)),
        patch.object(duty, "check_rewrites", around("check", duty.check_rewrites)),
        patch.object(Ledger, "rewrite", around("commit", Ledger.rewrite)),
    ):
        yield taken


def rounds(table: Table, chosen: Callable[[], Sequence[int]], count: int) -> dict[str, Timing]:
    """
    Medians of the whole and of its parts, after a round that fills caches.
    """
    table.publish(chosen())
    table.commit()
    whole, parts = list[Timing](), {name: list[Timing]() for name in PARTS}
    for _ in range(count):
        table.publish(chosen())
        with in_parts() as taken:
            whole.append(table.commit())
        for name in PARTS:
            parts[name] += taken[name]
    return {"all": median(whole), **{name: median(found) for name, found in parts.items()}}


def measure(chosen: Chosen) -> None:
    """
    Both kinds of files, among ever more.
    """
    title = f"The commit of a rewrite of {FAN_IN} files into one; wall (CPU), ms"
    chosen.report.table("rewrites", title, ("live files", "which files", "all of it", *PARTS))
    for files in SIZES[chosen.size]:
        with chosen.folder() as root:
            table = Table(root, files)
            for name, which in (("newest", table.newest), ("oldest", table.oldest)):
                found = rounds(table, which, ROUNDS[chosen.size])
                chosen.report.row(files, name, found["all"], *(found[part] for part in PARTS))


if __name__ == "__main__":
    alone(measure, __doc__)
