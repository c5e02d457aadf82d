"""The table changes while txlogs of before are pending: each is committed under its own schema and spec."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pyiceberg.table.update import RemoveSchemasUpdate
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, StringType

from bookkeeper.config.settings import Retention
from tests.retention.test_retention import LOOSE
from tests.support.lake import Lake, Writes
from tests.tick.test_history import change

NUMBERED = (*LOOSE, {"name": "n", "type": "int"})


def add_column(table: Any) -> None:
    with table.update_schema() as change:
        change.add_column("extra", StringType())


def rename(table: Any) -> None:
    with table.update_schema() as change:
        change.rename_column("n", "number")


def widen(table: Any) -> None:
    with table.update_schema() as change:
        change.update_column("n", LongType())


def drop_column(table: Any) -> None:
    with table.update_schema() as change:
        change.delete_column("n")


def repartition(table: Any) -> None:
    with table.update_spec() as change:
        change.add_field("key", BucketTransform(4), "key_bucket")


def unpartition(table: Any) -> None:
    with table.update_spec() as change:
        change.remove_field("timestamp_day")


CHANGES = [add_column, rename, widen, drop_column, repartition, unpartition]


@pytest.fixture
def numbered(tmp_path: Any) -> Lake:
    return Lake(tmp_path / "lake", columns=NUMBERED)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("fresh", [True, False])
def test_txlogs_of_before_and_after_a_change_get_in_together(
    numbered: Lake, change: Callable[[Any], None], fresh: bool
) -> None:
    lake, book = numbered, numbered.book()
    lake.tick(book)
    before, after = Writes(lake, "before"), Writes(lake, "after")
    waiting = [before.encoded([before.file([key])]) for key in ("a", "b")]
    old = lake.folder.card()
    change(lake.table())
    lake.drain(ticks=1)  # some bookkeeper tells writers
    new = lake.folder.card()
    assert (old.schema, old.spec) != (new.schema, new.spec)
    for name, data in waiting:
        lake.folder.publish(name, data)
    after.publish("c")
    result = lake.tick(lake.book() if fresh else book)
    assert (result.commit.txlogs, lake.rejected()) == (3, {})
    assert lake.keys() == ["a", "b", "c"]
    table = lake.table()
    specs = {item.partition_spec_id for item in table.current_snapshot().manifests(table.io)}
    assert specs == {old.spec_id, new.spec_id}
    head = table.current_snapshot()
    assert head.summary.additional_properties["added-data-files"] == "3"


def test_a_filtered_scan_finds_rows_of_both_specs(numbered: Lake) -> None:
    lake, writer = numbered, Writes(numbered)
    writer.publish("a")
    name, data = writer.encoded([writer.file(["b"])])
    repartition(lake.table())
    lake.drain(ticks=1)
    lake.folder.publish(name, data)
    writer.publish("c")
    lake.tick()
    for key in "abc":
        assert lake.table().scan(row_filter=f"key == '{key}'").to_arrow().num_rows == 1
    limit = lake.clock.now.isoformat()
    assert lake.table().scan(row_filter=f"timestamp <= '{limit}'").to_arrow().num_rows == 3


def test_txlogs_of_one_incarnation_keep_their_order_across_a_change(numbered: Lake) -> None:
    lake, writer = numbered, Writes(numbered)
    writer.goes_on(b"1", "a")
    repartition(lake.table())
    lake.drain(ticks=1)
    writer.goes_on(b"2", "b")
    lake.tick()
    mark = lake.view().marks.mark(writer.name)
    assert mark is not None
    assert (lake.keys(), mark.last, mark.holes) == (["a", "b"], 2, ())


def test_the_card_follows_every_change(lake: Lake) -> None:
    book = lake.book()
    lake.tick(book)
    add_column(lake.table())
    lake.tick(book, seconds=11)
    assert "extra" in [field.name for field in lake.folder.card().schema.fields]


def test_a_change_between_load_and_commit_costs_an_attempt_at_most(lake: Lake, writer: Writes) -> None:
    from tests.support.faults import Faults

    faults = Faults()
    writer.publish("a")
    faults.between("commit_table", lambda: add_column(lake.table()))
    lake.tick(lake.book(faults))
    assert lake.keys() == ["a"]
    assert "extra" in [field.name for field in lake.table().schema().fields]


def by_region(tmp_path: Any) -> tuple[Lake, Writes, list[Any]]:
    """A table whose 16th manifest of a partition spec is pending when the column of that spec is dropped."""
    columns = (*LOOSE, {"name": "region", "type": "string"})
    keep = Retention(keep=timedelta(hours=1), brake=1.0)
    lake = Lake(tmp_path / "lake", columns=columns, partition_by=("region",), retention=keep)
    writer, book = Writes(lake), lake.book()
    for number in range(15):
        writer.publish(f"a{number:02}", at=lake.clock.now - timedelta(minutes=45 - number))
        lake.tick(book)
    last = writer.encoded([writer.file(["a15"])])
    with lake.table().update_spec() as change:
        change.remove_field("region")
    with lake.table().update_schema() as change:
        change.delete_column("region")
    lake.drain(ticks=1)
    return lake, writer, list(last)


def test_files_of_a_spec_whose_column_is_gone_are_still_merged_and_dropped(tmp_path: Any) -> None:
    lake, writer, (name, data) = by_region(tmp_path)
    lake.folder.publish(name, data)
    writer.publish("b")
    lake.tick()
    assert lake.operations()[-1] == "replace"
    assert len(lake.keys()) == 17
    lake.tick(minutes=20)
    assert lake.keys() == [*(f"a{number:02}" for number in range(6, 16)), "b"]


def test_files_of_a_spec_that_no_schema_knows_any_more_are_left_as_they_are(tmp_path: Any, caplog: Any) -> None:
    lake, writer, (name, data) = by_region(tmp_path)
    lake.folder.publish(name, data)
    lake.tick()
    others = [schema.schema_id for schema in lake.table().metadata.schemas[:-1]]
    change(lake, RemoveSchemasUpdate(schema_ids=others))
    assert len(lake.table().metadata.schemas) == 1
    for number in range(3):
        writer.publish(f"b{number}")
        assert lake.tick(minutes=20).commit is not None
    assert len(lake.keys()) == 19
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
