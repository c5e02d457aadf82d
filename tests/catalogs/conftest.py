"""
Fixtures: one place per kind of catalog for the whole run; a test takes a queue of its own there.
"""

from collections.abc import Iterator

import pytest

from tests.servers.needed import needed
from tests.support.catalog_lake import KINDS, CatalogLake, Place, place


def _place(kind: str) -> Iterator[Place]:
    with needed(kind), place(kind) as made:
        yield made


@pytest.fixture(scope="session", params=KINDS)
def where(request: pytest.FixtureRequest) -> Place:
    """Each kind of catalog in turn."""
    made: Place = request.getfixturevalue(request.param)
    return made


@pytest.fixture(scope="session")
def sqlite() -> Iterator[Place]:
    """The embedded default: an SQLite file."""
    yield from _place("sqlite")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Place]:
    """A Postgres server."""
    yield from _place("postgres")


@pytest.fixture(scope="session")
def rest() -> Iterator[Place]:
    """Iceberg's REST catalog server, with a proxy before it."""
    yield from _place("rest")


@pytest.fixture(scope="session")
def storage() -> Iterator[Place]:
    """Nothing but a directory."""
    yield from _place("storage")


@pytest.fixture
def lake(where: Place) -> CatalogLake:
    """A new queue in each kind of catalog."""
    return where.lake()
