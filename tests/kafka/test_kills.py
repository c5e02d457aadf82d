"""A few seconds of tests/kafka/kills.py: real processes that are killed, a broker that crashes; and its account."""

from pathlib import Path

import pytest

from tests.kafka.kills import Size, played
from tests.kafka.sent import Account, Sent
from tests.servers.process import Server

OLD = [Sent("t", 1, 0, offset, offset) for offset in range(4)]
NEW = [Sent("t", 2, 0, offset, 10 + offset) for offset in range(3)]


def test_each_message_is_in_the_table_once_whatever_is_killed(broker: Server, tmp_path: Path) -> None:
    size = Size(8, instances=2, topics=2, partitions=3, rate=1000, pause=0.4, freeze=0.5, least=3)
    account = played(broker, tmp_path, size, seed=8)

    assert account.right, account
    assert account.messages and account.sent > 1000 and account.done["made anew"] and account.done.total() >= 3


def test_each_message_is_in_one_of_two_tables_whatever_is_killed(broker: Server, tmp_path: Path) -> None:
    size = Size(8, instances=2, topics=1, partitions=3, rate=500, pause=0.4, freeze=0.5, bad=0.05, least=3)
    account = played(broker, tmp_path, size, seed=9)

    assert account.right, account
    assert account.messages and account.sent > 500 and account.letters > 10 and account.done.total() >= 3


@pytest.mark.parametrize("kept", range(5))
def test_of_a_deleted_topic_the_table_may_have_its_first_messages(kept: int) -> None:
    account = Account()
    account.compare(NEW, OLD, [*OLD[:kept], *NEW])

    assert account.right
    assert (account.messages, account.deleted, account.kept) == (3, 4, kept)


@pytest.mark.parametrize(
    ("rows", "missing", "double", "strange"),
    [
        (NEW[1:], 1, 0, 0),
        ([*OLD, *OLD[2:3], *NEW], 0, 1, 0),
        ([*NEW, *NEW], 0, 3, 0),
        ([*OLD[:1], *OLD[2:], *NEW], 1, 0, 0),
        ([*NEW, Sent("t", 1, 0, 4, 4)], 4, 0, 1),
        ([*NEW, Sent("t", 2, 0, 0, 0)], 0, 0, 1),
    ],
    ids=["missing", "double, of a deleted one", "double", "a gap in a deleted one", "never sent", "another value"],
)
def test_what_is_wrong_is_counted(rows: list[Sent], missing: int, double: int, strange: int) -> None:
    account = Account()
    account.compare(NEW, OLD, rows)

    assert (account.missing, account.double, account.strange) == (missing, double, strange)
    assert not account.right
