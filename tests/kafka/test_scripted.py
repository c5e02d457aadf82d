"""The rules of `writer kafka` on a scripted cluster: the real source and its threads, a real table, and no broker."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import NotPossible, SourceUnavailable, StorageUnavailable
from tests.kafka.poisoned import files_lost
from tests.kafka.scripted import Topics
from tests.kafka.topics import Copy, queue, running, until
from tests.support.threads import again_and_again
from writers.kafka.command import metrics
from writers.kafka.partitions import Partition
from writers.kafka.slot_loop import read_slot
from writers.kafka.source import Shared
from writers.kafka.tables import run_tables
from writers.opener import Opener
from writers.writer import Writer

Rows = list[tuple[str, int, int, int]]


class Crash(Exception):
    """The process ends here."""


def crash(self: Any, *given: Any, **more: Any) -> Any:
    raise Crash


@pytest.fixture
def topics() -> Topics:
    return Topics()


def numbers(*partitions: range | list[int]) -> Rows:
    """Rows of messages of the topic t whose number is their offset."""
    return [("t", partition, n, n) for partition, found in enumerate(partitions) for n in found]


def copied(topics: Topics, root: Path, partitions: int = 1, messages: int = 10) -> Copy:
    """A topic with some messages in each partition, and what copies it."""
    topics.make("t", partitions)
    for partition in range(partitions):
        topics.numbers("t", 0, messages, partition)
    return Copy(topics, queue(root), "t")


def test_each_message_is_in_the_table_once_over_runs(topics: Topics, tmp_path: Path) -> None:
    copy = copied(topics, tmp_path, partitions=6)
    copy.run()
    topics.numbers("t", 10, 15, partition=3)
    copy.run()
    topics.numbers("t", 15, 20, partition=3)
    copy.run()

    assert copy.rows() == numbers(*(range(20 if number == 3 else 10) for number in range(6)))


def test_what_was_read_of_a_topic_that_is_made_anew_meanwhile_is_not_published(topics: Topics, tmp_path: Path) -> None:
    copy = copied(topics, tmp_path)

    def make_anew() -> None:
        topics.delete("t")
        topics.make("t")
        topics.numbers("t", 100, 130)

    topics.after_reading(make_anew)
    copy.run()

    assert copy.rows() == [("t", 0, n, 100 + n) for n in range(30)]


@pytest.mark.parametrize("length", [5, 10, 25])
def test_a_topic_that_was_made_anew_stops_its_partitions_until_it_is_said_to_go_on(
    topics: Topics, tmp_path: Path, length: int
) -> None:
    copy = copied(topics, tmp_path)
    copy.run()
    topics.delete("t")
    topics.make("t")
    topics.numbers("t", 100, 100 + length)

    with pytest.raises(NotPossible, match=r"another one than before.*up to offset 10.*--go-on t=earliest"):
        copy.run()
    before = copy.rows()
    copy.run(go_on=["t=earliest"])
    copy.run()

    assert before == numbers(range(10))
    assert copy.rows() == sorted(before + [("t", 0, n, 100 + n) for n in range(length)])


def test_a_topic_that_is_made_anew_and_shorter_is_not_taken_for_one_that_was_cut(
    topics: Topics, tmp_path: Path
) -> None:
    """The advice for a cut log, `--go-on t:0=latest`, would pass over all messages of the new topic."""
    copy = copied(topics, tmp_path)
    with running(copy):
        until(lambda: copy.shared is not None and any(it.unpublished == 10 for it in copy.shared.figures.values()))
        topics.delete("t")
        topics.make("t")
        topics.numbers("t", 100, 105)
        until(lambda: copy.shared.stopped or any(it.unpublished == 5 for it in copy.shared.figures.values()))

    assert not any("went back" in why for _, why in copy.shared.stopped.values())


def test_kafka_is_told_only_what_is_committed(topics: Topics, tmp_path: Path) -> None:
    copy = copied(topics, tmp_path)
    copy.run()
    before = dict(topics.groups)
    copy.rows()
    topics.numbers("t", 10, 11)
    copy.run()

    assert before == {}
    assert topics.groups == {("copy", Partition("t", 0)): 10}


def test_aborted_messages_that_expire_are_no_loss(topics: Topics, tmp_path: Path) -> None:
    copy = copied(topics, tmp_path)
    topics.abort("t", 5)
    copy.run()
    topics.drop_before("t", 0, 15)
    topics.numbers("t", 15, 20)

    copy.run()

    assert copy.rows() == numbers([*range(10), *range(15, 20)])


@pytest.mark.parametrize("first", [0, 2])
def test_a_bad_message_stops_its_partition_before_it_in_each_run(topics: Topics, tmp_path: Path, first: int) -> None:
    copy = copied(topics, tmp_path, partitions=2, messages=first)
    topics.send("t", [b"{", {"n": first + 1}], 0)

    for _ in range(2):
        with pytest.raises(NotPossible, match=f"1 partitions have stopped; t/0: the message at offset {first} is no r"):
            copy.run()
    stopped = copy.rows()
    copy.run(most_bad=1)

    assert stopped == numbers(range(first), range(first))
    assert copy.rows() == numbers([*range(first), first + 1], range(first))


def test_retention_that_passes_a_stopped_copy_stops_the_partition(topics: Topics, tmp_path: Path) -> None:
    copy = copied(topics, tmp_path)
    copy.run()
    topics.numbers("t", 10, 30)
    topics.drop_before("t", 0, 17)

    with pytest.raises(NotPossible, match=r"7 offsets, 10 to 16, are expired and were not read.*--go-on t:0=earliest"):
        copy.run()
    stopped = copy.rows()
    copy.run(go_on=["t:0=earliest"])

    assert stopped == numbers(range(10))
    assert copy.rows() == numbers([*range(10), *range(17, 30)])


@pytest.mark.parametrize(
    ("length", "what"), [(7, "its offsets went back: it was read up to 10 and ends at 7"), (25, "it was cut below 10")]
)
def test_a_log_that_was_cut_stops_the_partition_also_where_it_is_longer_now(
    topics: Topics, tmp_path: Path, length: int, what: str
) -> None:
    copy = copied(topics, tmp_path)
    copy.run()
    topics.cut("t", 0, 6)
    topics.numbers("t", 100, 100 + length - 6)

    with pytest.raises(NotPossible, match=f"{what}.*--go-on t:0=latest"):
        copy.run()

    assert copy.rows() == numbers(range(10))


@pytest.mark.parametrize("where", ["a run that ends", "a crash behind the first messages"])
def test_what_comes_behind_the_end_where_a_copy_began_is_read_also_by_the_next_run(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The next run began at the end of then: nothing had said where the first one stood."""
    copy = copied(topics, tmp_path, partitions=2)
    if where == "a run that ends":
        copy.run("latest")
    else:
        with monkeypatch.context() as patched:
            patched.setattr(Writer, "write", crash)
            with pytest.raises(Crash), running(copy, begin="latest"):
                until(lambda: copy.shared is not None and sum(len(it.lag) for it in copy.shared.figures.values()) == 2)
                topics.numbers("t", 10, 12)
                until(lambda: copy.shared.failures)
    topics.numbers("t", 12, 15)

    copy.run("latest")

    assert [n for *_, n in copy.rows()] == [*range(12 if where == "a run that ends" else 10, 15)]


