"""
Keys of a storage that a catalog hands out with a table, and that end: each path has those of the longest prefix.

The catalog is asked for new ones at half of their life, and once where the storage refuses them. A client stays: it
signs each request with the newest keys of its prefix. No key is shown by `repr`, logged, or part of a cache's key.
"""

import logging
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from threading import Lock
from typing import Any

from bookkeeper.errors import Retry, StorageUnavailable

log = logging.getLogger(__name__)

#: by the scheme of their storage: the options without which there are no keys
KEYS = {
    "s3": ("s3.access-key-id", "s3.secret-access-key"),
    "abfss": ("adls.sas-token",),
    "gs": ("gcs.oauth2.token",),
}
#: when they end, in ms since 1970
ENDS_AT = {
    "s3": "s3.session-token-expires-at-ms",
    "abfss": "adls.sas-token-expires-at-ms",
    "gs": "gcs.oauth2.token-expires-at",
}
_KEYS = {"s3.session-token", *chain.from_iterable(KEYS.values()), *ENDS_AT.values()}
#: seconds: no two questions to the catalog are nearer; none because of a refusal, and longer than that is waited for no
#: catalog that says when to come back
PAUSE, PAUSE_AFTER_REFUSAL = 1.0, 30.0
#: of half a life, after which the keys are due: processes that were started together do not ask together
_JITTER = (0.8, 1.0)
_ENDED = (
    "Is the catalog reachable, and may this program load the table there? Are the clocks of both right (NTP)? The "
    "daemons try again."
)


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """The keys of one prefix; times are of a monotonic clock, in seconds, `inf` where the catalog does not say."""

    prefix: str
    #: all of pyiceberg's options with which paths below `prefix` are reached
    options: Mapping[str, str] = field(repr=False)
    due: float = inf
    ends: float = inf

    @property
    def settings(self) -> dict[str, str]:
        """The options without the keys."""
        return {key: value for key, value in self.options.items() if key not in _KEYS}


class TableKeys:
    """
    What a catalog handed out for one table. `ask` asks for it anew and calls `take`; it may raise anything, and Retry
    with a `pause` where the catalog says how long it is to be left alone.
    """

    def __init__(
        self, name: str, ask: Callable[[], object], jitter: Callable[[float, float], float] = random.uniform
    ) -> None:
        self.name, self._ask, self._clock, self._jitter = name, ask, time.monotonic, jitter
        self._lock = Lock()
        self._keys: tuple[Keys, ...] = ()
        self._not_before = self._refused_not_before = -inf
        self._clients: dict[tuple[object, ...], Any] = {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def take(self, handed_out: Mapping[str, Mapping[str, str]]) -> None:
        """Takes the whole set of an answer: the options by prefix."""
        known = {keys.prefix: keys for keys in self._keys}
        taken = [self._taken(prefix, options, known.get(prefix)) for prefix, options in handed_out.items()]
        self._keys = tuple(sorted(taken, key=lambda keys: -len(keys.prefix)))

    def _taken(self, prefix: str, options: Mapping[str, str], known: Keys | None) -> Keys:
        if known is not None and known.options == options:
            return known  # a server may hand out the same keys again: they are no younger for that
        end = next((options[key] for key in ENDS_AT.values() if key in options), "")
        if not (end.isascii() and end.isdecimal() and len(end) <= 16):
            return Keys(prefix, options)
        life = max(int(end) / 1000 - time.time(), 0)  # noqa: TID251 - the catalog says a time of day
        now = self._clock()
        return Keys(prefix, options, now + life / 2 * self._jitter(*_JITTER), now + life)

    @property
    def settings(self) -> dict[str, dict[str, str]]:
        """By prefix: the options without the keys."""
        return {keys.prefix: keys.settings for keys in self._keys}

    def at(self, url: str) -> Keys | None:
        """The keys for this URL as they are; None where the catalog handed out none."""
        return next((keys for keys in self._keys if url.startswith(keys.prefix)), None)

    def is_due(self, url: str) -> bool:
        """Whether `fresh` would ask the catalog."""
        keys, now = self.at(url), self._clock()
        return keys is not None and (keys.ends <= now or (keys.due <= now and self._not_before <= now))

    def fresh(self, url: str) -> Keys | None:
        """
        The keys for this URL, of which no more than half of their life is over if the catalog answers.

        One thread asks the catalog; others go on with keys that have not ended. Raises StorageUnavailable.
        """
        keys = self.at(url)
        if keys is None or not self.is_due(url):
            return keys
        if self._lock.acquire(blocking=keys.ends <= self._clock()):
            try:
                if self.is_due(url) and self._not_before <= self._clock():
                    self._renew()
            finally:
                self._lock.release()
        keys = self.at(url)
        if keys is not None and keys.ends <= self._clock():
            raise StorageUnavailable(
                f"{url}: the keys that the catalog handed out with {self.name} have ended, and it handed out no new "
                "ones",
                hint=_ENDED,
            )
        return keys

    def fresh_after_refusal(self, url: str, used: Keys) -> bool:
        """Whether there are others than the `used` keys, which the storage refused; asks the catalog now and then."""
        with self._lock:
            if self.at(url) is used and self._refused_not_before <= self._clock():
                self._refused_not_before = self._clock() + PAUSE_AFTER_REFUSAL
                self._renew()
            return self.at(url) not in (used, None)

    def _renew(self) -> None:
        pause = PAUSE
        try:
            self._ask()
        except Exception as exc:  # noqa: BLE001 - of an HTTP client, and its text may hold what was sent
            facts = {"action": "credentials", "table": self.name, "error": type(exc).__name__}
            log.warning("the catalog handed out no new keys", extra=facts)
            asked = exc.pause.total_seconds() if isinstance(exc, Retry) and exc.pause is not None else PAUSE
            pause = min(max(asked, PAUSE), PAUSE_AFTER_REFUSAL)
        self._not_before = self._clock() + pause

    def client(self, prefix: str, settings: Mapping[str, str], make: Callable[[], Any]) -> Any:
        """The client of a prefix, made once in a process and for the same settings, whatever the keys are."""
        key = (os.getpid(), prefix, frozenset(settings.items()))
        if key not in self._clients:
            self._clients.setdefault(key, make())
        return self._clients[key]
