"""
A run in several processes: what it keeps together is there, and so is all that shares a JVM.
"""

import re
from pathlib import Path

import pytest

from tests import spread
from tests.packaging.project import ROOT

HALVES = ["JVM", "JVM, second half"]
FILES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))


def needs_a_jvm(path: str) -> bool:
    return path.startswith("tests/spark/") or bool(re.search(r"mark\.spark\b", Path(ROOT, path).read_text("utf-8")))


KEPT = [path for paths in spread.TOGETHER.values() for path in paths]


@pytest.mark.parametrize("path", [*KEPT, *spread.SECOND_HALF.values(), *spread.LONG])
def test_what_is_kept_together_is_there(path: str):
    assert (ROOT / path).exists()


@pytest.mark.parametrize("path", [path for path in FILES if needs_a_jvm(path)])
def test_two_processes_have_all_that_shares_a_jvm_and_one_all_that_starts_its_own(path: str):
    shares = re.search(r"def \w+\([^)]*\b(spark|keyed)\b|\bsession_on\b", Path(ROOT, path).read_text("utf-8"))
    piece = spread.piece(f"{path}::test_something[a::b]")
    assert piece in HALVES or (piece == "programs with a JVM" and not shares)


def test_the_long_pieces_are_begun_first_and_every_other_file_is_one_in_the_usual_order():
    pieces = list(dict.fromkeys(map(spread.piece, sorted(FILES, key=spread.turn))))

    first = ["programs with a JVM", *HALVES, "catalogs", "Kafka", *spread.LONG]
    assert pieces[: len(first)] == first
    assert pieces[len(first) :] == [path for path in FILES if path in pieces[len(first) :]]
    assert len(pieces) > 100
