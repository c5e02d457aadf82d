"""Requests of named producers at an instance that has not their slot."""

import socket
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import pytest

from bookkeeper.errors import ConfigInvalid
from bookkeeper.leases.slot_lease import lease_name, owner_of, slot_lease
from bookkeeper.stores.open import open_store
from tests.http.served import Door, Reply, door, ndjson, numbers, queue, until
from tests.support.threads import again_and_again
from tests.support.writer_queue import Queue
from writers.http import slot
from writers.http.command import address_of, listening
from writers.http.lane import Table
from writers.http.proof import proof
from writers.http.requests import Answer, Ask
from writers.http.tokens import Tokens, key_of
from writers.metrics import WriterMetrics
from writers.opener import Opener
from writers.timing import pause, utc_now

ONE, TWO = "1" * 16, "2" * 16


@pytest.fixture
def lake(tmp_path: Path) -> Queue:
    return queue(tmp_path)


@contextmanager
def two(lake: Queue, **given: object) -> Iterator[tuple[Door, Door]]:
    """Two instances; the first has the slot, and its producer `p` has sent 1."""
    with again_and_again(lake.tick, 0.05), door(lake) as owner, door(lake, **given) as other:
        assert owner.rows(ndjson(1), "p", 1).status == 200
        yield owner, other


def test_the_owner_answers_for_it(lake: Queue) -> None:
    with two(lake) as (_, other):
        again = other.rows(ndjson(1), "p", 1)
        assert (again.status, again.body["duplicate"]) == (200, True)
        assert other.rows(ndjson(2), "p", 2).body == {"producer": "p", "sequence": 2, "published": 2, "committed": 2}
        assert other.rows(ndjson(3), "p", 3, "?wait=published").status in (200, 202)
        assert other.state("p")[0] == 3
        assert other.rows(ndjson(9), "p", 9).body["next"] == 4
        assert other.rows(b'[{"n":4}]', "p", 4, Content_Type="application/json").status == 200
        bad = other.rows(b'\n\n{"n":5}\n\n{"n":"x"}\n', "p", 5)
        assert (bad.status, bad.body["row"]) == (400, 5)

    assert numbers(lake) == [1, 2, 3, 4]


def test_requests_at_once_to_both_are_taken_in_their_order(lake: Queue) -> None:
    with two(lake) as both, ThreadPoolExecutor(20) as pool:
        order = [*range(20, 1, -1)]
        replies = [pool.submit(both[n % 2].rows, ndjson(n), "p", n) for n in order]
        assert {reply.result().status for reply in replies} == {200}

    assert numbers(lake) == [*range(1, 21)]


def test_one_that_was_forwarded_is_not_forwarded_again(lake: Queue) -> None:
    with two(lake) as (_, other):
        found = other.rows(ndjson(2), "p", 2, Bookkeeper_Forwarded="1")
        assert found.status == 503 and found.headers["retry-after"]

    assert numbers(lake) == [1]


def test_tokens_are_checked_by_both(lake: Queue, tmp_path: Path) -> None:
    """The owner does not know all that the other one knows, as where it is behind with its file."""
    files = {name: tmp_path / name for name in ("owner", "other")}
    files["owner"].write_text(f"events {ONE}")
    files["other"].write_text(f"events {ONE}\nevents {TWO}")
    with (
        again_and_again(lake.tick, 0.05),
        door(lake, tokens=files["owner"]) as owner,
        door(lake, tokens=files["other"]) as other,
    ):
        assert owner.rows(ndjson(1), "p", 1, Authorization=f"Bearer {ONE}").status == 200
        assert other.rows(ndjson(2), "p", 2).status == 401
        unknown = other.rows(ndjson(2), "p", 2, Authorization=f"Bearer {TWO}")
        assert unknown.status == 503 and unknown.headers["retry-after"] and "token" in unknown.body["error"]
        assert other.rows(ndjson(2), "p", 2, Authorization=f"Bearer {ONE}").status == 200
        assert other.rows(ndjson(3), "p", 3, "?wait=published", Authorization=f"bearer  {ONE}").status in (200, 202)
        asked = other.send("GET", "/v1/tables/events/producers/p", Authorization=f"Bearer {ONE}")
        assert asked.body["published"] == 3

    lake.tick()  # the last one may only be published
    assert numbers(lake) == [1, 2, 3]


def test_an_owner_with_tokens_and_another_without(lake: Queue, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"* {ONE}")
    with again_and_again(lake.tick, 0.05), door(lake, tokens=file) as owner, door(lake) as other:
        assert owner.rows(ndjson(1), "p", 1, Authorization=f"Bearer {ONE}").status == 200
        assert other.rows(ndjson(2), "p", 2).status == 401
        assert other.rows(ndjson(2), "p", 2, Authorization=f"Bearer {ONE}").status == 200


