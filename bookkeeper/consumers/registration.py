"""
The record of a Consumer in `consumers/` of the txlog folder: what the reaper keeps for it.

It follows the place: a record is written only for a place that is durable in the output. So it is at that place or
behind it, and a crash at any moment makes the reaper keep more, never less.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.consumers.place import Place, parse
from bookkeeper.errors import Changed, ConsumerFenced, Missing, NotPossible, Unfit
from bookkeeper.history.registry import (
    ALL_FILES,
    BEFORE_ALL,
    ITSELF,
    RECORD_BYTES,
    Consumer,
    checked,
    configured,
    dumps,
    key_of,
    loads,
)
from bookkeeper.stores.store import Store

_TRIES = 5
#: of an epoch; it is no larger than a BIGINT of a database
_RANDOM_BITS, _EPOCHS = 32, 2**62


class Registration:
    """The record of the consumer `name`; `items` are the consumers that the configuration names."""

    def __init__(
        self, folder: Store, items: Iterable[Mapping[str, Any]], name: str, table: str, clock: Callable[[], datetime]
    ) -> None:
        """Raises ConfigInvalid for a name that cannot be one, NotPossible for one that the configuration has."""
        self.name, self._folder, self._clock, self.table = checked(name), folder, clock, table
        self._tag = ""
        #: the record as it was last read or written
        self.record: Consumer | None = None
        if name in {consumer.name for consumer in configured(items)}:
            raise NotPossible(f"consumer {name} is in the configuration", hint="Take another name.")

    def now(self) -> datetime:
        """The time of this machine."""
        return self._clock()

    def read(self) -> Place | None:
        """
        The place in the record, None where there is none; raises NotPossible, PlaceRefused, StorageUnavailable.
        """
        try:
            data, self._tag = self._folder.read_tagged(key_of(self.name), RECORD_BYTES)
        except Missing:
            self.record, self._tag = None, ""
            return None
        except Unfit as exc:
            raise NotPossible(f"the record of consumer {self.name} is not read: {exc}") from exc
        found = loads(self.name, data)
        if found.broken or found.by != ITSELF:
            why = found.broken or "it is registered as a query or reader of another kind"
            raise NotPossible(
                f"consumer {self.name}: {why}", hint=f"Take another name, or `bookkeeper consumers remove {self.name}`."
            )
        if not 0 <= found.epoch < _EPOCHS:
            raise NotPossible(f"the record of consumer {self.name} has the epoch {found.epoch}, which no run wrote")
        self.record = found
        parse(found.start, self.table, self._where)
        return parse(found.place, self.table, self._where)

    @property
    def _where(self) -> str:
        return f"{self._folder.url}/{key_of(self.name)}"

    @property
    def start(self) -> Place | None:
        """Where its consumer began, None where there is no record."""
        return None if self.record is None else parse(self.record.start, self.table, self._where)

    @property
    def has_progressed(self) -> bool:
        """Whether its consumer has committed anything since it was first opened."""
        return self.record is not None and self.record.place != self.record.start

    def follow(self, place: Place) -> bool:
        """
        Registers a place that was durable in the output after the record was read. A crash leaves the record behind it.

        False: another run has written the record since, perhaps a later place; it is read again, then read the place
        anew. Raises as `read`.
        """
        if self.record is not None and self.record.place == str(place):
            return True
        if self._swapped(self._moved(place)):
            return True
        self.read()
        return False

    def create(self, place: Place) -> bool:
        """Registers a new consumer; False when another run was first."""
        self.record, self._tag = None, ""
        return self._swapped(self._moved(place))

    def forget(self) -> None:
        """Removes the record."""
        self._folder.delete_many([key_of(self.name)])
        self.record, self._tag = None, ""

    def take_over(self, start: Place) -> Place:
        """Fences every earlier run whose place is in the record; returns that place."""
        for _ in range(_TRIES):
            place = self.read() or start
            wanted = self._moved(place)
            if self._swapped(replace(wanted, epoch=_later(wanted.epoch))):
                return place
        raise ConsumerFenced(f"other runs of {self.name} start at this moment")

    def check(self) -> None:
        """Raises ConsumerFenced when the record is not this run's any more."""
        try:
            there = loads(self.name, self._folder.read(key_of(self.name), RECORD_BYTES))
        except (Missing, Unfit) as exc:
            raise self._fenced() from exc
        # By the epoch: a put of this run whose reply was lost has another tag than this run knows.
        if self.record is None or there.epoch != self.record.epoch:
            raise self._fenced()

    def swap(self, before: str, place: Place) -> None:
        """Moves the place, if the record is as this run left it; raises ConsumerFenced."""
        if self.record is None or self.record.place != before or not self._swapped(self._moved(place)):
            raise self._fenced()

    def _fenced(self) -> ConsumerFenced:
        return ConsumerFenced(f"another run of {self.name} has taken over: {self._where} has changed")

    def _moved(self, place: Place) -> Consumer:
        start = self.record.start if self.record else str(place)
        epoch = self.record.epoch if self.record else 0
        return Consumer(
            self.name,
            snapshot=BEFORE_ALL if place.snapshot is None else place.snapshot,
            registered=self._clock(),
            by=ITSELF,
            position=ALL_FILES if place.files is None and place.snapshot is not None else place.files or 0,
            whole=place.whole,
            place=str(place),
            start=start,
            epoch=epoch,
        )

    def _swapped(self, wanted: Consumer) -> bool:
        data = dumps(wanted)
        try:
            self._tag = self._folder.replace(key_of(self.name), data, if_match=self._tag)
        except Changed:
            # Our own put, whose reply was lost, or another run.
            try:
                there, tag = self._folder.read_tagged(key_of(self.name), RECORD_BYTES)
            except (Missing, Unfit):
                return False
            if there != data and not self._is_earlier_put(there, wanted):
                return False
            self._tag = tag
        self.record = wanted
        return True

    def _is_earlier_put(self, there: bytes, wanted: Consumer) -> bool:
        """Whether it is this move, tried before at another time: only this run writes its epoch (0: none was taken)."""
        found = loads(self.name, there)
        return bool(wanted.epoch) and (found.epoch, found.place) == (wanted.epoch, wanted.place)


