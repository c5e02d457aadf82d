"""docs/maintain/guarantees.md: every test that it names exists, and every promise names one."""

import ast
import re
from functools import cache

import pytest

from tests.packaging.project import ROOT

TEXT = (ROOT / "docs" / "maintain" / "guarantees.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))
#: sections that tell of properties, or of what is not promised
PLAIN = ("Guarantees", "Visibility", "Atomicity", "What is not promised")


@cache
def defined_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_it_names_many_tests() -> None:
    assert len(NAMED) > 90


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_test_it_names_exists(path: str, name: str) -> None:
    assert name.startswith("test_") and name in defined_in(path)


def test_no_test_is_named_without_its_path() -> None:
    plain = re.sub(r"`tests/[\w/]+\.py::\w+`", "", TEXT)
    assert not re.findall(r"\btest_\w+", plain)


ROWS = [line for line in TEXT.splitlines() if line.startswith("| ") and "tried by" not in line]


@pytest.mark.parametrize("row", ROWS)
def test_every_row_of_a_table_names_a_test(row: str) -> None:
    assert "::test_" in row


@pytest.mark.parametrize("row", ROWS)
def test_cells_are_short(row: str) -> None:
    assert all(len(cell) < 150 or "::test_" in cell for cell in row.split(" | "))


@pytest.mark.parametrize("part", re.split(r"^#+ ", TEXT, flags=re.MULTILINE)[1:])
def test_every_section_that_promises_something_names_a_test(part: str) -> None:
    title = part.splitlines()[0]
    assert title in PLAIN or "::test_" in part, title
