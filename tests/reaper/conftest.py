"""
Fixtures for the reaper's tests.
"""

from pathlib import Path

import pytest

from tests.support.reaper_lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty table."""
    return Lake(tmp_path)
