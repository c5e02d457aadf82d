"""The client of `writer serve`: its spool under crashes and lost answers, and against the server itself."""

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, time
from decimal import Decimal
from functools import partial
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import requests
from requests.adapters import BaseAdapter
from urllib3 import HTTPResponse

from bookkeeper.errors import NotPossible, StorageUnavailable
from bookkeeper.stores.local import LocalStore
from tests.http.served import door, numbers, queue
from tests.support.enumerated import crash_points, crashed, error_points, recorded
from tests.support.faults import AFTER, BEFORE, Crash, Faults, FaultyStore
from tests.support.threads import again_and_again
from tests.support.wrapped import WrappedStore
from writers.http import client as client_module
from writers.http.client import Client
from writers.http.spool import Spool

BAD = -1


class Server(BaseAdapter):
    """
    A server of one producer that takes requests as `writer serve` does, and rows but BAD. `lost` says for each request
    whether it is answered: "" it is, BEFORE it does not arrive, AFTER its answer is lost, "crash" the client ends then,
    "late" it arrives when `arrive` is called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.rows, self.bodies = 0, list[int](), list[list[int]]()
        self.lost: Iterator[str] = iter(())
        self.answer: tuple[int, dict[str, Any], dict[str, str]] | None = None
        self.late, self.poison = list[tuple[int, list[int]]](), {BAD}
        #: of a body, as `--max-body`; and how many requests at the end are published and not committed yet
        self.most_body, self.pending = 2**20, 0
        #: of a body, as a proxy before the server has it
        self.most_of_proxy = 2**20

    def send(self, request: Any, *rest: Any, **more: Any) -> requests.Response:
        if self.answer is not None:
            return _response(request, *self.answer)
        if request.method == "GET":
            committed, self.pending = self.reached - self.pending, max(0, self.pending - 1)
            return _response(request, 200, {"published": self.reached, "committed": committed})
        sent = int(request.headers["Sequence"]), [json.loads(line)["n"] for line in request.body.splitlines()]
        self.bodies.append(sent[1])
        if len(request.body) > self.most_of_proxy:
            return _response(request, 413, b"<html>")
        if len(request.body) > self.most_body:
            return _response(request, 413, {"error": "too large"})
        how = next(self.lost, "")
        if how == "late":
            self.late.append(sent)
        if how in (BEFORE, "late"):
            raise requests.ConnectionError("refused")
        answer = self.take(*sent)
        if how == AFTER:
            raise requests.ReadTimeout("no answer")
        if how == "crash":
            raise Crash
        return _response(request, *answer)

    def arrive(self) -> None:
        for sent in self.late:
            self.take(*sent)
        self.late = []

    def take(self, sequence: int, rows: list[int]) -> tuple[int, dict[str, Any]]:
        if sequence <= self.reached:
            return 200, {"duplicate": True}
        if sequence > self.reached + 1:
            return 409, {"error": "a gap", "next": self.reached + 1}
        if self.poison & {*rows}:
            return 400, {"error": "no row", "row": 1}
        self.reached, self.rows = sequence, self.rows + rows
        return 200, {}

    def close(self) -> None:
        pass


def _response(
    request: Any, status: int, body: dict[str, Any] | bytes, headers: Mapping[str, str] = MappingProxyType({})
) -> requests.Response:
    response = requests.Response()
    response.status_code, response.request, response.url = status, request, request.url
    response.headers.update(headers)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    response.raw = HTTPResponse(BytesIO(data), headers=headers, status=status, preload_content=False)
    return response


class Clock:
    """Waiting moves it."""

    now = 1000.0

    def __init__(self) -> None:
        self.waits = list[float]()

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def opened(tmp_path: Path, server: Server) -> Iterator[Callable[..., Client]]:
    clock, made = Clock(), list[Client]()

    def act(**given: Any) -> Client:
        while made:
            made.pop().close()
        client = Client(
            "http://door", "events", "till-7", str(tmp_path / "spool"), clock=clock, wait=clock.wait, **given
        )
        client._session.mount("http://", server)
        made.append(client)
        return client

    yield act
    for client in made:
        client.close()


def n(*numbers: int) -> list[dict[str, int]]:
    return [{"n": number} for number in numbers]


def test_rows_are_in_the_table_of_a_server(tmp_path: Path) -> None:
    lake = queue(tmp_path / "lake")
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        url, spool = f"http://127.0.0.1:{served.port}", str(tmp_path / "spool")
        with Client(url, "events", "till-7", spool) as client:
            client.send(n(1))
            client.send(n(2, 3))
            client.flush()
            assert client.waiting == 0
        with Client(url, "events", "till-7", spool) as client:
            client.send([{"n": 4, "other": 1}])
            client.send(n(5))
            client.flush()
            assert client.refused == 1
        assert served.state("till-7") == (2, 2)
    assert numbers(lake) == [1, 2, 3, 5]
    assert json.loads((tmp_path / "spool" / "refused" / "000000000003.ndjson").read_text()) == {"n": 4, "other": 1}
    assert "other" in (tmp_path / "spool" / "refused" / "000000000003.txt").read_text()


def test_a_server_with_smaller_bounds_refuses_what_was_taken_and_nothing_comes_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, spool, clock = queue(tmp_path / "lake"), str(tmp_path / "spool"), Clock()
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        url = f"http://127.0.0.1:{served.port}"
        with Client(url, "events", "till-7", spool) as client, monkeypatch.context() as patch:
            client.send(n(1, 2))
            patch.setattr(client._spool, "taken", crash)
            with pytest.raises(Crash):
                client.flush()
    with door(lake, max_body=10) as served, again_and_again(lake.tick, 0.05):
        url = f"http://127.0.0.1:{served.port}"
        with Client(url, "events", "till-7", spool, clock=clock, wait=clock.wait) as client:
            client.send(n(3))
            client.flush(500)
            assert (client.refused, client.waiting) == (0, 0)
    assert numbers(lake) == [1, 2, 3]


def crash(*given: object) -> None:
    """The process ends."""
    raise Crash


def process(root: Path, server: Server, sent: list[int], faults: Faults) -> None:
    """A process: it sends what was not taken by the spool yet, and ends; `sent` holds what `send` returned for."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_module, "LocalStore", lambda root: FaultyStore(LocalStore(root), faults, "spool"))
        with Client("http://door", "events", "p", str(root), clock=clock, wait=clock.wait) as client:
            client._session.mount("http://", server)
            for number in (1, 2, BAD, 4, 5):
                if number not in sent:
                    client.send(n(number))
                    sent.append(number)
                if number == 2:
                    client.flush(500)
            client.flush(500)


