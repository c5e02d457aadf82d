"""Fixtures of the tick's tests."""

from pathlib import Path

import pytest

from tests.daemon.lake import Lake, Writes


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def writer(lake: Lake) -> Writes:
    return Writes(lake)
