"""A schema registry on loopback, with what it shall answer next; it notes what it was asked."""

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bookkeeper import threads


class Stub:
    """
    `schemas` by id and `subjects` by (name, version) are what it answers with 200: the text of a schema, or a whole
    answer. `faults` are answered first, one for each request: status, headers and body.
    """

    def __init__(self) -> None:
        self.schemas = dict[int, Any]()
        self.subjects = dict[tuple[str, int], Any]()
        self.faults = list[tuple[int, Mapping[str, str], bytes]]()
        #: statuses that stay
        self.status = 200
        self.asked = list[tuple[str, str | None]]()
        self.url = ""

    def answer(self, path: str) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers, body."""
        if self.faults:
            return self.faults.pop(0)
        if self.status != 200:
            return self.status, {}, b'{"error_code": 50001}'
        kind, _, rest = path.lstrip("/").partition("/")
        if kind == "schemas":
            found, code = self.schemas.get(int(rest.removeprefix("ids/"))), 40403
        else:
            name, _, version = rest.partition("/versions/")
            found, code = self.subjects.get((name, int(version))), 40402
        if found is None:
            return 404, {}, json.dumps({"error_code": code, "message": "not found"}).encode()
        return 200, {}, json.dumps({"schema": found} if isinstance(found, str) else found).encode()


@contextmanager
def registry(tls: ssl.SSLContext | None = None) -> Iterator[Stub]:
    """
    A registry until the block ends.
    """
    stub = Stub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stub.asked.append((self.path, self.headers.get("Authorization")))
            status, headers, body = stub.answer(self.path)
            self.send_response(status)
            for name, text in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *given: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    stub.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    thread = threads.start(lambda: server.serve_forever(0.01), "registry stub")
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
