"""A small run of tests/kafka/poisoned.py."""

from pathlib import Path

from tests.kafka.poisoned import Poisoned
from tests.kafka.topics import Topics


def test_a_partition_whose_txlogs_are_rejected_costs_the_others_nothing_but_time(
    topics: Topics, tmp_path: Path
) -> None:
    found = Poisoned(topics, tmp_path, "poisoned", partitions=5, slots=2, messages=20).play(limit=60)

    assert found.right(messages=20), found
