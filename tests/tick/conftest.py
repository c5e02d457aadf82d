"""Fixtures of the tick's tests."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tests.support.faults import Faults
from tests.support.lake import Lake, Writes


def _unsynced(connection: Any, _: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


@pytest.fixture(autouse=True, scope="session")
def _no_power_cuts() -> Iterator[None]:
    """A crash here is an exception, never a power cut: nothing waits for the disk."""
    # Other folders' conftests take it over: then it is there more than once.
    first = not event.contains(Engine, "connect", _unsynced)
    if first:
        event.listen(Engine, "connect", _unsynced)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda handle: None)
        yield
    if first:
        event.remove(Engine, "connect", _unsynced)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def writer(lake: Lake) -> Writes:
    return Writes(lake)


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture(params=[False, True], ids=["ours", "stock"])
def either(tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    """A lake on our SQL catalog, and on pyiceberg's own: only there our guards alone stop a stale commit."""
    return Lake(tmp_path / "lake", stock=request.param)
