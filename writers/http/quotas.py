"""
Quotas of tokens: how many requests, and bytes of bodies, a second takes of one.

A quota has a store that fills with the time, up to what one second brings. A request is let in while there is
something of each; its bytes may go beyond, and are then waited for: so a body larger than a second's bytes gets in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bookkeeper.config.units import size

_MOST = 10**12


class _Store:
    """What is left; `rate` a second, of which a second's worth is kept."""

    def __init__(self, rate: int, now: datetime) -> None:
        self._rate, self._left, self._at = rate, float(rate), now

    def wait(self, now: datetime) -> float:
        """Seconds until there is one; 0 where there is."""
        passed = max(0.0, (now - self._at).total_seconds())  # the clock may have been set back
        self._left, self._at = min(self._rate, self._left + passed * self._rate), now
        return max(0.0, (1 - self._left) / self._rate)

    def take(self, count: int) -> None:
        self._left -= count


@dataclass(frozen=True)
class Rates:
    """Of a second; None is without a bound."""

    requests: int | None = None
    bytes: int | None = None


class Quota:
    """What one token has left. To be used by one thread."""

    def __init__(self, rates: Rates, now: datetime) -> None:
        self.rates = rates
        self._requests = None if rates.requests is None else _Store(rates.requests, now)
        self._bytes = None if rates.bytes is None else _Store(rates.bytes, now)

    def wait(self, now: datetime) -> float:
        """Seconds until a request may come in; 0 where one may."""
        return max((store.wait(now) for store in (self._requests, self._bytes) if store is not None), default=0.0)

    def take_request(self) -> None:
        """A request has come in."""
        if self._requests is not None:
            self._requests.take(1)

    def take_bytes(self, count: int) -> None:
        """Bytes of a body that have come, or are announced."""
        if self._bytes is not None:
            self._bytes.take(count)


class Came:
    """
    The bytes of one body, taken of quotas: what is announced at once, so that requests which come together see it; else
    as it comes; and unpacked what is more.
    """

    def __init__(self, quotas: Sequence[Quota], announced: int) -> None:
        self._quotas, self._taken, self._came = quotas, 0, 0
        self._up_to(announced)

    def add(self, count: int) -> None:
        """So many bytes more have come."""
        self._came += count
        self._up_to(self._came)

    def unpacked(self, count: int) -> None:
        """The body is so large, unpacked."""
        self._up_to(count)

    def _up_to(self, count: int) -> None:
        for quota in self._quotas if count > self._taken else ():
            quota.take_bytes(count - self._taken)
        self._taken = max(count, self._taken)


def rates_of(words: list[str]) -> Rates:
    """
    Words such as `requests=100` and `bytes=1MiB`; raises ValueError.
    """
    found = dict[str, int]()
    for word in words:
        name, _, value = word.partition("=")
        if name not in ("requests", "bytes") or name in found:
            raise ValueError("requests=N and bytes=SIZE")
        found[name] = size(value) if name == "bytes" or value.isdecimal() else 0
        if not 1 <= found[name] <= _MOST:
            raise ValueError("a rate of at least 1")
    return Rates(**found)
