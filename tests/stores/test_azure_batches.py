"""
Deletes in batches on Azure, at the level of requests: Azurite takes none, so its answers here are Azure's as it
documents them (Blob Batch), and Azurite's own refusal.
"""

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bookkeeper.errors import StorageUnavailable
from bookkeeper.stores.object_store import ObjectStore
from bookkeeper.stores.open import open_store
from tests.servers.objects import ACCOUNT, azure_properties
from tests.servers.process import LOOPBACK

GONE = (
    b'<?xml version="1.0" encoding="utf-8"?><Error><Code>BlobNotFound</Code><Message>It is not there.</Message></Error>'
)
REASONS = {
    202: "Accepted",
    400: "Bad Request",
    403: "Forbidden",
    404: "The specified blob does not exist.",
    503: "Busy",
}


class Azure:
    """Answers deletes; `statuses` of the keys that are not simply deleted, each time they are asked for."""

    def __init__(self) -> None:
        self.statuses: dict[str, list[int]] = {}
        self.batches: list[list[str]] = []
        self.singles: list[str] = []
        self.takes_batches = True

    def status(self, key: str) -> int:
        left = self.statuses.get(key)
        return left.pop(0) if left else 202

    def batch(self, body: bytes) -> bytes:
        """The answer to a batch: a part for each of its requests, in order."""
        keys = [
            item.decode() for item in re.findall(rb"DELETE /devstoreaccount1/lake/queue/([^ ?]+)\S* HTTP/1.1", body)
        ]
        self.batches.append(keys)
        parts = [self._part(number, self.status(key)) for number, key in enumerate(keys)]
        return b"".join(parts) + b"--batchresponse_1--"

    def _part(self, number: int, status: int) -> bytes:
        status = status if self.takes_batches else 400
        code = b"x-ms-error-code: BlobNotFound\r\n" if status == 404 else b""
        body = GONE if status == 404 else b""
        head = f"--batchresponse_1\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
        line = f"HTTP/1.1 {status} {REASONS[status]}\r\n"
        tail = f"x-ms-version: 2025-01-05\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + line.encode() + code + tail.encode() + body + b"\r\n"


@pytest.fixture
def azure() -> Iterator[tuple[Azure, ObjectStore]]:
    made = Azure()
    server = ThreadingHTTPServer((LOOPBACK, 0), type("_Bound", (_Handler,), {"made": made}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    url = f"abfss://lake@{ACCOUNT}.dfs.core.windows.net/queue"
    store = open_store(url, azure_properties(server.server_address[1]))
    assert isinstance(store, ObjectStore)
    store.sleep = _at_once
    yield made, store
    server.shutdown()
    server.server_close()
    thread.join()


async def _at_once(seconds: float) -> None:
    assert seconds > 0


class _Handler(BaseHTTPRequestHandler):
    made: Azure
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert "comp=batch" in self.path, self.path
        body = self.made.batch(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(202, body, "multipart/mixed; boundary=batchresponse_1")

    def do_DELETE(self) -> None:
        key = self.path.partition("?")[0].removeprefix(f"/{ACCOUNT}/lake/queue/")
        self.made.singles.append(key)
        self._answer(self.made.status(key), b"", "application/xml")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        if status == 404:
            self.send_header("x-ms-error-code", "BlobNotFound")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


Both = tuple[Azure, ObjectStore]


def test_many_deletes_are_one_request_for_256_of_them(azure: Both) -> None:
    server, store = azure
    keys = [f"pending/{number}" for number in range(300)]
    assert store.delete_many(keys) == 300
    assert sorted(map(len, server.batches)) == [44, 256]
    assert sorted(key for batch in server.batches for key in batch) == sorted(keys)
    assert server.singles == []


def test_one_delete_is_no_batch(azure: Both) -> None:
    server, store = azure
    server.statuses = {"b": [404]}
    assert (store.delete_many(["a"]), store.delete_many(["b"])) == (1, 1)
    assert (server.batches, server.singles) == ([], ["a", "b"])


def test_what_is_gone_already_counts_as_deleted(azure: Both) -> None:
    server, store = azure
    server.statuses = {"b": [404]}
    assert store.delete_many(["a", "b", "c"]) == 3
    assert len(server.batches) == 1


def test_a_batch_that_is_refused_in_part_for_being_busy_is_sent_again(azure: Both) -> None:
    server, store = azure
    server.statuses = {"b": [503], "a": [202, 404]}
    assert store.delete_many(["a", "b"]) == 2
    assert server.batches == [["a", "b"]] * 2


def test_a_delete_that_is_forbidden_is_not_passed_over(azure: Both) -> None:
    server, store = azure
    server.statuses = {"b": [403]}
    with pytest.raises(StorageUnavailable, match="403"):
        store.delete_many(["a", "b"])
    assert len(server.batches) == 1


def test_a_server_without_batches_is_asked_for_each_and_never_for_a_batch_again(azure: Both) -> None:
    server, store = azure
    server.takes_batches = False
    server.statuses = {"b": [202, 404]}
    assert store.delete_many(["a", "b"]) == 2
    assert store.delete_many(["c", "d"]) == 2
    assert server.batches == [["a", "b"]]
    assert sorted(server.singles) == ["a", "b", "c", "d"]
