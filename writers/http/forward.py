"""
A request of a named producer that came to an instance without the slot: it is asked of the one that has it, once.

The lease of the slot says its address, and any program that can write the txlog folder can write one there: it gets a
proof that the client has a token, never the token. Nothing is kept: what a crash of either leaves is a client without
an answer, and the request is recognised when it comes again.
"""

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, urlsplit

import h11

from writers.http.body import NDJSON
from writers.http.lane import later
from writers.http.proof import FORWARDED, NONE, proof
from writers.http.requests import Answer, Line, Post, headers_of, refused

CONNECT_SECONDS = 2.0
_MOST_HEAD_BYTES, _MOST_ANSWER_BYTES, _READ_BYTES = 16_384, 2**16, 2**16


@dataclass(frozen=True)
class Forward:
    """A request to another instance."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


def passes_on(answer: Answer, headers: Mapping[str, str]) -> bool:
    """
    Whether another instance is to be asked in place of this answer, for a request with these headers.
    """
    return bool(answer.owner) and FORWARDED.lower() not in headers


def of_post(table: str, post: Post) -> Forward:
    """
    The request that brings the rows of a post, its lines numbered as they came.
    """
    headers = {"producer": post.producer, "sequence": str(post.sequence), "content-type": NDJSON[0]}
    wait = "published" if post.until_published else "committed"
    return Forward("POST", f"{_path(table)}/rows?wait={wait}", headers, _body(post.lines))


def of_ask(table: str, producer: str) -> Forward:
    """
    The request that asks for a producer.
    """
    return Forward("GET", f"{_path(table)}/producers/{quote(producer, safe='')}", {})


def _path(table: str) -> str:
    return f"/v1/tables/{quote(table, safe='')}"


def _body(lines: Sequence[Line]) -> bytes:
    found, before = bytearray(), 1
    for number, line in lines:
        found += b"\n" * (number - before) + line
        before = number
    return bytes(found)


def unanswered() -> Answer:
    """
    What is said where the other instance gives no answer.
    """
    hint = "Send it again with the same Sequence: what was taken is recognised."
    return refused(503, "the instance that serves this producer gives no answer", hint, later())


def distrusted() -> Answer:
    """
    What is said where the other instance does not take the proof of a token that is taken here.
    """
    error = "the instance that serves this producer does not take the token that this one has taken"
    hint = "It has other --tokens, a clock that is a minute off, or an earlier release: make them equal. Send it again."
    return refused(503, error, hint, later())


async def answer_of(owner: str, request: Forward, key: bytes | None, now: datetime) -> Answer:
    """
    The answer of the instance at `owner`, or 503 where it gives none; `key` is of the client's token, if it gave one.
    """
    try:
        answer = await _asked(owner, request, _seal(request, key, now))
    except (OSError, TimeoutError, ValueError, RecursionError, asyncio.IncompleteReadError, h11.ProtocolError):
        return unanswered()
    return distrusted() if answer.status == 401 and key is not None else answer


def _seal(request: Forward, key: bytes | None, now: datetime) -> str:
    return NONE if key is None else proof(key, request.method, request.target, request.headers, request.body, now)


async def _asked(owner: str, request: Forward, seal: str) -> Answer:
    url = urlsplit(owner)
    secure = ssl.create_default_context() if url.scheme == "https" else None
    async with asyncio.timeout(CONNECT_SECONDS):
        reader, writer = await asyncio.open_connection(url.hostname, url.port, ssl=secure)
    try:
        speaks = h11.Connection(h11.CLIENT, _MOST_HEAD_BYTES)
        headers = {"Host": url.netloc, **request.headers, FORWARDED: seal, "Connection": "close"}
        if request.method == "POST":
            headers["Content-Length"] = str(len(request.body))
        events: list[h11.Event] = [
            h11.Request(method=request.method, target=request.target, headers=[*headers.items()])
        ]
        events += [h11.Data(data=request.body)] if request.body else []
        writer.write(b"".join(speaks.send(event) or b"" for event in [*events, h11.EndOfMessage()]))
        await writer.drain()
        return await _answer(speaks, reader)
    finally:
        writer.transport.abort()


async def _answer(speaks: h11.Connection, reader: asyncio.StreamReader) -> Answer:
    """Raises ValueError, h11.ProtocolError where it is none of ours."""
    head, body = None, bytearray()
    while True:
        event = speaks.next_event()
        if event is h11.NEED_DATA:
            speaks.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > _MOST_ANSWER_BYTES:
                raise ValueError("the answer is too large")
        elif isinstance(event, h11.EndOfMessage):
            break
        elif not isinstance(event, h11.InformationalResponse):
            raise ValueError("the answer is cut off")
    found = json.loads(body)
    if head is None or not isinstance(found, dict):
        raise ValueError("the answer is no JSON object")
    after = next((value for name, value in head.headers if name == b"retry-after" and value.isdigit()), None)
    return Answer(head.status_code, found, headers_of(head.status_code, None if after is None else int(after)))
