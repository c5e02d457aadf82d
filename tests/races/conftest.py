"""
Fixtures: one Spark session for all races, and a queue of its own for each of them in a catalog that Spark knows.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from bookkeeper.config.settings import Settings
from spark_jobs import session
from tests.servers import spark as prepared
from tests.support.races import CATALOG, SparkLake

_numbers = count()


@pytest.fixture(scope="package")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> SparkLake:
    """The first queue, whose catalog all others share."""
    return SparkLake(tmp_path_factory.mktemp("races"), "first")


@pytest.fixture(scope="package")
def spark(lakes: SparkLake) -> Iterator[Any]:
    """A Spark session; the one that runs already, if any."""
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    settings = Settings(catalog=lakes.catalog_settings)
    built = running or prepared.session_on(settings, app="races")
    for key, value in session.confs(settings, app="races").items():
        if key.startswith(f"spark.sql.catalog.{CATALOG}"):
            built.conf.set(key, value)
    yield built
    if running is None:
        built.stop()


@pytest.fixture
def queue(spark: Any, lakes: SparkLake) -> SparkLake:
    """A queue of this test's own, which Spark reads and changes too."""
    made = SparkLake(lakes.root, f"race{next(_numbers)}")
    made.spark = spark
    return made
