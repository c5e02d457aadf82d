"""Quotas of tokens, by a clock of the tests' own: what is let in, what is not, and that others do not notice."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path

import pytest

from bookkeeper.errors import ConfigInvalid
from tests.http.served import Door, Reply, door, ndjson, numbers, queue, until, zstd
from tests.support.writer_queue import Queue
from writers.http import tokens
from writers.http.body import ROW_BYTES
from writers.http.quotas import Came, Quota, Rates, rates_of

ONE, TWO, ALL = "1" * 16, "2" * 16, "3" * 16
BEGAN = datetime(2026, 1, 31, tzinfo=UTC)


class Clock:
    """Stands until it is moved."""

    def __init__(self) -> None:
        self.now = BEGAN

    def __call__(self) -> datetime:
        return self.now

    def goes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lake(tmp_path: Path) -> Queue:
    return queue(tmp_path)


class Served:
    """A door for two tokens, of which the first has a quota."""

    def __init__(self, at: Door, file: Path, clock: Clock) -> None:
        self.at, self.file, self.clock = at, file, clock

    def rows(self, token: str, body: bytes = b'{"n":1}\n', *named: object, **more: str) -> Reply:
        return self.at.rows(body, *named, Authorization=f"Bearer {token}", **more)  # type: ignore[arg-type]

    def statuses(self, token: str, count: int, body: bytes = b'{"n":1}\n') -> list[int]:
        return [self.rows(token, body).status for _ in range(count)]

    def write(self, *lines: str) -> None:
        self.file.write_text("\n".join(lines))
        self.clock.goes(1)


@pytest.fixture
def served(lake: Queue, tmp_path: Path, clock: Clock, request: pytest.FixtureRequest) -> Iterator[Served]:
    file = tmp_path / "tokens"
    file.write_text(f"events {ONE} {getattr(request, 'param', 'requests=3')}\nevents {TWO}\n* {ALL} requests=2\n")
    with door(lake, tokens=file, clock=clock, memory=2**20) as at:
        yield Served(at, file, clock)


def test_requests_of_a_token_are_bounded_by_the_second(served: Served, lake: Queue) -> None:
    assert served.statuses(ONE, 5) == [200, 200, 200, 429, 429]
    assert served.statuses(TWO, 20) == [200] * 20
    served.clock.goes(1 / 3 + 0.001)
    assert served.statuses(ONE, 2) == [200, 429]
    served.clock.goes(3600)
    assert served.statuses(ONE, 5) == [200, 200, 200, 429, 429]
    served.clock.goes(-86400)
    assert served.statuses(ONE, 1) == [429]
    served.clock.goes(1)
    assert served.statuses(ONE, 4) == [200, 200, 200, 429]
    lake.tick()

    assert len(numbers(lake)) == 3 + 20 + 1 + 3 + 3


def test_a_refusal_says_when_to_come_back_with_jitter(served: Served) -> None:
    served.statuses(ONE, 3)
    replies = [served.rows(ONE) for _ in range(30)]
    assert {reply.status for reply in replies} == {429}
    assert {int(reply.headers["retry-after"]) for reply in replies} == {1, 2, 3}
    assert "quota" in replies[0].body["error"] and ONE not in str(replies[0].body)


def test_questions_count_too_and_wrong_tokens_do_not(served: Served) -> None:
    ask = lambda: served.at.send("GET", "/v1/tables/events/producers/p", Authorization=f"Bearer {ONE}").status  # noqa: E731
    assert served.statuses(f"{ONE}x", 5) == [401] * 5
    assert [ask() for _ in range(4)] == [200, 200, 200, 429]
    assert served.at.send("GET", "/v1/openapi.json").status == 200


def test_a_token_of_all_tables_has_one_quota(served: Served) -> None:
    assert served.statuses(ALL, 3) == [200, 200, 429]
    served.write(f"events {ONE}", f"* {ONE} requests=2")
    assert served.statuses(ONE, 3) == [200, 200, 429]
    served.write(f"events {ONE} requests=1", f"* {ONE} requests=2")
    assert served.statuses(ONE, 2) == [200, 429]


@pytest.mark.parametrize("served", ["bytes=1000"], indirect=True)
def test_bytes_of_a_token_are_bounded_by_the_second(served: Served) -> None:
    body = ndjson(*range(100, 200))
    assert len(body) == 1000
    assert served.statuses(ONE, 2, body) == [200, 429]
    served.clock.goes(1)
    assert served.statuses(ONE, 2, body * 5) == [200, 429]  # more than a second's bytes get in, and are waited for
    for seconds, status in ((3.9, 429), (0.2, 200)):
        served.clock.goes(seconds)
        assert served.rows(ONE, body).status == status
    served.clock.goes(9)
    assert served.rows(ONE, zstd(body * 5), Content_Encoding="zstd").status == 200
    served.clock.goes(3.9)
    assert served.rows(ONE, body).status == 429
    served.clock.goes(9)
    chunks = iter([body] * 3)
    assert sent_in_chunks(served.at.port, chunks) == 200
    served.clock.goes(1.9)
    assert served.rows(ONE, body).status == 429


def sent_in_chunks(port: int, chunks: Iterator[bytes]) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=40)
    head = {"Authorization": f"Bearer {ONE}", "Content-Type": "application/x-ndjson"}
    connection.request("POST", "/v1/tables/events/rows", chunks, head, encode_chunked=True)
    try:
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("served", ["requests=3", "bytes=1000"], indirect=True)
def test_a_flood_of_one_token_does_not_touch_the_requests_of_another(served: Served, lake: Queue) -> None:
    """Five requests of the flood would hold all memory until they are committed, which nothing here does."""
    body = b'{"n":1}\n' * 1000
    served.at.front._memory = 5 * (len(body) + 1001 * ROW_BYTES) + 100
    with ThreadPoolExecutor(20) as pool:
        flood = [pool.submit(served.rows, ONE, body, f"q{number}", 1) for number in range(3)]
        until(lake.pending)
        flood += [pool.submit(served.rows, ONE, body, f"r{number}", 1) for number in range(100)]
        for _ in range(20):
            assert served.statuses(TWO, 1) == [200]
        assert {item.result().status for item in flood[3:]} == {429}
        lake.drain()
        taken = [item.result().status for item in flood].count(200)
    lake.drain()

    assert 1 <= taken <= 3
    assert len(numbers(lake)) == 1000 * taken + 20


def test_the_file_is_read_again_and_what_was_used_stays_used(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_EVERY", timedelta(0))
    assert served.statuses(ONE, 4)[-1] == 429
    served.file.write_text(f"events {ONE} requests=3\n# another line\n")
    assert served.statuses(ONE, 1) == [429]
    served.file.write_text(f"events {ONE} requests=4\n")
    assert served.statuses(ONE, 5) == [200] * 4 + [429]
    served.file.write_text(f"events {ONE} requests=none\n")
    assert served.statuses(ONE, 1) == [429]
    served.file.write_text(f"events {ONE}\n")
    assert served.statuses(ONE, 20) == [200] * 20


@pytest.mark.parametrize(
    ("words", "rates"),
    [
        ("", Rates()),
        ("requests=7", Rates(requests=7)),
        ("bytes=1MiB requests=1", Rates(1, 2**20)),
        ("bytes=500", Rates(bytes=500)),
    ],
)
def test_what_a_line_may_say(words: str, rates: Rates) -> None:
    assert rates_of(words.split()) == rates


@pytest.mark.parametrize(
    "words",
    [
        *("x", "requests", "requests=", "requests=0", "requests=-1", "requests=1.5", "requests=1KiB", "requests=1e9"),
        *("bytes=", "bytes=0", "bytes=much", "bytes=1EiB", f"requests=1{'0' * 400}", "requests=1 requests=1", "rows=1"),
    ],
)
def test_a_quota_that_is_none_is_refused_with_its_line(tmp_path: Path, words: str, clock: Clock) -> None:
    (tmp_path / "tokens").write_text(f"events {TWO}\nevents {ONE} {words}")
    with pytest.raises(ConfigInvalid, match="line 2") as found:
        tokens.Tokens(tmp_path / "tokens", clock)
    assert ONE not in f"{found.value} {found.value.hint}"


def test_requests_that_come_together_see_what_each_other_announced() -> None:
    quota = Quota(Rates(bytes=10), BEGAN)
    assert quota.wait(BEGAN) == 0
    first = Came([quota], 30)
    assert quota.wait(BEGAN) == pytest.approx(2.1)
    first.add(20)
    first.add(10)
    assert quota.wait(BEGAN) == pytest.approx(2.1)
    first.unpacked(25)
    assert quota.wait(BEGAN) == pytest.approx(2.1)
    first.unpacked(40)
    assert quota.wait(BEGAN) == pytest.approx(3.1)
