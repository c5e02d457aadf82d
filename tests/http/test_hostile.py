"""
Requests that are made to harm: each is answered or cut off, takes nothing, and another client is served meanwhile.
"""

import gzip
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.http.served import Door, Reply, door, ndjson, numbers, queue, until, zstd
from tests.support.memory import memory_within
from tests.support.threads import again_and_again
from tests.support.writer_queue import Queue
from writers.http import protocol
from writers.timing import pause

TOKEN, OTHER = "1" * 16, "2" * 16
MOST = 2**20
MEMORY_MIB = 200
ROW = b'{"n":666}\n'
ONE_CHUNK = b"a\r\n" + ROW + b"\r\n0\r\n\r\n"
CUT = 0
LINE = "POST /v1/tables/events/rows HTTP/1.1"
AUTH = f"Authorization: Bearer {TOKEN}"
ZSTD = "Content-Encoding: zstd"
NDJSON, GZIP, CHUNKED = "Content-Type: application/x-ndjson", "Content-Encoding: gzip", "Transfer-Encoding: chunked"
JSON, NAMED = "Content-Type: application/json", ("Producer: evil", "Sequence: 9")


def raw(*lines: str, body: bytes = b"", line: str = LINE) -> bytes:
    """A request with these headers as they are."""
    return "\r\n".join([line, "Host: x", *lines, "", ""]).encode("latin-1") + body


def post(body: bytes, *lines: str, line: str = LINE, kind: str = NDJSON) -> bytes:
    """A request with a token and a length."""
    return raw(AUTH, kind, f"Content-Length: {len(body)}", *lines, body=body, line=line)


def chunked(body: bytes) -> bytes:
    return raw(AUTH, NDJSON, CHUNKED, body=body)


def get(path: str) -> bytes:
    return raw(AUTH, line=f"GET {path} HTTP/1.1")


