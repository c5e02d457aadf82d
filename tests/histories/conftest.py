"""Fixtures of the histories: nothing waits for the disk, manifests are merged soon, one DuckDB."""

from collections.abc import Iterator
from typing import Any

import pytest

from bookkeeper.ledger import merge
from tests.daemon.conftest import _no_power_cuts  # noqa: F401
from tests.histories import readers


@pytest.fixture(autouse=True)
def _merges_soon() -> Iterator[None]:
    """Two manifests of a kind are merged, so that short histories have merges of merges."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(merge, "FAN", 2)
        yield


@pytest.fixture(scope="session")
def duckdb() -> Any:
    """DuckDB with its Iceberg extension, which comes from the package registry and needs no download of its own."""
    return readers.duckdb_session()
