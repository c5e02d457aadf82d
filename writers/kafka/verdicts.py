"""
Which messages of a slot are put aside: letters/SLOT.json in the txlog folder of the table, from before their letters
are published until the table has passed them.

A run claims the object before it reads: from then on an earlier run adds nothing to it, and what is in it counts for
this run too, whatever it would say of the message itself. So a message that is read again after a crash is in one of
the two tables, never in both. The objects of the other slots count too, for `rehash` moves channels; it claims all.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from bookkeeper.contract.verdicts import MOST_BYTES, key_of
from bookkeeper.errors import Backpressure, Changed, Fenced, Missing, NotPossible, Unfit
from bookkeeper.format import json_text
from bookkeeper.stores.store import Store
from writers.retries import retry
from writers.timing import Wait

_VERSION = 1
#: messages that are put aside while the table has not passed them
MOST = 100_000
_HINT = (
    "Bring it back from an earlier version or a backup. Only if it is lost: move it away; then a message since the "
    "last commit that is judged otherwise now may be in both tables, with the same channel and offset."
)


class Verdicts:
    """
    The messages that a slot has put aside, by channel and offset. To be used by one thread.
    """

    def __init__(self, store: Store, slot: str, others: Iterable[str], run: str, wait: Wait) -> None:
        """
        Claims the object of `slot` for `run`, and reads those of `others`. Raises Fenced where another run claims it
        too, NotPossible where one is not readable, StorageUnavailable.
        """
        self._store, self._key, self._run, self._wait = store, key_of(slot), run, wait
        data, self._tag = retry(partial(_read, store, self._key), wait)
        self._own = _parsed(self._key, data)
        self._others = {key: _parsed(key, retry(partial(_read, store, key), wait)[0]) for key in map(key_of, others)}
        self._put(self._own)

    def has(self, channel: str, offset: int) -> bool:
        """Whether this message is put aside."""
        return any(offset in known.get(channel, ()) for known in (self._own, *self._others.values()))

    @property
    def crowded(self) -> bool:
        """Whether the table should pass some of them soon."""
        return sum(map(len, self._own.values())) > MOST // 2

    def add(self, new: Mapping[str, Iterable[int]], passed: Mapping[str, int]) -> None:
        """
        Puts messages aside, and forgets those below the offsets that the table has `passed`. Raises Fenced where a
        later run has claimed the object, Backpressure where there are too many, StorageUnavailable.
        """
        found = {channel: {*self._own.get(channel, ()), *new.get(channel, ())} for channel in {*self._own, *new}}
        kept = {channel: {item for item in own if item >= passed.get(channel, 0)} for channel, own in found.items()}
        kept = {channel: own for channel, own in kept.items() if own}
        if sum(map(len, kept.values())) > MOST:
            raise Backpressure(f"{MOST} bad messages wait for rows around them to be committed")
        self._put(kept)

    def forget(self, channel: str) -> None:
        """
        Nothing of this channel is put aside: other messages have its offsets now. Raises Fenced, StorageUnavailable,
        and NotPossible where the object of another slot, which had the channel before, is not readable any more.
        """
        for key, known in self._others.items():
            if channel in known:
                self._take_out(key, channel)
                del known[channel]
        if channel in self._own:
            self._put({key: own for key, own in self._own.items() if key != channel})

    def _take_out(self, key: str, channel: str) -> None:
        """
        Takes the channel out of the object of the slot that had it before `rehash`: the next run of this slot reads
        that object too. A run of the other slot begins anew.
        """
        while True:
            data, tag = retry(partial(_read, self._store, key), self._wait)
            if channel not in _parsed(key, data):
                return
            found = json_text.loads(data)
            del found["letters"][channel]
            with suppress(Changed):  # by that run, or by us: it is looked at again
                retry(partial(self._store.replace, key, json.dumps(found).encode(), tag), self._wait)

    def _put(self, found: Mapping[str, set[int]]) -> None:
        letters = {channel: sorted(own) for channel, own in sorted(found.items())}
        data = json.dumps({"version": _VERSION, "run": self._run, "letters": letters}).encode()
        try:
            self._tag = retry(partial(self._store.replace, self._key, data, self._tag), self._wait)
        except Changed as exc:
            there, tag = retry(partial(_read, self._store, self._key), self._wait)
            if there != data:  # else it was our own, and its reply was lost
                raise Fenced(f"another run of this slot has claimed {self._key}") from exc
            self._tag = tag
        self._own = {channel: set(own) for channel, own in found.items()}


def _read(store: Store, key: str) -> tuple[bytes, str]:
    try:
        return store.read_tagged(key, MOST_BYTES)
    except Missing:
        return b"", ""
    except Unfit as exc:
        raise NotPossible(f"{store.url}/{key} is not readable: {exc}", hint=_HINT) from exc


def _parsed(key: str, data: bytes) -> dict[str, set[int]]:
    if not data:
        return {}
    try:
        found: Any = json_text.loads(data)
        if found["version"] != _VERSION:
            raise NotPossible(f"{key} has version {found['version']!r:.20}", hint="Upgrade this program.")
        letters = {channel: {*map(_offset, own)} for channel, own in found["letters"].items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as exc:
        raise NotPossible(f"{key} is not readable: {exc!r:.200}", hint=_HINT) from exc
    return letters


def _offset(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"no offset: {value!r:.40}")
    return value
