"""A lake, a writer, and the two outputs that hold the place themselves."""

from pathlib import Path

import pytest

from tests.consumers.consumers import Output, ParquetOutput, SqliteOutput
from tests.support.lake import Lake, Writes


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def writer(lake: Lake) -> Writes:
    return Writes(lake)


@pytest.fixture(params=[SqliteOutput, ParquetOutput])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Output:
    found: Output = request.param(tmp_path)
    return found
