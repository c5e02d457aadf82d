"""
A TCP proxy before Postgres that plays faults on the COMMIT of an Iceberg commit: what a driver makes of it is real.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tests.servers.line import Line, Lost
from tests.servers.process import LOOPBACK

_SWAP = b"UPDATE iceberg_tables"
_COMMIT = b"COMMIT"


@dataclass
class Wire:
    """Connections to Postgres on port `upstream`; a COMMIT after an UPDATE of the catalog goes over `line`."""

    upstream: int
    port: int = 0
    line: Line = field(default_factory=Line)
    threads: list[threading.Thread] = field(default_factory=list)

    def serve(self, listener: socket.socket) -> None:
        """Accepts connections until the listener is closed."""
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._relay, args=(client,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _relay(self, client: socket.socket) -> None:
        swapped = False
        with client, socket.create_connection((LOOPBACK, self.upstream)) as server, suppress(Lost, OSError):
            while request := client.recv(1 << 20):
                committing = swapped and _COMMIT in request
                swapped = _SWAP in request
                line = self.line if committing else Line()
                client.sendall(line.play(lambda request=request: _asked(server, request)))


def _asked(server: socket.socket, request: bytes) -> bytes:
    """The whole answer to one request: it ends when the server is ready for the next (`Z`, four of length, a state)."""
    server.sendall(request)
    answer = b""
    while True:
        part = server.recv(1 << 20)
        answer += part
        if not part or answer[-6:-1] == b"Z\x00\x00\x00\x05" or _wants_more(answer):
            return answer


def _wants_more(answer: bytes) -> bool:
    # `N` alone: no TLS; an authentication request ends with neither.
    return answer == b"N"


@contextmanager
def wire(upstream: int) -> Iterator[Wire]:
    """
    A running proxy before the Postgres on port `upstream`; it plays no faults until its line does.
    """
    listener = socket.create_server((LOOPBACK, 0))
    made = Wire(upstream, listener.getsockname()[1])
    thread = threading.Thread(target=made.serve, args=(listener,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        # Closing alone does not wake a thread that waits in accept.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
