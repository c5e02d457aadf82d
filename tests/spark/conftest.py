"""
Fixtures for tests that need a JVM: one lake and one Spark session for the whole run.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_jobs import session
from tests.servers import spark as prepared
from tests.support.spark_lake import SharedCatalog, new_lake


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and {"spark", "lake"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.spark)
            # py4j leaves the closing of its sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> SharedCatalog:
    """
    A lake named `lake`, shared by the run: take a table of your own with `lake.new_table()`.
    """
    return new_lake(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="session")
def spark(lake: SharedCatalog) -> Iterator[Any]:
    """
    The Spark session of the run, on the lake.
    """
    prepared.wanted()
    built = session.build(lake.settings, app="tests")
    yield built
    built.stop()
