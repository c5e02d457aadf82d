"""Topics of brokers that give them no ids: what was read last is read again, and a topic that was made anew is seen."""

from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.errors import NotPossible
from tests.kafka import topics as real
from tests.kafka.scripted import Topics
from tests.kafka.topics import Copy, queue, running, until
from tests.support.threads import again_and_again
from writers.kafka.partitions import Partition

Rows = list[tuple[str, int, int, int]]


@pytest.fixture
def topics() -> Topics:
    made = Topics()
    made.without_ids = True
    made.make("t", 2)
    return made


def send(topics: Topics, first: int, last: int, partition: int = 0, millis: int = 0) -> None:
    topics.send("t", [{"n": n} for n in range(first, last)], partition, millis)


def numbers(*partitions: range | list[int]) -> Rows:
    return [("t", partition, n, n) for partition, found in enumerate(partitions) for n in found]


def test_a_topic_is_copied_over_runs_and_aborted_messages(topics: Topics, tmp_path: Path) -> None:
    copy = Copy(topics, queue(tmp_path), "t")
    for first in (0, 10, 20):
        send(topics, first, first + 10)
        copy.run()
    topics.abort("t", 3)
    copy.run()
    copy.run()

    assert copy.rows() == numbers(range(30))


@pytest.mark.parametrize("length", [3, 10, 25])
@pytest.mark.parametrize("millis", [0, 5], ids=["other values", "other times"])
def test_a_topic_that_was_made_anew_stops_its_partitions(
    topics: Topics, tmp_path: Path, length: int, millis: int
) -> None:
    copy = Copy(topics, queue(tmp_path), "t")
    send(topics, 0, 10)
    copy.run()
    topics.delete("t")
    topics.make("t", 2)
    send(topics, 0, length, millis=millis) if millis else send(topics, 100, 100 + length)
    before = copy.rows()

    stopped = r"1 partitions have stopped; t/0: .*(offset 9|went back).*"
    with pytest.raises(NotPossible, match=stopped):
        copy.run()
    channel = topics.cluster("look").topics(["t"])["t"].channel(0)

    assert before == copy.rows() == numbers(range(10))
    assert copy.shared is not None
    slot, why = copy.shared.stopped[Partition("t", 0)]
    assert f"bookkeeper forget {slot} --channel {channel}" in why


def test_what_was_read_of_a_topic_that_is_made_anew_meanwhile_is_not_published(topics: Topics, tmp_path: Path) -> None:
    copy = Copy(topics, queue(tmp_path), "t")
    send(topics, 0, 10)

    def make_anew() -> None:
        topics.delete("t")
        topics.make("t", 2)
        send(topics, 100, 130)

    topics.after_reading(make_anew)
    copy.run()

    assert copy.rows() == [("t", 0, n, 100 + n) for n in range(30)]


def test_a_topic_that_is_made_anew_between_two_txlogs_is_seen(topics: Topics, tmp_path: Path) -> None:
    copy = Copy(topics, queue(tmp_path, roll_after=timedelta(milliseconds=100)), "t")
    send(topics, 0, 10)
    with again_and_again(copy.tick, 0.02), running(copy):
        until(lambda: copy.queue.table().scan().count() == 10)
        topics.delete("t")
        topics.make("t", 2)
        send(topics, 100, 130)
        until(lambda: copy.shared is not None and copy.shared.stopped)

    assert copy.rows() == numbers(range(10))


def test_where_the_last_message_has_expired_the_partition_stops_unless_nothing_came(
    topics: Topics, tmp_path: Path
) -> None:
    copy = Copy(topics, queue(tmp_path), "t")
    send(topics, 0, 10)
    copy.run()
    topics.drop_before("t", 0, 10)
    copy.run()
    send(topics, 10, 12)

    with pytest.raises(NotPossible, match=r"t/0: the message at offset 9, which was read last, is not there any more"):
        copy.run()

    assert copy.rows() == numbers(range(10))


def test_go_on_does_not_count_where_it_may_be_another_topic(topics: Topics, tmp_path: Path) -> None:
    copy = Copy(topics, queue(tmp_path), "t")
    send(topics, 0, 10)
    copy.run()
    topics.cut("t", 0, 6)
    send(topics, 6, 8)
    topics.drop_before("t", 0, 5)
    channel = topics.cluster("look").topics(["t"])["t"].channel(0)
    assert channel.startswith("scripted/name-")

    for _ in range(2):
        with pytest.raises(NotPossible, match=r"(another message at offset|not there any more)"):
            copy.run(go_on=["t:0=6"])


def test_a_broker_gives_the_message_at_an_offset(topics: Topics, request: pytest.FixtureRequest) -> None:
    broker = real.Topics(request.getfixturevalue("broker"))
    broker.make("at", 3)
    broker.numbers("at", 0, 5, 0)
    broker.numbers("at", 0, 5, 1)
    broker.drop_before("at", 1, 3)
    wanted = {Partition("at", 0): 4, Partition("at", 1): 2, Partition("at", 2): 7}

    found = broker.cluster("look").messages_at(wanted)

    assert {item: message.value() for item, message in found.items()} == {Partition("at", 0): b'{"n": 4}'}
    assert broker.cluster("look").messages_at({Partition("at", 0): 5}) == {}
