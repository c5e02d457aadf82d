"""The benchmarks that start a JVM of their own, at toy size, as processes: they would end the one that tests share."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import publish

ROOT = Path(__file__).parents[2]
ROWS = {
    "kafka_source": {
        "kafka-source": [
            "JSON",
            "the client alone",
            "JSON, one bad message",
            "JSON, many partitions",
            "Avro",
            "raw",
            "Debezium",
        ]
    },
    "kafka_slots": {"kafka-slots": ["3, 16", "3, 3"]},
    "kafka_connect": {
        "kafka-connect": ["Iceberg's sink, 1 s", "writer kafka, 1 s"],
        "kafka-connect-kills": ["Iceberg's sink, 1 s", "writer kafka, 1 s"],
    },
    "upserts": {"upserts": ["one txlog", "as many txlogs", "Java, RowDeltas"]},
    "spark_sinks": {
        "spark-queries": ["Iceberg's sink", "txlogs"],
        "spark-rate": ["txlogs", "Iceberg's sink", "txlogs, a tick a second"],
        "spark-upserts": ["txlogs", "MERGE INTO, copy-on-write", "MERGE INTO, merge-on-read"],
    },
}


@pytest.mark.spark
@pytest.mark.parametrize("name", ROWS)
def test_it_measures_each_side(name: str, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    words = ["-m", f"benchmarks.{name}", "--toy", "--results", str(results), "--work", str(tmp_path)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = dict[str, list[str]]()
    for line in map(json.loads, results.read_text().splitlines()):
        if "cells" in line:
            rows.setdefault(line["benchmark"], []).append(line["cells"][0])
            assert "WRONG" not in line["cells"]
    assert rows == ROWS[name]
    assert all(publish.BEGIN.format(name=table) in publish.DOC.read_text() for table in rows)
