"""
What a storage reports to a queue: SQS fed by S3 events, an Azure Storage Queue fed by Event Grid.

A thread receives, so that no loop waits for the queue; what it takes it deletes from the queue at once. A crash between
the two loses reports, or brings them twice: listing finds what was lost.
"""

import logging
import os
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from bookkeeper.threads import start

log = logging.getLogger("bookkeeper")
#: more are no cheaper than a listing
_MOST = 1000
_PAUSE_SECONDS = 5.0

Name = TypeVar("Name")


class Queue(Protocol):
    """A queue that one thread receives from."""

    def receive(self) -> Sequence[tuple[str, Any]]:
        """Messages (text, and what `done` wants); waits some seconds for the first. Raises errors of any class."""

    def done(self, given: Sequence[Any]) -> None:
        """Deletes these messages from the queue."""


class Received(Generic[Name]):
    """
    Collects what messages name. `understood` takes a message's text and returns the names that matter here.
    """

    def __init__(self, source: Queue, understood: Callable[[str], Collection[Name]], queue: str) -> None:
        self._source, self._understood, self._queue = source, understood, queue
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._names: set[Name] = set()
        self._missed, self._failing = True, False
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
        start(self._run, f"receive {queue}")

    def take(self) -> frozenset[Name] | None:
        """
        The names since the last call; None where only a listing can tell: at first, while the queue does not answer,
        once after that, and after `close`.
        """
        with self._lock:
            names, missed = frozenset(self._names), self._missed or len(self._names) > _MOST
            self._names.clear()
            self._missed = self._failing
            if not self._stop.is_set():
                with suppress(BlockingIOError):
                    os.read(self._reader, 4096)
        return None if missed else names

    def hinted(self) -> bool:
        """Whether there are names; takes nothing away."""
        with self._lock:
            return bool(self._names)

    def wakes(self) -> Collection[int]:
        """The file descriptor that becomes readable when names come; none after `close`."""
        return () if self._stop.is_set() else (self._reader,)

    def close(self) -> None:
        """Receives no more."""
        # The thread may wait in a request for seconds: it is a daemon, and finds the stop after that.
        with self._lock:
            if not self._stop.is_set():
                self._stop.set()
                self._missed = self._failing = True
                os.close(self._reader)
                os.close(self._writer)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                messages = self._source.receive()
                if self._stop.is_set():
                    return  # the queue gives them to another, after a while
                self._take([name for text, _ in messages for name in self._understood(text)])
                if messages:
                    self._source.done([given for _, given in messages])
                self._failing = False
            except Exception as exc:  # noqa: BLE001 - SDKs share no root of errors, and listing goes on
                self._fail(exc)

    def _take(self, names: Sequence[Name]) -> None:
        with self._lock:
            if len(self._names) <= _MOST:
                self._names.update(names)
            if names and not self._stop.is_set():
                with suppress(BlockingIOError):
                    os.write(self._writer, b"!")

    def _fail(self, exc: Exception) -> None:
        known, self._failing, self._missed = self._failing, True, True
        if not known and not self._stop.is_set():
            cause = f"{self._queue}: {type(exc).__name__}"
            log.warning("the queue does not answer; listing goes on", extra={"action": "discover", "cause": cause})
        self._stop.wait(_PAUSE_SECONDS)
