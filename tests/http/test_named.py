"""Requests of named producers: each counts once, and 200 says that its rows are in the table."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bookkeeper.contract import marks as marks_format
from tests.http.served import door, ndjson, numbers, queue, until
from tests.support.keyed_rows import rows as live_rows
from tests.support.threads import again_and_again
from tests.support.writer_queue import Queue
from writers import Writer


def test_200_says_that_the_rows_are_in_the_table(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with door(lake) as served, ThreadPoolExecutor(1) as pool:
        reply = pool.submit(served.rows, ndjson(1, 2), "p", 1)
        until(lake.pending)
        until(lambda: served.state("p") == (1, 0))
        assert not reply.done()

        lake.tick()

        assert reply.result()[:2] == (200, {"producer": "p", "sequence": 1, "published": 1, "committed": 1})
        assert numbers(lake) == [1, 2]


def test_published_is_answered_202_with_what_is_committed(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with door(lake) as served:
        first = served.rows(ndjson(1), "p", 1, "?wait=published")
        lake.tick()
        second = served.rows(ndjson(2), "p", 2, "?wait=published")

        assert (first.status, first.body["published"], first.body["committed"]) == (202, 1, 0)
        assert (second.status, second.body["published"], second.body["committed"]) == (202, 2, 1)


def test_a_request_that_comes_again_is_recognised(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        for sequence in (1, 2):
            assert served.rows(ndjson(sequence), "p", sequence).status == 200
        again = [served.rows(ndjson(sequence), "p", sequence) for sequence in (1, 2, 1)]

    assert [(item.status, item.body["duplicate"]) for item in again] == [(200, True)] * 3
    assert numbers(lake) == [1, 2]


@pytest.mark.parametrize("committed", [False, True])
def test_it_is_recognised_by_another_process_too(tmp_path: Path, committed: bool) -> None:
    lake = queue(tmp_path)
    with door(lake) as served:
        assert served.rows(ndjson(1), "p", 1, "?wait=published").status == 202
    if committed:
        lake.tick()

    with door(lake) as served, again_and_again(lake.tick, 0.05):
        assert served.state("p")[0] == 1
        assert served.rows(ndjson(1), "p", 1).body["duplicate"]
        assert served.rows(ndjson(2), "p", 2).status == 200

    assert numbers(lake) == [1, 2]


def test_a_gap_is_409_with_the_sequence_to_go_on_from(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        assert served.rows(ndjson(1), "p", 1).status == 200
        gap = served.rows(ndjson(3), "p", 3)
        assert (gap.status, gap.body["next"]) == (409, 2)
        assert served.rows(ndjson(9), "new", 7).body["next"] == 1
        assert served.rows(ndjson(2), "p", 2).status == 200

    assert numbers(lake) == [1, 2]


@pytest.mark.parametrize("query", ["", "?wait=published"])
def test_of_two_tries_at_once_none_is_taken_for_the_other_that_was_refused(tmp_path: Path, query: str) -> None:
    lake = queue(tmp_path)
    with door(lake) as served, again_and_again(lake.tick, 0.05), ThreadPoolExecutor(2) as pool:
        tries = [pool.submit(served.rows, b'{"other": 1}', "p", 2, query) for _ in range(2)]
        until(lambda: len(served.front._pending) == 2)
        assert served.rows(ndjson(1), "p", 1).status == 200
        assert sorted(done.result(10).status for done in tries) == [400, 503]
        assert served.rows(ndjson(2), "p", 2).status == 200
    assert numbers(lake) == [1, 2]


def test_parallel_requests_are_taken_in_the_order_of_their_sequences(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with door(lake) as served, again_and_again(lake.tick, 0.05), ThreadPoolExecutor(8) as pool:
        replies = [pool.submit(served.rows, ndjson(number), "p", number) for number in (8, 3, 5, 1, 7, 2, 6, 4)]
        assert {reply.result().status for reply in replies} == {200}

    assert numbers(lake) == [*range(1, 9)]


def test_producers_share_txlogs(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with door(lake) as served, ThreadPoolExecutor(20) as pool:
        assert served.rows(ndjson(0), "first", 1, "?wait=published").status == 202
        replies = [pool.submit(served.rows, ndjson(n), f"p{n}", 1, "?wait=published") for n in range(1, 21)]
        assert {reply.result().status for reply in replies} == {202}
        assert len(lake.pending()) < 15

    lake.tick()
    assert numbers(lake) == [*range(21)]


def test_what_is_behind_a_bad_request_waits_for_it(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with door(lake) as served, again_and_again(lake.tick, 0.05), ThreadPoolExecutor(3) as pool:
        assert served.rows(ndjson(0), "p", 1).status == 200
        third = pool.submit(served.rows, ndjson(2), "p", 3)
        other = pool.submit(served.rows, ndjson(7), "q", 1)
        bad = served.rows(ndjson(1) + b'{"n":"x"}\n', "p", 2)
        assert (bad.status, bad.body["row"]) == (400, 2)
        assert third.result().body["next"] == 2
        assert other.result().status == 200
        assert served.rows(ndjson(1), "p", 2).status == 200

    assert numbers(lake) == [0, 1, 7]


def test_a_slot_that_another_run_has_gone_ahead_of_begins_anew(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with door(lake) as served, ThreadPoolExecutor(1) as pool:
        assert served.rows(ndjson(1), "p", 1, "?wait=published").status == 202
        lake.tick()
        with Writer.open(lake.made.folder, "door-00") as other:
            other.write([{"n": 7}], offsets={"q": "1"})
        lake.tick()

        reply = pool.submit(served.rows, ndjson(2), "p", 2)
        until(lake.pending)
        lake.tick()
        assert reply.result().status == 503 and reply.result().headers["retry-after"]
        assert numbers(lake) == [1, 7]

        with again_and_again(lake.tick, 0.05):
            assert "duplicate" not in served.rows(ndjson(2), "p", 2).body
            assert served.rows(ndjson(7), "q", 1).body["duplicate"]

    assert numbers(lake) == [1, 2, 7]


def test_a_sequence_that_another_run_has_committed_is_in_the_table(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with door(lake) as served, ThreadPoolExecutor(1) as pool:
        assert served.rows(ndjson(1), "p", 1, "?wait=published").status == 202
        lake.tick()
        with Writer.open(lake.made.folder, "door-00") as other:
            other.write([{"n": 2}], offsets={"p": "2"})
        lake.tick()

        reply = pool.submit(served.rows, ndjson(2), "p", 2)
        until(lake.pending)
        lake.tick()
        assert reply.result().status == 200

    assert numbers(lake) == [1, 2]


def test_a_producer_too_many_is_refused_before_its_rows_are_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks_format, "MOST_CHANNELS", 2)
    lake = queue(tmp_path)
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        for producer in ("a", "b"):
            assert served.rows(ndjson(1), producer, 1).status == 200
        third = served.rows(ndjson(1), "c", 1)
        assert third.status == 409 and "bookkeeper forget" in third.body["hint"]
        assert served.rows(ndjson(2), "a", 2).status == 200

    assert numbers(lake) == [1, 1, 2] and not lake.rejected()


def test_an_offset_that_is_no_sequence_is_refused(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with Writer.open(lake.made.folder, "door-00") as other:
        other.write([{"n": 2}], offsets={"p": "2@7"})
    with door(lake) as served:
        assert served.rows(ndjson(1), "p", 1).status == 409


def test_rows_of_a_keyed_table_are_upserts(tmp_path: Path) -> None:
    lake = queue(tmp_path, key=("n",))
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        assert served.rows(b'{"n":1,"who":"a"}', "p", 1).status == 200
        assert served.rows(b'{"n":1,"who":"b"}', "p", 2).status == 200
        assert served.rows(b'{"n":1,"who":"c"}').status == 409

    assert [row["who"] for row in live_rows(lake, "n")] == ["b"]


def test_a_producer_whose_rows_are_rejected_rests_and_the_others_go_on(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    known = data_files(lake)
    with door(lake) as served, ThreadPoolExecutor(1) as pool:
        reply = pool.submit(served.rows, ndjson(1), "p", 1)
        until(lake.pending)
        for path in data_files(lake) - known:
            path.unlink()
        lake.tick()
        assert reply.result().status == 503
        rests = served.rows(ndjson(1), "p", 1)
        assert rests.status == 503 and int(rests.headers["retry-after"]) >= 30
        with again_and_again(lake.tick, 0.05):
            assert served.rows(ndjson(7), "q", 1).status == 200

    assert numbers(lake) == [7]


def data_files(lake: Queue) -> set[Path]:
    return {path for path in lake.root.rglob("*.parquet") if "metadata" not in path.parts}