def _later(epoch: int) -> int:
    """
    A greater epoch. Counted, so that the output can compare; random below that, because of two runs that start at one
    moment each must write bytes of its own.
    """
    return (epoch >> _RANDOM_BITS) + 1 << _RANDOM_BITS | int.from_bytes(os.urandom(_RANDOM_BITS // 8), "big")


class FolderPlace:
    """
    The place is the consumer's record in the txlog folder. Rows are read **at least once**: a crash between the output
    and the place reads a batch again. An output that is replaced by `Batch.key` makes it exactly once, as long as it
    refuses what comes with a smaller `Batch.epoch` than it has: an earlier run may still be writing.
    """

    def __init__(self) -> None:
        self.registration: Registration | None = None

    @property
    def _record(self) -> Registration:
        assert self.registration is not None, "set by Consumer.open"
        return self.registration

    @property
    def epoch(self) -> int:
        record = self._record.record
        return 0 if record is None else record.epoch

    def check(self, consumer: str) -> None:
        self._record.check()

    def read(self, consumer: str) -> str | None:
        place = self._record.read()
        return None if place is None else str(place)

    def begin(self, consumer: str, start: str) -> str:
        return str(self._record.take_over(self._parsed(start)))

    def commit(self, consumer: str, before: str, after: str, output: pa.Table | None) -> None:
        if output is not None:
            raise NotPossible("this place is not in the output: write the rows first, then commit the batch")
        self._record.swap(before, self._parsed(after))

    def move(self, consumer: str, before: str, after: str, like: pa.Schema) -> None:
        self.commit(consumer, before, after, None)

    def durable(self, consumer: str) -> str | None:
        return None if self._record.record is None else self._record.record.place

    def _parsed(self, text: str) -> Place:
        return parse(text, self._record.table, "the place")
