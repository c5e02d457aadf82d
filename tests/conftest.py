"""Fixtures for all tests: plain values, no lakes; those have a conftest of their own."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

# Others may be at work on this machine: a slow example is no failure.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture
def ram_path(tmp_path: Path) -> Iterator[Path]:
    """
    An empty directory in memory where the system has one: hundreds of rounds without waiting for a disk.
    """
    ram = "/dev/shm"
    if not os.access(ram, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=ram, prefix="bookkeeper-test-") as path:
        yield Path(path)


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """
    A command that was run in this process leaves ^C to pytest again.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)
