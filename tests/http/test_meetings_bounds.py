"""Rows of named producers at the bounds: storage that does not open, too many producers, the end, odd sequences."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, current_thread

import pytest

from bookkeeper.contract import marks as marks_format
from bookkeeper.contract.offsets import slot_of
from bookkeeper.errors import StorageUnavailable
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from tests.http.served import Door, door, ndjson, numbers, queue, until
from tests.http.test_meetings import again
from tests.support.threads import again_and_again
from writers import Writer
from writers.http import front


def test_a_slot_survives_that_the_storage_could_not_be_opened(tmp_path: Path) -> None:
    lake, broken = queue(tmp_path), [True]

    def stores(url: str) -> Store:
        if broken and current_thread().name == "door-00":
            broken.pop()
            raise StorageUnavailable("no keys now")
        return open_store(url)

    with door(lake, stores=stores) as served, again_and_again(lake.tick, 0.05):
        again(lambda: served.rows(ndjson(1), "p", 1))
        assert served.front.alive and not broken

    assert numbers(lake) == [1]


def test_requests_that_a_storage_which_hangs_leaves_without_an_answer_take_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "ANSWER_SECONDS", 0.05)
    lake, goes_on = queue(tmp_path), Event()

    def stores(url: str) -> Store:
        if current_thread().name == "door-00":
            goes_on.wait(30)
        return open_store(url)

    with door(lake, stores=stores) as served:
        for sequence in (1, 2, 3):
            assert served.rows(ndjson(sequence), "p", sequence).status == 503
        assert [lane.queue.qsize() for lane in served.front._lanes.values()] == [0]
        monkeypatch.undo()
        goes_on.set()
        with again_and_again(lake.tick, 0.05):
            again(lambda: served.rows(ndjson(1), "p", 1))

    assert numbers(lake) == [1]


def test_one_producer_too_many_of_two_slots_at_once_costs_no_other_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks_format, "MOST_CHANNELS", 3)
    lake = queue(tmp_path)
    names = {slot: [n for n in map(str, range(50)) if slot_of("door", n, 2) == slot] for slot in ("door-00", "door-01")}
    (a, c), (b, d) = (found[:2] for found in names.values())
    with door(lake, slots=2) as served:
        for name in (a, b):
            assert served.rows(ndjson(1), name, 1, "?wait=published").status == 202
        lake.drain()
        # Each sees room for one more.
        for name, number in ((c, 2), (d, 3)):
            assert served.rows(ndjson(number), name, 1, "?wait=published").status == 202
        lake.drain()
        assert len(lake.rejected()) == 1
        with again_and_again(lake.tick, 0.05):
            for name in (a, b):
                again(lambda of=name: served.rows(ndjson(9), of, 2))
    assert len(numbers(lake)) == 5


def test_posts_ahead_of_their_turn_are_answered_at_the_end(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    served = Door(lake, grace=1.0)
    try:
        with ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(served.rows, ndjson(3), "p", 3)
            until(lambda: any(getattr(item, "_ahead", None) for item in served.front._lanes.values()))
            served.stop.request()
            assert ahead.result().status in (409, 503)
    finally:
        served.end()
    assert numbers(lake) == []


@pytest.mark.parametrize("sequence", ["0", "-1", "9223372036854775807", "1000000000000000000", "01", "1.0", "1e3"])
def test_what_is_no_sequence_is_400(tmp_path: Path, sequence: str) -> None:
    lake = queue(tmp_path)
    with door(lake) as served:
        assert served.rows(ndjson(1), "p", sequence).status == 400
    assert not lake.pending()


def test_the_greatest_sequence_is_the_last(tmp_path: Path) -> None:
    lake, most = queue(tmp_path), 10**18 - 1
    with Writer.open(lake.made.folder, "door-00") as other:
        other.write([{"n": 1}], offsets={"p": str(most - 1)})
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        assert served.rows(ndjson(2), "p", most).status == 200
        assert served.rows(ndjson(2), "p", most).body["duplicate"]
        assert served.rows(ndjson(3), "p", most + 1).status == 400

    assert numbers(lake) == [1, 2]
