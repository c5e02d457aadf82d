"""Fixtures: a lake on local disk, and one run of a writer."""

from pathlib import Path

import pytest

from tests.support.lake import Lake, Writes


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def writer(lake: Lake) -> Writes:
    return Writes(lake)