@dataclass
class Sealed:
    """A POST of sequence 1 of the producer `p` and its proof, both as they are to be changed."""

    body: bytes = ndjson(1)
    query: str = "?wait=committed"
    producer: str = "p"
    sequence: int = 1
    kind: str = "application/x-ndjson"
    late: timedelta = timedelta(0)
    token: str = ONE

    def proof(self) -> str:
        headers = {"producer": self.producer, "sequence": str(self.sequence), "content-type": self.kind}
        key, target = key_of(f"Bearer {self.token}"), f"/v1/tables/events/rows{self.query}"
        assert key is not None
        return proof(key, "POST", target, headers, self.body, utc_now() - self.late)

    def send(self, served: Door, given: str) -> int:
        headers = {"Content_Type": self.kind, "Bookkeeper_Forwarded": given}
        return served.rows(self.body, self.producer, self.sequence, self.query, **headers).status


@pytest.mark.parametrize(
    "other",
    [
        {"body": ndjson(2)},
        {"query": "?wait=published"},
        {"query": ""},
        {"producer": "q"},
        {"sequence": 2},
        {"kind": "application/json"},
        {"token": TWO},
        {"late": timedelta(seconds=75)},
        {"late": timedelta(seconds=-75)},
    ],
)
def test_a_proof_is_of_one_request_for_a_minute(lake: Queue, tmp_path: Path, other: dict[str, Any]) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"events {ONE}\nothers {TWO}")
    with again_and_again(lake.tick, 0.05), door(lake, tokens=file) as served:
        wrong = replace(Sealed(), **other).proof()
        for given in (wrong, "1", "", wrong.upper(), f"{wrong} x", "0 0 0", f"9{wrong}"):
            assert Sealed().send(served, given) == 401
        assert Sealed().send(served, Sealed(late=timedelta(seconds=50)).proof()) == 200
        assert served.send("GET", "/v1/tables/events/producers/p", Bookkeeper_Forwarded=wrong).status == 401

    assert numbers(lake) == [1]


def test_the_address_in_a_lease_gets_no_token(lake: Queue, tmp_path: Path) -> None:
    """What it gets is good for this request alone, and the former release answers 401 to it."""
    file = tmp_path / "tokens"
    file.write_text(f"events {ONE}")
    says = b'HTTP/1.1 401 Unauthorized\r\nContent-Length: 13\r\n\r\n{"error":"x"}'
    with stranger(lake, says) as heard, door(lake, tokens=file) as served:
        found = served.rows(ndjson(1), "p", 1, Authorization=f"Bearer {ONE}")
        assert found.status == 503 and found.headers["retry-after"]
        assert "earlier release" in found.body["hint"] and ONE not in str(found)

    head, _, body = heard[0].partition(b"\r\n\r\n")
    assert b"bookkeeper-forwarded: " in head.lower() and body == ndjson(1).strip()
    key = key_of(f"Bearer {ONE}")
    assert key is not None
    assert b"authorization" not in head.lower()
    for secret in (ONE.encode(), b64encode(ONE.encode()), key.hex().encode(), b64encode(key)):
        assert secret not in heard[0]


def test_too_many_tokens_of_a_table_are_refused(tmp_path: Path) -> None:
    """Each of them is tried for each request."""
    file = tmp_path / "tokens"
    file.write_text("".join(f"events {number:016}\n" for number in range(1000)))
    assert len(Tokens(file, utc_now).keys("events")) == 1000
    file.write_text("".join(f"events {number:016}\n" for number in range(1001)))
    with pytest.raises(ConfigInvalid, match="more than 1000 tokens"):
        Tokens(file, utc_now)


def test_the_other_goes_on_where_the_owner_ends(lake: Queue) -> None:
    with two(lake) as (owner, other):
        assert other.rows(ndjson(2), "p", 2).status == 200
        owner.end()
        replies = list[Reply]()
        until(lambda: replies.append(other.rows(ndjson(2), "p", 2)) or replies[-1].status == 200)
        assert replies[-1].body["duplicate"]
        assert {reply.status for reply in replies[:-1]} <= {503}
        assert all(reply.headers["retry-after"] for reply in replies[:-1])
        assert other.rows(ndjson(3), "p", 3).status == 200

    assert numbers(lake) == [1, 2, 3]


@pytest.mark.parametrize(
    "says",
    [
        b"",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\xff\xff\xff\xff",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 99_999,
        b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 99_999 + b"{}",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 60_000,
    ],
)
def test_an_owner_that_answers_anything_else_counts_as_away(lake: Queue, says: bytes) -> None:
    with stranger(lake, says) as heard, door(lake) as served:
        found = served.rows(ndjson(1), "p", 1)
        assert found.status == 503 and found.headers["retry-after"]

    assert heard[0].startswith(b"POST /v1/tables/events/rows?wait=committed HTTP/1.1\r\n")


