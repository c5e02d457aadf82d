"""A browser that a foreign page has made ask by its own name (DNS rebinding) gets nothing; people and probes do."""

import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection

import pytest

from bookkeeper.config.hosts import host_name, served, usual
from bookkeeper.config.load import parse
from bookkeeper.console.web import Response, WebServer, serve_metrics
from bookkeeper.errors import ConfigInvalid

ROUTES = {"/status.json": lambda query: Response(b"names of tables")}
ALLOWED = ("bookkeeper.example.org", "bookkeeper", "2001:DB8::1")


@pytest.fixture(scope="module")
def web() -> Iterator[WebServer]:
    with closing(WebServer("0.0.0.0:0", ROUTES, allowed_hosts=ALLOWED).open()) as made:
        yield made


def port(web: WebServer) -> int:
    return int(web.url.rstrip("/").rpartition(":")[2])


def ask(web: WebServer, host: str | None, address: str = "127.0.0.1", path: str = "/status.json") -> tuple[int, bytes]:
    connection = HTTPConnection(address, port(web), timeout=120)
    connection.putrequest("GET", path, skip_host=True)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    with closing(connection):
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9464",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "bookkeeper.example.org.evil.example",
        "10.1.2.3",
        "127.1",
        "0x7f000001",
        "[2001:db8::2]:9464",
    ],
)
def test_a_request_for_a_foreign_name_is_refused_and_told_why(web: WebServer, host: str) -> None:
    status, body = ask(web, host)

    assert status == 421
    assert b"names of tables" not in body and b"`allowed-hosts`" in body and host_name(host).encode() in body


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:9464",
        "localhost.",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.8.9.10",
        "[::1]:9464",
        "[::ffff:127.0.0.1]",
        "0.0.0.0:9464",
        "bookkeeper.example.org",
        "Bookkeeper.Example.Org.:9464",
        "bookkeeper:9464",
        "[2001:db8:0::1]",
        "",
        None,
    ],
)
def test_a_request_for_one_of_its_own_names_is_served(web: WebServer, host: str | None) -> None:
    assert ask(web, host) == (200, b"names of tables")


def test_the_address_that_was_connected_to_is_served_as_a_kubelet_and_prometheus_ask(web: WebServer) -> None:
    """A probe says the pod's address, which no configuration knows."""
    assert ask(web, "127.0.0.2:9464", address="127.0.0.2")[0] == 200
    assert served("10.1.2.3", "10.1.2.3", set()) and served("10.1.2.3", "::ffff:10.1.2.3", set())
    assert served("fe80::1", "fe80::1%eth0", set())
    assert not served("10.1.2.3", "10.1.2.4", set())


def test_the_name_in_listen_is_served() -> None:
    with closing(WebServer("localhost:0", ROUTES).open()) as web:
        assert ask(web, "localhost")[0] == 200
    named = socket.gethostname()
    with closing(WebServer(f"{named}:0", ROUTES).open()) as web:
        address = web.url.removeprefix("http://").rpartition(":")[0]
        assert ask(web, named.upper(), address)[0] == 200
        assert ask(web, "evil.example", address)[0] == 421


def test_a_second_host_or_one_in_the_target_does_not_get_past(web: WebServer) -> None:
    for head in (
        b"GET /status.json HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /status.json HTTP/1.1\r\nhost : evil.example\r\n\r\n",
        b"GET http://evil.example/status.json HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"HEAD /status.json HTTP/1.0\r\nHost: evil.example\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", port(web)), timeout=120) as asking:
            asking.sendall(head)
            assert asking.recv(65536).startswith(b"HTTP/1.1 421 Misdirected Request\r\n")


@pytest.mark.parametrize("host", ["a b", "evil/..", "<script>", "user@localhost", "localhost:port", "[::1", "é"])
def test_a_host_that_is_no_name_is_no_request(web: WebServer, host: str) -> None:
    assert ask(web, host)[0] == 400


def test_a_refusal_comes_before_all_else_is_told(web: WebServer) -> None:
    """Not even which paths there are."""
    assert ask(web, "evil.example", path="/nowhere")[0] == 421


def test_metrics_of_reaper_and_writer_refuse_the_same() -> None:
    with closing(serve_metrics("127.0.0.1:0", lambda: "up 1\n", ["reaper"])) as web:
        assert ask(web, "evil.example", path="/metrics")[0] == 421
        assert ask(web, "reaper:9465", path="/metrics") == (200, b"up 1\n")


def test_the_list_is_configured() -> None:
    found = parse('[bookkeeper]\nallowed-hosts = ["bookkeeper.example.org", "::1", "10.0.0.7"]', {})

    assert found.bookkeeper.allowed_hosts == ("bookkeeper.example.org", "::1", "10.0.0.7")


@pytest.mark.parametrize("name", ["host:9464", "http://host", "*", "*.example.org", "", "a b", "[::1]"])
def test_what_no_host_header_can_say_is_refused(name: str) -> None:
    with pytest.raises(
        ConfigInvalid, match=r"bookkeeper.allowed-hosts = .*: a list of names or addresses without port"
    ):
        parse(f'[bookkeeper]\nallowed-hosts = ["{name}"]', {})


def test_names_are_compared_without_case_and_addresses_by_value() -> None:
    assert (usual("Host."), usual("2001:DB8:0::1"), usual("::ffff:10.0.0.1")) == ("host", "2001:db8::1", "10.0.0.1")
    assert (host_name("[::1]:80"), host_name("A.b:1")) == ("::1", "a.b")
