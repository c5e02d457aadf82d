"""
Object stores whose requests are refused, lost, late and doubled on the wire, under a whole queue: writers, bookkeeper,
and the catalog that is nothing but storage. Both ends' own clients meet the faults, with their retries and all.
"""

import random
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa

from bookkeeper.catalogs.open import STORAGE
from bookkeeper.config.settings import Catalog
from bookkeeper.errors import BookkeeperError, Retry
from bookkeeper.tick.tick import Bookkeeper
from tests.chaos.account import account
from tests.chaos.tally import Budget, FaultClass, Tally
from tests.servers import Unavailable
from tests.servers.line import Fault, Line
from tests.servers.objects import azure_properties, s3_properties
from tests.servers.proxy import Proxy, proxy
from tests.servers.shared import borrowed, place, shared
from tests.support.lake import Clock, Lake
from writers.writer import Writer

FAULTS = (
    Fault.REQUEST_LOST,
    Fault.REFUSED_503,
    Fault.REPLY_LOST,
    Fault.APPLIED_500,
    Fault.TWICE,
    Fault.LATE_BEFORE,
    Fault.LATE_AFTER,
    Fault.LATE_LAST,
)
EVERY = (2, 3, 5)
TXLOGS = 4


class Round(Lake):
    """One queue under one fault: what was published, and what its writers were unsure of."""

    def __init__(self, kind: str, between: Proxy, rng: random.Random) -> None:
        near = {**shared(kind).properties, "py-catalog-impl": STORAGE, "warehouse": place(kind)}
        super().__init__(Path(), catalog=Catalog("lake", near), file_names=None)
        self.between, self.rng = between, rng
        self.far = {"azurite": azure_properties, "s3": s3_properties}[kind](between.port)
        self.published: list[str] = []
        self.unsure: list[str] = []

    def run(self, fault: Fault, every: int) -> int:
        """Writers and bookkeeper under the fault, then without it; how often it was played."""
        line = Line(fault, every, most=25)
        self.between.use(line, all_requests=True)
        book = None
        for number in range(TXLOGS):
            self._write(f"{fault.name}-{every}-{number}")
            book = book if book and self.rng.random() < 0.6 else self._book(self.far)
            self._tick(book)
        self.between.use(Line(), all_requests=True)
        line.flush()
        self._drain()
        return line.injected

    def _write(self, name: str) -> None:
        keys = [f"{name}-{letter}" for letter in "abc"]
        try:
            writer = Writer.open(
                self.made.folder, "w1", clock=self.clock, wait=_at_once, stores=self.far_store(**self.far)
            )
            with writer:
                writer.write(_rows(keys, self.clock))
                self.unsure += keys
                writer.publish()
        except BookkeeperError:
            return
        self.unsure = self.unsure[: -len(keys)]
        self.published += keys

    def _book(self, far: dict[str, str]) -> Bookkeeper | None:
        with suppress(BookkeeperError):
            return self.book(far=far)
        return None

    def _tick(self, book: Bookkeeper | None) -> Any:
        with suppress(Retry):
            return book and self.tick(book)
        return None

    def _drain(self) -> None:
        book = self._book({})
        for _ in range(20):
            done = self._tick(book)
            if done is not None and not done.pending:
                return
        raise AssertionError("still pending after 20 ticks without faults")


def _rows(keys: list[str], clock: Clock) -> pa.Table:
    return pa.table({"timestamp": pa.array([clock.now] * len(keys), pa.timestamp("us", "UTC")), "key": keys})


def _at_once(seconds: float) -> bool:
    return False


def faults(kind: str, seed: int, budget: Budget) -> Tally:
    """
    Every fault at every second, third and fifth request, again until time is up.
    """
    until, done, number = monotonic() + budget.seconds, Tally(), 0
    points = budget.some([(fault, every) for fault in FAULTS for every in EVERY], random.Random(seed))
    try:
        with borrowed(kind) as server, proxy(server.port) as between:
            while not number or monotonic() < until:
                for fault, every in points:
                    done += _round(kind, between, fault, every, seed + number)
                number += 1
    except Unavailable as exc:
        return Tally(skipped=str(exc))
    return done


def _round(kind: str, between: Proxy, fault: Fault, every: int, seed: int) -> Tally:
    made = Round(kind, between, random.Random(f"{seed} {fault} {every}"))
    points = made.run(fault, every)
    done = account(made.published, made.keys(), made.unsure, where=f"{fault.value}, every {every}. (seed {seed})")
    done.points = points
    return done


CLASSES = tuple(
    FaultClass(f"store {kind}: requests lost, late, double", partial(faults, kind)) for kind in ("azurite", "s3")
)
