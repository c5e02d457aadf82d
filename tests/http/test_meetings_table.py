"""Rows over HTTP while the table, its schema, its limits or a clock change: none lost, none double."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event, Thread

import pytest
from pyiceberg.types import LongType

from bookkeeper.commands.replay import replay
from bookkeeper.console.signals import StopSignal
from bookkeeper.errors import ClockAhead, HistoryChanged
from bookkeeper.ledger.load import load
from bookkeeper.stores.local import LocalStore
from bookkeeper.stores.open import open_store
from tests.http.served import NAME, Client, door, ndjson, numbers, queue, until
from tests.http.test_meetings import again, answers_soon, seen
from tests.http.test_named import data_files
from tests.support.threads import again_and_again
from tests.support.writer_queue import Queue
from writers.http.command import address_of, listening, serve, tables_of
from writers.http.front import Front
from writers.http.storage_clock import MOST_AHEAD, StorageClock
from writers.timing import Clock, pause, utc_now

__all__ = ["answers_soon"]


def named(*rows: tuple[int, int]) -> bytes:
    return b"".join(b'{"n":%d,"count":%d}\n' % row for row in rows)


def has_counts(lake: Queue) -> None:
    with lake.table().update_schema() as change:
        change.add_column("count", LongType())
    lake.tick()


def test_a_column_that_comes_between_requests_of_one_producer(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with door(lake) as served, ThreadPoolExecutor(3) as pool, again_and_again(lake.tick, 0.05):
        assert served.rows(ndjson(1), "p", 1).status == 200
        assert served.rows(named((2, 2)), "p", 2).status == 400
        has_counts(lake)
        replies = [pool.submit(served.rows, ndjson(3), "p", 3), pool.submit(served.rows, ndjson(7), "q", 1)]
        seen(lambda: served.rows(named((2, 2)), "p", 2), lambda reply: reply.status == 200)
        assert replies[1].result().status == 200
        seen(lambda: served.rows(ndjson(3), "p", 3), lambda reply: reply.status == 200)

    assert numbers(lake) == [1, 2, 3, 7]
    assert sum(lake.table().scan().to_arrow()["count"].drop_null().to_pylist()) == 2


def test_a_new_column_in_one_request_of_a_group_costs_no_other(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with door(lake) as served, ThreadPoolExecutor(6) as pool, again_and_again(lake.tick, 0.05):
        assert served.rows(ndjson(0), "first", 1).status == 200
        has_counts(lake)
        replies = [
            pool.submit(served.rows, named((n, n)) if n % 2 else ndjson(n), f"p{n}", 1, "?wait=published")
            for n in range(1, 7)
        ]
        assert [reply.result().status for reply in replies] == [202] * 6
        until(lambda: not lake.pending())

    lake.tick()
    assert numbers(lake) == [*range(7)] and not lake.rejected()


def test_a_replayed_txlog_and_the_request_that_is_sent_again_are_one(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    known = data_files(lake)
    with door(lake) as served:
        assert served.rows(ndjson(1), "p", 1, "?wait=published").status == 202
        (lost,) = data_files(lake) - known
        data = lost.read_bytes()
        lost.unlink()
        lake.drain()
        (rejected,) = [item.name for item in lake.folder.rejected()]
        lost.write_bytes(data)
        seen(lambda: served.send("GET", "/v1/tables/events/producers/p"), lambda it: it.body.get("published") == 0)
        replay(lake.folder, lake.book().ledger, lake.settings, rejected, lake.clock.now)
        # The run knows of no sequence, the replayed txlog is in its place.
        assert served.rows(ndjson(1), "p", 1, "?wait=published").status in (202, 503)
        lake.drain()
        with again_and_again(lake.tick, 0.05):
            again(lambda: served.rows(ndjson(1), "p", 1))
            again(lambda: served.rows(ndjson(2), "p", 2))

    assert numbers(lake) == [1, 2]


def test_a_table_that_is_halted_takes_published_rows_and_commits_them_later(tmp_path: Path) -> None:
    """Rolled back by another engine: its acknowledged rows are gone, what comes later is no duplicate."""
    lake = queue(tmp_path)
    with door(lake) as served:
        for sequence in (1, 2):
            assert served.rows(ndjson(sequence), "p", sequence, "?wait=published").status == 202
            lake.tick()
        first = lake.table().metadata.snapshots[0].snapshot_id
        lake.table().manage_snapshots().rollback_to_snapshot(first).commit()
        with pytest.raises(HistoryChanged):
            lake.tick()
        assert served.rows(ndjson(3), "p", 3, "?wait=published").body["committed"] == 2
        assert served.rows(ndjson(3), "p", 3).status == 503
        book = lake.book()
        view, _, _ = load(book.ledger, lake.folder, accept_rollback=True)
        book.publisher.record(view, view.marks, "accept-rollback", even_older=True)
        with again_and_again(lake.tick, 0.05):
            assert again(lambda: served.rows(ndjson(3), "p", 3)).body["duplicate"]
            assert served.rows(ndjson(4), "p", 4).status == 200

    assert numbers(lake) == [1, 3, 4]


def test_waiting_requests_at_the_pending_limit_are_429_and_in_once(tmp_path: Path) -> None:
    lake = queue(tmp_path, pending_limit=3)
    with door(lake) as served, ThreadPoolExecutor(2) as pool:
        waits = pool.submit(served.rows, ndjson(1), "p", 1)
        until(lake.pending)
        for sequence in (1, 2):
            assert served.rows(ndjson(9), "q", sequence, "?wait=published").status == 202
        for _ in range(2):
            full = served.rows(ndjson(9), "q", 3, "?wait=published")
            assert full.status == 429 and full.headers["retry-after"]
        assert waits.result().status in (429, 503)
        assert served.rows(ndjson(1), "p", 1, "?wait=published").body["duplicate"]
        with again_and_again(lake.tick, 0.05):
            assert served.rows(ndjson(1), "p", 1).body["duplicate"]
            again(lambda: served.rows(ndjson(9), "q", 3))

    assert numbers(lake) == [1, 9, 9, 9]


def test_a_long_outage_leaves_nothing_behind_in_the_queues(tmp_path: Path) -> None:
    """No run can begin: requests are answered at once, and none is written later for a client that has gone."""
    lake = queue(tmp_path)
    card = tmp_path / "aside.json"
    with door(lake) as served:
        path = next(lake.root.rglob("card.json"))
        path.rename(card)
        for number in range(3):
            assert served.rows(ndjson(number)).status == 503
            assert served.rows(ndjson(number), "p", number + 1).status == 503
        assert [lane.queue.qsize() for lane in served.front._lanes.values()] == [0, 0]
        card.rename(path)
        with again_and_again(lake.tick, 0.05):
            again(lambda: served.rows(ndjson(7)))
            again(lambda: served.rows(ndjson(8), "p", 1))
    lake.drain()
    assert numbers(lake) == [7, 8]


@pytest.mark.parametrize("minutes", [-1500, -50, 50])
def test_a_clock_that_jumps_costs_no_row(tmp_path: Path, minutes: int) -> None:
    lake, ahead = queue(tmp_path), [timedelta(0)]

    def clock() -> datetime:
        return utc_now() + ahead[0]

    with Serving({lake.made.folder: ""}, clock) as served, again_and_again(lake.tick, 0.05):
        for sequence in range(1, 7):
            again(lambda of=sequence: served.rows(ndjson(of), "p", of))
            again(lambda of=sequence: served.rows(ndjson(10 * of)))
            ahead[0] += timedelta(minutes=minutes) * (1 if sequence % 2 else -1)

    lake.drain()
    assert numbers(lake) == sorted([*range(1, 7), *range(10, 70, 10)]) and not lake.rejected()


@pytest.mark.parametrize("producer", [None, "p"])
def test_a_clock_two_hours_ahead_is_refused_before_anything_is_published(tmp_path: Path, producer: str | None) -> None:
    """Its txlog would be rejected, and rows without a name were acknowledged by then."""
    lake = queue(tmp_path)
    with Serving({lake.made.folder: ""}, lambda: utc_now() + timedelta(hours=2)) as served:
        for _ in range(2):
            found = served.rows(ndjson(1), producer, 1, "?wait=published")
            assert found.status == 503 and "clock is 2 h ahead" in found.body["error"]
            assert int(found.headers["retry-after"]) >= 30
    assert not lake.pending() and not data_files(lake)


def test_a_clock_that_is_set_ahead_while_it_serves_is_refused_until_it_is_right(tmp_path: Path) -> None:
    """Also where it was ahead only as its run began: the incarnation says that time."""
    lake, ahead = queue(tmp_path), [timedelta(0)]
    serving = Serving({lake.made.folder: ""}, lambda: utc_now() + ahead[0])
    runs = serving.tables[0].figures
    with serving as served:
        assert served.rows(ndjson(1)).status == 200
        first, ahead[0] = runs["door-rows"], timedelta(hours=2)
        assert served.rows(ndjson(2)).status == 503
        until(lambda: runs["door-rows"] is not first)
        ahead[0] = timedelta(0)
        again(lambda: served.rows(ndjson(3)))
    lake.drain()
    assert numbers(lake) == [1, 3] and not lake.rejected()


def test_the_storages_clock_is_looked_at_once_a_minute(tmp_path: Path) -> None:
    store, now = Counting(tmp_path), [utc_now()]
    looks = StorageClock(store, "door-rows", lambda: now[0], pause)
    for seconds in (0, 30, 29):
        now[0] += timedelta(seconds=seconds)
        looks.check()
    assert store.looks == 1
    for back in (1, -5):
        now[0] += timedelta(seconds=back)
        looks.check()
        looks.check()
    assert store.looks == 3
    now[0] += MOST_AHEAD + timedelta(minutes=1)
    for _ in range(2):
        with pytest.raises(ClockAhead):
            looks.check()
    assert store.looks == 5


class Counting(LocalStore):
    """Counts looks at its clock."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.looks = 0

    def modified(self, key: str) -> datetime:
        self.looks += 1
        return super().modified(key)


