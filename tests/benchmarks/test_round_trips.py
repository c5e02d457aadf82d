"""Round trips in a row, read off records; and the proxy that makes them, before a server of its own."""

import asyncio
import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.support.counting_proxy import Proxy, Record, Wire, wire
from benchmarks.support.round_trips import Tick, links, named, separated, shown
from benchmarks.support.usual_tick import Measured, chain

FOLDER = "/bench/abc/queue/events"
TXLOG = f"{FOLDER}/pending/w1.0198aaaa.0000000001.txlog.avro"
LISTING = "/bench?list-type=2&prefix=abc%2Fqueue%2Fevents%2Fpending%2F"
METADATA = "/bench/abc/warehouse/ns.db/events/metadata"


def asked(start: float, end: float, method: str = "GET", path: str = TXLOG, status: int = 200) -> Record:
    return Record(start, end, method, path, status)


COMMIT = [
    asked(0.0, 1.0, "PUT", f"{FOLDER}/lease"),
    asked(1.1, 2.0, path=LISTING),
    asked(2.1, 3.0),
    asked(2.1, 3.2),
    asked(3.3, 4.0, path="/bench/abc/warehouse/ns.db/events/data/1.parquet"),
    asked(3.3, 4.1, "PUT", f"{METADATA}/0198-m0.avro"),
    asked(3.3, 4.2, "PUT", f"{METADATA}/00001-0198.metadata.json"),
    asked(4.3, 5.0, "PUT", f"{FOLDER}/marks.json"),
    asked(5.1, 6.0, "POST", "/bench?delete"),
]


@pytest.mark.parametrize(
    "method, path, name",
    [
        ("GET", LISTING, "LIST pending"),
        ("GET", TXLOG, "GET txlog"),
        ("PUT", f"{FOLDER}/marks.json", "PUT marks"),
        ("GET", f"{FOLDER}/card.json", "GET card"),
        ("PUT", f"{FOLDER}/clock/probe", "PUT clock"),
        ("GET", "/bench?list-type=2&prefix=abc%2Fqueue%2Fevents%2Fclock%2F", "LIST clock"),
        ("PUT", f"{METADATA}/snap-77-1-0198.avro", "PUT manifest list"),
        ("PUT", f"{METADATA}/0198-m0.avro", "PUT manifest"),
        ("PUT", f"{METADATA}/v7.metadata.json", "PUT metadata"),
        ("PUT", f"{METADATA}/version-hint.text", "PUT version hint"),
        ("POST", "/bench?delete", "POST delete txlogs"),
        ("DELETE", f"/devstoreaccount1{TXLOG}", "DELETE txlog"),
        (
            "GET",
            "/devstoreaccount1/bench?restype=container&comp=list&prefix=abc/queue/events/pending/",
            "LIST pending",
        ),
        ("PUT", f"/devstoreaccount1{FOLDER}/lease?comp=lease", "PUT lease"),
        ("POST", "/v1/namespaces/ns/tables/events", "POST table"),
        ("GET", "/v1/config?warehouse=x", "GET /v1/config"),
    ],
)
def test_a_request_is_named_by_what_it_is_about(method: str, path: str, name: str) -> None:
    assert named(asked(0, 1, method, path)) == name


def test_what_is_in_flight_together_is_one_link_and_what_follows_the_next() -> None:
    tick = Tick.of(COMMIT)
    assert tick is not None
    assert [shown(link) for link in links(tick.records)] == [
        "LIST pending",
        "2 x GET txlog",
        "GET data file, PUT manifest, PUT metadata",
        "PUT marks",
        "POST delete txlogs",
    ]
    assert chain(tick)[2].endswith("(visible)") and tick.seconds(tick.before) == pytest.approx(3.1)
    assert tick.committed and tick.txlogs == 2 and [named(item) for item in tick.ahead] == ["PUT lease"]


def test_requests_one_after_the_other_are_as_many_links() -> None:
    assert [len(link) for link in links([asked(n, n + 0.9) for n in range(5)])] == [1] * 5


def test_a_request_beside_the_tick_makes_it_no_longer() -> None:
    beside = [asked(1.0, 2.5, "PUT", f"{FOLDER}/lease"), asked(2.6, 3.6, path=f"{FOLDER}/lease")]
    assert len(links([*COMMIT[1:], *beside])) == len(links(COMMIT[1:])) == 5
    tick = Tick.of([*COMMIT[1:], *beside])
    assert tick and tick.records == COMMIT[1:] and tick.ahead == []


