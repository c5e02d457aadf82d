"""
The line between us and a server, and what can happen to a request on it; the same for HTTP and for calls in-process.

A fault either lets the answer through, or raises Lost (nothing came back) or Answered (an error came back that says
nothing about whether the request was carried out).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


class Fault(Enum):
    """The fate of one request; the value is what a table of results calls it."""

    NONE = "none"
    REQUEST_LOST = "request lost"
    REFUSED_500 = "500, not applied"
    REFUSED_503 = "503, not applied"
    REPLY_LOST = "applied, reply lost"
    APPLIED_500 = "applied, 500"
    APPLIED_503 = "applied, 503"
    OVERTAKEN = "delayed, another commit gets in first"
    LATE_BEFORE = "lost, applied late, before our retry"
    LATE_AFTER = "lost, applied late, after our retry"
    LATE_LAST = "lost, applied when all is over"
    TWICE = "applied twice"
    UNANSWERED = "applied, never answered"


class Lost(Exception):
    """Nothing came back."""


class Unanswered(Lost):
    """Nothing ever comes back, and the connection stays open."""


class Answered(Exception):
    """An error came back: its HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


#: whether the request is carried out, and the status that comes back (0: nothing)
_AT_ONCE = {
    Fault.REQUEST_LOST: (False, 0),
    Fault.REFUSED_500: (False, 500),
    Fault.REFUSED_503: (False, 503),
    Fault.REPLY_LOST: (True, 0),
    Fault.APPLIED_500: (True, 500),
    Fault.APPLIED_503: (True, 503),
}


@dataclass
class Line:
    """
    The way of requests to a server: plays `fault` on every `every`-th request, at most `most` times, and counts.

    `meanwhile` is what happens while an OVERTAKEN request is under way. `arrived` tells from an answer whether the
    request was carried out: a late one that was is counted in `late_applied`.
    """

    fault: Fault = Fault.NONE
    every: int = 1
    most: int = 1_000_000
    meanwhile: Callable[[], object] = lambda: None
    arrived: Callable[[Any], bool] = lambda _: True
    requests: int = 0
    injected: int = 0
    late: int = 0
    late_applied: int = 0
    early: list[Callable[[], Any]] = field(default_factory=list)
    held: list[Callable[[], Any]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def play(self, send: Callable[[], T]) -> T:
        """Sends a request, or not, or later, or twice; what `send` raises is passed on."""
        fault = self._next()
        self._release(self.early)
        if fault in _AT_ONCE:
            applied, status = _AT_ONCE[fault]
            if applied:
                send()
            raise Answered(status) if status else Lost
        if fault is Fault.UNANSWERED:
            send()
            raise Unanswered
        if fault in (Fault.LATE_BEFORE, Fault.LATE_AFTER, Fault.LATE_LAST):
            (self.early if fault is Fault.LATE_BEFORE else self.held).append(send)
            raise Lost
        if fault is Fault.OVERTAKEN:
            self.meanwhile()
        if fault is Fault.TWICE:
            send()
        answer = send()
        if self.fault is Fault.LATE_AFTER:
            self._release(self.held)
        return answer

    def flush(self) -> None:
        """Applies what is still held back: the very last moment at which it can arrive."""
        self._release(self.early)
        self._release(self.held)

    def _next(self) -> Fault:
        with self.lock:
            self.requests += 1
            if self.requests % self.every or self.injected >= self.most:
                return Fault.NONE
            self.injected += 1
            return self.fault

    def _release(self, waiting: list[Callable[[], Any]]) -> None:
        with self.lock:
            sends, waiting[:] = waiting[:], []
        for send in sends:
            self.late += 1
            try:
                self.late_applied += self.arrived(send())
            except Exception:  # noqa: BLE001 - this answer is not waited for any more
                continue
