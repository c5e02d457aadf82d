"""Each benchmark, at toy size and without the peer: it runs, prints its tables, and keeps what it printed."""

import importlib
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import harness, publish
from benchmarks.__main__ import ALL

PLACES = "".join(path.read_text() for path in publish.documents(publish.DOC))


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", ALL)
def test_it_runs_prints_its_tables_and_keeps_them(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    results = tmp_path / "results.jsonl"
    given = Namespace(peer=None, big=False, toy=True, results=results, work=tmp_path)
    importlib.import_module(f"benchmarks.{name}").measure(harness.chosen(given))
    printed, kept = capsys.readouterr().out, lines_of(results)
    rows = [line for line in kept if "cells" in line]
    assert rows
    for row in rows:
        assert row["title"] in printed and len(row["cells"]) == len(row["columns"])
        assert all(text in printed for text in row["cells"])
        assert publish.BEGIN.format(name=row["benchmark"]) in PLACES


def test_a_benchmark_has_a_toy_a_short_and_a_big_size():
    for name in ALL:
        assert set(importlib.import_module(f"benchmarks.{name}").SIZES) == set(harness.SIZES)
