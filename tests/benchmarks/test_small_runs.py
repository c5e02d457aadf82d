"""Each benchmark, at toy size and without the peer: it runs, prints its tables, and keeps what it printed."""

import importlib
import json
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import publish
from benchmarks.__main__ import ALL
from benchmarks.support import harness

ROOT = Path(__file__).parents[2]
PLACES = publish.DOC.read_text()
#: they start a JVM, or end the one that tests share: run as processes, in test_with_a_jvm.py
WITH_A_JVM = {"upserts", "spark_sinks", "kafka_source", "kafka_slots", "kafka_connect"}


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", [name for name in ALL if name not in WITH_A_JVM])
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


def test_each_benchmark_is_one_of_all_and_each_figure_in_the_docs_has_its_benchmark():
    sources = {path.stem: path.read_text() for path in (ROOT / "benchmarks").glob("*.py")}
    assert {name for name, text in sources.items() if "def measure(" in text} == set(ALL)
    named = set(re.findall(r"\"([\w-]+)\"", "".join(sources.values())))
    assert set(re.findall(r"<!-- ([\w-]+): made by", PLACES)) <= named | {"machine"}
