"""`?partial=1`: good rows are taken, bad ones are named; and a request of bad rows alone."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.http.served import SCHEMA, Door, Reply, door, ndjson, numbers, queue, until
from tests.support.keyed_rows import rows as live_rows
from tests.support.threads import again_and_again
from tests.support.writer_queue import Queue
from writers.http import requests

PARTIAL = "?partial=1"
BAD = b'{"n":"x"}\n'
MIXED = ndjson(1) + b"\n" + BAD + ndjson(2) + b"{\n"


@pytest.fixture
def lake(tmp_path: Path) -> Queue:
    return queue(tmp_path)


def bad_rows(reply: Reply) -> Sequence[int]:
    """The rows that the answer names, each with a reason."""
    assert all(item["error"] for item in reply.body["bad_rows"])
    return [item["row"] for item in reply.body["bad_rows"]]


def test_the_good_rows_are_taken_and_the_others_named(lake: Queue) -> None:
    with door(lake) as served:
        reply = served.rows(MIXED, query=PARTIAL)
        assert (reply.status, reply.body["rows"], reply.body["bad"]) == (200, 2, 2)
        assert bad_rows(reply) == [3, 5]
        assert lake.pending() == [reply.body["txlog"]]
        assert served.rows(ndjson(3), query=PARTIAL).body.keys() == {"rows", "txlog"}
        array = served.rows(b'[{"n":4}, 7, {"n":null}]', query=PARTIAL, Content_Type="application/json")
        assert (array.status, bad_rows(array)) == (200, [2, 3])
    lake.tick()

    assert numbers(lake) == [1, 2, 3, 4]


def test_without_it_all_bad_rows_are_named_and_nothing_is_taken(lake: Queue) -> None:
    with door(lake) as served:
        for query in ("", "?partial=0"):
            reply = served.rows(MIXED, query=query)
            assert (reply.status, reply.body["row"], reply.body["bad"], bad_rows(reply)) == (400, 3, 2, [3, 5])
        for query in ("?partial=yes", "?partial=", "?partial=1&partial=0"):
            assert served.rows(MIXED, query=query).status == 400
    assert not lake.pending()


def test_bad_rows_alone_are_422(lake: Queue) -> None:
    with door(lake) as served:
        reply = served.rows(BAD + BAD, query=PARTIAL)
        assert (reply.status, reply.body["bad"], reply.body["row"]) == (422, 2, 1)
        assert "txlog" not in reply.body and "Nothing of this request was taken" in reply.body["hint"]
    assert not lake.pending()


def test_a_named_producer_goes_on_behind_bad_rows(lake: Queue) -> None:
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        first = served.rows(MIXED, "p", 1, PARTIAL)
        assert (first.status, first.body["committed"], bad_rows(first)) == (200, 1, [3, 5])
        published = served.rows(MIXED, "p", 2, f"{PARTIAL}&wait=published")
        assert published.status in (200, 202) and published.body["bad"] == 2
        again = served.rows(MIXED, "p", 1, PARTIAL)
        assert again.status == 200 and again.body["duplicate"] and "bad" not in again.body

    lake.tick()  # the second request is published, and may wait for a commit
    assert numbers(lake) == [1, 1, 2, 2]


def test_a_sequence_of_bad_rows_alone_is_taken_once_that_is_in_the_table(lake: Queue) -> None:
    with door(lake) as served, ThreadPoolExecutor(1) as pool:
        waits = pool.submit(served.rows, BAD, "p", 1, PARTIAL)
        until(lake.pending)
        assert not waits.done()
        lake.tick()
        reply = waits.result()
        assert (reply.status, reply.body["bad"]) == (422, 1)
        assert (reply.body["producer"], reply.body["sequence"], reply.body["committed"]) == ("p", 1, 1)
        assert "sequence is taken" in reply.body["hint"]
        published = served.rows(BAD, "p", 2, f"{PARTIAL}&wait=published")
        assert (published.status, published.body["published"], published.body["committed"]) == (422, 2, 1)
    # Another process knows it, by the table and by what is pending.
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        for sequence in (1, 2):
            assert served.rows(BAD, "p", sequence, PARTIAL).body["duplicate"]
        assert served.rows(ndjson(3), "p", 3).status == 200
    assert numbers(lake) == [3]
    assert not lake.rejected()


def test_requests_at_once_go_on_behind_bad_rows(lake: Queue) -> None:
    with door(lake) as served, again_and_again(lake.tick, 0.05), ThreadPoolExecutor(20) as pool:
        bodies = {n: BAD if n % 3 == 0 else MIXED for n in range(1, 21)}
        replies = {n: pool.submit(served.rows, body, "p", n, PARTIAL) for n, body in bodies.items()}
        assert {n: reply.result().status for n, reply in replies.items()} == {
            n: 422 if n % 3 == 0 else 200 for n in range(1, 21)
        }
        good = [pool.submit(served.rows, ndjson(9), query=PARTIAL) for _ in range(5)]
        bad = [pool.submit(served.rows, MIXED, query=PARTIAL) for _ in range(5)]
        assert all("bad" not in reply.result().body for reply in good)
        assert all(reply.result().body["bad"] == 2 for reply in bad)
    lake.tick()

    assert numbers(lake) == sorted([1, 2] * (14 + 5) + [9] * 5)


def test_a_keyed_table(tmp_path: Path) -> None:
    lake = queue(tmp_path, key=("n",))
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        assert served.rows(MIXED, "p", 1, PARTIAL).body["bad"] == 2
        assert served.rows(BAD, "p", 2, PARTIAL).status == 422
        assert served.rows(ndjson(2, 3), "p", 3, PARTIAL).status == 200
    assert sorted(row["n"] for row in live_rows(lake, "n")) == [1, 2, 3]


def test_the_owner_of_the_slot_is_asked_for_the_same(lake: Queue) -> None:
    with again_and_again(lake.tick, 0.05), door(lake) as owner, door(lake) as other:
        assert owner.rows(ndjson(7), "p", 1).status == 200
        reply = other.rows(MIXED, "p", 2, PARTIAL)
        assert (reply.status, reply.body["bad"], bad_rows(reply)) == (200, 2, [3, 5])
        many = other.rows(b'{"\xff\xf0\\":\n' * 5000, "p", 3, PARTIAL)
        assert (many.status, many.body["bad"]) == (422, 5000)
        assert other.rows(MIXED, "p", 4).status == 400

    assert numbers(lake) == [1, 2, 7]


def test_columns_that_the_table_got_meanwhile_are_no_bad_rows(lake: Queue) -> None:
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        assert served.rows(ndjson(1), "p", 1).status == 200
        with lake.table().update_schema() as update:
            update.add_column("more", SCHEMA.find_type("n"))
        lake.tick()
        reply = served.rows(b'{"n":2,"more":3}\n{"n":4,"less":3}', "p", 2, PARTIAL)
        assert (reply.status, bad_rows(reply)) == (200, [2])

    assert numbers(lake) == [1, 2]


def named(served: Door, body: bytes) -> Reply:
    reply = served.rows(body, query=PARTIAL)
    assert len(json.dumps(reply.body)) < 2**16
    return reply


def test_what_an_answer_says_of_bad_rows_is_bounded(lake: Queue) -> None:
    with door(lake) as served:
        reply = named(served, ndjson(1) + BAD * 5000 + ndjson(2))
        assert (reply.body["bad"], reply.body["rows"]) == (5000, 2)
        assert bad_rows(reply) == [*range(2, 2 + requests.MOST_NAMED)]
        long = b'{"' + "\u20ac".encode() * 1000 + b'":1}\n'
        reply = named(served, ndjson(1) + long * 200)
        assert reply.body["bad"] == 200 and 1 <= len(bad_rows(reply)) <= requests.MOST_NAMED
        for line in (b'{"\\ud800":1}', b'{"n":"\\ud800"}', b'{"\xff":1}', b"\0", b"[" * 9999, b'{"n":1}{"n":2}'):
            reply = named(served, ndjson(1) + line)
            assert (reply.status, bad_rows(reply)) == (200, [2]), line
