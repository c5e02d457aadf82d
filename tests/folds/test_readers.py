"""Other readers of a folded table: pyiceberg, DuckDB and iceberg-rust read the state by the spec's rule, as before."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.types import LongType

from tests.histories.decoded import local
from tests.histories.readers import duckdb_session, rust_rows
from tests.support.folds import NAME, data, fold, keys, lake_of, positions, put, state
from tests.support.lake import Lake


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Any]:
    session = duckdb_session()
    yield session
    session.close()


def rows(*ids: int | None, region: str = "a") -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number}", "region": region} for number in ids]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A partitioned table whose deletes are of all kinds."""
    lake = lake_of(tmp_path, "region")
    first = data(lake, rows(1, 2, 3, 4, None), ("a",))
    put(lake, first, data(lake, rows(1, 2, region="b"), ("b",)), data(lake, rows(7, 8), ("a",)))
    put(lake, positions(lake, {first.path: [0]}, ("a",)))
    put(lake, keys(lake, rows(2, 7), partition=("a",)), keys(lake, [{"name": "nNone"}], (NAME,), ("a",)))
    put(lake, data(lake, rows(2, 9), ("a",)))
    put(lake, keys(lake, rows(9), partition=("a",)))
    return lake


def by_pyiceberg(lake: Lake) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in lake.table().scan().to_arrow().to_pylist()), key=repr)


def test_pyiceberg_reads_the_table_after_a_fold_and_not_before(lake: Lake) -> None:
    before = state(lake)
    with pytest.raises(ValueError, match="equality"):
        by_pyiceberg(lake)
    fold(lake)
    assert by_pyiceberg(lake) == before == state(lake)


def by_duckdb(lake: Lake, duckdb: Any) -> list[tuple[Any, ...]]:
    location = local(lake.table().metadata_location)
    found = duckdb.execute(f"SELECT id, name, region FROM iceberg_scan('{location}')").fetchall()
    return sorted(found, key=repr)


def by_rust(lake: Lake) -> list[tuple[Any, ...]]:
    names = ", ".join(field.name for field in lake.table().schema().fields)
    return sorted(rust_rows(lake.table(), names), key=repr)


def test_duckdb_reads_the_table_after_a_fold(lake: Lake, duckdb: Any) -> None:
    # Before it, DuckDB 1.5.5 takes the deletes of one partition for deletes of all.
    before = state(lake)
    fold(lake)
    assert by_duckdb(lake, duckdb) == before


def test_iceberg_rust_reads_the_table_before_a_fold_and_after_it(lake: Lake) -> None:
    before = state(lake)
    assert by_rust(lake) == before
    fold(lake)
    assert by_rust(lake) == before


# What iceberg-rust (pyiceberg-core 0.11) gets wrong before a fold: docs/upserts.md, "Readers".


def test_iceberg_rust_refuses_deletes_of_uuids_until_they_are_folded(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, columns=({"name": "id", "type": "uuid"},))
    one, two = UUID(int=1), UUID(int=2)
    put(lake, data(lake, [{"id": one}, {"id": two}]))
    put(lake, keys(lake, [{"id": two}]))
    with pytest.raises(Exception, match="uuid"):
        by_rust(lake)
    fold(lake)
    assert by_rust(lake) == [(one,)]


def test_iceberg_rust_loses_rows_of_a_key_that_was_widened_until_a_fold(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, columns=({"name": "id", "type": "int"},))
    put(lake, data(lake, [{"id": 1}]))
    with lake.table().update_schema() as change:
        change.update_column("id", LongType())
    put(lake, keys(lake, [{"id": 2**40}]))
    assert by_rust(lake) == [] != state(lake) == [(1,)]
    fold(lake)
    assert by_rust(lake) == [(1,)]


def test_pyiceberg_filters_a_folded_table(lake: Lake) -> None:
    fold(lake)
    found = lake.table().scan(row_filter="region = 'a' and id > 2").to_arrow()
    assert sorted(found["id"].to_pylist()) == [3, 4, 8]
