"""
What each process does for ever: bookkeeper, reaper, compactor, a writer of a source with positions, a writer without.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count

import pyarrow as pa

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.errors import BookkeeperError, Fenced, Retry, UnknownOutcome
from bookkeeper.serve.loop import TableLoop, tick_once
from bookkeeper.tick import take_rewrites as duty
from reaper import reap
from reaper.compactor.compactor import Compactor
from reaper.compactor.worker import rewrite
from tests.chaos.processes.ground import BRISK, OLD, Ground, now
from writers.writer import Writer

AT_ONCE = 3
PAUSE_SECONDS = 0.02


def bookkeeper(ground: Ground, lease: bool) -> None:
    """
    Ticks without a rest, and looks for rewrites all the time.
    """
    duty.LIST_EVERY = duty.LIST_SELDOM = timedelta(milliseconds=50)
    slot = TableLoop("events", lambda: ground.book(lease))
    while True:
        tick_once(slot, BRISK, now())
        if slot.trouble and slot.error is not None and not isinstance(slot.error, Retry):
            raise slot.error
        time.sleep(0.005)


def reaper(ground: Ground) -> None:
    """
    Expires and deletes as early as it may.
    """
    while True:
        with suppress(Retry):
            reap(open_catalog(ground.settings.catalog), ground.table, now(), release_brake=True)
        time.sleep(0.03)


def eager(ground: Ground) -> Compactor:
    """
    A compactor that makes one file of two.
    """
    settings = replace(ground.table.compaction, engine="own", fan_in=2)
    return Compactor(replace(ground.table, compaction=settings), rewrite, now)


def compactor(ground: Ground) -> None:
    """
    Rewrites what it may as soon as it may.
    """
    made = eager(ground)
    while True:
        with suppress(Retry):
            done = made.round(open_catalog(ground.settings.catalog), now())
            if done.rewrites:
                ground.note("compactor", str(done.rewrites))
        time.sleep(0.03)


def source(ground: Ground, name: str = "source") -> None:
    """
    Copies an endless source; a run that is fenced or does not know ends, and the next one goes on.
    """
    while True:
        with suppress(Fenced, UnknownOutcome, Retry):
            for _ in copied(ground, name):
                time.sleep(PAUSE_SECONDS)


def copied(ground: Ground, name: str, end: int = 10**9) -> Iterator[None]:
    """
    One run of the writer of a source, up to row `end`; notes before each publish how far it will be.
    """
    with Writer.open(ground.folder, name) as writer:
        at = int(writer.position or b"0")
        while at < end:
            keys = source_keys(at, min(at + AT_ONCE, end))
            writer.write(rows(keys))
            at += len(keys)
            ground.note(name, str(at))
            writer.publish(position=b"%d" % at)
            yield


def source_keys(start: int, end: int) -> list[str]:
    """
    The rows of the source.
    """
    return [f"s/{number}" for number in range(start, end)]


def plain(ground: Ground, name: str) -> None:
    """
    Publishes rows that no source has again; notes them before (?) and once they are published (!).
    """
    while True:
        with suppress(BookkeeperError), Writer.open(ground.folder, name) as writer:
            for number in count():
                _publish(ground, writer, number)
                time.sleep(PAUSE_SECONDS)


def _publish(ground: Ground, writer: Writer, number: int) -> None:
    old = number % 5 == 4
    stem = f"{OLD if old else ''}{writer.name}/{writer.incarnation}/{number}"
    keys = [f"{stem}{letter}" for letter in "ab"]
    ground.note(writer.name, *(() if old else ("?", *keys)) or ("-",))
    writer.write(rows(keys, days_ago=int(old)))
    writer.publish()
    ground.note(writer.name, *(("-",) if old else ("!", *keys)))


def rows(keys: list[str], days_ago: int = 0) -> pa.Table:
    """
    One row per key.
    """
    at = pa.array([now() - timedelta(days=days_ago)] * len(keys), pa.timestamp("us", "UTC"))
    return pa.table({"timestamp": at, "key": keys, "value": [b"v"] * len(keys)})
