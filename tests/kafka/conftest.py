"""One broker for all tests of this folder: they run one after the other in one process."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest

from tests.kafka.topics import Topics
from tests.servers.kafka import kafka
from tests.servers.needed import needed
from tests.servers.process import Server
from writers.kafka import run, slot_loop


@pytest.fixture(scope="session")
def broker() -> Iterator[Server]:
    with ExitStack() as stack:
        with needed("Kafka"):
            server = stack.enter_context(kafka())
        yield server


@pytest.fixture
def topics(broker: Server) -> Topics:
    return Topics(broker)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No slot waits long for more messages, or between two looks."""
    monkeypatch.setattr(slot_loop, "STEP_SECONDS", 0.05)
    monkeypatch.setattr(slot_loop, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(slot_loop, "PROOF", timedelta(seconds=5))
    monkeypatch.setattr(run, "LOOK_EVERY", timedelta(milliseconds=100))
