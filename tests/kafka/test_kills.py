"""A few seconds of tests/kafka/kills.py: real instances that are killed, with a broker that crashes."""

from pathlib import Path

from tests.kafka.kills import Size, played
from tests.servers.process import Server


def test_each_message_is_in_the_table_once_whatever_is_killed(broker: Server, tmp_path: Path) -> None:
    account = played(broker, tmp_path, Size(6, instances=2, topics=2, partitions=3, pause=0.6, freeze=1), seed=5)

    assert account.right, account
    assert account.messages > 2000 and sum(account.done.values()) >= 3