@pytest.mark.parametrize("how", ["latest", "6"])
def test_what_comes_behind_the_place_that_go_on_has_given_is_read_also_by_the_next_run(
    topics: Topics, tmp_path: Path, how: str
) -> None:
    copy = copied(topics, tmp_path)
    copy.run()
    topics.cut("t", 0, 6)
    copy.run(go_on=[f"t:0={how}"])
    topics.numbers("t", 106, 113)

    copy.run(go_on=[f"t:0={how}"])

    assert sorted(n for *_, n in copy.rows()) == [*range(10), *range(106, 113)]


def test_a_partition_that_is_added_is_read_from_its_beginning_also_where_the_copy_began_at_the_end(
    topics: Topics, tmp_path: Path
) -> None:
    copy = copied(topics, tmp_path, partitions=2, messages=5)
    with running(copy, begin="latest", slots=1):
        until(lambda: copy.shared is not None and sum(len(it.lag) for it in copy.shared.figures.values()) == 2)
        topics.numbers("t", 5, 8)
        until(lambda: any(it.unpublished for it in copy.shared.figures.values()))
    topics.widen("t", 3)
    topics.numbers("t", 0, 7, 2)

    copy.run("latest", slots=1)

    assert copy.rows() == numbers([5, 6, 7], [], range(7))


