"""
Leases on object stores: a blob lease on Azure, elsewhere an object that its holder keeps replacing.

Both are taken over when their holder has been silent for `lasting`; clocks of two machines are never compared. A holder
that was stopped for longer notices at its next `hold`; until then the guards of its commits protect the table.
"""

import json
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bookkeeper.errors import Changed, Missing, Unfit
from bookkeeper.format import json_text
from bookkeeper.stores.object_store import ObjectStore
from bookkeeper.stores.store import Store

LASTING = timedelta(seconds=15)
LEASE_BYTES = 2**16
#: stands for an unreadable lease: it has no holder, so it is replaced after `lasting`
_RUBBISH = b"{}"


@dataclass
class _Seen:
    tag: str
    since: datetime


class PutLease:
    """
    An object that its holder replaces, If-Match, three times in each `lasting`.

    Another process takes it when it sees no change for `lasting`, by its own clock. So a crash leaves it for that long.
    How old it was when the process first saw it, the storage tells, which dates it and a small object beside it: a job
    that runs once and ends would else wait for the lease of a dead one anew each time.
    """

    offering = False

    def __init__(self, store: Store, key: str, holder: str, lasting: timedelta = LASTING) -> None:
        self.store, self.key, self.holder, self.lasting = store, key, holder, lasting
        self.id = str(uuid.uuid4())
        self.count = 0
        self.tag: str | None = None
        self.renewed: datetime | None = None
        self.seen: _Seen | None = None

    def hold(self, now: datetime) -> bool:
        if self.renewed is not None and abs(now - self.renewed) < self.lasting / 3:
            return True
        if self.renewed is not None:
            assert self.tag is not None
            if self._put(self.tag, now):
                return True
        return self._take(now)

    def release(self) -> None:
        if self.renewed is None or self.tag is None:
            return
        self.renewed = None
        try:
            self.store.replace(self.key, b"", if_match=self.tag)
        except Changed:
            return

    def _take(self, now: datetime) -> bool:
        self.renewed = None
        try:
            data, tag = self.store.read_tagged(self.key, LEASE_BYTES)
        except Missing:
            data, tag = b"", ""
        except Unfit as exc:
            data, tag = _RUBBISH, exc.tag
        if data and _id(data) != self.id and not self._is_silent(tag, now):
            return False
        return self._put(tag, now)

    def _is_silent(self, tag: str, now: datetime) -> bool:
        # A clock that was put back starts the wait anew.
        if self.seen is None:
            self.seen = _Seen(tag, now - self._age())
        elif self.seen.tag != tag or now < self.seen.since:
            self.seen = _Seen(tag, now)
        return now - self.seen.since >= self.lasting

    def _age(self) -> timedelta:
        """How long ago the lease was put, by the storage's clock alone; 0 where that cannot be told."""
        try:
            put, probe = self.store.modified(self.key), f"{self.key}.clock"
            self.store.replace(probe, b"")
            return max(self.store.modified(probe) - put, timedelta(0))
        except Missing:
            return timedelta(0)

    def _put(self, tag: str, now: datetime) -> bool:
        self.count += 1
        lease = {"holder": self.holder, "id": self.id, "count": self.count, "at": now.isoformat()}
        data = json.dumps(lease).encode()
        with suppress(Changed):  # another process, or our own put whose reply was lost: the read below decides
            self.store.replace(self.key, data, if_match=tag)
        try:
            there, self.tag = self.store.read_tagged(self.key, LEASE_BYTES)
        except (Missing, Unfit):
            there = b""
        self.renewed = now if there == data else None
        return there == data


def _id(data: bytes) -> str:
    """The id of the holder; empty when the object cannot be read, so that it is replaced after `lasting`."""
    try:
        lease = json_text.loads(data)
    except ValueError:
        return ""
    return str(lease.get("id", "")) if isinstance(lease, dict) else ""


class BlobLease:
    """An Azure blob lease, renewed three times in each `lasting` (15 to 60 s, Azure's own limits)."""

    offering = False

    def __init__(self, store: ObjectStore, key: str, holder: str, lasting: timedelta = LASTING) -> None:
        self.store, self.key, self.holder = store, key, holder
        self.lasting = lasting
        self.remote: Any = store.remote
        self.id: str | None = None
        self.renewed: datetime | None = None

    def hold(self, now: datetime) -> bool:
        if self.renewed is not None and abs(now - self.renewed) < self.lasting / 3:
            return True
        if self.id is not None and self.store.ask(self.remote.renew_lease, self.key, self.id):
            self.renewed = now
            return True
        self.id = self.renewed = None
        return self._take(now)

    def release(self) -> None:
        held, self.id, self.renewed = self.id, None, None
        if held is not None:
            self.store.ask(self.remote.release_lease, self.key, held)

    def _take(self, now: datetime) -> bool:
        # We choose the id: a request whose reply was lost is repeated with the same id, and succeeds again.
        wanted, seconds = str(uuid.uuid4()), int(self.lasting.total_seconds())
        text = f"{self.holder} since {now.isoformat()}\n".encode()
        if not self.store.ask(self.remote.take_lease, self.key, wanted, seconds, text):
            return False
        self.id, self.renewed = wanted, now
        return True
