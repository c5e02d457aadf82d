"""A queue with a configuration file, and the command to run on it."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bookkeeper.cli import main
from tests.daemon.lake import Lake, Writes

Run = Callable[..., Result]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def writer(lake: Lake) -> Writes:
    return Writes(lake)


@pytest.fixture
def run(lake: Lake, tmp_path: Path) -> Iterator[Run]:
    """Runs `bookkeeper ARGUMENTS` on the lake; logging is put back as it was."""
    config = tmp_path / "bookkeeper.toml"
    catalog = "\n".join(f'{key} = "{value}"' for key, value in lake.catalog_settings.properties.items())
    config.write_text(f'[catalog]\nname = "lake"\n{catalog}\n[tables.events]\nidentifier = "demo.events"\n')
    names = ("bookkeeper", "writers", "reaper", "spark_jobs")
    root, levels = logging.getLogger(), {name: logging.getLogger(name).level for name in names}
    handlers, level = root.handlers[:], root.level
    yield lambda *arguments: CliRunner().invoke(main, [*arguments], env={"BOOKKEEPER_CONFIG": str(config)})
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


@pytest.fixture
def asked(run: Run) -> Callable[..., Any]:
    """What a command says with --json."""
    return lambda *arguments: json.loads(run(*arguments, "--json").stdout)
