"""
Fixtures for the reaper's tests.
"""

from pathlib import Path

import pytest

from tests.support.reaper_lake import ReaperLake


@pytest.fixture
def lake(tmp_path: Path) -> ReaperLake:
    """An empty table."""
    return ReaperLake(tmp_path)
