"""
Tokens: which tables a client may send rows to, from a file that is read again when it has changed.
"""

import hmac
import logging
import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

from bookkeeper.errors import ConfigInvalid
from writers.http.quotas import Quota, Rates, rates_of
from writers.timing import Clock

log = logging.getLogger(__name__)

#: in the place of a table: all of them
ANY = "*"
#: tokens of one table, with those of all; each is tried for each request
MOST = 2000
_SHARE = "Let programs share one, or serve the tables by another process."
_SHORTEST, _MOST_BYTES, _EVERY = 16, 2**20, timedelta(seconds=1)
#: for so long a file that lost tokens, and got none, is one that is being written
_WRITTEN_IN = timedelta(seconds=10)


class Tokens:
    """
    The tokens in a file, one `TABLE TOKEN` a line, with `requests=N` and `bytes=SIZE` a second if wanted; raises
    ConfigInvalid. A later file that is none is logged, and what was read before stays; for ten seconds of an empty one,
    and of one that was cut in place. To be used by one thread.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self.clock, self._looked = path, clock, clock()
        self._quotas = dict[tuple[str, bytes], Quota]()
        self._cut_since: datetime | None = None
        self._known: Mapping[str, list[bytes]] = {}
        self._stamp: tuple[int, ...] = ()
        self._lines: Mapping[tuple[str, bytes], Rates] = {}
        self._stamp, self._known = self._read()

    def allow(self, table: str, given: str) -> bool:
        """Whether this value of the header Authorization is a token of the table; takes as long for any value."""
        digest, found = key_of(given), False
        for known in self.keys(table):
            found |= hmac.compare_digest(digest or b"", known)
        return found

    def keys(self, table: str) -> Sequence[bytes]:
        """The keys of the table's tokens, MOST at most."""
        self._look()
        return [*self._known.get(table, ()), *self._known.get(ANY, ())]

    def quotas(self, table: str, given: str) -> tuple[list[Quota], float]:
        """
        Those of the token in this value of the header Authorization, which `allow` has allowed, and the seconds until
        they have room for a request.
        """
        digest, now = key_of(given) or b"", self.clock()
        found = [self._quotas[key] for key in ((table, digest), (ANY, digest)) if key in self._quotas]
        return found, max((quota.wait(now) for quota in found), default=0.0)

    def _look(self) -> None:
        now: datetime = self.clock()
        if timedelta(0) <= now - self._looked < _EVERY:
            return
        self._looked = now
        try:
            if _stamp(self._path.stat()) != self._stamp:
                self._stamp, self._known = self._read()
        except (ConfigInvalid, OSError) as exc:
            log.error("tokens not read again", extra={"action": "tokens", "cause": str(exc)})

    def _read(self) -> tuple[tuple[int, ...], Mapping[str, list[bytes]]]:
        try:
            with self._path.open("rb") as file:
                stamp, text = _stamp(os.fstat(file.fileno())), file.read(_MOST_BYTES + 1).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigInvalid(f"the tokens in {self._path} cannot be read: {type(exc).__name__}") from exc
        if len(text) > _MOST_BYTES:
            raise ConfigInvalid(f"{self._path} is larger than {_MOST_BYTES} bytes")
        known, rates = dict[str, list[bytes]](), dict[tuple[str, bytes], Rates]()
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) < 2 or len(words[1]) < _SHORTEST:
                hint = (
                    f"Each line is TABLE TOKEN, with TABLE {ANY} for all; a token has at least {_SHORTEST} characters."
                )
                raise ConfigInvalid(f"line {number} of {self._path} is no token", hint=hint)
            known.setdefault(words[0], []).append(_digest(words[1]))
            try:
                rates[words[0], _digest(words[1])] = rates_of(words[2:])
            except ValueError as exc:
                hint = "Behind TABLE TOKEN there may be requests=N and bytes=SIZE, such as bytes=1MiB, of each second."
                raise ConfigInvalid(f"the quota in line {number} of {self._path} is none", hint=hint) from exc
        if max((len(found) for found in known.values()), default=0) > MOST // 2:
            raise ConfigInvalid(f"{self._path} has more than {MOST // 2} tokens of one table", hint=_SHARE)
        self._check_whole(rates, not text, stamp)
        self._lines = rates
        self._quotas = {key: self._quota(key, found) for key, found in rates.items() if found != Rates()}
        return stamp, known

    def _check_whole(self, rates: Mapping[tuple[str, bytes], Rates], is_empty: bool, stamp: tuple[int, ...]) -> None:
        """Raises ConfigInvalid where the file may be one that is being written in place."""
        lost, now = self._lines.keys() - rates.keys(), self.clock()
        is_cut = lost and (is_empty or (rates.items() < self._lines.items() and stamp[0] == self._stamp[0]))
        self._cut_since = (self._cut_since or now) if is_cut else None
        if self._cut_since is not None and timedelta(0) <= now - self._cut_since < _WRITTEN_IN:
            raise ConfigInvalid(f"{self._path} lacks {len(lost)} tokens that it had")
        if lost:
            log.warning("tokens count no more", extra={"action": "tokens", "count": len(lost)})

    def _quota(self, key: tuple[str, bytes], rates: Rates) -> Quota:
        before = self._quotas.get(key)
        return before if before is not None and before.rates == rates else Quota(rates, self.clock())


def key_of(given: str) -> bytes | None:
    """
    The key of the token in this value of the header Authorization: its digest, by which proofs are made.
    """
    kind, _, token = given.partition(" ")
    return _digest(token.strip()) if kind.lower() == "bearer" else None


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_mtime_ns, found.st_size
