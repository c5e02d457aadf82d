"""Topics of a real broker, copied into a table: each message once."""

from pathlib import Path

import pytest

from bookkeeper.errors import NotPossible
from tests.kafka.topics import Copy, Topics, queue


def test_messages_of_all_partitions_are_in_the_table_once_over_two_runs(topics: Topics, tmp_path: Path) -> None:
    topics.make("many", 6)
    copy = Copy(topics, queue(tmp_path), "many")
    for partition in range(6):
        topics.numbers("many", 0, 40, partition)
    copy.run()
    topics.numbers("many", 40, 50, partition=3)

    copy.run()

    assert copy.rows() == [("many", p, n, n) for p in range(6) for n in range(50 if p == 3 else 40)]
