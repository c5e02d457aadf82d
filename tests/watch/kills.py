"""
Two instances of `writer watch` and a bookkeeper, all killed at random, while objects are dropped and replaced.

    python -m tests.watch.kills --objects 2000 --seed 7
    python -m tests.watch.kills --objects 100000 --at-once 5000 --pause 20 --seconds 600

Each version of an object has a row of its own. In the end each version that was not replaced while it lay there is in
the table once, one that was replaced at most once, and the prefix is empty but for those that are no rows. Now and then
a data file of a pending txlog goes away, so that it is rejected.
"""

import argparse
import io
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event, Thread

import pyarrow as pa
import pyarrow.parquet as pq

from bookkeeper.contract import txlog
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import BookkeeperError
from bookkeeper.stores.locations import local_path
from bookkeeper.stores.open import open_store
from tests.http.served import numbers, queue
from tests.support.configured import configured, program
from tests.support.crew import Crew
from writers.watch.plan import is_hidden

BOOKKEEPER = "bookkeeper"


@dataclass(frozen=True)
class Size:
    """
    Versions of objects in all, and how many lie there at once; between two kills `pause` seconds on average. After
    `seconds` no more are dropped.
    """

    objects: int
    at_once: int = 500
    pause: float = 8.0
    kills: int = 2
    rejects: int = 1
    instances: int = 2
    seconds: float = 3600.0


@dataclass
class Account:
    """What was dropped, what is in the table, and what is wrong."""

    dropped: set[int] = field(default_factory=set)
    replaced: set[int] = field(default_factory=set)
    bad: set[int] = field(default_factory=set)
    kills: Counter[str] = field(default_factory=Counter)
    rejects: int = 0
    missing: int = 0
    double: int = 0
    #: versions that lie in _rejected/, and those that lie elsewhere
    kept: int = 0
    left: int = 0
    loaded_and_replaced: int = 0

    def compare(self, rows: list[int]) -> None:
        """With the numbers in the table."""
        counts = Counter(rows)
        good = self.dropped - self.bad
        self.missing = len(good - self.replaced - counts.keys())
        self.double = sum(count - 1 for count in counts.values()) + len(counts.keys() - good)
        self.loaded_and_replaced = len(self.replaced & counts.keys())

    @property
    def right(self) -> bool:
        return not (self.missing or self.double or self.left) and self.kept == len(self.bad)


def content(number: int, kind: int) -> tuple[str, bytes]:
    """
    The ending and bytes of a version.
    """
    if kind == 0:
        return ".csv", f"n,who\n{number},drops\n".encode()
    if kind == 1:
        out = io.BytesIO()
        pq.write_table(pa.table({"n": [number], "who": ["drops"]}), out)
        return ".parquet", out.getvalue()
    return ".ndjson", b'{"n":%d}\n' % number


