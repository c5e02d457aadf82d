"""Rows of named producers while something else reads, writes or deletes the same objects: none lost, none double."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from bookkeeper.commands.discard import discard, outlook
from bookkeeper.commands.drop import drop, droppable
from bookkeeper.commands.forget import forget, forget_channel
from bookkeeper.commands.rehash import rehash
from bookkeeper.config.units import epoch_ms
from bookkeeper.contract import marks as marks_format
from bookkeeper.contract.offsets import slot_of
from bookkeeper.errors import NotPossible
from tests.http.served import SCHEMA, Door, Reply, door, ndjson, numbers, queue, until
from tests.http.test_named import data_files
from tests.support.threads import again_and_again
from tests.support.writer_queue import Queue
from writers import Writer
from writers.http import front
from writers.timing import pause


def forgets(lake: Queue, producer: str) -> None:
    left = forget_channel(lake.view().marks, lake.folder, lake.settings, "door-00", producer)
    lake.book().publisher.record(lake.view(), left, "forget")


def forgets_slot(lake: Queue) -> None:
    left = forget(lake.view().marks, lake.folder, lake.settings, ["door-00"], None, lake.clock.now)
    lake.book().publisher.record(lake.view(), left.marks, "forget")


def drops(lake: Queue, again: bool = True) -> None:
    drop(lake.catalog, droppable(lake.catalog, lake.settings, lake.store), force=True)
    if again:
        lake.make(SCHEMA)


@pytest.fixture(autouse=True)
def answers_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "ANSWER_SECONDS", 3.0)


def again(act: Callable[[], Reply], status: int = 200) -> Reply:
    """As a client does: sends it again while it is answered 503."""
    return seen(act, lambda reply: reply.status != 503, status)


def seen(act: Callable[[], Reply], wanted: Callable[[Reply], object], status: int = 200) -> Reply:
    """The first reply that is wanted."""
    for _ in range(20):
        reply = act()
        if wanted(reply):
            assert reply.status == status, reply
            return reply
        pause(0.05)
    raise AssertionError(f"it was not answered so: the last was {reply}")


# forget


@pytest.mark.parametrize("wait", ["", "?wait=published"])
def test_a_producer_that_was_forgotten_begins_anew_at_a_server_that_knew_it(tmp_path: Path, wait: str) -> None:
    lake = queue(tmp_path)
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        for sequence in (1, 2):
            assert served.rows(ndjson(sequence), "p", sequence).status == 200
        forgets(lake, "p")
        reply = again(lambda: served.rows(ndjson(7), "p", 1, wait), 202 if wait else 200)
        assert "duplicate" not in reply.body
        until(lambda: served.state("p") == (1, 1))

    assert numbers(lake) == [1, 2, 7]


def test_a_producer_is_forgotten_while_a_request_of_another_one_is_pending(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with door(lake) as served:
        assert served.rows(ndjson(1), "p", 1, "?wait=published").status == 202
        lake.tick()
        assert served.rows(ndjson(5), "q", 1, "?wait=published").body["committed"] == 0
        forgets(lake, "p")
        assert "duplicate" not in again(lambda: served.rows(ndjson(7), "p", 1, "?wait=published"), 202).body
        lake.drain()

    assert numbers(lake) == [1, 5, 7]


def test_a_slot_that_was_forgotten_begins_anew_at_a_server_that_knew_it(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        for sequence in (1, 2):
            assert served.rows(ndjson(sequence), "p", sequence).status == 200
        forgets_slot(lake)
        assert again(lambda: served.rows(ndjson(3), "p", 3), 409).body["next"] == 1
        again(lambda: served.rows(ndjson(7), "p", 1))

    assert numbers(lake) == [1, 2, 7]


def test_a_producer_with_a_pending_request_is_not_forgotten(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with door(lake) as served:
        assert served.rows(ndjson(1), "p", 1, "?wait=published").status == 202
        lake.tick()
        assert served.rows(ndjson(2), "p", 2, "?wait=published").status == 202
        for act in (lambda: forgets(lake, "p"), lambda: forgets_slot(lake)):
            with pytest.raises(NotPossible):
                act()
        lake.tick()
        assert served.rows(ndjson(2), "p", 2).body["duplicate"]

    assert numbers(lake) == [1, 2]


def test_forget_makes_room_at_a_server_that_knew_the_producer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks_format, "MOST_CHANNELS", 2)
    lake = queue(tmp_path)
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        for producer in ("a", "b"):
            assert served.rows(ndjson(1), producer, 1).status == 200
        assert served.rows(ndjson(2), "c", 1).status == 409
        forgets(lake, "a")
        seen(lambda: served.rows(ndjson(3), "c", 1), lambda reply: reply.status == 200)

    assert numbers(lake) == [1, 1, 3]


# the table is another one, or went back


@pytest.mark.parametrize("wait", ["", "?wait=published"])
def test_a_sequence_of_a_dropped_table_is_none_of_the_next_one(tmp_path: Path, wait: str) -> None:
    lake = queue(tmp_path)
    with door(lake) as served:
        for sequence in (1, 2):
            assert served.rows(ndjson(sequence), "p", sequence, "?wait=published").status == 202
            lake.tick()
        assert served.state("p") == (2, 2)
        drops(lake)
        with again_and_again(lake.tick, 0.05):
            assert "duplicate" not in again(lambda: served.rows(ndjson(7), "p", 1, wait), 202 if wait else 200).body
            until(lambda: served.state("p") == (1, 1))

    assert numbers(lake) == [7]


def test_a_dropped_table_is_503_until_there_is_another(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with door(lake) as served:
        assert served.rows(ndjson(1), "p", 1, "?wait=published").status == 202
        lake.tick()
        drops(lake, again=False)
        for reply in (served.rows(ndjson(2), "p", 2), served.rows(ndjson(2))):
            assert reply.status == 503 and str(tmp_path) not in str(reply.body)
        lake.make(SCHEMA)
        with again_and_again(lake.tick, 0.05):
            again(lambda: served.rows(ndjson(7), "p", 1))
            again(lambda: served.rows(ndjson(8)))

    lake.tick()
    assert numbers(lake) == [7, 8]


def test_producers_see_that_the_marks_went_back(tmp_path: Path) -> None:
    """The catalog is put back from a backup: what it does not know is sent again."""
    lake = queue(tmp_path)
    with door(lake) as served:
        first = lake.view()
        for sequence in (1, 2, 3):
            assert served.rows(ndjson(sequence), "p", sequence, "?wait=published").status == 202
            lake.tick()
            if sequence == 1:
                first = lake.view()
        assert served.state("p") == (3, 3)
        lake.book().publisher.record(lake.view(), first.marks, "accept-rollback", even_older=True)
        with again_and_again(lake.tick, 0.05):
            assert again(lambda: served.rows(ndjson(9), "p", 4), 409).body["next"] == 2
            assert "duplicate" not in again(lambda: served.rows(ndjson(2), "p", 2)).body


# slots


def test_after_a_rehash_a_server_with_the_former_number_of_slots_takes_nothing(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    producers = [f"p{number}" for number in range(6)]
    assert len({slot_of("door", name, 3) for name in producers}) > 1
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        for name in producers:
            assert served.rows(ndjson(1), name, 1).status == 200
        found = rehash(lake.view().marks, lake.folder, "door", 3, 100, epoch_ms(lake.clock.now), b"0123456789")
        assert found.marks is not None
        lake.book().publisher.record(lake.view(), found.marks, "rehash")
        moved = next(name for name in producers if slot_of("door", name, 3) != "door-00")
        for sequence in (1, 2, 3):
            seen(lambda of=sequence: served.rows(ndjson(2), moved, of), lambda reply: "rehash" in str(reply.body), 503)
    with door(lake, slots=3) as served, again_and_again(lake.tick, 0.05):
        for name in producers:
            assert served.rows(ndjson(1), name, 1).body["duplicate"]
            assert served.rows(ndjson(2), name, 2).status == 200

    assert numbers(lake) == [1] * 6 + [2] * 6


def test_two_instances_with_different_slots_do_not_double(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    producer = next(name for name in map(str, range(9)) if slot_of("door", name, 3) != "door-00")
    with door(lake) as one, door(lake, slots=3) as three:
        for served in (one, three):
            assert served.rows(ndjson(1), producer, 1, "?wait=published").status == 202
        lake.drain()
        assert numbers(lake) == [1]
        with again_and_again(lake.tick, 0.05):
            replies = [one.rows(ndjson(2), producer, 2), three.rows(ndjson(2), producer, 2)]
            assert 200 in {reply.status for reply in replies}

    assert numbers(lake) == [1, 2]


def test_another_source_of_the_same_name_is_told_and_not_mixed_with(tmp_path: Path) -> None:
    """`writer kafka` with this --name: its channels are no producers."""
    lake = queue(tmp_path)
    with Writer.open(lake.made.folder, "door-00") as other:
        other.write([{"n": 1}], offsets={"k.0a1b.c2/0": "17@3"})
    lake.tick()
    with door(lake) as served:
        reply = served.rows(ndjson(2), "p", 1)
        assert reply.status == 503 and "another source" in reply.body["error"]
    assert not lake.pending()


def test_an_offset_that_is_no_sequence_is_forgotten_as_the_answer_says_and_no_other(tmp_path: Path) -> None:
    """The slot as a whole is not: a request of another producer whose answer was lost would be in twice."""
    lake = queue(tmp_path)
    with Writer.open(lake.made.folder, "door-00") as other:
        other.write([{"n": 1}], offsets={"p": "one", "q": "1"})
    lake.tick()
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        reply = served.rows(ndjson(2), "p", 1)
        assert (reply.status, served.rows(ndjson(1), "q", 1).body["duplicate"]) == (409, True)
        assert "`bookkeeper forget door-00 --channel p`" in reply.body["hint"]
        forgets(lake, "p")
        until(lambda: served.rows(ndjson(2), "p", 1).status == 200)
        assert served.rows(ndjson(1), "q", 1).body["duplicate"]

    assert numbers(lake) == [1, 2]


# rejected


@pytest.mark.parametrize("restarted", [False, True])
def test_a_server_without_other_requests_learns_that_a_txlog_was_rejected(tmp_path: Path, restarted: bool) -> None:
    """A client that waits for `committed` to rise would else wait for ever."""
    lake = queue(tmp_path)
    known = data_files(lake)
    with door(lake) as served:
        assert served.rows(ndjson(1), "p", 1, "?wait=published").status == 202
        if not restarted:
            loses(lake, known)
            nothing_is_published(served)
    if restarted:
        with door(lake) as served:
            assert served.state("p") == (1, 0)
            loses(lake, known)
            nothing_is_published(served)


def test_a_server_learns_that_a_rejected_txlog_was_deleted_and_given_up(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    known = data_files(lake)
    with door(lake) as served:
        assert served.rows(ndjson(1), "p", 1, "?wait=published").status == 202
        loses(lake, known)
        (name,) = [item.name for item in lake.folder.rejected()]
        lake.folder.store.delete_many([item.key for item in lake.folder.store.list("rejected/")])
        ledger = lake.book().ledger
        view, given = outlook(lake.folder, ledger, name)
        discard(lake.folder, ledger, view, given, lake.clock.now)
        lake.drain()
        nothing_is_published(served)
        with again_and_again(lake.tick, 0.05):
            again(lambda: served.rows(ndjson(1), "p", 1))

    assert numbers(lake) == [1]


def nothing_is_published(served: Door) -> None:
    seen(lambda: served.send("GET", "/v1/tables/events/producers/p"), lambda reply: reply.body.get("published") == 0)


def loses(lake: Queue, known: set[Path]) -> None:
    for path in data_files(lake) - known:
        path.unlink()
    lake.tick()
    assert lake.rejected() and not lake.pending()


def test_a_producer_behind_a_rejected_txlog_sends_again_and_is_in_once(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    known = data_files(lake)
    with door(lake) as served, ThreadPoolExecutor(1) as pool:
        assert served.rows(ndjson(1), "p", 1, "?wait=published").status == 202
        lost = data_files(lake) - known
        behind = pool.submit(served.rows, ndjson(7), "q", 1)
        until(lambda: len(lake.pending()) == 2)
        for path in lost:
            path.unlink()
        lake.drain()
        assert behind.result().status == 503
        with again_and_again(lake.tick, 0.05):
            again(lambda: served.rows(ndjson(7), "q", 1))

    assert numbers(lake) == [7]


def test_a_txlog_without_offsets_in_the_chain_is_gone_on_from(tmp_path: Path) -> None:
    """Of a writer of the former release, by the name of the slot."""
    lake = queue(tmp_path)
    with door(lake) as served:
        assert served.rows(ndjson(1), "p", 1, "?wait=published").status == 202
    with Writer.open(lake.made.folder, "door-00") as other:
        other.write([{"n": 50}], position=b"50")
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        assert served.rows(ndjson(1), "p", 1).body["duplicate"]
        assert served.rows(ndjson(2), "p", 2).status == 200

    assert numbers(lake) == [1, 2, 50]


# the table's form


def test_a_table_that_becomes_keyed_goes_on(tmp_path: Path) -> None:
    lake = queue(tmp_path)
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        assert served.rows(ndjson(1), "p", 1).status == 200
        assert served.rows(ndjson(9)).status == 200
        becomes_keyed(lake)
        for sequence in (2, 3, 4):
            again(lambda of=sequence: served.rows(ndjson(1), "p", of))
        seen(lambda: served.rows(ndjson(9)), lambda reply: "named producers only" in str(reply.body), 409)
    lake.drain()
    assert not lake.rejected()


def becomes_keyed(lake: Queue) -> None:
    lake.settings = replace(lake.settings, key=("n",))
    lake.make(SCHEMA)
