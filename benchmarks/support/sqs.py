"""
An SQS queue in this process: messages go in, a bookkeeper receives and deletes over HTTP.

It takes no credentials and loses nothing; moto's is too slow to measure beside.
"""

import json
import queue
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_LOOPBACK = "127.0.0.1"
_AT_ONCE = 10


class Sqs:
    """Queues by name, at `port`."""

    def __init__(self) -> None:
        self.queues: dict[str, queue.Queue[str]] = {}
        self.port = 0

    def url(self) -> str:
        """A new queue."""
        name = f"q{uuid.uuid4().hex[:12]}"
        self.queues[name] = queue.Queue()
        return f"http://{_LOOPBACK}:{self.port}/000000000000/{name}"

    def tell(self, url: str, place: str, keys: Sequence[str]) -> None:
        """Puts in what S3 says of new objects, in one message."""
        records = [
            {"s3": {"bucket": {"name": place}, "object": {"key": key}}, "eventName": "ObjectCreated:Put"}
            for key in keys
        ]
        self.queues[url.rpartition("/")[2]].put(json.dumps({"Records": records}))

    def answer(self, action: str, asked: Any) -> dict[str, Any]:
        """What ReceiveMessage and DeleteMessageBatch answer."""
        if action != "ReceiveMessage":
            return {"Successful": [{"Id": item["Id"]} for item in asked.get("Entries", ())], "Failed": []}
        waiting, bodies = self.queues[asked["QueueUrl"].rpartition("/")[2]], []
        with suppress(queue.Empty):
            bodies.append(waiting.get(timeout=asked.get("WaitTimeSeconds", 0) or 0.001))
            while len(bodies) < _AT_ONCE:
                bodies.append(waiting.get_nowait())
        return {
            "Messages": [
                {"MessageId": (handle := uuid.uuid4().hex), "ReceiptHandle": handle, "Body": body} for body in bodies
            ]
        }


@contextmanager
def sqs() -> Iterator[Sqs]:
    """
    A running one.
    """
    made = Sqs()
    server = ThreadingHTTPServer((_LOOPBACK, 0), type("_Bound", (_Handler,), {"made": made}))
    server.daemon_threads = True
    made.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    made: Sqs
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = json.dumps(self.made.answer(self.headers["X-Amz-Target"].rpartition(".")[2], asked)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        with suppress(OSError):  # the client that waited may be gone
            self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""