class World:
    """A table with its bookkeeper, a prefix on a disk, and instances that watch it."""

    def __init__(self, folder: Path, size: Size, seed: int) -> None:
        self.size, self.random, self.account = size, Random(seed), Account()
        self.table = queue(folder)
        self.prefix = folder / "drops"
        self.prefix.mkdir()
        keeper = program(BOOKKEEPER, configured(self.table, bookkeeper={"every": "200ms"}))
        watch = [sys.executable, "-m", "writers", "watch", "--folder", self.table.made.folder, "--name", "drops"]
        watch += ["--from", str(self.prefix), "--every", "300ms", "--settle", "0s", "--quiet"]
        self.crew = Crew({BOOKKEEPER: keeper, **{f"watcher {n}": watch for n in range(size.instances)}}, folder)
        self.over = Event()

    def run(self) -> None:
        """Until all is dropped and in the table."""
        for role in self.crew.commands:
            self.crew.start(role)
        self.crew.until((self.prefix / "_bookkeeper" / "watch.json").exists)
        others = [Thread(target=act) for act in (self._kill, self._reject)]
        for thread in others:
            thread.start()
        try:
            self._drop()
            while self.account.kills.total() < self.size.kills or self.account.rejects < self.size.rejects:
                self._drop_one(f"more-{len(self.account.dropped)}", len(self.account.dropped))
                time.sleep(0.05)
        finally:
            self.over.set()
            for thread in others:
                thread.join()
        self._settle()

    def _drop(self) -> None:
        number, until = 0, time.monotonic() + self.size.seconds
        while number < self.size.objects and time.monotonic() < until:
            if number % 100 == 0 and len(self.lying()) >= self.size.at_once:
                time.sleep(0.05)
                continue
            # of few names many versions, so that some are replaced while they lie there
            few = self.random.random() < 0.2
            name = f"often-{self.random.randrange(50)}" if few else f"{number % 7}/once-{number}"
            self._drop_one(name, number, few)
            number += 1

    def _drop_one(self, name: str, number: int, few: bool = False) -> None:
        account = self.account
        ending, data = content(number, 2 if few else self.random.randrange(10))
        if not few and self.random.random() < 0.002:
            data = b"none %d" % number
            account.bad.add(number)
        path, hidden = self.prefix / f"{name}{ending}", self.prefix / "_writing"
        path.parent.mkdir(exist_ok=True)
        hidden.write_bytes(data)
        before = _number_in(path) if few else None
        hidden.rename(path)
        account.dropped.add(number)
        if before is not None:
            account.replaced.add(before)

    def lying(self) -> list[str]:
        """What was dropped and lies there."""
        return [item.key for item in open_store(str(self.prefix)).list("") if not is_hidden(item.key)]

    def _kill(self) -> None:
        random = Random(self.random.random())
        while not self.over.wait(random.random() * 2 * self.size.pause):
            for role in self.crew.ended():
                self.account.kills[f"ended by itself: {role}"] += 1
                self.crew.start(role)
            role = random.choice([*self.crew.commands])
            self.account.kills[role.partition(" ")[0]] += 1
            self.crew.kill(role)
            self.over.wait(random.random() * self.size.pause / 2)
            self.crew.start(role)

    def _reject(self) -> None:
        """A data file of a pending txlog goes away."""
        folder = Folder(open_store(self.table.made.folder))
        while not self.over.wait(0.002):
            if self.account.rejects * 5 > self.account.kills.total():
                continue
            for item in folder.pending():
                try:
                    data = folder.store.read(f"pending/{item.name}")
                    files = txlog.decode(item.name, data, 2**26).files
                    os.unlink(local_path(files[0].path) or "")
                    self.over.wait(1)
                    self.account.rejects += len([*folder.rejected()]) > self.account.rejects
                except (BookkeeperError, OSError):
                    continue

    def _settle(self) -> None:
        account = self.account
        self.crew.until(lambda: not self.lying(), 300)
        folder = Folder(open_store(self.table.made.folder))
        self.crew.until(lambda: not folder.pending())
        account.compare(numbers(self.table))
        account.kept = len([*self.prefix.glob("_rejected/*.reason.json")])
        hidden = [path.name for path in self.prefix.rglob(".*.deleting")]
        account.left = len(self.lying()) + len(hidden)


def _number_in(path: Path) -> int | None:
    try:
        return int(json.loads(path.read_bytes())["n"])
    except FileNotFoundError:
        return None


def played(folder: Path, size: Size, seed: int) -> Account:
    """
    One run; the account of it.
    """
    world = World(folder, size, seed)
    with world.crew:
        world.run()
    return world.account


def main() -> None:
    """Exits 1 where a version is missing or double."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--objects", type=int, default=2000, help="versions in all")
    options.add_argument("--at-once", type=int, default=500, help="objects that lie there at once, about")
    options.add_argument("--pause", type=float, default=8.0, help="seconds between two kills, on average")
    options.add_argument("--seconds", type=float, default=3600.0, help="drop no more after so long")
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        size = Size(given.objects, given.at_once, given.pause, seconds=given.seconds)
        account = played(Path(folder) / "world", size, given.seed)
    seconds = time.monotonic() - began
    print(f"{len(account.dropped)} versions: {account.missing} missing, {account.double} double, {account.left} left")
    print(f"{len(account.replaced)} replaced, {account.loaded_and_replaced} of them loaded before")
    print(f"{len(account.bad)} no rows, {account.kept} of them in _rejected/; {account.rejects} txlogs rejected")
    print(f"killed {dict(account.kills)}; {seconds:.0f} s, {len(account.dropped) / seconds:.0f} versions a second")
    sys.exit(0 if account.right else 1)


if __name__ == "__main__":
    main()