@contextmanager
def stranger(lake: Queue, says: bytes) -> Iterator[list[bytes]]:
    """One that has named its address as the owner's: what it hears."""
    with socket.create_server(("127.0.0.1", 0)) as at:
        heard = list[bytes]()

        def speak() -> None:
            taken, _ = at.accept()
            with closing(taken):
                heard.append(taken.recv(2**16))
                taken.sendall(says)

        address = f"http://127.0.0.1:{at.getsockname()[1]}"
        lease = slot_lease(open_store(lake.made.folder), "door-00", address)
        assert lease.hold(utc_now())
        thread = Thread(target=speak, daemon=True)
        thread.start()
        yield heard
        thread.join(10)
        lease.release()


def test_an_owner_that_is_gone_or_says_no_address(lake: Queue) -> None:
    store = open_store(lake.made.folder)
    for address in ("http://127.0.0.1:1", "", "http://u:p@127.0.0.1:1/x"):
        lease = slot_lease(store, "door-00", address)
        assert lease.hold(utc_now())
        with door(lake) as served:
            assert served.rows(ndjson(1), "p", 1).headers["retry-after"]
            assert served.send("GET", "/v1/tables/events/producers/p").status == 503
        lease.release()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (b"host 12 http://a.example:80 since 2026\n", "http://a.example:80"),
        (b"host 12 https://[::1]:8443 since 2026\n", "https://[::1]:8443"),
        (b"host 12 since 2026\n", ""),
        (b"", ""),
        (b"host 12 http://a@b:80 since 2026\n", ""),
        (b"host 12 http://a:80/path since 2026\n", ""),
        (b"host 12 ftp://a:80 since 2026\n", ""),
        (b"\xff\xfe", ""),
        (b" http://a:80 " * 9999, ""),
    ],
)
def test_what_a_lease_says(tmp_path: Path, text: bytes, address: str) -> None:
    (tmp_path / "slots").mkdir()
    (tmp_path / lease_name("s-00")).write_bytes(text)
    assert owner_of(open_store(str(tmp_path)), "s-00") == address


def test_what_a_lease_on_an_object_store_says(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    assert owner_of(store, "s-00") == ""
    (tmp_path / "slots").mkdir()
    (tmp_path / lease_name("s-00")).write_text('{"holder": "host 12 http://a:80", "id": "x"}')
    assert owner_of(store, "s-00") == "http://a:80"


def test_what_is_advertised() -> None:
    with listening("0.0.0.0:0") as at:
        port = at.getsockname()[1]
        assert address_of(at, None) == f"http://{socket.gethostname()}:{port}"
        assert address_of(at, "https://door-1:443") == "https://door-1:443"
        for wrong in ("door-1", "http://door-1", "http://door-1:1/x", "ftp://x:1", "http://a b:1", ""):
            with pytest.raises(ConfigInvalid):
                address_of(at, wrong)
    with listening("127.0.0.1:0") as at:
        assert address_of(at, None) == f"http://127.0.0.1:{at.getsockname()[1]}"


class Mail:
    """Takes answers without a loop."""

    def future(self) -> Future[Answer]:
        return Future()

    def put(self, future: Future[Answer], answer: Answer) -> None:
        future.set_result(answer)


def test_an_instance_that_stands_by_asks_for_the_lease_twice_a_minute_and_at_a_request(
    lake: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot, "LEASE_SECONDS", 1.0)
    monkeypatch.setattr(slot, "LOOK_SECONDS", 0.01)
    began, seconds = utc_now(), count()
    holder = slot_lease(open_store(lake.made.folder), "door-00", "http://127.0.0.1:1")
    assert holder.hold(began)
    opener = Opener(lake.made.folder, open_store, utc_now, pause, timedelta(0), alone=timedelta(0))
    clock = lambda: began + timedelta(seconds=next(seconds))  # noqa: E731
    standby = slot.Slot(Table("events", "door", opener, clock, Event(), 1), 0)
    standby._turn()
    idle, ask = next(seconds), Ask(Mail(), "p")  # type: ignore[arg-type]
    standby.queue.put(ask)
    standby._turn()
    asked, late = next(seconds), Ask(Mail(), "p")  # type: ignore[arg-type]
    assert (idle > 30, asked - idle < 6, ask.future.result().owner) == (True, True, "http://127.0.0.1:1")
    monkeypatch.setattr(standby, "_drain", lambda: None)  # it comes while the slot waits
    standby.queue.put(late)
    standby._turn()
    holder.release()
    assert late in standby._asks and not late.answered  # before it is answered, the lease is asked for


def test_an_instance_that_serves_a_slot_no_more_does_not_wait_for_the_bookkeeper() -> None:
    over, figures = Event(), WriterMetrics("door-00", "events")
    over.set()
    table = Table("events", "door", cast(Any, None), utc_now, over, figures={"door-00": figures})
    figures.waits()
    slot.Slot(table, 0)._pass_on("")
    assert not figures.waiting
