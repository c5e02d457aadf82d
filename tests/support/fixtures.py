"""Fixtures for what has to hold on every store."""

from pathlib import Path

import pytest

from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.stores.store import Store
from tests.support.stores import BACKENDS, Opener


@pytest.fixture(params=sorted(BACKENDS))
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """
    Opens one and the same place, empty at first, on each backend.
    """
    return BACKENDS[request.param](tmp_path)


@pytest.fixture
def store(stores: Opener) -> Store:
    return stores()


@pytest.fixture
def folder(store: Store) -> Folder:
    return Folder(store)


@pytest.fixture
def first() -> TxlogName:
    """
    The first txlog of a run.
    """
    return TxlogName("w1", new_incarnation(1_700_000_000_000, bytes(10)), 1)