def test_another_number_of_slots_is_refused(topics: Topics, tmp_path: Path) -> None:
    copy = copied(topics, tmp_path, partitions=5, messages=3)
    copy.run(slots=4)

    with pytest.raises(NotPossible, match="the number of slots has changed"):
        copy.run(slots=5)

    assert copy.rows() == numbers(*[range(3)] * 5)


def test_a_copy_begins_at_a_time_or_where_a_group_stands(topics: Topics, tmp_path: Path) -> None:
    topics.make("t")
    for number in range(10):
        topics.send("t", [{"n": number}], millis=1_700_000_000_000 + number * 1000)
    topics.groups["old", Partition("t", 0)] = 8
    at_a_time, at_the_group = (Copy(topics, queue(tmp_path / name), "t") for name in ("time", "group"))

    at_a_time.run("2023-11-14T22:13:23.500Z")
    at_the_group.run("group:old")

    assert at_a_time.rows() == numbers(range(4, 10))
    assert at_the_group.rows() == numbers(range(8, 10))


def test_a_partition_whose_rows_are_rejected_is_left_alone_and_the_others_go_on(
    topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = Copy(topics, queue(tmp_path, roll_after=timedelta(seconds=1)), "t")
    topics.make("t", 3)
    with files_lost(1), again_and_again(copy.queue.tick, 0.05), running(copy, slots=1):
        for first in (0, 5):
            for number in range(3):
                topics.numbers("t", first, first + 5, number)
            until(lambda wanted=first + 5: copy.queue.table().scan().count() == 2 * wanted)
        until(lambda: "partition rests: its rows are rejected" in caplog.text)
    before = copy.rows()
    copy.run(slots=1)

    assert before == numbers(range(10), [], range(10))
    assert copy.rows() == numbers(range(10), range(10), range(10))


def test_runs_until_the_end_find_what_was_rejected_behind_the_one_before(topics: Topics, tmp_path: Path) -> None:
    copy = copied(topics, tmp_path, partitions=3, messages=5)
    with files_lost(1):
        copy.run(slots=1)
        assert copy.rows() == []
        for number in range(3):
            topics.numbers("t", 5, 9, number)
        with (
            again_and_again(copy.queue.tick, 0.05),
            pytest.raises(NotPossible, match="1 partitions have stopped; t/1: its rows are rejected"),
        ):
            copy.run(slots=1)
        assert copy.rows() == numbers(range(9), [], range(9))
    with again_and_again(copy.queue.tick, 0.05):
        copy.run(slots=1)

    assert copy.rows() == numbers(range(9), range(9), range(9))


def test_a_slot_of_more_partitions_than_a_txlog_takes_is_refused(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("writers.kafka.slot_loop.MOST_IN_TXLOG", 2)
    copy = copied(topics, tmp_path, partitions=3)

    with pytest.raises(NotPossible, match="copy-00 has 3 partitions, and a txlog has offsets of at most 2"):
        copy.run(slots=1)


def test_what_an_earlier_run_has_published_is_read_again_where_it_is_rejected_and_nothing_new_comes(
    topics: Topics, tmp_path: Path
) -> None:
    copy = copied(topics, tmp_path, partitions=2, messages=5)
    with files_lost(0):
        copy.run(slots=1)
    (lost,) = copy.queue.pending()
    with running(copy, slots=1):
        until(lambda: copy.shared is not None and any(it.lag for it in copy.shared.figures.values()))
        copy.queue.tick()
        assert lost in copy.queue.rejected()
        with again_and_again(copy.queue.tick, 0.05):
            until(lambda: copy.queue.table().scan().count() == 10)

    assert copy.rows() == numbers(range(5), range(5))


def test_where_kafka_or_a_slot_is_silent_the_time_since_then_counts_as_behind(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = copied(topics, tmp_path).run()
    now, (figures,) = shared.clock(), [it for it in shared.figures.values() if it.behind]
    assert figures.looked is not None

    def seconds(minutes: int, looks: bool = True, answers: bool = True) -> float:
        """What the metrics say so many minutes later, where the slot still looks and Kafka answers."""
        later = now + timedelta(minutes=minutes)
        shared.clock = lambda: later

        def refuses(names: object) -> None:
            raise SourceUnavailable("no broker")

        with monkeypatch.context() as patched:
            if not answers:
                patched.setattr(shared.cluster, "topics", refuses)
            shared.topics()
        figures.behind = dict.fromkeys(figures.behind, 0.0)
        figures.looked = later if looks else now
        said = re.findall(r"^writer_kafka_behind_seconds{.*} (.*)$", metrics([shared]), re.MULTILINE)
        return max(map(float, said))

    assert seconds(20) == 0
    assert seconds(21, answers=False) == 0
    assert 1100 < seconds(40, answers=False) <= 1200
    assert seconds(41) == 0
    assert 2500 < seconds(42, looks=False) <= 2520


def test_an_instance_that_reads_a_slot_no_more_does_not_wait(topics: Topics, tmp_path: Path) -> None:
    shared = copied(topics, tmp_path).run()
    slot, figures = next((slot, it) for slot, it in shared.figures.items() if it.behind)
    figures.waits()
    shared.away(slot)
    assert (figures.waiting, figures.behind) == (False, {})


def behind(shared: Shared, later: timedelta) -> list[float]:
    """What the metrics say so much later, of each partition."""
    now = shared.clock()
    shared.clock = lambda: now + later
    return [float(found) for found in re.findall(r"^writer_kafka_behind_seconds{.*} (.*)$", metrics([shared]), re.M)]


def test_a_slot_that_can_never_begin_is_behind(topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy, opened = copied(topics, tmp_path), list[str]()

    def refuses(opener: Opener, name: str, folder: object) -> None:
        opened.append(name)
        raise StorageUnavailable("403")

    monkeypatch.setattr(Opener, "writer", refuses)
    with running(copy):
        until(lambda: len(opened) > 1)
    assert copy.shared is not None
    assert behind(copy.shared, timedelta(0)) == []
    (found,) = behind(copy.shared, timedelta(minutes=20))
    assert found >= 1200


@pytest.mark.parametrize("known", [False, True])
def test_of_several_tables_one_that_begins_while_kafka_is_away_is_behind_and_not_stopped(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    shared = copied(topics, tmp_path).run()
    if not known:
        shared = replace(shared, figures={}, _topics={}, _asked_at=None, _answered_at=None)

    def refuses(names: object) -> None:
        raise SourceUnavailable("no broker")

    monkeypatch.setattr(shared.cluster, "topics", refuses)
    with pytest.raises(SourceUnavailable):
        run_tables([shared, shared], read_slot)
    assert shared.stopped == {}
    assert max(behind(shared, timedelta(minutes=20))) >= 1200