REQUESTS: dict[str, tuple[bytes, set[int]]] = {
    # heads
    "rubbish": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20 + b"\r\n\r\n", {400}),
    "ssh": (b"SSH-2.0-x\r\n\r\n", {400}),
    "no version": (b"POST /v1/tables/events/rows\r\n\r\n", {400}),
    "version 9": (raw(AUTH, line="POST / HTTP/9.9"), {400, 404}),
    "version 2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 404}),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", {400}),
    "two hosts": (raw(AUTH, "Host: y"), {400}),
    "huge head": (raw("X: " + "x" * 50_000), {400, 431, CUT}),
    "huge head, endless": (b"GET / HTTP/1.1\r\nX: " + b"x" * 300_000, {400, 431, CUT}),
    "huge line": (raw(line=f"GET /{'x' * 70_000} HTTP/1.1"), {400, 404, 431, CUT}),
    "ten thousand headers": (raw(*(f"X{n}: 1" for n in range(10_000))), {400, 431, CUT}),
    "a head of 17 KiB at once": (post(ROW, "X: " + "x" * 17_000), {431}),
    "bad name": (raw("a b: c"), {400}),
    "no colon": (raw("abc"), {400}),
    "folded": (raw(AUTH, "X: a", " b", line="GET / HTTP/1.1"), {400, 404}),
    "null in a value": (raw("X: a\0b"), {400}),
    "bare cr": (raw("X: a\rb"), {400}),
    "bare lf": (raw("X: a\nContent-Length : 3"), {400}),
    "space before the colon": (raw("Content-Length : 9"), {400}),
    "not ascii": (raw("X: \xe9\xff", line="GET / HTTP/1.1"), {400, 404}),
    "not ascii in the path": (raw(line="GET /\xff HTTP/1.1"), {400}),
    "method of strangers": (post(ROW, line=LINE.replace("POST", "BREW")), {400}),
    "method TRACE": (raw(AUTH, line="TRACE / HTTP/1.1"), {404, 405}),
    "CONNECT": (raw(line="CONNECT evil:443 HTTP/1.1"), {400, 404}),
    "upgrade": (raw("Connection: upgrade", "Upgrade: websocket", line="GET / HTTP/1.1"), {404}),
    "h2c": (raw("Connection: upgrade", "Upgrade: h2c", line="GET / HTTP/1.1"), {404}),
    # two lengths
    "length and chunks": (raw(AUTH, NDJSON, CHUNKED, "Content-Length: 4", body=ONE_CHUNK + post(ROW)), {400}),
    "chunks and length": (raw(AUTH, NDJSON, "Content-Length: 4", CHUNKED, body=ONE_CHUNK + post(ROW)), {400}),
    "two lengths": (raw(AUTH, NDJSON, "Content-Length: 4", "Content-Length: 10", body=ROW), {400}),
    "a list of lengths": (raw(AUTH, NDJSON, "Content-Length: 4, 10", body=ROW), {400}),
    "negative length": (raw(AUTH, NDJSON, "Content-Length: -1", body=ROW), {400}),
    "length +10": (raw(AUTH, NDJSON, "Content-Length: +10", body=ROW), {400}),
    "length 0x0a": (raw(AUTH, NDJSON, "Content-Length: 0x0a", body=ROW), {400}),
    "length of 30 digits": (raw(AUTH, NDJSON, f"Content-Length: 1{'0' * 29}", body=ROW), {400, 413}),
    "length of a petabyte": (raw(AUTH, NDJSON, "Content-Length: 1000000000000000", body=ROW), {413}),
    "unknown transfer": (raw(AUTH, NDJSON, "Transfer-Encoding: xchunked", body=ROW), {400, 501}),
    "chunked twice": (raw(AUTH, NDJSON, CHUNKED, CHUNKED, body=b"0\r\n\r\n"), {400, 501}),
    "gzip, chunked": (raw(AUTH, NDJSON, "Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"), {400, 501}),
    "chunked behind a tab": (raw(AUTH, NDJSON, "Transfer-Encoding:\tchunked", body=b"0\r\n\r\n"), {400}),
    "chunk of another base": (chunked(b"zz\r\n" + ROW), {400, CUT}),
    "chunk of minus one": (chunked(b"-1\r\n" + ROW), {400, CUT}),
    "chunk of 2^70": (chunked(b"4" + b"0" * 17 + b"\r\n" + ROW), {400, 413, CUT}),
    "chunk of 2^1000": (chunked(b"f" * 250 + b"\r\n" + ROW), {400, 413, CUT}),
    "chunk without its end": (chunked(b"a\r\n" + ROW + b"xx0\r\n\r\n"), {400, CUT}),
    "huge extension": (chunked(b"3;" + b"x" * 60_000 + b"\r\nabc\r\n0\r\n\r\n"), {400, CUT}),
    "huge trailers": (chunked(b"0\r\nX: " + b"x" * 60_000 + b"\r\n\r\n"), {400, CUT}),
    "no rows in chunks": (chunked(b"0\r\n\r\n"), {400}),
    "more in chunks than is allowed": (chunked(b"1ffff0\r\n" + b"x" * 0x1FFFF0), {413}),
    "cut off": (raw(AUTH, NDJSON, "Content-Length: 99", body=ROW), {CUT}),
    # tokens
    "no token": (raw(NDJSON, "Content-Length: 10", body=ROW), {401}),
    "wrong token": (raw(f"Authorization: Bearer {'3' * 16}", NDJSON, "Content-Length: 10", body=ROW), {401}),
    "token of another table": (raw(f"Authorization: Bearer {OTHER}", NDJSON, "Content-Length: 10", body=ROW), {401}),
    "token as basic": (raw(f"Authorization: Basic {TOKEN}", NDJSON, "Content-Length: 10", body=ROW), {401}),
    "part of a token": (raw(f"Authorization: Bearer {TOKEN[:-1]}", NDJSON, "Content-Length: 10", body=ROW), {401}),
    "empty token": (raw("Authorization: Bearer", NDJSON, "Content-Length: 10", body=ROW), {401}),
    "huge token": (raw(f"Authorization: Bearer {'1' * 15_000}", NDJSON, "Content-Length: 10", body=ROW), {401}),
    "two tokens": (post(ROW, f"Authorization: Bearer {OTHER}"), {400}),
    "the producer of others, no token": (raw(line="GET /v1/tables/events/producers/good HTTP/1.1"), {401}),
    "no token, and a huge body": (raw(NDJSON, "Content-Length: 2000000", body=b"x" * 2_000_000), {401, CUT}),
    # producers
    "a gap": (post(ROW, *NAMED), {409}),
    "the next sequence of others, far ahead": (post(ROW, "Producer: good", "Sequence: 999999999"), {409}),
    "two producers": (post(ROW, *NAMED, "Producer: good"), {400}),
    "two sequences": (post(ROW, *NAMED, "Sequence: 1"), {400}),
    "sequence 0": (post(ROW, "Producer: evil", "Sequence: 0"), {400}),
    "sequence -1": (post(ROW, "Producer: evil", "Sequence: -1"), {400}),
    "sequence 1e3": (post(ROW, "Producer: evil", "Sequence: 1e3"), {400}),
    "sequence of 19 digits": (post(ROW, "Producer: evil", f"Sequence: {'9' * 19}"), {400}),
    "sequence of other digits": (post(ROW, "Producer: evil", "Sequence: \xb2"), {400}),
    "no sequence": (post(ROW, "Producer: evil"), {400}),
    "a path as producer": (post(ROW, "Producer: ../../x", "Sequence: 1"), {400}),
    "a long producer": (post(ROW, f"Producer: {'x' * 101}", "Sequence: 1"), {400}),
    "a line break as producer": (get("/v1/tables/events/producers/a%0d%0aX:1"), {400, 404}),
    "wait=forever": (post(ROW, line=LINE.replace("rows", "rows?wait=forever")), {400}),
    # bodies
    "no JSON": (post(b"rm -rf /\n"), {400}),
    "deep": (post(b'{"n":' + b"[" * 100_000 + b"}"), {400}),
    "deep array": (post(b"[" * 100_000, kind=JSON), {400}),
    "a number of 100,000 digits": (post(b'{"n":' + b"9" * 100_000 + b"}"), {400, 422}),
    "a number too large": (post(b'{"n":99999999999999999999}'), {400, 422}),
    "NaN": (post(b'{"n":NaN}'), {400, 422}),
    "null": (post(b"null"), {400, 422}),
    "a lone surrogate": (post(b'{"n":1,"who":"\\ud800"}'), {400, 422}),
    "a name twice": (post(b'{"n":1,"n":666}'), {400, 422}),
    "an unknown column": (post(b'{"n":1,"evil":1}'), {400, 422}),
    "a column of 1 MB": (post(b'{"' + b"x" * 1_000_000 + b'":1}'), {400, 422}),
    "not UTF-8": (post(b'{"n":1,"who":"\xff"}'), {400, 422}),
    "UTF-16": (post('{"n":666}'.encode("utf-16")), {400}),
    "null bytes": (post(b"\0" * 1000), {400}),
    "blank lines": (post(b"\n" * 150_000), {400, 413}),
    "too many lines": (post(b"\n" * 1_000_000), {413}),
    "too many elements": (post(b"[" + b"1," * 300_000 + b"1]", kind=JSON), {400, 413}),
    "no type": (raw(AUTH, "Content-Length: 10", body=ROW), {415}),
    "CSV": (post(ROW, kind="Content-Type: text/csv"), {415}),
    "a form": (post(ROW, kind="Content-Type: multipart/form-data; boundary=x"), {415}),
    "a bomb": (post(gzip.compress(b"\n" * 2**28), GZIP), {413}),
    "a bomb of a bomb": (post(gzip.compress(gzip.compress(b"\0" * 2**26)), GZIP), {400, 413}),
    "no gzip": (post(ROW, GZIP), {400}),
    "gzip, cut off": (post(gzip.compress(ROW)[:-4], GZIP), {400}),
    "gzip, wrong sum": (post(gzip.compress(ROW)[:-8] + b"\0" * 8, GZIP), {400}),
    "gzip, and more": (post(gzip.compress(ROW) + ROW, GZIP), {400}),
    "gzip, gzip": (post(gzip.compress(gzip.compress(ROW)), "Content-Encoding: gzip, gzip"), {415}),
    "zstd, a bomb": (post(zstd(b"\n" * 2**28), ZSTD), {413}),
    "zstd, a thousand bombs": (post(zstd(b"\n" * 2**17) * 1000, ZSTD), {413}),
    "zstd, a window of 128 MiB": (post(bytes.fromhex("28b52ffd0488") + b"\xff\xff\xff", ZSTD), {400}),
    "zstd, a window of 2 TiB": (post(bytes.fromhex("28b52ffd00f8") + b"\1\0\0", ZSTD), {400}),
    "zstd, cut off": (post(zstd(ROW)[:-4], ZSTD), {400}),
    "zstd, and more": (post(zstd(ROW) + ROW, ZSTD), {400}),
    "zstd of gzip": (post(gzip.compress(ROW), ZSTD), {400}),
    "gzip of zstd": (post(zstd(ROW), GZIP), {400}),
    "br": (post(ROW, "Content-Encoding: br"), {415}),
    "two encodings": (post(ROW, GZIP, "Content-Encoding: identity"), {400}),
    "expects anything": (post(ROW, "Expect: money"), {417}),
    # paths
    "no path": (raw(line="GET * HTTP/1.1"), {400, 404}),
    "dots": (get("/v1/tables/../../etc/passwd"), {404}),
    "coded dots": (get("/v1/tables/%2e%2e%2f%2e%2e/producers/x"), {401, 404}),
    "null in the path": (get("/v1/tables/%00/producers/x"), {401, 404}),
    "another table": (post(ROW, line=LINE.replace("events", "%F0%9F%92%A9")), {401, 404}),
    "a whole address": (post(ROW, line=LINE.replace("/v1", "http://evil/v2")), {404}),
    "GET of rows": (get("/v1/tables/events/rows"), {405}),
    "probes": (get("/metrics"), {404}),
    "other slashes": (post(ROW, line=LINE.replace("/v1", "//v1")), {404}),
}


