"""Fixtures for all tests: plain values, no lakes; those have a conftest of their own."""

import gc
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import settings

from bookkeeper.console.logs import OURS
from tests import spread
from tests.servers import shared, spark
from tests.servers.process import scratch
from tests.support.remembered import remember

# Others may be at work on this machine: a slow example is no failure.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# Hundreds of processes are started, and each would compile the project anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
remember()
spark.use_archive(os.environ)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell starts what runs in the background: no process that a test starts would be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """What is packed has the time in it: the processes of one run would name its test differently, and run none."""
    return argname if isinstance(val, bytes) and not val.isascii() else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: spread.turn(item.nodeid))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: the garbage collector need not look at them thousands of times."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return spread.scheduler(config, log)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    shared.end()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """
    An empty directory, in memory where there is room: hundreds of rounds without waiting for a disk.

    A JVM's is on disk, and still there afterwards, for what it leaves is much and worth a look.
    """
    memory = scratch()
    if memory is None or request.node.get_closest_marker("spark"):
        yield tmp_path_factory.mktemp("test")
        return
    # A thread that a test has left frozen may still write there; and a test may put something beside its own.
    with TemporaryDirectory(dir=memory, prefix="bookkeeper-test-", ignore_cleanup_errors=True) as path:
        own = Path(path, "test")
        own.mkdir()
        yield own


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    """
    `memory:` is one dictionary in a process, and each listing looks at all of it: what a test put there goes with it.
    """
    yield
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


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


@pytest.fixture(autouse=True)
def log_levels(request: pytest.FixtureRequest) -> Iterator[None]:
    """
    A command or a benchmark that was run in this process leaves our loggers as they were: others read what they say.

    Loggers of PySpark give each handler that they get, also pytest's own, a format of theirs.
    """
    plugin = request.config.pluginmanager.get_plugin("logging-plugin")
    for handler in (plugin.caplog_handler, plugin.report_handler):
        handler.setFormatter(plugin.formatter)
    loggers = [logging.getLogger(name) for name in OURS]
    before = [(logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, (level, propagate) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.propagate = propagate
