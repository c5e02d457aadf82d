"""Fixtures of the tick's tests."""

from pathlib import Path

import pytest

from tests.daemon.lake import Lake, Writes
from tests.faults.faults import Faults


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def writer(lake: Lake) -> Writes:
    return Writes(lake)


@pytest.fixture
def faults() -> Faults:
    return Faults()
