"""How old the oldest message is that is not committed: by the messages' times, never less by what was thinned out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from writers.kafka.lag import Ages
from writers.kafka.partitions import Partition

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ONE, OTHER = Partition("t", 0), Partition("t", 1)


@dataclass(frozen=True)
class Sent:
    """A message that was sent so many seconds before noon; None: without a time."""

    at: int
    ago: float | None
    number: int = 0

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return (0, 0) if self.ago is None else (1, round((NOW.timestamp() - self.ago) * 1000))


def read(ages: Ages, messages: Sequence[Sent], now: datetime = NOW) -> None:
    ages.read(messages, {(message.topic(), message.partition()): message for message in messages}, now)


def test_the_oldest_message_counts_that_is_not_committed() -> None:
    ages = Ages({}, NOW)
    for first in range(0, 30, 10):
        read(ages, [Sent(first + n, ago=100 - first - n) for n in range(10)])

    found = list[float | None]()
    for offset in (0, 10, 15, 29, 30):
        ages.committed({ONE: offset})
        found.append(ages.seconds(ONE, 0, NOW))

    assert found == [100, 90, 90, 80, 0]
    assert not ages.waiting


def test_each_partition_of_a_batch_has_its_own() -> None:
    ages = Ages({}, NOW)
    read(ages, [Sent(5, ago=50, number=1), Sent(0, ago=30), Sent(6, ago=40, number=1)])

    ages.committed({ONE: 1})

    assert (ages.seconds(ONE, 0, NOW), ages.seconds(OTHER, 3, NOW)) == (0, 50)


def test_however_many_batches_wait_the_age_is_at_least_that_of_the_oldest() -> None:
    ages = Ages({}, NOW)
    for number in range(10_000):
        read(ages, [Sent(number, ago=10_000 - number)])

    assert ages.seconds(ONE, 0, NOW) == 10_000
    for offset in (1, 4321, 9999):
        ages.committed({ONE: offset})
        age = ages.seconds(ONE, 0, NOW)
        assert age is not None and 10_000 - offset <= age <= 10_000


def test_what_an_earlier_run_has_read_counts_from_the_begin_of_this_one_until_it_is_committed() -> None:
    ages = Ages({ONE: 7}, NOW)
    later = NOW + timedelta(seconds=20)

    before = ages.seconds(ONE, 0, later)
    ages.committed({ONE: 6})
    still = ages.seconds(ONE, 0, later)
    ages.committed({ONE: 7})

    assert (before, still, ages.seconds(ONE, 0, later)) == (20, 20, 0)


def test_messages_that_are_not_read_count_from_when_they_were_seen() -> None:
    ages = Ages({}, NOW)

    found = [ages.seconds(ONE, lag, NOW + timedelta(seconds=n)) for n, lag in enumerate((None, 0, 5, 5, 0, 5))]

    assert found == [None, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("ago", [None, -3600])
def test_without_a_time_or_with_one_to_come_no_age_is_less_than_nothing(ago: float | None) -> None:
    ages = Ages({}, NOW)
    read(ages, [Sent(0, ago)])

    assert ages.seconds(ONE, 0, NOW) == 0
    assert ages.seconds(ONE, 0, NOW + timedelta(seconds=5)) == (5 if ago is None else 0)


def test_a_partition_that_is_dropped_waits_no_more() -> None:
    ages = Ages({ONE: 3}, NOW)
    read(ages, [Sent(3, ago=9)])

    ages.drop(ONE)

    assert not ages.waiting
    assert ages.seconds(ONE, None, NOW) is None