@pytest.mark.parametrize("lost", ["", BEFORE, AFTER])
def test_a_crash_at_any_step_of_the_spool_loses_and_doubles_nothing(tmp_path: Path, lost: str) -> None:
    seen = recorded(partial(process, tmp_path / "first", Server(), []))
    points = [*crash_points(seen)]
    assert len(points) > 40
    for number, point in enumerate(points):
        server, sent = Server(), list[int]()
        server.lost = iter([lost] * 3)
        root = tmp_path / str(number)
        crashed(partial(process, root, server, sent), point)
        process(root, server, sent, Faults())
        # A crash between the disk and the return of `send` leaves it open whether the row was taken.
        once = [row for row in server.rows if row in (1, 2, 4, 5)]
        at_send = point.operation.startswith("replace spool/rows")
        assert sorted({*once}) == [1, 2, 4, 5], point
        assert len(once) == 4 or (at_send and len(once) == 5), (point, once)
        refused = [*(root / "refused").glob("*.ndjson")]
        assert len(refused) == 1 or (at_send and len(refused) == 2), point
        assert not [*root.rglob("*.tmp")]


def test_an_error_of_the_disk_at_any_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    seen = recorded(partial(process, tmp_path / "first", Server(), []))
    for number, point in enumerate(error_points(seen)):
        server, sent, root = Server(), list[int](), tmp_path / str(number)
        faults = Faults().at(point.number, point.when, StorageUnavailable)
        for again in (faults, Faults()):
            try:
                process(root, server, sent, again)
            except StorageUnavailable:
                assert again is faults
        assert sorted(row for row in server.rows if row in (1, 2, 4, 5)) == [1, 2, 4, 5], point