class Serving:
    """A server of these tables with a clock of its own."""

    def __init__(self, folders: dict[str, str], clock: Clock = utc_now) -> None:
        self.stop, self.over = StopSignal(), Event()
        self.at = listening("127.0.0.1:0")
        self.tables = tables_of(folders, open_store, NAME, 1, clock, self.over, address_of(self.at, None))
        self.front = Front(self.tables, None, 2**20, 2**24)
        given = (self.front, self.at, self.stop, self.over, timedelta(seconds=5))
        self.thread = Thread(target=serve, args=given)

    def __enter__(self) -> Client:
        port = self.at.getsockname()[1]
        self.thread.start()
        return Client(port)

    def __exit__(self, *_: object) -> None:
        self.stop.request()
        self.thread.join(20)
        assert not self.thread.is_alive()


def test_a_producer_of_two_tables_has_a_sequence_in_each(tmp_path: Path) -> None:
    one, two = queue(tmp_path / "one"), queue(tmp_path / "two")
    folders = {one.made.folder: "one", two.made.folder: "two"}
    with Serving(folders) as client, again_and_again(one.tick, 0.05), again_and_again(two.tick, 0.05):
        for table, sequence in (("one", 1), ("two", 1), ("one", 2)):
            headers = {"Content_Type": "application/x-ndjson", "Producer": "p", "Sequence": str(sequence)}
            reply = client.send("POST", f"/v1/tables/{table}/rows", ndjson(sequence), **headers)
            assert reply.status == 200 and "duplicate" not in reply.body

    assert (numbers(one), numbers(two)) == ([1, 2], [1])