def test_ticks_are_separated_where_nothing_is_in_flight_for_long_enough() -> None:
    long, short = asked(0.0, 3.0, path=LISTING), asked(1.0, 1.5, path=LISTING)
    assert separated([asked(3.4, 4), long, short], 0.5) == [[long, short, asked(3.4, 4)]]
    assert len(separated([long, asked(3.6, 4)], 0.5)) == 2


def test_a_commit_is_one_tick_however_long_it_waits_before_its_delete() -> None:
    late = [record._replace(start=record.start + 9, end=record.end + 9) for record in COMMIT[6:]]
    assert [len(records) for records in separated([*COMMIT[:6], *late, asked(20, 21)], 0.5)] == [9, 1]


def test_requests_that_begin_no_tick_are_none() -> None:
    assert Tick.of([asked(0, 1, "PUT", f"{FOLDER}/lease")]) is None


def test_a_commit_that_follows_a_reload_is_measured_apart() -> None:
    reload = [asked(0, 1, path=LISTING), asked(1.1, 2, path=f"{FOLDER}/card.json")]
    five = [COMMIT[1], *[COMMIT[2]] * 5, *COMMIT[4:]]
    again, reloads = [*five, asked(2.2, 3, "HEAD", f"{METADATA}/snap-1-1-0.avro")], [*five, *reload]
    ticks = [Tick.of(records) for records in (reloads, reloads, five, [COMMIT[1]], reload, again)]
    found = Measured.of([tick for tick in ticks if tick])
    assert found.cells()[2:] == [len(five), 1, "1 / 1"]


class Server(BaseHTTPRequestHandler):
    """Answers in each of the ways that end a body."""

    protocol_version = "HTTP/1.1"
    connections = 0

    def setup(self) -> None:
        type(self).connections += 1
        super().setup()

    def do_GET(self) -> None:
        self.send_response(200)
        if self.path == "/chunked":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n")
        elif self.path == "/until-the-end":
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"abcde")
        else:
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"abcde")

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        assert "Expect" not in self.headers
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def upstream() -> Iterator[int]:
    Server.connections = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def between(upstream: int) -> Iterator[Wire]:
    with wire(upstream) as made:
        yield made


def reply(connection: http.client.HTTPConnection, method: str, path: str, **given: object) -> tuple[int, bytes]:
    connection.request(method, path, **given)  # type: ignore[arg-type]
    found = connection.getresponse()
    return found.status, found.read()


def test_the_proxy_passes_on_every_kind_of_body_over_one_connection(between: Wire) -> None:
    line = http.client.HTTPConnection("127.0.0.1", between.port, timeout=60)
    big = bytes(3_000_000)
    assert reply(line, "GET", "/sized") == reply(line, "GET", "/chunked") == (200, b"abcde")
    assert reply(line, "HEAD", "/sized") == (200, b"")
    assert reply(line, "PUT", "/it", body=big, headers={"Expect": "100-continue"}) == (204, b"")
    assert reply(line, "GET", "/sized")[1] == b"abcde"
    assert Server.connections == 1
    assert reply(line, "GET", "/until-the-end") == (200, b"abcde")
    seen = [(item.method, item.path, item.status) for item in between.taken()]
    assert seen[-1] == ("GET", "/until-the-end", 200) and len(seen) == 6
    assert between.taken() == []


def test_each_request_is_delayed(between: Wire) -> None:
    between.delay(0.2)
    line = http.client.HTTPConnection("127.0.0.1", between.port, timeout=60)
    assert [reply(line, "GET", "/sized")[0] for _ in range(2)] == [200] * 2
    records = between.taken()
    assert all(item.end - item.start >= 0.2 for item in records) and len(links(records)) == 2


def test_requests_at_once_are_delayed_at_once(upstream: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delay ends when all requests are in theirs: one after the other they would wait for ever."""

    async def all_ask() -> list[Record]:
        together, asked, proxy = asyncio.Barrier(20), list[float](), Proxy(upstream, seconds=0.2)

        async def sleep(seconds: float) -> None:
            asked.append(seconds)
            await together.wait()

        async def ask(port: int) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /sized HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(5)
            writer.close()
            return body

        monkeypatch.setattr("benchmarks.support.counting_proxy.asyncio.sleep", sleep)
        async with await asyncio.start_server(proxy.serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            bodies = await asyncio.wait_for(asyncio.gather(*(ask(port) for _ in range(20))), 120)
        assert bodies == [b"abcde"] * 20 and asked == [0.1] * 40
        return proxy.records

    assert len(links(asyncio.run(all_ask()))) == 1
