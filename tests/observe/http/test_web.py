"""The HTTP server: what it answers, what it refuses, and that no request harms the daemon."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from types import SimpleNamespace

import pytest

from bookkeeper.console.web import MOST_AT_ONCE, MOST_HEAD_BYTES, Response, WebServer, address
from bookkeeper.errors import ConfigInvalid, NotPossible

ROUTES = {
    "/": lambda query: Response(b"hello"),
    "/query": lambda query: Response(json.dumps(query).encode()),
    "/broken": lambda query: Response(str(1 / 0).encode()),
    "/large": lambda query: Response(b"x" * 50_000_000),
}


#: of clients and servers: a machine that is busy takes its time
PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def web() -> Iterator[WebServer]:
    with closing(WebServer("127.0.0.1:0", ROUTES, patience_seconds=PATIENCE_SECONDS).open()) as made:
        yield made


def port(web: WebServer) -> int:
    return int(web.url.rstrip("/").rpartition(":")[2])


def ask(
    web: WebServer, path: str = "/", method: str = "GET", body: bytes | None = None
) -> tuple[int, bytes, dict[str, str]]:
    connection = HTTPConnection("127.0.0.1", port(web), timeout=PATIENCE_SECONDS)
    connection.request(method, path, body)
    answer = connection.getresponse()
    found = answer.status, answer.read(), {key.lower(): value for key, value in answer.getheaders()}
    connection.close()
    return found


def connected(web: WebServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port(web)), timeout=PATIENCE_SECONDS)


def said(web: WebServer, sent: bytes) -> bytes:
    """What is answered to these bytes, until they hang up."""
    with connected(web) as asking:
        with suppress(OSError):
            asking.sendall(sent)
        got = b""
        with suppress(ConnectionError):
            while more := asking.recv(65536):
                got += more
        return got


def test_it_answers_what_it_has_and_says_what_else_there_is(web: WebServer) -> None:
    assert ask(web)[:2] == (200, b"hello")
    assert json.loads(ask(web, "/query?table=a%20b&x=1")[1]) == {"table": "a b", "x": "1"}
    assert ask(web, "/elsewhere")[:2] == (404, b"there is /, /broken, /large, /query\n")


def test_a_head_request_is_answered_without_the_body(web: WebServer) -> None:
    status, body, headers = ask(web, method="HEAD")
    assert (status, body, headers["content-length"]) == (200, b"", "5")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(web: WebServer, method: str) -> None:
    status, _, headers = ask(web, method=method, body=b"{}")
    assert (status, headers["allow"]) == (405, "GET, HEAD")


def test_a_defect_is_an_answer_and_a_log_line(web: WebServer, caplog: pytest.LogCaptureFixture) -> None:
    assert ask(web, "/broken")[0] == 500
    assert [record.action for record in caplog.records] == ["defect"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/2\r\n\r\n", b"\xff / HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_request_is_refused(web: WebServer, sent: bytes) -> None:
    assert said(web, sent).startswith(b"HTTP/1.1 400 ")


def test_a_huge_request_is_refused_and_harms_no_other(web: WebServer) -> None:
    answer = said(web, b"GET / HTTP/1.1\r\nX: " + b"x" * 5_000_000)
    assert answer.startswith(b"HTTP/1.1 431 ") or answer == b""  # they may hang up before it is all sent
    assert len(answer) < MOST_HEAD_BYTES
    assert ask(web)[0] == 200


def test_a_request_that_drips_has_one_deadline_for_all_of_it(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    now, begun = 0.0, threading.Event()

    def monotonic() -> float:
        begun.set()
        return now

    monkeypatch.setattr("bookkeeper.console.web.time", SimpleNamespace(monotonic=monotonic))
    with connected(web) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        assert begun.wait(PATIENCE_SECONDS)  # its deadline is set
        for _ in range(3):
            now += PATIENCE_SECONDS / 4
            slow.sendall(b"X")
            assert ask(web)[0] == 200
        now += PATIENCE_SECONDS / 4
        slow.sendall(b"X")
        with suppress(ConnectionError):
            assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_however_many_say_nothing_others_are_answered_at_once() -> None:
    with (
        closing(WebServer("127.0.0.1:0", ROUTES, PATIENCE_SECONDS).open()) as web,
        ExitStack() as stack,
    ):
        silent = [stack.enter_context(connected(web)) for _ in range(3 * MOST_AT_ONCE)]
        assert ask(web)[:2] == (200, b"hello")
        # Those that came first were hung up on, long before the patience with them was over.
        silent[0].settimeout(PATIENCE_SECONDS / 2)
        assert silent[0].recv(1) == b""
        # Oldest first; the thread of a connection that was hung up on ends a moment later.
        threads = [thread for thread in threading.enumerate() if thread.name == "web request"]
        for thread in threads[: -(MOST_AT_ONCE + 3)]:
            thread.join(PATIENCE_SECONDS / 2)
            assert not thread.is_alive()


def test_a_client_that_does_not_read_the_answer_keeps_no_other_waiting(web: WebServer) -> None:
    with connected(web) as lazy:
        lazy.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert ask(web)[0] == 200


def test_a_port_that_is_taken_is_an_error_that_says_what_to_do(web: WebServer) -> None:
    with pytest.raises(NotPossible, match=f"cannot listen on 127.0.0.1:{port(web)}") as refused:
        WebServer(f"127.0.0.1:{port(web)}", ROUTES).open()
    assert "--listen" in refused.value.hint


@pytest.mark.parametrize("listen", ["9464", "host:", "host:x", "host:99999", "host:-1", "host:\u0661"])
def test_a_listen_that_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(ConfigInvalid, match="HOST:PORT"):
        address(listen)


def test_an_address_may_be_of_either_kind() -> None:
    assert [address(text) for text in ("127.0.0.1:1", "[::1]:2", ":3")] == [("127.0.0.1", 1), ("::1", 2), ("", 3)]


def test_a_closed_server_does_not_answer() -> None:
    web = WebServer("127.0.0.1:0", ROUTES).open()
    number = port(web)
    web.close()
    with pytest.raises(ConnectionError):
        socket.create_connection(("127.0.0.1", number), timeout=5)


def test_a_silent_client_is_hung_up_on_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, settimeout = list[float](), socket.socket.settimeout

    def waits_for(connection: socket.socket, seconds: float) -> None:
        if threading.current_thread().name == "web request":
            waits.append(seconds)
        settimeout(connection, seconds)

    monkeypatch.setattr(socket.socket, "settimeout", waits_for)
    with closing(WebServer("127.0.0.1:0", ROUTES, patience_seconds=0.05).open()) as web, connected(web) as silent:
        silent.sendall(b"GET / HT")
        assert silent.recv(1000).startswith(b"HTTP/1.1 408 ")
    assert waits and max(waits) <= 0.05
