"""
The Dockerfile: linted, not root, and nothing it copies is missing or held back.
"""

import re
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.packaging.project import ROOT, requirements, run


def instructions(word: str) -> list[list[str]]:
    """
    The arguments of every `word` instruction of the Dockerfile.
    """
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    return [line.split()[1:] for line in lines if line.startswith(f"{word} ")]


COPIED = [name for words in instructions("COPY") if not words[0].startswith("--from") for name in words[:-1]]


def test_hadolint_finds_nothing():
    linted = run(str(Path(sys.executable).with_name("hadolint")), "Dockerfile")

    assert (linted.returncode, linted.stdout) == (0, "")


def test_the_image_runs_as_a_numeric_user_that_is_not_root():
    users = [user for (user,) in instructions("USER")]

    assert users
    assert all(user.split(":")[0].isdigit() and int(user.split(":")[0]) > 0 for user in users)


def test_the_last_stage_is_the_one_without_java():
    assert instructions("FROM")[-1][-1] == "bookkeeper"
    assert "spark" in [words[-1] for words in instructions("FROM")]


def test_the_extras_it_installs_are_there():
    """pip only warns of one that is not."""
    asked = re.findall(r"'\.\[([\w,]+)\]'", (ROOT / "Dockerfile").read_text("utf-8"))

    assert len(asked) == 2
    assert {extra for text in asked for extra in text.split(",")} <= set(requirements())
    assert {"daemon", "reaper", "http", "kafka", "azure", "s3", "postgres"} == set(asked[0].split(","))


@pytest.mark.parametrize("name", COPIED)
def test_what_is_copied_is_there_and_not_ignored(name: str):
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()

    assert (ROOT / name).exists()
    assert any(fnmatch(name, line.removeprefix("!")) for line in lines if line.startswith("!"))
