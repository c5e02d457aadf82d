"""
Fixtures for tests that need a JVM: one lake and one Spark session for the whole run.
"""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.servers import spark as prepared
from tests.support.keyed import keyed_lake
from tests.support.lake import Lake as Queue
from tests.support.spark_lake import SharedCatalog, new_lake

_catalogs = count(1)


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
    built = prepared.session_on(lake.settings, app="tests")
    yield built
    built.stop()


@pytest.fixture
def keyed(tmp_path: Path, spark: Any, lake: SharedCatalog) -> Queue:
    """A keyed table in a catalog of its own."""
    return registered(keyed_lake(tmp_path / "lake", catalog=new_catalog()), spark, lake)


def new_catalog() -> str:
    """The name of a catalog of its own: Spark keeps a catalog for as long as its session lives."""
    return f"keyed{next(_catalogs)}"


def registered(made: Queue, spark: Any, lake: SharedCatalog) -> Queue:
    """The table, in a catalog that Spark knows from now on."""
    before = str(lake.config.parent)
    for key, value in spark.sparkContext.getConf().getAll():
        if key.startswith("spark.sql.catalog.lake"):
            there = value.replace(f"{before}/warehouse", str(made.root)).replace(before, str(made.root))
            spark.conf.set(key.replace("catalog.lake", f"catalog.{made.catalog_settings.name}"), there)
    return made
