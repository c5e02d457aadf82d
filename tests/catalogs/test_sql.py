"""The flat SQL catalog: the same commits as pyiceberg's own, at a cost that does not grow with history."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import SetPropertiesUpdate

from bookkeeper.catalogs.commit import asked
from bookkeeper.catalogs.sql import FlatSqlCatalog
from bookkeeper.errors import CatalogUnavailable
from tests.support.lake import Lake, Writes


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def _commit(lake: Lake, count: int) -> None:
    book, writer = lake.book(), Writes(lake)
    for number in range(count):
        writer.publish(f"k{number}")
        lake.tick(book)


def test_a_sql_catalog_of_the_config_is_the_flat_one(lake: Lake) -> None:
    assert isinstance(lake.catalog, FlatSqlCatalog)


def test_the_metadata_it_writes_is_what_pyiceberg_would_write(lake: Lake) -> None:
    _commit(lake, 4)
    table = lake.table()
    written = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    assert written == json.loads(table.metadata.model_dump_json())
    assert len(written["snapshots"]) == len(written["snapshot-log"]) == 4


def test_a_text_in_a_property_that_looks_like_the_place_of_snapshots_stays_a_text(lake: Lake) -> None:
    tricky = '"snapshots":[]'
    with lake.table().transaction() as change:
        change.set_properties({"a.note": tricky, "snapshots": "[]"})
    _commit(lake, 2)
    assert lake.table().metadata.properties["a.note"] == tricky
    assert len(lake.table().metadata.snapshots) == 2


def test_a_commit_on_stale_metadata_is_refused(lake: Lake) -> None:
    stale = lake.table()
    _commit(lake, 1)
    with pytest.raises(CommitFailedException):
        stale.transaction().set_properties({"x": "y"}).commit_transaction()


def test_stock_pyiceberg_commits_to_the_same_table_in_turn(lake: Lake) -> None:
    stock = SqlCatalog("lake", uri=lake.catalog_settings.properties["uri"], warehouse=f"file://{lake.root}")
    book, writer = lake.book(), Writes(lake)
    for number in range(3):
        writer.publish(f"k{number}")
        lake.tick(book)
        with stock.load_table("demo.events").transaction() as change:
            change.set_properties({"turn": str(number)})
    assert lake.keys() == sorted(writer.keys)
    assert lake.table().metadata.properties["turn"] == "2"


def test_an_unchanged_table_is_not_read_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    _commit(lake, 1)
    catalog = lake.table().catalog
    seen = catalog.load_table("demo.events")
    monkeypatch.setattr(SqlCatalog, "_convert_orm_to_iceberg", lambda *_: pytest.fail("it was read again"))
    assert catalog.load_table("demo.events").metadata is seen.metadata
    committed = catalog.commit_table(seen, (), (SetPropertiesUpdate(updates={"x": "y"}),))
    assert catalog.load_table("demo.events").metadata is committed.metadata


def test_a_foreign_commit_is_read(lake: Lake) -> None:
    catalog = lake.table().catalog
    assert catalog.load_table("demo.events").metadata.snapshots == []
    _commit(lake, 2)
    assert len(catalog.load_table("demo.events").metadata.snapshots) == 2


def test_the_same_name_in_two_namespaces_are_two_tables(lake: Lake) -> None:
    other = Lake(lake.root, identifier="other.events")
    _commit(other, 1)
    catalog = lake.table().catalog
    for _ in range(2):
        tables = [catalog.load_table(name) for name in ("demo.events", "other.events")]
        assert [table.name() for table in tables] == [("demo", "events"), ("other", "events")]
        assert [len(table.metadata.snapshots) for table in tables] == [0, 1]


def test_of_a_full_disk_it_is_said_what_to_do(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)) as database:
        database.execute("CREATE TABLE t (x)")
        database.execute("PRAGMA max_page_count = 2")
        with pytest.raises(CatalogUnavailable, match="disk is full") as failed, asked("open the catalog"):
            database.execute("INSERT INTO t VALUES (?)", ("x" * 100_000,))
    assert failed.value.hint.startswith("The disk of the catalog is full")
