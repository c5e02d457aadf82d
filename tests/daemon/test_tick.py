"""The tick: what is published gets in once, in order, whatever else happens."""

from tests.daemon.lake import Lake, Writes


def test_a_published_txlog_is_committed_and_discarded(lake: Lake, writer: Writes) -> None:
    writer.publish("a", "b")
    turn = lake.tick()
    assert lake.keys() == ["a", "b"]
    assert (turn.commit.txlogs, turn.commit.files, turn.commit.rows) == (1, 1, 2)
    assert lake.pending() == []


def test_all_pending_txlogs_of_all_writers_go_in_as_one_append(lake: Lake) -> None:
    writers = [Writes(lake, f"w{number}") for number in range(5)]
    for number in range(3):
        for writer in writers:
            writer.publish(f"{writer.name.writer}-{number}")
    lake.tick()
    assert lake.operations() == ["append"]
    assert lake.keys() == sorted(key for writer in writers for key in writer.keys)


def test_a_tick_with_nothing_pending_makes_no_snapshot(lake: Lake) -> None:
    lake.tick()
    assert lake.operations() == []
