"""
Several processes that share the files of a table: each reads its own share, and that of a member that is away.

A share is a consumer of its own, with a place and a record of its own; a file belongs to a share by its path. Leases
say which member reads which share, and no promise rests on them: a member that lost its lease unnoticed is fenced by
the place, as any two runs of one consumer are. A crash leaves a lease that ends by itself; then the share is borrowed.
"""

import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.config.settings import Settings
from bookkeeper.config.share import parse
from bookkeeper.consumers.consumer import EVERY, LIMITS, PATIENCE, Batch, Consumer, Limits, Wait, pause, utc_now
from bookkeeper.consumers.lost import Skipped
from bookkeeper.consumers.place import Place
from bookkeeper.consumers.place_keepers import PlaceKeeper
from bookkeeper.consumers.share_leases import share_lease
from bookkeeper.consumers.source import BEGINNING, Clock, Source, registered_at
from bookkeeper.errors import ConfigInvalid, NotPossible, Retry
from bookkeeper.history.registry import FOLDER, Registry
from bookkeeper.leases.lease import Lease


class ConsumerGroup:
    """
    One member of a group: `with ConsumerGroup.open("config.toml", "events", name="sums", share="1/3", place=...)`.

    Used as a Consumer. The number of shares is fixed for the life of the group.
    """

    def __init__(
        self, source: Source, name: str, share: str, place: Callable[[], PlaceKeeper], start: str | datetime, **how: Any
    ) -> None:
        self._source, self._place, self._start, self._how = source, place, start, how
        self._clock, self._wait = how.get("clock", utc_now), how.get("wait", pause)
        try:
            self._number, self.shares = parse(share)
        except ValueError as exc:
            raise ConfigInvalid(f"share = {share!r}: {exc} is allowed") from exc
        self._names = {number: f"{name}-{number}of{self.shares}" for number in range(1, self.shares + 1)}
        self._refuse_other_size(name)
        self._register(start)
        self._leases = {number: self._lease(number) for number in self._names}
        self._open: dict[int, Consumer] = {}
        self._current: Consumer | None = None

    @classmethod
    def open(  # noqa: PLR0913  (what Consumer.open takes, and the share)
        cls,
        config: str | os.PathLike[str] | Settings,
        table: str | None = None,
        *,
        name: str,
        share: str,
        place: Callable[[], PlaceKeeper],
        start: str | datetime = BEGINNING,
        skip_overwrites: bool = False,
        columns: Iterable[str] = (),
        limits: Limits = LIMITS,
        clock: Clock = utc_now,
        wait: Wait = pause,
    ) -> "ConsumerGroup":
        """
        The member with this `share` of n, such as "1/3"; `place` makes the place of a share, one object for each.

        Raises as Consumer.open, and NotPossible when the group has another number of shares.
        """
        how = {"skip_overwrites": skip_overwrites, "limits": limits, "clock": clock, "wait": wait}
        return cls(Source.of(config, table, columns), name, share, place, start, **how)

    @property
    def held(self) -> list[int]:
        """The numbers of the shares that this member reads now."""
        return sorted(self._open)

    def batches(self, *, follow: bool = True, every: timedelta = EVERY) -> Iterator[Batch]:
        """
        The rows of the shares that this member holds; otherwise as `Consumer.batches`.
        """
        trouble: datetime | None = None
        while True:
            try:
                for number in self._names:
                    yield from self._of(number)
                trouble = None
            except Retry:
                trouble = trouble or self._clock()
                if not follow or abs(self._clock() - trouble) >= PATIENCE:
                    raise
            if not follow or self._wait(every.total_seconds()) is True:
                return

    def commit(self, batch: Batch, output: pa.Table | None = None) -> None:
        """
        Moves the place of the batch's share past it; raises as `Consumer.commit`.
        """
        if self._current is None:
            raise NotPossible("no batch was given yet")
        self._current.commit(batch, output)

    def skip_lost(self) -> dict[int, Skipped]:
        """
        Goes on after rows that are lost to shares that this member reads; by share, as `Consumer.skip_lost`.

        Each member calls it: a share that another member reads is left to that one.
        """
        return {number: self._open[number].skip_lost() for number in self._names if self._holds(number)}

    def catch_up(self) -> dict[int, Place]:
        """The shares that this member reads, as `Consumer.catch_up`."""
        return {number: self._open[number].catch_up() for number in self._names if self._holds(number)}

    def take_all(self) -> bool:
        """Whether this member reads all shares: it borrows those that are free. Not within a transaction."""
        held = [self._holds(number) for number in self._names]  # each is asked: that of a free one takes seconds
        return all(held)

    def restart(self, start: str | datetime = BEGINNING) -> dict[int, Place]:
        """
        All shares, at one place, as `Consumer.restart`; raises NotPossible while another member reads one of them.

        A rewrite between two places would put rows of one share into a file of another: lost, or read twice.
        """
        if not self.take_all():
            away = next(number for number in self._names if number not in self._open)
            raise NotPossible(
                f"share {away} of {self.shares} is read by another member, or was until now",
                hint="Stop all other members, and wait for take_all(): this one borrows their shares within seconds.",
            )
        begin: str | datetime | Place = start
        found = dict[int, Place]()
        for number, consumer in self._open.items():
            begin = found[number] = consumer.restart(begin)
        return found

    def close(self) -> None:
        """Gives its shares back to the others."""
        for number in self.held:
            self._give_back(number)
        for lease in self._leases.values():
            lease.release()

    def __enter__(self) -> "ConsumerGroup":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            for lease in self._leases.values():
                lease.release()

    def _of(self, number: int) -> Iterator[Batch]:
        """What is new of a share, if this member holds it; the lease is asked for again after each batch."""
        if not self._holds(number):
            return
        self._current = self._open[number]
        for batch in self._current.batches(follow=False):
            yield batch
            self._keep_leases()
            if number not in self._open:
                return

    def _keep_leases(self) -> None:
        """While it reads one share that is far behind, no lease of the others ends, and no request for one waits."""
        for number in {self._number, *self._open}:
            if not self._leases[number].hold(self._clock()) and number in self._open:
                self._give_back(number)

    def _holds(self, number: int) -> bool:
        if not self._leases[number].hold(self._clock()):
            if number in self._open:
                self._give_back(number)
            return False
        if number not in self._open:
            share = (number, self.shares)
            self._open[number] = Consumer.at(
                self._source, self._names[number], self._place(), self._start, share=share, **self._how
            )
        return True

    def _give_back(self, number: int) -> None:
        self._open.pop(number).close()

    def _register(self, start: str | datetime) -> None:
        """
        Registers all shares: one that is opened later begins where the group began, which is the first share's start.

        A crash in between leaves some of them, held at that start; whichever member is next registers the others there.
        """
        begin: str | datetime | Place = start
        for one in self._names.values():
            registration = self._source.registration(one, self._clock)
            registered_at(self._source.load, registration, begin)
            begin = begin if isinstance(begin, Place) else registration.start or begin

    def _lease(self, number: int) -> Lease:
        holder = f"{socket.gethostname()} {os.getpid()}"
        return share_lease(self._source.folder, f"{FOLDER}{self._names[number]}", holder, number == self._number)

    def _refuse_other_size(self, name: str) -> None:
        pattern = re.compile(rf"{re.escape(name)}-\d+of(\d+)")
        known = Registry(self._source.folder, self._source.about.consumers).all()
        for found in filter(None, (pattern.fullmatch(consumer.name) for consumer in known)):
            if int(found[1]) != self.shares:
                raise NotPossible(
                    f"the group {name} has {found[1]} shares, not {self.shares}: others would read all rows again",
                    hint="Read everything, stop all members, and take another name with start=...; or keep the number.",
                )
