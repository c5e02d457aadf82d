"""
A client of `writer serve`: rows that a program hands over are on its disk, and then in the table, exactly once.

    with Client("http://door:8080", "events", "till-7", "/var/spool/till-7", token="0123456789abcdef") as client:
        client.send([{"timestamp": now, "key": "a", "value": "1"}])
        client.flush()

`send` waits for the disk alone, so it goes on while the server is away; `flush` sends what waits, one request after the
other. One producer is one spool, and one process at a time.
"""

import json
import logging
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from types import TracebackType
from typing import Any
from urllib.parse import quote
from uuid import UUID

import requests
from urllib3.exceptions import HTTPError

from bookkeeper.errors import NotPossible, StorageUnavailable
from bookkeeper.leases.lease import FileLease
from bookkeeper.stores.local import LocalStore
from writers.http.requests import PRODUCER
from writers.http.spool import Request, Spool
from writers.retries import retry
from writers.timing import Wait, pause, utc_now

log = logging.getLogger(__name__)

#: the server answers within 30 s
_SECONDS, _ANSWER_BYTES = 40.0, 2**16
#: of what a server may ask for with Retry-After
_MOST_PAUSE = 30.0
#: a request that got no answer may still reach the server for so long
_UNDER_WAY = 120.0
#: between two looks whether a request that is published is in the table
_LOOK_SECONDS = 1.0
_BODY_REFUSED = (400, 413, 415, 422)
#: in the place of the status: a proxy before the server takes no body of this size
_PROXY_REFUSED = -413
_IN_USE = "One producer is one process at a time: end the other one, or take another producer and another directory."
_GAP = "What is gone is not sent again. accept_gap(), then flush(), go on behind what is there."
_TAKEN = (
    "Does another program send as this producer, or was the directory restored or made anew? End the other one. "
    "accept_gap(), then flush(), send these rows as the next sequence; where a proxy sends requests twice they are in."
)


