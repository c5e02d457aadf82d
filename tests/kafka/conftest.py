"""One broker for all tests of this folder: they run one after the other in one process."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.kafka.topics import Topics
from tests.servers.kafka import kafka
from tests.servers.needed import needed
from tests.servers.process import Server


@pytest.fixture(scope="session")
def broker() -> Iterator[Server]:
    with ExitStack() as stack:
        with needed("Kafka"):
            server = stack.enter_context(kafka())
        yield server


@pytest.fixture
def topics(broker: Server) -> Topics:
    return Topics(broker)