class Scene:
    """A server, a bookkeeper, and a client that behaves."""

    def __init__(self, served: Door, lake: Queue) -> None:
        self.served, self.lake, self.sent = served, lake, 0

    def good(self) -> Reply:
        self.sent += 1
        return self.served.rows(ndjson(self.sent), "good", self.sent, Authorization=f"Bearer {TOKEN}")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.served.port), timeout=20)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    (folder / "tokens").write_text(f"events {TOKEN}\nothers {OTHER}\n")
    lake = queue(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name, seconds in (("HEAD_SECONDS", 0.5), ("UNREAD_SECONDS", 0.5), ("BODY_SECONDS", 0.5)):
            patch.setattr(protocol, name, seconds)
        patch.setattr(protocol, "_LOOK_SECONDS", 0.05)
        with (
            memory_within(2 * MEMORY_MIB),
            again_and_again(lake.tick, 0.05),
            door(lake, tokens=folder / "tokens", max_body=MOST) as served,
        ):
            found = Scene(served, lake)
            yield found
        lake.tick()
        assert numbers(lake) == [*range(1, found.sent + 1)]


def status(connection: socket.socket) -> int:
    """The first answer's status, 0 where it is cut off."""
    got = b""
    with suppress(ConnectionError):
        while b"\r\n" not in got and (data := connection.recv(4096)):
            got += data
    return int(got.split()[1]) if got else CUT


@pytest.mark.parametrize("name", REQUESTS)
def test_it_is_answered_or_cut_off(scene: Scene, name: str) -> None:
    request, expected = REQUESTS[name]
    with scene.connect() as connection:
        with suppress(ConnectionError):
            connection.sendall(request)
        assert status(connection) in expected
    assert scene.good().status == 200


@pytest.mark.parametrize(
    "begin",
    [
        b"",
        b"POST /",
        b"POST /v1/tables/events/rows HTTP/1.1\r\nHost: x\r\nX: ",
        raw(AUTH, NDJSON, "Content-Length: 9999"),
        raw(AUTH, NDJSON, CHUNKED),
        get("/") + b"GET /",
    ],
    ids=["nothing", "a letter", "head", "body", "chunks", "second head"],
)
def test_what_drips_is_cut_off(scene: Scene, begin: bytes) -> None:
    began = time.monotonic()
    with scene.connect() as connection:
        connection.sendall(begin)
        drips = 0
        with suppress(ConnectionError):
            while drips < 500:
                connection.sendall(b"1\r\na\r\n" if CHUNKED.encode() in begin else b"a" if begin else b"\r\n")
                drips += 1
                pause(0.02)
        assert drips < 200 and time.monotonic() > began + 0.1
    assert scene.good().status == 200


def test_a_body_behind_its_answer_is_cut_off(scene: Scene) -> None:
    with scene.connect() as connection:
        connection.sendall(raw(NDJSON, "Content-Length: 1000000"))
        assert status(connection) == 401
        sent = 0
        with suppress(ConnectionError):
            while sent < 1000:
                connection.sendall(b"x" * 100)
                sent += 1
                pause(0.01)
        assert sent < 300
    assert scene.good().status == 200


def test_who_does_not_read_its_answers_is_cut_off(scene: Scene) -> None:
    with scene.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(30)
        with pytest.raises(ConnectionError):
            while True:
                connection.sendall(get("/" + "x" * 1000) * 100)
    assert scene.good().status == 200


def test_few_requests_are_read_before_earlier_ones_are_answered(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, waiting = protocol.Protocol.on_message_begin, list[int]()

    def noted(this: protocol.Protocol) -> None:
        waiting.append(len(this.pipeline))
        begin(this)

    monkeypatch.setattr(protocol.Protocol, "on_message_begin", noted)
    requests = get("/" + "x" * 1000) * 3000
    with scene.connect() as connection:
        sender = threading.Thread(target=connection.sendall, args=(requests,))
        sender.start()
        answers = b""
        while answers.count(b"HTTP/1.1 404") < 3000:
            answers += connection.recv(2**16)
        sender.join()
    assert max(waiting) < 600  # what two reads bring


def test_no_body_is_asked_for_before_the_token_and_the_size_are_right(scene: Scene) -> None:
    expects = "Expect: 100-continue"
    for given, expected in (
        (raw(NDJSON, expects, "Content-Length: 10"), 401),
        (raw(AUTH, NDJSON, expects, f"Content-Length: {MOST + 1}"), 413),
        (raw(AUTH, expects, "Content-Encoding: br", "Content-Length: 10"), 415),
        (raw(AUTH, NDJSON, expects, "Content-Length: 10"), 100),
    ):
        with scene.connect() as connection:
            connection.sendall(given)
            assert status(connection) == expected
            if expected != 100:
                with suppress(ConnectionError):
                    while connection.recv(4096):
                        pass
    assert scene.good().status == 200


def test_connections_that_do_nothing_make_room_for_others(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MOST_CONNECTIONS", 20)
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 60)
    idle = [scene.connect() for _ in range(60)]
    try:
        for _ in range(5):
            assert scene.good().status == 200
        closed = [item for item in idle if is_closed(item)]
        assert 40 <= len(closed) < 60
    finally:
        for item in idle:
            item.close()


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_many_at_once_are_bounded(scene: Scene) -> None:
    """100 clients that each announce a body and send a part of it."""
    crowd = [scene.connect() for _ in range(100)]
    try:
        with memory_within(MEMORY_MIB):
            for connection in crowd:
                with suppress(ConnectionError):
                    connection.sendall(raw(AUTH, NDJSON, f"Content-Length: {MOST}", body=b"x" * (MOST // 2)))
            until(lambda: scene.served.rows(ndjson(0), Authorization="Bearer no").status == 401)
    finally:
        for connection in crowd:
            connection.close()
    until(lambda: scene.served.rows(b"", Authorization=f"Bearer {TOKEN}").status == 400)
    assert scene.good().status == 200


def test_there_are_enough_of_them() -> None:
    assert len(REQUESTS) >= 80
