"""A queue with a configuration file, and the command to run on it."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bookkeeper.cli import main
from bookkeeper.console.signals import StopSignal
from tests.cli.sandbox import Sandbox
from tests.support.configured import configured
from tests.support.lake import Lake, Writes
from tests.support.logs import logging_put_back

Run = Callable[..., Result]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def writer(lake: Lake) -> Writes:
    return Writes(lake)


@pytest.fixture
def run(lake: Lake) -> Iterator[Run]:
    """Runs `bookkeeper ARGUMENTS` on the lake; logging is put back as it was."""
    config = configured(lake)
    with logging_put_back():
        yield lambda *arguments: CliRunner().invoke(main, [*arguments], env={"BOOKKEEPER_CONFIG": str(config)})


@pytest.fixture
def asked(run: Run) -> Callable[..., Any]:
    """What a command says with --json."""
    return lambda *arguments: json.loads(run(*arguments, "--json").stdout)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    return Sandbox(tmp_path_factory.mktemp("sandbox") / "lake")


@pytest.fixture
def soon_stopped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What would go on until it is told to stop is told so soon."""
    original, timers = StopSignal.on_signals, []

    def on_signals() -> StopSignal:
        stop = original()
        timers.append(threading.Timer(0.3, stop.request))
        timers[-1].start()
        return stop

    monkeypatch.setattr(StopSignal, "on_signals", on_signals)
    yield
    for timer in timers:
        timer.cancel()
        timer.join()
