"""
The front: requests are checked and read in the server's loop, handed to the thread of a writer, and answered.

It owns the lanes and starts the thread of each with its first request; one that forgets silent producers at once.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from pathlib import Path
from threading import Thread
from time import monotonic

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from bookkeeper.contract.offsets import slot_of
from bookkeeper.threads import start
from writers.http.arrow_body import ARROW
from writers.http.body import JSON, announced, read_body, rows_of
from writers.http.forward import Forward, answer_of, of_ask, of_post, passes_on
from writers.http.headers import check_headers, ends_connection
from writers.http.lane import Lane, Table, Unnamed, later
from writers.http.metrics import RequestFigures
from writers.http.proof import FORWARDED, is_of, proves
from writers.http.quotas import Came, Quota
from writers.http.requests import (
    MOST_SEQUENCE,
    PRODUCER,
    Answer,
    ArrowRows,
    Ask,
    Mailbox,
    Partial,
    Pending,
    Post,
    Refused,
    refused,
    settle,
)
from writers.http.slot import Slot
from writers.http.tokens import Tokens, key_of

#: a request that has no answer after this gets 503
ANSWER_SECONDS = 30.0
#: what is said at most to a token beyond its quota, before jitter
_LONGEST_WAIT = 60
_SEQUENCE = re.compile(r"[1-9][0-9]{0,17}")
OPENAPI = Path(__file__).with_name("openapi.json")
_DOCUMENT, _ROWS, _PRODUCER = "/v1/openapi.json", "/v1/tables/{table}/rows", "/v1/tables/{table}/producers/{producer}"
#: paths, each with its method
ROUTES = {_DOCUMENT: "GET", _ROWS: "POST", _PRODUCER: "GET"}
#: what the query of rows may say: as without it, and the other
QUERY = {"wait": ("committed", "published"), "partial": ("0", "1")}
#: what `_asked_for` returns of the usual queries
_USUAL = {b"": (False, False)} | {f"wait={it}".encode(): (it == QUERY["wait"][1], False) for it in QUERY["wait"]}
_PATHS = {path: re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path))) for path in ROUTES}
_THERE_IS = f"There is POST {_ROWS} and GET {_PRODUCER}; GET {_DOCUMENT} says more."


class Front:
    """
    The application (ASGI). `most_body` and `memory` in bytes, of one body and of all that wait; `tokens` None: all may
    write. To be used by the server's loop.
    """

    def __init__(self, tables: Iterable[Table], tokens: Tokens | None, most_body: int, memory: int) -> None:
        self._tables = {table.name: table for table in tables}
        self._tokens, self._most_body, self._memory = tokens, most_body, memory
        self._lanes, self._threads = dict[tuple[str, str], Lane](), list[Thread]()
        #: what has no answer yet, the oldest first, with the second when it came
        self._pending = dict[Pending, float]()
        self._held = 0
        self._mailbox: Mailbox | None = None
        self._openapi = OPENAPI.read_bytes()
        #: requests by table; "" of no table here
        self.figures = {name: RequestFigures(name) for name in ("", *self._tables)}
        for table in self._tables.values():
            for number in range(table.slots if table.keep is not None else 0):
                self._start(Slot(table, number))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, request = monotonic(), Request(scope, receive)
        path, named = _route(request.scope["path"])
        try:
            check_headers(request.headers)
            response = await self._routed(request, path, named)
        except Refused as exc:
            ends = {"Connection": "close"} if ends_connection(request.headers) else {}
            response = _response(replace(exc.answer, headers={**exc.answer.headers, **ends}))
        # Before it is sent: a client that has its answer finds the request in the metrics, and one that is gone counts.
        figures = self.figures.get(named.get("table", ""), self.figures[""])
        figures.count(response.status_code, monotonic() - began)
        await response(scope, receive, send)

    @property
    def alive(self) -> bool:
        """Whether each thread that was started runs."""
        return all(thread.is_alive() for thread in [*self._threads])

    def cut(self) -> None:
        """The process ends: what has no answer by now gets 503."""
        hint = "Send it again: a request with Producer and Sequence is recognised, another may be in twice."
        for pending in self._pending:
            ends = "this server ends; it is not known whether the rows were taken"
            settle(pending.future, refused(503, ends, hint, later()))

    def answer_late_ones(self) -> None:
        """Answers what has waited for ANSWER_SECONDS; to be called every second or so."""
        now = monotonic()
        for pending, since in [*self._pending.items()]:
            if now - since < ANSWER_SECONDS:
                return
            hint = (
                "Send it again: with the same Producer and Sequence it is recognised, without them it may be in twice."
            )
            settle(pending.future, refused(503, "it is not known yet whether the rows were taken", hint, later()))

    def join(self, seconds: float) -> None:
        """Waits for the threads, each so many seconds; they end once `over` of their tables is set."""
        for thread in self._threads:
            thread.join(seconds)

    async def _routed(self, request: Request, path: str, named: Mapping[str, str]) -> Response:
        if not path:
            raise Refused(refused(404, "there is nothing here", _THERE_IS))
        if request.method != ROUTES[path]:
            answer = refused(405, f"{request.method} is not answered here", _THERE_IS)
            raise Refused(Answer(405, answer.body, {"Allow": ROUTES[path]}))
        if path == _DOCUMENT:
            return Response(self._openapi, media_type=JSON)
        table = self._allowed(named["table"], request)
        quotas = self._admitted(table, request)
        if path == _ROWS:
            return await self._post(request, table, quotas)
        return await self._ask(request, _producer(named["producer"]), table)

    async def _post(self, request: Request, table: Table, quotas: Sequence[Quota]) -> JSONResponse:
        producer, sequence = _named(request)
        until_published, partial = _asked_for(request)
        with self._room() as reserve:
            headers = request.headers
            came = Came(quotas, min(announced(headers.get("content-length")), self._most_body))
            encoding = headers.get("content-encoding", "").strip().lower()
            try:
                body = await read_body(
                    _pieces(request, came), headers.get("content-length"), encoding, self._most_body, reserve
                )
            except ClientDisconnect as exc:
                raise Refused(refused(400, "the body is cut off")) from exc
            if not is_of(headers, body):
                raise Refused(refused(401, f"{FORWARDED} is of another body"))
            came.unpacked(len(body))
            lines = rows_of(body, headers.get("content-type", ""), partial, reserve)
            post = Post(self._box(), lines, len(body), producer, sequence, until_published)
            del body, lines
            answer = await self._answer_of(self._lane(table, producer), post)
            if not passes_on(answer, headers):
                return _response(answer)
            reserve(post.size)
            forward = _as_it_came(of_post(table.name, post), post)
            return _response(await self._passed_on(answer.owner, forward, request, table))

    async def _ask(self, request: Request, producer: str, table: Table) -> JSONResponse:
        ask = Ask(self._box(), producer)
        answer = await self._answer_of(self._lane(table, producer), ask)
        if passes_on(answer, request.headers):
            answer = await self._passed_on(answer.owner, of_ask(table.name, producer), request, table)
        return _response(answer)

    async def _passed_on(self, owner: str, forward: Forward, request: Request, table: Table) -> Answer:
        """The answer of the instance that has the slot."""
        pending, key = Pending(self._box()), key_of(request.headers.get("authorization", ""))
        asking = asyncio.create_task(answer_of(owner, forward, key, table.clock()))
        asking.add_done_callback(lambda done: None if done.cancelled() else settle(pending.future, done.result()))
        try:
            return await self._answered(pending)
        finally:
            asking.cancel()

    async def _answer_of(self, lane: Lane, item: Post | Ask) -> Answer:
        lane.queue.put(item)
        try:
            return await self._answered(item)
        finally:
            lane.drop(item)

    async def _answered(self, pending: Pending) -> Answer:
        """The answer, by the thread or task that has begun with it, or because it takes too long."""
        self._pending[pending] = monotonic()
        try:
            return await pending.future
        finally:
            del self._pending[pending]

    def _box(self) -> Mailbox:
        if self._mailbox is None:
            self._mailbox = Mailbox()
        return self._mailbox

    def _allowed(self, name: str, request: Request) -> Table:
        """The table that is named; raises Refused."""
        if self._tokens is not None and not self._is_allowed(self._tokens, name, request):
            hint = "Send a token of this table: `Authorization: Bearer TOKEN`."
            raise Refused(refused(401, "no token of this table was given", hint))
        if name not in self._tables:
            raise Refused(refused(404, f"there is no table {name[:100]!r} here", "Is its name right?"))
        return self._tables[name]

    def _is_allowed(self, tokens: Tokens, table: str, request: Request) -> bool:
        """By a token, or by the proof of one."""
        if tokens.allow(table, request.headers.get("authorization", "")):
            return True
        query = request.scope["query_string"]
        target = (request.scope["raw_path"] + (b"?" + query if query else b"")).decode("latin-1")
        return proves(tokens.keys(table), request.method, target, request.headers, tokens.clock())

    def _admitted(self, table: Table, request: Request) -> Sequence[Quota]:
        """The quotas of the token, which have room for a request; raises Refused."""
        if self._tokens is None:
            return ()
        quotas, seconds = self._tokens.quotas(table.name, request.headers.get("authorization", ""))
        if seconds > 0:
            hint = "Send it again after Retry-After; the file of tokens says how much of each second is this token's."
            error = "this token has had more requests or bytes than its quota"
            raise Refused(refused(429, error, hint, later(min(ceil(seconds), _LONGEST_WAIT))))
        for quota in quotas:
            quota.take_request()
        return quotas

    def _lane(self, table: Table, producer: str) -> Lane:
        name = slot_of(table.source, producer, table.slots) if producer else f"{table.source}-rows"
        key = (table.name, name)
        if key not in self._lanes:
            self._start(Slot(table, int(name.rpartition("-")[2])) if producer else Unnamed(table, name))
        return self._lanes[key]

    def _start(self, lane: Lane) -> None:
        self._lanes[lane.table.name, lane.name] = lane
        self._threads.append(start(lane, lane.name))

    @contextmanager
    def _room(self) -> Iterator[Callable[[int], None]]:
        """Counts the bytes of a body while its request is here; `reserve` raises Refused where they are too many."""
        held = 0

        def reserve(size: int) -> None:
            nonlocal held
            if held + size > self._memory:
                hint = "Send the rows in several requests; `--memory` says how much there is."
                raise Refused(refused(413, "these rows take more memory than there is for all requests", hint))
            if self._held + size > self._memory:
                raise Refused(refused(429, "too many rows wait here", "Send it again after Retry-After.", later()))
            held, self._held = held + size, self._held + size

        try:
            yield reserve
        finally:
            self._held -= held


def _route(path: str) -> tuple[str, Mapping[str, str]]:
    """Which of ROUTES a path is, "" where it is none, and what it names."""
    for route, pattern in _PATHS.items():
        if found := pattern.fullmatch(path):
            return route, found.groupdict()
    return "", {}


def _named(request: Request) -> tuple[str, int]:
    """Producer and sequence; of a request without them "" and 0. Raises Refused."""
    producer, sequence = request.headers.get("producer"), request.headers.get("sequence")
    if producer is None and sequence is None:
        return "", 0
    if producer is None or sequence is None:
        raise Refused(refused(400, "the headers Producer and Sequence go together", "Send both, or none of them."))
    if not _SEQUENCE.fullmatch(sequence):
        hint = f"It is a number from 1 to {MOST_SEQUENCE} that rises by one with each request of the producer."
        raise Refused(refused(400, f"Sequence {sequence[:40]!r} is no sequence", hint))
    return _producer(producer), int(sequence)


def _producer(name: str) -> str:
    if not PRODUCER.fullmatch(name):
        hint = "1 to 100 letters, digits and . _ : - are expected, first a letter or digit."
        raise Refused(refused(400, f"Producer {name[:100]!r} is no name", hint))
    return name


def _asked_for(request: Request) -> tuple[bool, bool]:
    """Whether to wait for no more than the publish, and whether bad rows leave the good ones; raises Refused."""
    if (given := request.scope["query_string"]) in _USUAL:  # parsing it takes as long as all the rest here
        return _USUAL[given]
    return _choice(request, "wait"), _choice(request, "partial")


def _choice(request: Request, name: str) -> bool:
    no, yes = QUERY[name]
    given = request.query_params.getlist(name) or [no]
    if len(given) > 1 or given[0] not in (no, yes):
        raise Refused(refused(400, f"{name}={given[-1][:40]}: {no} or {yes} is expected, once"))
    return given[0] == yes


def _as_it_came(forward: Forward, post: Post) -> Forward:
    """What the owner has to know beside the lines."""
    if isinstance(post.lines, Partial):
        return replace(forward, target=f"{forward.target}&partial=1")
    if isinstance(post.lines, ArrowRows):
        headers = {name: ARROW if name.lower() == "content-type" else it for name, it in forward.headers.items()}
        return replace(forward, headers=headers, body=post.lines.body)
    return forward


async def _pieces(request: Request, came: Came) -> AsyncIterator[bytes]:
    async for piece in request.stream():
        came.add(len(piece))
        yield piece


def _response(answer: Answer) -> JSONResponse:
    return JSONResponse(answer.body, answer.status, answer.headers)
