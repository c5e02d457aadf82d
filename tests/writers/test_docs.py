"""The examples in docs/writers.md run as they stand."""

import re
import shlex
from pathlib import Path

import pytest

from tests.support.desk import Desk
from writers.cli import main

TEXT = (Path(__file__).parents[2] / "docs" / "writers.md").read_text("utf-8")


def test_the_library_examples_run(local: Desk) -> None:
    known = {"folder": f"{local.root}/_bookkeeper"}
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, known)
    assert local.keys() == ["sensor-1"] * 4
    exec(blocks[1], known)
    assert local.keys() == ["sensor-1"] * 4, "the source was loaded before"


@pytest.mark.parametrize("example", re.findall(r"^    (?:.*\| )?writer (.*)$", TEXT, re.MULTILINE))
def test_the_commands_are_spelled_right(example: str) -> None:
    name, *arguments = [word for word in shlex.split(example) if not word.endswith((".ndjson", ".gz"))]
    main.commands[name].make_context(name, arguments)


def test_every_error_it_names_exists() -> None:
    from bookkeeper import errors

    for name in re.findall(r"^\| `([A-Z]\w+)` \|", TEXT, re.MULTILINE):
        assert issubclass(getattr(errors, name), errors.BookkeeperError)
