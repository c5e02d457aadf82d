"""The columns that a consumer asked for: it follows them by their field ids."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

from bookkeeper.consumers import Consumer, ConsumerGroup, FolderPlace
from bookkeeper.errors import NotPossible
from bookkeeper.history.registry import Registry
from tests.consumers.consumers import commit, opened, settings_of, take, taken
from tests.support.lake import Lake, Writes

COLUMNS = [
    {"name": "timestamp", "type": "timestamptz"},
    {"name": "key", "type": "string"},
    {"name": "n", "type": "int"},
]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, columns=COLUMNS)


def renamed(lake: Lake, before: str, after: str) -> None:
    with lake.table().update_schema() as change:
        change.rename_column(before, after)
    lake.drain()  # the card follows


def test_a_column_that_is_renamed_is_read_on_under_the_name_that_was_asked_for(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, *"abcd")
    with opened(lake, rows=1, columns=("n", "key")) as consumer:
        found = [_next(consumer)]
        renamed(lake, "key", "name")
        found.append(_next(consumer))
        with lake.table().update_schema() as change:
            change.add_column("key", StringType())  # another one
            change.update_column("n", LongType())
        found += [_next(consumer), _next(consumer)]
    assert [table.column_names for table in found] == [["key", "n"]] * 4
    assert [table["key"].to_pylist() for table in found] == [["a"], ["b"], ["c"], ["d"]]


def _next(consumer: Consumer) -> pa.Table:
    """One batch of a new load of the table, committed."""
    batch = next(consumer.batches(follow=False))
    consumer.commit(batch)
    return batch.table


def test_at_the_next_start_a_name_that_is_gone_is_an_error_that_names_the_new_one(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a")
    assert taken(lake, columns=("key",)) == ["a"]
    renamed(lake, "key", "name")
    for open_it in (
        lambda: opened(lake, columns=("key",)),
        lambda: ConsumerGroup.open(settings_of(lake), name="g", share="1/1", place=FolderPlace, columns=("key",)),
    ):
        with pytest.raises(NotPossible, match="the column key is called name now") as caught:
            open_it()
        assert "name" in caught.value.hint
    opened(lake, columns=("name",)).close()


def test_a_column_that_is_dropped_is_an_error_that_says_so(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "a")
    with opened(lake, columns=("n",)) as consumer:
        with lake.table().update_schema() as change:
            change.delete_column("n")
        with pytest.raises(NotPossible, match="the column n was dropped"):
            list(consumer.batches(follow=False))
    with pytest.raises(NotPossible, match="the column n was dropped"):
        opened(lake, columns=("n",), name="other")


def test_a_column_that_never_was_is_an_error_that_names_those_that_are(lake: Lake) -> None:
    with pytest.raises(NotPossible, match="no column nosuch") as caught:
        opened(lake, columns=("key", "nosuch"))
    assert "timestamp, key, n" in caught.value.hint
    assert Registry(lake.folder.store).all() == []


def test_a_member_of_a_group_follows_columns_for_every_share_that_it_opens(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, *"abcdefgh")
    with ConsumerGroup.open(
        settings_of(lake),
        name="g",
        share="1/2",
        place=FolderPlace,
        columns=("key",),
        clock=lake.clock,
        wait=lambda _: True,
    ) as group:
        found = take(group)
        renamed(lake, "key", "name")
        lake.clock.move(seconds=4)
        found += take(group)  # and borrows the other share, which it opens now
        assert group.held == [1, 2]
    assert sorted(found) == [*"abcdefgh"]
