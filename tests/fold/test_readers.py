"""Other readers of a folded table: pyiceberg and DuckDB read the state by the spec's rule, as it was before."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.histories.decoded import local
from tests.histories.readers import duckdb_session
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


def test_duckdb_reads_the_table_after_a_fold(lake: Lake, duckdb: Any) -> None:
    # Before it, DuckDB 1.5.5 takes the deletes of one partition for deletes of all.
    before = state(lake)
    fold(lake)
    location = local(lake.table().metadata_location)
    found = duckdb.execute(f"SELECT id, name, region FROM iceberg_scan('{location}')").fetchall()
    assert sorted(found, key=repr) == before


def test_pyiceberg_filters_a_folded_table(lake: Lake) -> None:
    fold(lake)
    found = lake.table().scan(row_filter="region = 'a' and id > 2").to_arrow()
    assert sorted(found["id"].to_pylist()) == [3, 4, 8]
