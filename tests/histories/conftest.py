"""Fixtures of the histories: nothing waits for the disk, manifests are merged soon, blocks are small, one DuckDB."""

from collections.abc import Iterator
from typing import Any

import pytest

from bookkeeper.format import records
from bookkeeper.ledger import merge
from tests.histories import readers
from tests.tick.conftest import _no_power_cuts  # noqa: F401


@pytest.fixture(autouse=True)
def _merges_soon() -> Iterator[None]:
    """
    Two manifests of a kind are merged, into blocks of some records each: short histories have merges of merges, and
    manifests of which some blocks lose files and others do not.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(merge, "FAN", 2)
        patched.setattr(records, "BLOCK_BYTES", 700)
        yield


@pytest.fixture(scope="session")
def duckdb() -> Any:
    """DuckDB with its Iceberg extension, which comes from the package registry and needs no download of its own."""
    return readers.duckdb_session()
