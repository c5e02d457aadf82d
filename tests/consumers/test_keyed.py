"""Keyed tables as streams see them: each version of a row is a row; folds and delete files are none."""

import json
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.cli.tail import start_of
from bookkeeper.consumers.selection import Selection
from bookkeeper.consumers.tail import Follower
from bookkeeper.errors import NotPossible
from bookkeeper.history.main_history import is_first
from tests.consumers.consumers import expire, opened
from tests.support.configured import Queue, configured
from tests.support.folds import fold
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.lake import Lake

#: takes several sequence numbers, and two snapshots
MANY = (Step(upserts={1: "a", 2: "a"}), Step(deletes=[1]), Step(upserts={2: "b"}))
SEEN = [(1, "a"), (1, None), (2, "a"), (2, "b")]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return keyed_lake(tmp_path, check_files=False)


@pytest.fixture
def writer(lake: Lake) -> Steps:
    return Steps(lake)


def commit(lake: Lake, writer: Steps, *steps: Step) -> None:
    writer.publish_steps(*steps)
    lake.tick()


def follower(lake: Lake, start: str) -> Follower:
    table = lake.table()
    columns, place = Selection.of(table, ("id", "value")), start_of(table, start, lake.clock.now)
    return Follower(lake.table, columns, place, str(table.metadata.table_uuid))


def new(following: Follower) -> list[tuple[Any, Any]]:
    """Of one commit there is no order between files."""
    found = [(row["id"], row["value"]) for row, _ in following.news() if row is not None]
    return sorted(found, key=lambda pair: (pair[0], pair[1] or "a1"))


def consumed(lake: Lake, **how: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    with opened(lake, **how) as consumer:
        for batch in consumer.batches(follow=False):
            found += [(row["id"], row["value"]) for row in batch.table.to_pylist()]
            consumer.commit(batch)
    return sorted(found, key=lambda pair: (pair[0], pair[1] or "a1"))


@pytest.mark.parametrize("start", ["end", "beginning", "1h"])
def test_an_empty_keyed_table_is_followed_from_its_first_commit_on(lake: Lake, writer: Steps, start: str) -> None:
    following = follower(lake, start)
    assert consumed(lake, start=start if start != "1h" else "end") == []
    commit(lake, writer, *MANY)
    assert new(following) == consumed(lake) == SEEN


@pytest.mark.parametrize("start", ["beginning", "1h"])
def test_a_keyed_table_whose_first_commit_has_deletes_is_read_from_its_beginning(
    lake: Lake, writer: Steps, start: str
) -> None:
    commit(lake, writer, *MANY)
    first, second = lake.table().metadata.snapshots
    assert is_first(first) and not is_first(second)
    assert new(follower(lake, start)) == SEEN
    begun = lake.clock.now - timedelta(hours=1) if start == "1h" else start
    assert consumed(lake, start=begun) == SEEN
    commit(lake, writer, Step(upserts={3: "c"}))
    assert not is_first(lake.table().metadata.snapshots[2])


def test_a_first_snapshot_that_says_nothing_of_its_numbers_is_read_from_too(
    lake: Lake, writer: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an older version made it."""
    monkeypatch.setattr("bookkeeper.ledger.summary.numbers_taken", lambda numbers: {})
    commit(lake, writer, *MANY)
    assert not is_first(lake.table().metadata.snapshots[0])
    assert new(follower(lake, "beginning")) == consumed(lake, start="beginning") == SEEN


def test_a_fold_and_a_commit_of_deletes_alone_are_no_rows_and_no_lag(lake: Lake, writer: Steps) -> None:
    following = follower(lake, "beginning")
    assert consumed(lake) == []
    commit(lake, writer, *MANY)
    new(following)
    consumed(lake)
    commit(lake, writer, Step(deletes=[2], shadow=False))
    fold(lake)
    assert lake.operations() == ["delete", "append", "delete", "delete"]
    assert new(following) == consumed(lake) == []
    commit(lake, writer, Step(upserts={2: "c"}))
    fold(lake)
    assert new(following) == consumed(lake) == [(2, "c")]


def test_rows_under_delete_files_are_not_shown_as_rows_of_now(lake: Lake, writer: Steps) -> None:
    """Once the first snapshots are expired, the beginning is all that is live: what of that is deleted is not read."""
    commit(lake, writer, *MANY)
    commit(lake, writer, Step(upserts={2: "c"}))
    expire(lake)
    with pytest.raises(NotPossible, match="has delete files"):
        new(follower(lake, "beginning"))
    with pytest.raises(NotPossible, match="has delete files") as refused:
        consumed(lake, start="beginning", name="other")
    assert "--from end" in refused.value.hint
    following = follower(lake, "end")
    commit(lake, writer, Step(upserts={2: "d"}))
    assert new(following) == [(2, "d")]


@pytest.fixture
def asked(lake: Lake) -> Any:
    """Runs `bookkeeper ARGUMENTS` and returns what it prints."""
    return partial(Queue(configured(lake), "").run, "bookkeeper")


def test_the_commands_count_data_files_and_their_rows(lake: Lake, writer: Steps, asked: Any) -> None:
    show = ("tail", "events", "--consumer", "nightly", "--exit", "--columns", "id,value")
    commit(lake, writer, *MANY)
    assert len(asked("tail", "events", "--exit", "--columns", "id").splitlines()) == 4
    assert len(asked(*show).splitlines()) == 4
    fold(lake)
    commit(lake, writer, Step(deletes=[2], shadow=False))
    (row,) = json.loads(asked("lag", "--json"))
    assert [row[name] for name in ("snapshots", "files", "rows", "bytes", "behind")] == [0, 0, 0, 0, 0]
    commit(lake, writer, Step(upserts={2: "c", 3: "c"}, deletes=[1]))
    fold(lake)
    (row,) = json.loads(asked("lag", "--json"))
    added = lake.table().metadata.snapshots[-2].summary.additional_properties
    # The live file, and the shadow file that a stream reads; no delete file.
    assert [row[name] for name in ("snapshots", "files", "rows")] == [1, 2, 3]
    assert row["bytes"] == int(added["added-files-size"])
    assert sorted(asked(*show).splitlines()) == ["1\t-", "2\tc", "3\tc"]
    fold(lake)
    (row,) = json.loads(asked("consumers", "--json"))
    assert (row["state"], row["max_hold_used"], row["what"]) == ("live", 0.0, None)


def test_a_consumer_that_read_everything_holds_nothing_beside_folds(lake: Lake, writer: Steps) -> None:
    assert consumed(lake) == []
    commit(lake, writer, *MANY)
    assert consumed(lake) == SEEN
    for _ in range(3):
        commit(lake, writer, Step(deletes=[2], shadow=False))
        fold(lake)
    expire(lake)
    assert consumed(lake) == []
    commit(lake, writer, replace(MANY[0]))
    assert consumed(lake) == SEEN[:1] + SEEN[2:3]