def test_what_waits_on_a_full_disk_is_sent_and_makes_room(tmp_path: Path) -> None:
    room, store = 2**20, LocalStore(str(tmp_path))

    def bounded(name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        nonlocal room
        if name == "replace":
            if len(given[1]) > room:
                raise StorageUnavailable("no room") from OSError(errno.ENOSPC, "no space left on device")
            room -= len(given[1])
        if name == "delete_many":
            sizes = {item.key: item.size for item in store.list("")}
            room += sum(sizes.get(key, 0) for key in given[0])
        return act(*given, **named)

    spool = Spool(WrappedStore(store, bounded), 2**30)  # type: ignore[arg-type]
    spool.begin(1)
    spool.put(b"a" * 500)
    spool.put(b"b" * 500)
    room = 0  # others took it
    with pytest.raises(StorageUnavailable, match="no room"):
        spool.put(b"c")
    for _ in range(2):
        request, _ = spool.request(500)  # type: ignore[misc]
        room = min(room, 2**14 + 500)
        spool.taken(request)
    assert (spool.files, spool.request(500)) == (0, None)
    spool.put(b"c" * 400)


def test_rows_that_send_has_not_taken_take_no_place(
    opened: Callable[..., Client], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults().on("replace spool/rows", AFTER, StorageUnavailable, times=1)
    faults.on("delete spool/rows", BEFORE, StorageUnavailable, times=1)
    monkeypatch.setattr(client_module, "LocalStore", lambda root: FaultyStore(LocalStore(root), faults, "spool"))
    client = opened()
    with pytest.raises(StorageUnavailable):
        client.send(n(1))
    client.send(n(2))
    client.flush()
    assert server.rows == [2]


def test_rows_that_come_after_a_crash_do_not_go_as_the_request_before_it(
    opened: Callable[..., Client], server: Server
) -> None:
    client = opened()
    client.send(n(1))
    server.lost = iter(["crash"])
    with pytest.raises(Crash):
        client.flush()
    client = opened()
    client.send(n(2))
    client.flush()
    assert server.bodies == [[1], [1], [2]]
    assert server.rows == [1, 2]


def test_small_files_go_together_and_the_refused_one_alone_is_laid_aside(
    opened: Callable[..., Client], server: Server
) -> None:
    client = opened()
    for number in (1, 2, 3, BAD, 5, 6, 7):
        client.send(n(number))
    client.flush()
    assert server.rows == [1, 2, 3, 5, 6, 7]
    first, second, third = server.bodies[:3], server.bodies[3:7], server.bodies[7:]
    assert first == [[1, 2, 3, BAD, 5, 6, 7], [1, 2, 3, BAD], [1, 2]]
    assert second == [[3, BAD, 5, 6, 7], [3, BAD, 5], [3, BAD], [3]]
    assert third == [[BAD, 5, 6, 7], [BAD, 5], [BAD], [5, 6, 7]]
    assert client.refused == 1
    assert client.waiting == 0


def test_a_request_is_bounded(opened: Callable[..., Client], server: Server) -> None:
    client = opened(most_body=30)
    for number in range(10, 17):
        client.send(n(number))
    client.flush()
    assert server.bodies == [[10, 11, 12], [13, 14, 15], [16]]
    with pytest.raises(NotPossible, match="at most 30"):
        client.send(n(*range(10)))


def test_a_proxy_that_takes_smaller_bodies_gets_smaller_ones_and_nothing_is_laid_aside(
    opened: Callable[..., Client], server: Server
) -> None:
    client, server.most_of_proxy = opened(), 35
    for number in range(10, 18):
        client.send(n(number))
    client.send(n(20, 21, 22, 23))
    client.send(n(30))

    with pytest.raises(NotPossible, match="no body of 40 bytes") as refused:
        client.flush()

    assert "client_max_body_size" in refused.value.hint
    assert server.rows == [*range(10, 18)]
    assert max(map(len, server.bodies[3:-1])) <= 3  # it does not begin with all of them each time
    server.most_of_proxy = 40
    client.flush()
    assert server.rows == [*range(10, 18), 20, 21, 22, 23, 30]
    assert (client.refused, client.waiting) == (0, 0)


def test_rows_wait_while_there_is_no_server(opened: Callable[..., Client], server: Server) -> None:
    client = opened()
    client.send(n(1))
    server.answer = (502, {"error": "a proxy's"}, {"Retry-After": "7"})
    with pytest.raises(StorageUnavailable, match="502"):
        client.flush(30)
    server.answer = (200, b"<html>", {})  # type: ignore[assignment]
    with pytest.raises(StorageUnavailable, match="none of `writer serve`"):
        client.flush(30)
    server.answer = None
    server.lost = iter([BEFORE, AFTER, BEFORE])
    client.flush()
    assert server.rows == [1]


def test_other_rows_do_not_take_a_sequence_whose_first_request_may_still_arrive(
    opened: Callable[..., Client], server: Server
) -> None:
    client = opened()
    client.send(n(1))
    client.send(n(BAD))
    server.lost = iter(["late"])
    with pytest.raises(StorageUnavailable, match="may still arrive"):
        client.flush(60)
    server.poison = set()  # the table has got the column meanwhile
    server.arrive()
    client = opened()
    client.send(n(3))
    client.flush(500)
    assert server.rows == [1, BAD, 3]


@pytest.mark.parametrize("pending", [0, 1])
@pytest.mark.parametrize(("first", "most"), [([1000000], 10), ([1, 2], 10), ([1, 2], 5)])
def test_a_request_that_was_taken_is_not_sent_otherwise_where_a_server_with_other_bounds_refuses_it(
    opened: Callable[..., Client], server: Server, first: list[int], most: int, pending: int
) -> None:
    client = opened()
    for number in first:
        client.send(n(number))
    server.lost = iter(["crash"])
    with pytest.raises(Crash):
        client.flush()
    server.most_body, server.pending = most, pending  # it was started again
    client = opened()
    client.flush(500)
    server.most_body = 2**20
    client.send(n(3))
    client.flush(500)
    assert server.rows == [*first, 3]
    assert client.refused == client.waiting == 0


@pytest.mark.parametrize("copied", [False, True])
def test_refused_rows_that_are_put_back_are_sent_behind_the_others(
    opened: Callable[..., Client], server: Server, tmp_path: Path, copied: bool
) -> None:
    client = opened()
    for number in (1, BAD, 3):
        client.send(n(number))
    client.flush()
    client.close()
    refused, back = (tmp_path / "spool" / folder / "000000000002.ndjson" for folder in ("refused", "rows"))
    rows = refused.read_bytes()
    if not copied:
        refused.unlink()
    back.write_bytes(rows.replace(b"-1", b"2"))
    client = opened()
    client.send(n(4))
    client.flush()
    assert sorted(server.rows) == [1, 2, 3, 4] and client.waiting == 0
    client.close()
    back.write_bytes(rows)  # as a crash leaves it
    refused.write_bytes(rows)
    opened().flush()
    assert sorted(server.rows) == [1, 2, 3, 4] and not back.exists()


def test_a_file_that_was_taken_out_of_the_spool_stops_no_other(
    opened: Callable[..., Client], server: Server, tmp_path: Path
) -> None:
    client = opened()
    for number in (1, 2, 3, 4):
        client.send(n(number))
        if number == 1:
            client.flush()
    client.close()
    (tmp_path / "spool" / "rows" / "000000000002.ndjson").unlink()
    (tmp_path / "spool" / "rows" / "000000000003.ndjson").unlink()
    client = opened()
    client.flush()
    assert (server.rows, client.waiting) == ([1, 4], 0)


def test_a_refused_request_that_is_published_waits_for_its_commit(
    opened: Callable[..., Client], server: Server
) -> None:
    client = opened()
    client.send(n(1))
    server.lost = iter(["crash"])
    with pytest.raises(Crash):
        client.flush()
    server.most_body, server.pending = 5, 1000
    client = opened()
    with pytest.raises(StorageUnavailable, match="published, and not in the table yet"):
        client.flush(200)
    assert client.waiting == 1
    server.reached, server.rows, server.pending, server.most_body = 0, [], 0, 2**20  # its txlog was rejected
    client.flush(500)
    assert server.rows == [1]


def test_a_refused_request_that_is_taken_as_it_is_is_no_other_ones(
    opened: Callable[..., Client], server: Server
) -> None:
    client = opened()
    client.send(n(1))
    server.lost = iter([AFTER])
    with pytest.raises(StorageUnavailable):
        client.flush(0)
    server.most_body, server.pending = 5, 1000
    with pytest.raises(StorageUnavailable, match="published, and not in the table yet"):
        client.flush(200)
    server.most_body, server.pending = 2**20, 0  # another instance answers
    client.flush(500)
    assert (server.rows, client.waiting) == ([1], 0)


def test_a_gap_is_said_and_accepted_once(opened: Callable[..., Client], server: Server) -> None:
    client = opened()
    for number in (1, 2):
        client.send(n(number))
        client.flush()
    server.reached, server.rows = 1, [1]  # a rollback
    client.send(n(3))
    with pytest.raises(NotPossible, match="up to 1, and 2 were in it") as caught:
        client.flush()
    assert "accept_gap()" in (caught.value.hint or "")
    client = opened()
    client.accept_gap()
    client.flush(500)
    assert (server.rows, server.reached) == ([1, 3], 2)


def test_a_new_spool_goes_on_behind_what_the_server_has(opened: Callable[..., Client], server: Server) -> None:
    server.reached = 41
    client = opened()
    client.send(n(1))
    client.flush()
    assert (server.rows, server.reached) == ([1], 42)


def test_rows_whose_sequence_other_rows_have_taken_are_not_passed_over(
    opened: Callable[..., Client], server: Server
) -> None:
    client = opened()
    client.send(n(1))
    client.flush()
    server.take(2, [100])  # of another process with this name, or the directory was restored
    client.send(n(2))
    for _ in range(3):
        with pytest.raises(NotPossible, match="taken before its rows were sent"):
            client.flush()
        client = opened()
        assert client.waiting == 1
    client.accept_gap()
    client.flush()
    client.send(n(3))
    client.flush()
    assert server.rows == [1, 100, 2, 3] and client.waiting == 0


@pytest.mark.parametrize("restarted", [False, True])
def test_a_gap_is_accepted_behind_other_rows_although_an_answer_is_lost(
    opened: Callable[..., Client], server: Server, restarted: bool
) -> None:
    client = opened()
    client.send(n(1))
    client.flush()
    server.take(2, [100])
    client.send(n(2))
    with pytest.raises(NotPossible, match="taken before its rows were sent"):
        client.flush()
    client = opened() if restarted else client
    client.accept_gap()
    server.lost = iter([AFTER, BEFORE, AFTER])
    client.flush(500)
    assert (server.rows, client.waiting) == ([1, 100, 2], 0)


def test_a_request_whose_answer_was_lost_is_known_again(opened: Callable[..., Client], server: Server) -> None:
    client = opened()
    server.lost = iter([AFTER, "", AFTER])
    for number in (1, 2):
        client.send(n(number))
        client.flush()
    client.send(n(3))
    server.lost = iter([AFTER])
    with pytest.raises(StorageUnavailable):
        client.flush(0)
    client.flush()
    assert server.rows == [1, 2, 3]


def test_a_forked_process_sends_nothing(opened: Callable[..., Client], server: Server) -> None:
    client = opened()
    client.send(n(1))
    client._process = 1
    for act in (client.flush, partial(client.send, n(2))):
        with pytest.raises(NotPossible, match="opened by process 1"):
            act()
    client._process = os.getpid()
    client.flush()
    assert server.rows == [1]


@pytest.mark.parametrize("status", [401, 404, 409])
def test_what_a_person_has_to_mend_is_raised_and_nothing_is_lost(
    opened: Callable[..., Client], server: Server, status: int
) -> None:
    client = opened()
    client.send(n(1))
    server.answer = (status, {"error": "not you", "hint": "Take another token."}, {})
    with pytest.raises(NotPossible, match="not you") as caught:
        client.flush()
    assert caught.value.hint == "Take another token."
    server.answer = None
    client.flush()
    assert server.rows == [1]


@pytest.mark.parametrize(("asked", "least", "most"), [("20", 20.0, 30.0), ("99999", 30.0, 45.0), ("soon", 0.2, 0.3)])
def test_it_waits_as_long_as_the_server_asks_for(
    opened: Callable[..., Client], server: Server, asked: str, least: float, most: float
) -> None:
    client = opened()
    client.send([{"n": 1}])
    server.answer = (429, {"error": "too many"}, {"Retry-After": asked})
    with pytest.raises(StorageUnavailable, match="too many"):
        client.flush(seconds=46)
    clock: Any = client._clock
    assert least <= clock.waits[0] <= most and clock() <= 1046


def test_the_token_is_asked_for_before_each_request(opened: Callable[..., Client], server: Server) -> None:
    tokens, seen = iter(["one", "two"]), list[str]()
    client = opened(token=lambda: next(tokens))
    inner = server.send
    server.send = lambda request, *rest, **more: seen.append(request.headers["Authorization"]) or inner(request)  # type: ignore[method-assign, func-returns-value]
    client.send(n(1))
    client.flush()
    assert seen == ["Bearer one", "Bearer two"]


def test_the_spool_is_bounded_and_of_one_process(opened: Callable[..., Client], tmp_path: Path) -> None:
    client = opened(most_spooled=20)
    client.send(n(1))
    client.send(n(2))
    with pytest.raises(NotPossible, match="more than 20 bytes"):
        client.send(n(3))
    assert client.waiting == 2
    with pytest.raises(NotPossible, match="another process"):
        Client("http://door", "events", "till-7", str(tmp_path / "spool"))


def test_a_damaged_spool_is_refused(opened: Callable[..., Client], server: Server, tmp_path: Path) -> None:
    client = opened()
    client.send(n(1))
    server.lost = iter([BEFORE] * 100)
    with pytest.raises(StorageUnavailable):
        client.flush(30)
    (tmp_path / "spool" / "rows" / "000000000001.ndjson").unlink()
    with pytest.raises(NotPossible, match="are gone"):
        opened().flush()
    (tmp_path / "spool" / "next.json").write_text("{")
    with pytest.raises(NotPossible, match="is damaged"):
        opened()


def test_values_that_json_does_not_have(opened: Callable[..., Client], tmp_path: Path) -> None:
    client = opened()
    client.send([{"n": Decimal("1.50"), "at": datetime(2026, 1, 31, 12, tzinfo=UTC), "opens": time(12, 30)}])
    for value in (b"bytes", float("nan")):
        with pytest.raises((TypeError, ValueError)):
            client.send([{"n": value}])
    text = (tmp_path / "spool" / "rows" / "000000000001.ndjson").read_text()
    assert json.loads(text) == {"n": "1.50", "at": "2026-01-31T12:00:00+00:00", "opens": "12:30:00"}
    assert client.waiting == 1
