"""Requests without a producer: batched, answered once they are published."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from tests.http.served import SCHEMA, door, ndjson, numbers, queue, until, zstd
from tests.support.threads import again_and_again
from tests.support.writer_queue import Queue
from writers.http import body, front, lane

MOST = 2**20


@pytest.fixture
def lake(tmp_path: Path) -> Queue:
    return queue(tmp_path)


def test_200_says_that_the_rows_are_published(lake: Queue) -> None:
    with door(lake) as served:
        reply = served.rows(ndjson(1, 2))
        assert (reply.status, reply.body["rows"]) == (200, 2)
        assert lake.pending() == [reply.body["txlog"]]
    lake.tick()

    assert numbers(lake) == [1, 2]


def test_requests_that_come_together_are_one_txlog(lake: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    with door(lake) as served, ThreadPoolExecutor(20) as pool:
        assert served.rows(ndjson(0)).status == 200
        monkeypatch.setattr(lane, "LINGER", timedelta(seconds=1))
        replies = [reply.result() for reply in [pool.submit(served.rows, ndjson(n)) for n in range(1, 21)]]
        assert {reply.status for reply in replies} == {200}
        assert len({reply.body["txlog"] for reply in replies}) == 1
    lake.tick()

    assert numbers(lake) == [*range(21)]


@pytest.mark.parametrize("line", [b"{", b'{"n":"x"}', b'{"who":"a"}', b'{"n":1,"x":2}', b"7", b'{"n":1}{"n":2}'])
def test_a_bad_row_is_400_with_its_number_and_nothing_is_taken(lake: Queue, line: bytes) -> None:
    with door(lake) as served, ThreadPoolExecutor(2) as pool:
        good = pool.submit(served.rows, ndjson(5))
        bad = served.rows(ndjson(1) + b"\n" + line + b"\n" + ndjson(2))
        assert (bad.status, bad.body["row"]) == (400, 3)
        assert bad.body["error"].startswith("row 3: ")
        assert good.result().status == 200
    lake.tick()

    assert numbers(lake) == [5]


def test_an_array_is_rows_too(lake: Queue) -> None:
    given = {"Content_Type": "application/json; charset=utf-8"}
    with door(lake) as served:
        assert served.rows(b'[ {"n":\n1, "who":"a,]\\n"},{"n":2}\r\n]', **given).body["rows"] == 2
        assert served.rows(b'\n{"n": 3}', **given).body["rows"] == 1
        for text in (
            b'[{"n":1},]',
            b'[{"n":1}',
            b'[{"n":1}] x',
            b'[{"n":1} {"n":2}]',
            b"[",
            b"[]",
            b"",
            b"\xff",
            b"[" * 9999,
        ):
            assert served.rows(text, **given).status == 400, text
        assert served.rows(b'[{"n":1},{"n":null}]', **given).body["row"] == 2
    lake.tick()

    assert numbers(lake) == [1, 2, 3]


def test_a_gzip_body_is_bounded(lake: Queue) -> None:
    packed = gzip.compress(ndjson(*range(1000)))
    bomb = gzip.compress(b"\n" * (MOST + 1))
    with door(lake, max_body=MOST) as served:
        send = lambda data: served.rows(data, Content_Encoding="gzip")  # noqa: E731
        assert send(packed).body["rows"] == 1000
        assert send(bomb).status == 413
        for data in (packed[:-9], packed + b"x", b"no gzip", packed + packed, b""):
            assert send(data).status == 400
        assert served.rows(b"x", Content_Encoding="br").status == 415


def test_what_unpacks_far_beyond_its_size_is_refused() -> None:
    unpacked = body.Unpacked(2**30)
    with pytest.raises(body.Refused):
        unpacked.add(gzip.compress(b"\n" * 2**25))


EMPTY, PASSED_OVER = zstd(b""), b"\x50\x2a\x4d\x18\x04\0\0\0abcd"


def test_a_zstd_body_is_bounded(lake: Queue) -> None:
    packed, bomb = zstd(ndjson(*range(1000))), zstd(b"\n" * (MOST + 1))
    with door(lake, max_body=MOST) as served:
        send = lambda data: served.rows(data, Content_Encoding="zstd")  # noqa: E731
        for data, rows in (
            (packed, 1000),
            (packed + packed, 2000),
            (EMPTY * 1000 + PASSED_OVER + packed + EMPTY + PASSED_OVER, 1000),
        ):
            assert send(data).body["rows"] == rows
        for data in (bomb, zstd(ndjson(1)) + bomb):
            assert send(data).status == 413
        for cut in (1, 4, 9, len(packed) // 2, len(packed) - 1):
            assert send(packed[:cut]).status == 400
        for data in (
            packed + b"x",
            packed + packed[:-9],
            packed + ndjson(1),
            b"no zstd",
            gzip.compress(b"x"),
            b"",
            EMPTY,
        ):
            assert send(data).status == 400
        broken = bytearray(packed)
        broken[len(packed) // 2] ^= 0xFF
        assert send(bytes(broken)).status in (400, 413)
        assert served.rows(ndjson(1), Content_Encoding="zstd, zstd").status == 415


def test_what_zstd_unpacks_far_beyond_its_size_is_refused_before_it_is_kept() -> None:
    kept = list[int]()
    with pytest.raises(body.Refused):
        body.unpack_zstd(zstd(b"\n" * 2**25), 2**30, kept.append)
    assert sum(kept) <= body.RATIO_FROM


def test_a_zstd_body_counts_packed_and_unpacked() -> None:
    kept = list[int]()
    data = zstd(ndjson(*range(1000)))

    async def pieces() -> AsyncIterator[bytes]:
        yield data[:99]
        yield data[99:]

    assert asyncio.run(body.read_body(pieces(), None, "zstd", MOST, kept.append)) == ndjson(*range(1000))
    assert sum(kept) == len(data) + len(ndjson(*range(1000)))


def test_a_body_that_is_too_large_is_refused(lake: Queue) -> None:
    with door(lake, max_body=1000) as served:
        assert served.rows(b"x" * 1001).status == 413
        with socket.create_connection(("127.0.0.1", served.port)) as raw:
            head = "POST /v1/tables/events/rows HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
            raw.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + b"3E9\r\n" + b"x" * 1001 + b"\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 413 ")
        with socket.create_connection(("127.0.0.1", served.port)) as raw:
            raw.sendall(f"{head}Content-Length: 1{'0' * 30}\r\n\r\n".encode())
            assert raw.recv(100).split()[1] in (b"400", b"413")
        assert served.rows(ndjson(1)).status == 200


def test_rows_that_wait_are_bounded(lake: Queue) -> None:
    with door(lake, memory=1500) as served, ThreadPoolExecutor(1) as pool:
        waits = pool.submit(served.rows, ndjson(*range(4)), "p", 1)  # no bookkeeper commits it
        until(lake.pending)
        full = served.rows(ndjson(*range(4)))
        assert full.status == 429 and 1 <= int(full.headers["retry-after"]) <= 3
        lake.tick()
        assert waits.result().status == 200
        assert served.rows(ndjson(7)).status == 200


@pytest.mark.parametrize(
    ("status", "given"),
    [
        (400, {"Producer": "p"}),
        (400, {"Sequence": "1"}),
        *((400, {"Producer": "p", "Sequence": text}) for text in ("0", "-1", "1.0", "x", "", "9" * 19, "01")),
        *((400, {"Producer": text, "Sequence": "1"}) for text in ("", "a b", 'a"', "a/1", "x" * 101, "-x")),
        (415, {"Content_Type": "text/csv"}),
    ],
)
def test_what_is_wrong_with_headers(lake: Queue, status: int, given: dict[str, str]) -> None:
    with door(lake) as served:
        found = served.rows(ndjson(1), **given)
        assert found.status == status and found.body["error"] and found.body["hint"]


def test_other_paths_and_methods(lake: Queue) -> None:
    with door(lake) as served:
        assert served.send("GET", "/").status == 404
        assert served.send("POST", "/v1/tables/none/rows", b"").body["error"] == "there is no table 'none' here"
        assert served.send("GET", "/v1/tables/events/rows").status == 405
        assert served.rows(ndjson(1), query="?wait=long").status == 400


@pytest.mark.parametrize("producer", [None, "p"])
def test_429_while_the_bookkeeper_is_behind(tmp_path: Path, producer: str | None) -> None:
    lake = queue(tmp_path, pending_limit=2)
    with door(lake) as served:
        replies = [served.rows(ndjson(n), producer, n, "?wait=published") for n in range(1, 5)]
        full = next(reply for reply in replies if reply.status == 429)
        assert 1 <= int(full.headers["retry-after"]) <= 3 and "bookkeeper" in full.body["error"]
        with again_and_again(lake.tick, 0.05):
            for n in range(1, 5):
                if replies[n - 1].status == 429 or producer:
                    until(lambda n=n: served.rows(ndjson(n), producer, n).status == 200)
    lake.tick()

    assert numbers(lake) == [*range(1, 5)]


def test_rows_may_have_columns_that_the_table_got_meanwhile(lake: Queue) -> None:
    with door(lake) as served:
        assert served.rows(ndjson(1)).status == 200
        lake.tick()
        with lake.table().update_schema() as update:
            update.add_column("more", SCHEMA.find_type("n"))
        lake.tick()
        until(lambda: served.rows(b'{"n":2,"more":3}').status == 200)
    lake.tick()

    assert numbers(lake) == [1, 2]


def test_a_request_without_an_answer_is_503(lake: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "ANSWER_SECONDS", 0.05)
    with door(lake) as served:
        assert served.rows(ndjson(1), "p", 1).status == 503
        monkeypatch.undo()
        until(lake.pending)
        lake.tick()
        assert served.rows(ndjson(1), "p", 1).body["duplicate"]
