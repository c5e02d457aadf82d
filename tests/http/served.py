"""`writer serve` in this process on a table of its own, and a client that speaks HTTP with it over loopback."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from bookkeeper.console.signals import StopSignal
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from tests.http.described import check
from tests.support.writer_queue import Queue
from writers.http.command import address_of, listening, serve, tables_of
from writers.http.front import Front
from writers.http.tokens import Tokens
from writers.timing import Clock, pause, utc_now

SCHEMA = Schema(NestedField(1, "n", LongType(), required=True), NestedField(2, "who", StringType()))
NAME = "door"


def queue(root: Path, **table: Any) -> Queue:
    """
    A table for rows with a number.
    """
    return Queue(root, schema=SCHEMA, **table)


def numbers(queue: Queue) -> list[int]:
    """
    The numbers in the table, in their order.
    """
    return sorted(queue.table().scan().to_arrow()["n"].to_pylist())


def ndjson(*numbers: int) -> bytes:
    """
    A body with these numbers.
    """
    return b"".join(b'{"n":%d}\n' % number for number in numbers)


def zstd(data: bytes) -> bytes:
    """
    These bytes as one zstd frame.
    """
    packed: bytes = pa.compress(data, "zstd", asbytes=True)
    return packed


def arrow(table: pa.Table, **options: Any) -> bytes:
    """
    An Arrow stream with these rows.
    """
    with pa.BufferOutputStream() as out:
        with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
            stream.write_table(table)
        found: bytes = out.getvalue().to_pybytes()
    return found


class Reply(NamedTuple):
    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str]


class Client:
    """Sends requests, each on a connection of its own."""

    def __init__(self, port: int) -> None:
        self.port = port

    def send(self, method: str, path: str, body: bytes | None = None, *more: tuple[str, str], **headers: str) -> Reply:
        """The answer, which is one that the server's document describes."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=40)
        try:
            connection.putrequest(method, path)
            given = [*((name.replace("_", "-"), value) for name, value in headers.items()), *more]
            for name, value in given if body is None else [*given, ("Content-Length", str(len(body)))]:
                connection.putheader(name, value.encode())
            connection.endheaders(body)
            answer: HTTPResponse = connection.getresponse()
            found, data = {name.lower(): value for name, value in answer.getheaders()}, answer.read()
            check(method, path, answer.status, found, data)
            return Reply(answer.status, json.loads(data or b"{}"), found)
        finally:
            connection.close()

    def rows(
        self, body: bytes, producer: str | None = None, sequence: object = None, query: str = "", **more: str
    ) -> Reply:
        given = {} if producer is None else {"Producer": producer, "Sequence": str(sequence)}
        headers = {"Content_Type": "application/x-ndjson", **given, **more}
        return self.send("POST", f"/v1/tables/events/rows{query}", body, **headers)

    def state(self, producer: str) -> tuple[int, int]:
        found = self.send("GET", f"/v1/tables/events/producers/{producer}").body
        return found["published"], found["committed"]


class Door(Client):
    """A server in a thread, until `end`."""

    def __init__(
        self,
        queue: Queue,
        slots: int = 1,
        tokens: Path | None = None,
        max_body: int = 2**20,
        memory: int = 2**24,
        grace: float = 5.0,
        advertise: str | None = None,
        stores: Callable[[str], Store] = open_store,
        clock: Clock = utc_now,
        keep: timedelta | None = None,
    ) -> None:
        self.stop, over = StopSignal(), Event()
        at = listening("127.0.0.1:0")
        self.address = address_of(at, advertise)
        self.tables = tables_of({queue.made.folder: ""}, stores, NAME, slots, utc_now, over, self.address, keep)
        self.front = Front(self.tables, None if tokens is None else Tokens(tokens, clock), max_body, memory)
        super().__init__(at.getsockname()[1])
        self._thread = Thread(target=serve, args=(self.front, at, self.stop, over, timedelta(seconds=grace)))
        self._thread.start()

    def end(self) -> None:
        self.stop.request()
        self._thread.join(20)
        assert not self._thread.is_alive()


@contextmanager
def door(queue: Queue, **given: Any) -> Iterator[Door]:
    """
    A server until the block ends.
    """
    served = Door(queue, **given)
    try:
        yield served
    finally:
        served.end()


def until(true: Callable[[], object]) -> None:
    """
    Waits for another thread or process.
    """
    for _ in range(1500):
        if true():
            return
        pause(0.01)
    raise AssertionError("it did not happen within a quarter of a minute")
