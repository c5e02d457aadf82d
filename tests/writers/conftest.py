"""Fixtures of the writers' tests."""

import uuid
from pathlib import Path

import pytest

from tests.support.desk import Desk


@pytest.fixture(params=["file", "memory"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    """
    A table with the default schema, partitioned by day, on local disk and in memory.
    """
    made = Desk(f"file://{tmp_path}" if request.param == "file" else f"memory://{uuid.uuid4()}")
    made.set_card()
    return made


@pytest.fixture
def local(tmp_path: Path) -> Desk:
    """
    The same, on local disk only.
    """
    made = Desk(f"file://{tmp_path}")
    made.set_card()
    return made
