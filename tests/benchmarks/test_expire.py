"""The figures for expiry, at toy size and without the peer."""

import json
from argparse import Namespace
from pathlib import Path

from benchmarks import expire, harness


def test_expiry_is_measured_by_phase_with_its_requests_and_its_memory(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    work = tmp_path / "work"
    work.mkdir()
    expire.measure(harness.chosen(Namespace(peer=None, big=False, toy=True, results=results, work=work)))
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    first = next(line["cells"] for line in lines if "cells" in line)
    phases = {line["cells"][0].strip() for line in lines if "cells" in line}
    below = " ".join(line["below"] for line in lines if "below" in line)
    assert int(first[2]) >= 60 and int(first[3]) > 100
    assert set(expire.PHASES.values()) <= phases
    assert "requests: " in below and "delete_many" in below and "memory at its peak" in below