class Client:
    """
    `url` of the server, `spool` a directory of this producer alone, which is made. `token`, or what gives it before
    each request. A request has at most `most_body` bytes (the server's --max-body), what waits `most_spooled`.

    Raises NotPossible where another process has the directory. For one thread, but `send`; not for use after a fork.
    """

    def __init__(
        self,
        url: str,
        table: str,
        producer: str,
        spool: str,
        *,
        token: str | Callable[[], str] | None = None,
        most_body: int = 2**20,
        most_spooled: int = 2**30,
        clock: Callable[[], float] = time.monotonic,
        wait: Wait = pause,
    ) -> None:
        if not PRODUCER.fullmatch(producer):
            raise NotPossible(f"{producer!r} is no name of a producer: 1 to 100 letters, digits and . _ : - are")
        at = f"{url.rstrip('/')}/v1/tables/{quote(table, safe='')}"
        self._rows_url, self._state_url = f"{at}/rows", f"{at}/producers/{producer}"
        self.producer, self._token, self._most_body, self._most_sent = producer, token, most_body, most_body
        self._clock, self._wait, self._session = clock, wait, requests.Session()
        os.makedirs(spool, exist_ok=True)
        self._lease = FileLease(f"{os.path.abspath(spool)}/lock", f"{socket.gethostname()} {os.getpid()}")
        if not self._lease.hold(utc_now()):
            raise NotPossible(f"{spool} is used by another process", hint=_IN_USE)
        try:
            self._spool = Spool(LocalStore(spool), most_spooled)
        except BaseException:
            self._lease.release()
            raise
        #: until when an earlier request may reach the server; one of the process before, too
        self._under_way_until = clock() + (_UNDER_WAY if self._spool.is_under_way else 0)
        self._accepts_gap = False
        self._process = os.getpid()
        #: how often the noted request was sent, as far as is known; one of the process before counts
        self._tries = 1 if self._spool.is_under_way else 0
        #: requests that were laid aside by this object: `refused/` of the spool has their rows and the reasons
        self.refused = 0

    @property
    def waiting(self) -> int:
        """How many calls of `send` have rows that are not known to be in the table."""
        return self._spool.files

    def send(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """
        Take rows: durable on this disk when it returns. Raises NotPossible and StorageUnavailable, and then has taken
        none; TypeError for values that JSON does not have, but dates, times, Decimal and UUID.
        """
        self._check_process()
        lines = [json.dumps(row, default=_text, allow_nan=False, ensure_ascii=False).encode() + b"\n" for row in rows]
        size = sum(map(len, lines))
        if size > self._most_body:
            raise NotPossible(
                f"{size} bytes of rows at once, at most {self._most_body} are", hint="Send fewer at once."
            )
        if lines:
            self._spool.put(b"".join(lines))

    def flush(self, seconds: float = 60.0) -> None:
        """
        Sends what waits, until all of it is in the table or is refused. Rows that the server refuses are laid aside
        (`refused`), and others go on.

        Raises StorageUnavailable where that takes longer than `seconds`: call it again; NotPossible where the answer
        asks for more than another try. Nothing is lost by either.
        """
        self._check_process()
        until = self._clock() + seconds
        if self._spool.is_new or (self._accepts_gap and not self._spool.is_under_way):
            # Not by the answer to rows that no one has sent: were it lost, the next one would say that they are in.
            self._spool.begin(self._state(until)[0] + 1)
            self._accepts_gap = False
        while (found := self._spool.request(self._most_sent)) is not None:
            request, body = found
            headers = {"Producer": self.producer, "Sequence": str(request.sequence)}
            status, answer = self._asked("POST", self._rows_url, until, body, headers)
            if status == 200 and answer.get("duplicate") and self._tries == 1:
                self._taken_before(request, until)
            elif status == 200:
                self._spool.taken(request)
                self._tries = 0
            elif status in _BODY_REFUSED:
                self._refuse(request, f"{status}: {answer.get('error')}", until)
            elif status == _PROXY_REFUSED:
                self._narrow(request, len(body), until)
            elif status == 409 and isinstance(answer.get("next"), int):
                self._gap(request, answer["next"], until)
            else:
                raise NotPossible(f"{self._rows_url}: {answer.get('error')}", hint=str(answer.get("hint", "")))

    def accept_gap(self) -> None:
        """
        Lets `flush` go on where requests that were in the table are not there any more: by a rollback, or because the
        producer was forgotten. What is gone is not sent again. Or where other rows have taken the next sequence: those
        that wait take the one behind it.
        """
        self._accepts_gap = True

    def close(self) -> None:
        """Ends it; what waits is sent by the next one with this directory."""
        self._session.close()
        self._lease.release()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _state(self, until: float) -> tuple[int, int]:
        """Up to which sequence requests are published, and committed."""
        status, answer = self._asked("GET", self._state_url, until)
        published, committed = answer.get("published"), answer.get("committed")
        if status != 200 or not (isinstance(published, int) and isinstance(committed, int)):
            raise NotPossible(f"{self._state_url}: {answer.get('error')}", hint=str(answer.get("hint", "")))
        return published, committed

    def _has_arrived(self, request: Request, until: float) -> bool:
        """Whether an earlier try of a request is in the table; waits for one that is published."""
        while True:
            published, committed = self._state(until)
            if published < request.sequence or committed >= request.sequence:
                return committed >= request.sequence
            if self._clock() + _LOOK_SECONDS > until:
                error = f"request {request.sequence} is published, and not in the table yet"
                raise StorageUnavailable(f"{self._rows_url}: {error}", hint="Call flush() again.")
            self._wait(_LOOK_SECONDS)

    def _refuse(self, request: Request, why: str, until: float) -> None:
        """
        Other rows must not take the sequence while a request with these may still arrive. Nor where one has arrived: a
        server that was started with other bounds refuses the body before it looks whether the sequence was taken.
        """
        if self._settled(request, until):
            return
        self._spool.refuse(request, why)
        self.refused += 1
        log.error("rows refused", extra={"action": "send", "writer": self.producer, "cause": why})

    def _settled(self, request: Request, until: float) -> bool:
        """Notes a refused request that an earlier try brought in, or narrows it; False: it is one call's rows."""
        self._let_arrive(until)
        has_arrived = self._has_arrived(request, until)
        self._tries = 0  # not before: it may be sent again as it is
        if has_arrived:
            self._spool.taken(request)
        elif request.first < request.last:
            self._spool.narrow(request)
        return has_arrived or request.first < request.last

    def _narrow(self, request: Request, size: int, until: float) -> None:
        """Sends less at once. The rows of one call are not laid aside: the proxy can be changed."""
        self._most_sent = size // 2
        if not self._settled(request, until):
            error = f"a proxy before the server takes no body of {size} bytes"
            hint = "Let it take larger ones (nginx: client_max_body_size). Nothing is lost: flush() sends them again."
            raise NotPossible(f"{self._rows_url}: {error}", hint=hint)

    def _gap(self, request: Request, after: int, until: float) -> None:
        error = f"the table has requests of {self.producer} up to {after - 1}, and {request.sequence - 1} were in it"
        if not (self._accepts_gap and after < request.sequence):
            raise NotPossible(f"{error}: it was rolled back, or the producer forgotten", hint=_GAP)
        self._let_arrive(until)
        log.warning("sequences go on behind a gap", extra={"action": "send", "writer": self.producer, "cause": error})
        self._spool.begin(after)
        self._accepts_gap, self._tries = False, 0

    def _taken_before(self, request: Request, until: float) -> None:
        """These rows were sent for the first time, and are not in: other rows have their sequence."""
        self._tries = 0
        if not self._accepts_gap:
            self._spool.begin(request.sequence)
            error = f"sequence {request.sequence} of {self.producer} was taken before its rows were sent"
            raise NotPossible(f"{self._rows_url}: {error}", hint=_TAKEN)
        self._spool.begin(self._state(until)[0] + 1)
        self._accepts_gap = False

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            hint = "Open a Client in every process, each with a producer and a directory of its own."
            raise NotPossible(f"this client was opened by process {self._process}", hint=hint)

    def _let_arrive(self, until: float) -> None:
        left = self._under_way_until - self._clock()
        if left > 0:
            if self._clock() + left > until:
                error = "an earlier request of these rows may still arrive, so they wait for two minutes"
                self._wait(max(0.0, until - self._clock()))
                raise StorageUnavailable(f"{self._rows_url}: {error}", hint="Call flush() again.")
            self._wait(left)

    def _asked(
        self, method: str, url: str, until: float, body: bytes | None = None, more: Mapping[str, str] = {}
    ) -> tuple[int, Mapping[str, Any]]:
        """The answer that is one; asks again as long as there is none. Raises StorageUnavailable."""
        away = StorageUnavailable()

        def ask() -> tuple[int, Mapping[str, Any]]:
            nonlocal away
            self._tries += body is not None
            status, answer, after, cause = self._answer(method, url, body, more)
            if status not in (0, 429) and status < 500:  # also _PROXY_REFUSED
                return status, answer
            if body is not None and status != 429:
                self._under_way_until = self._clock() + _UNDER_WAY
            away = StorageUnavailable(f"{url}: {cause}", hint="The rows wait in the spool: call flush() again.")
            away.pause = timedelta(seconds=min(after, _MOST_PAUSE))
            raise away

        def wait(seconds: float) -> None:
            seconds *= random.uniform(1.0, 1.5)  # clients that were cut off together do not come back together
            if self._clock() + seconds > until:
                raise away
            self._wait(seconds)

        return retry(ask, wait, attempts=sys.maxsize)

    def _answer(
        self, method: str, url: str, body: bytes | None, more: Mapping[str, str]
    ) -> tuple[int, Mapping[str, Any], float, str]:
        """
        Status (0: none that counts; _PROXY_REFUSED), body, seconds to wait, and the cause where there is no answer.
        """
        headers = {"Content-Type": "application/x-ndjson", **more}
        try:
            with self._session.request(
                method,
                url,
                data=body,
                headers=headers,
                auth=self._signed,
                timeout=_SECONDS,
                allow_redirects=False,
                stream=True,
            ) as response:
                data = response.raw.read(_ANSWER_BYTES, decode_content=True)
                after = response.headers.get("Retry-After", "")
                seconds = float(after) if after.isdecimal() and len(after) < 6 else 0.0
                answer = json.loads(data)
        except (requests.RequestException, HTTPError, OSError) as exc:
            return 0, {}, 0.0, f"no answer: {exc}"
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or not (response.status_code == 200 or "error" in answer):
            status = _PROXY_REFUSED if body is not None and response.status_code == 413 else 0
            return status, {}, seconds, f"the answer {response.status_code} is none of `writer serve`"
        return response.status_code, answer, seconds, f"{response.status_code}: {answer.get('error')}"

    def _signed(self, request: Any) -> Any:
        token = self._token() if callable(self._token) else self._token
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        return request


def _text(value: object) -> str:
    if isinstance(value, date | time_of_day):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} is no value of JSON: give text")
