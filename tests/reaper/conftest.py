"""
Fixtures for the reaper's tests.
"""

from pathlib import Path

import pytest

from tests.reaper.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty table."""
    return Lake(tmp_path)
