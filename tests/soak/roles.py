"""
The processes of a soak that are no programs of ours: writers without and with positions, keyed writers, a consumer.

    python -m tests.soak.roles plain-0 CONFIG ROOT SEED PAUSE
    python -m tests.soak.roles copy CONFIG OUTPUT [once]
"""

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa

from bookkeeper.config.load import load
from bookkeeper.console.signals import StopSignal
from bookkeeper.consumers import Consumer, SqlitePlace
from bookkeeper.contract.txlog_folder import folder_url
from bookkeeper.errors import Backpressure, Fenced, StorageUnavailable, UnknownOutcome
from bookkeeper.stores.store import Store
from tests.soak.journal import AT, DONE, TRY, Journal
from tests.soak.plan import COPY, folder_of
from writers import Writer
from writers.reach import CATALOG, Reach

KEYS = 150


def now_ms() -> int:
    """
    The time.
    """
    return int(time.time() * 1000)


@dataclass
class Job:
    """A writer: its folder, journal and rhythm."""

    name: str
    folder: str
    stores: Callable[[str], Store]
    journal: Journal
    seed: int
    pause: float
    stop: StopSignal = field(default_factory=StopSignal.on_signals)

    def runs(self, run: Callable[["Job", Writer], None]) -> None:
        """Runs until a signal; a run that is fenced or does not know ends, and the next one goes on."""
        while not self.stop.requested:
            opened = partial(Writer.open, self.folder, self.name, stores=self.stores)
            with suppress(Fenced, UnknownOutcome), opened() as writer:
                run(self, writer)

    def publish(self, writer: Writer, first: int, last: int, at: int, position: int | None = None) -> None:
        """Publishes what was written, and notes it."""
        while True:
            with suppress(Backpressure, StorageUnavailable):
                txlog = writer.publish(None if position is None else b"%d" % position)
                break
        words = {"first": first, "last": last, "ms": at, "txlog": str(txlog), "published": now_ms()}
        self.journal.say(DONE, **words, position=position)


def plain(job: Job, writer: Writer) -> None:
    """
    Publishes rows that no source has again.
    """
    first = job.journal.next()
    while not job.stop.wait(job.pause):
        last, at = first + 2 + first % 9, now_ms()
        job.journal.say(TRY, first=first, last=last, ms=at)
        writer.write(rows(job.name, first, last, at))
        job.publish(writer, first, last, at)
        first = last + 1


def source(job: Job, writer: Writer) -> None:
    """
    Copies an endless source from where the last run ended.
    """
    first = int(writer.position or b"0")
    job.journal.say(AT, position=first)
    while not job.stop.wait(job.pause):
        last, at = first + 2 + first % 9, now_ms()
        job.journal.say(TRY, first=first, last=last, ms=at)
        writer.write(rows(job.name, first, last, at))
        job.publish(writer, first, last, at, position=last + 1)
        first = last + 1


def keyed(job: Job, writer: Writer) -> None:
    """
    Applies an endless list of operations from where the last run ended.
    """
    number = int(writer.position or b"0")
    job.journal.say(AT, position=number)
    while not job.stop.wait(job.pause):
        made, at = changes(job.seed, job.name, number), now_ms()
        ids, values = [key for key, _ in made], [value for _, value in made]
        table = pa.table({"id": pa.array(ids, pa.int64()), "value": pa.array(values, pa.string())})
        job.journal.say(TRY, first=number, last=number, ms=at)
        writer.change(table, pa.array([value is None for value in values]))
        job.publish(writer, number, number, at, position=number + 1)
        number += 1


def changes(seed: int, name: str, number: int) -> list[tuple[int, str | None]]:
    """
    Operation `number` of a keyed writer: keys, each with its new value, or None: deleted. Each writer has its own keys.
    """
    rng, base = Random(f"{seed}/{name}/{number}"), 1000 * int(name.rpartition("-")[2])
    keys = [base + rng.randrange(KEYS) for _ in range(rng.randint(1, 6))]
    return [(key, None if rng.random() < 0.25 else f"{name}/{number}") for key in keys]


def rows(name: str, first: int, last: int, at: int) -> pa.Table:
    """
    Rows of `events`.
    """
    numbers = range(first, last + 1)
    times = pa.array([at * 1000] * len(numbers), pa.timestamp("us", "UTC"))
    values = [f"{name} says {number}" for number in numbers]
    return pa.table({"timestamp": times, "writer": [name] * len(numbers), "number": numbers, "value": values})


def copy(config: str, output: str, follow: bool) -> None:
    """
    A consumer with an output of its own, which has its place too.
    """
    stop, connection = StopSignal.on_signals(), sqlite3.connect(output, timeout=30)
    connection.execute("CREATE TABLE IF NOT EXISTS seen (writer TEXT, number INTEGER)")
    connection.commit()
    place, columns = SqlitePlace(connection), ("writer", "number")
    with Consumer.open(config, "events", name=COPY, place=place, columns=columns, wait=stop.wait) as consumer:
        for batch in consumer.batches(follow=follow, every=timedelta(seconds=1)):
            pairs = zip(*(batch.table[column].to_pylist() for column in columns), strict=True)
            with connection:
                connection.executemany("INSERT INTO seen VALUES (?, ?)", list(pairs))
                consumer.commit(batch)
            if stop.requested:
                break


KINDS = {"plain": (plain, "events"), "source": (source, "events"), "keyed": (keyed, "state")}


def main(name: str, config: str, root: str, *more: str) -> None:
    """
    One process, until SIGTERM.
    """
    if name == COPY:
        copy(config, root, follow=not more)
        return
    run, table = KINDS[name.partition("-")[0]]
    journal = Journal(Path(root) / "journal" / name)
    settings = load(config, os.environ)
    section, reach = settings.tables[table], Reach(settings)
    is_governed = section.credentials == CATALOG
    place = folder_url(section, reach.location(section)) if is_governed else section.folder or folder_of(config, table)
    Job(name, place, reach, journal, int(more[0]), float(more[1])).runs(run)


if __name__ == "__main__":
    main(*sys.argv[1:])
