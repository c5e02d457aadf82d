"""The benchmark that starts a JVM of its own, at toy size, as a process: it would end the one that tests share."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
def test_ten_updates_are_measured_beside_iceberg_java(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    words = ["-m", "benchmarks.upserts", "--toy", "--results", str(results), "--work", str(tmp_path)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert [line["cells"][0] for line in lines if "cells" in line] == ["one txlog", "as many txlogs", "Java, RowDeltas"]
