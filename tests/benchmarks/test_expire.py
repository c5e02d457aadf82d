"""The figures for expiry, at toy size and without the peer; and a benchmark that fails says why in a line."""

import json
import shutil
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks import __main__, expire
from benchmarks.support import harness


def chosen(tmp_path: Path) -> harness.Chosen:
    results = tmp_path / "results.jsonl"
    work = tmp_path / "work"
    work.mkdir()
    return harness.chosen(Namespace(peer=None, big=False, toy=True, results=results, work=work))


def test_expiry_is_measured_by_phase_with_its_requests_and_its_memory(tmp_path: Path) -> None:
    what = chosen(tmp_path)
    expire.measure(what)
    assert what.report.lines is not None
    lines = [json.loads(line)["cells"] for line in what.report.lines.read_text().splitlines()]
    rows = {cells[0]: cells[1] for cells in lines}
    assert int(rows["snapshots that went"]) >= 60 and int(rows["data files that went"]) > 100
    assert all(f"of it {title}" in rows for title in expire.TITLES)
    assert "delete_many" in rows["operations on stores"] and float(rows["memory at its peak, MiB"]) > 0
    assert not list(what.work.iterdir())


def test_phases_do_not_count_what_other_phases_within_them_took() -> None:
    # The outer part begins at 0 s, the inner one at 1 s; they end at 5 s and at 7 s.
    clock = iter([0.0, 1.0, 5.0, 7.0])
    phases = expire.Phases(clock=lambda: next(clock))
    inner = phases.timing("inner", lambda: None)
    phases.timing("outer", inner)()
    assert phases.spent == {"inner": 4000.0, "outer": 3000.0}


def test_a_benchmark_that_fails_says_why_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: harness.Chosen) -> None:
        raise shutil.Error([(f"/a/{number}", f"/b/{number}", "Too many links") for number in range(100_000)])

    with pytest.raises(SystemExit) as ended:
        harness.alone(fail, "", ["--toy", "--results", str(tmp_path / "r"), "--work", str(tmp_path)])
    assert "Too many links" in str(ended.value) and len(str(ended.value)) < 400

    monkeypatch.setattr(expire, "measure", fail)
    capsys.readouterr()
    assert not __main__._run("expire", chosen(tmp_path))
    said = capsys.readouterr().out.strip()
    assert "expire failed: Error: " in said and len(said) < 400 and "\n" not in said
