"""Two checkouts in turns: only one runs at a time, their CPU times are compared, and a side that fails is said."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks import against

_FAKE = """
import json, pathlib, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
cpu = pathlib.Path("cpu").read_text()
line = {"title": "Fakes", "columns": ["files", "time", "ours", "peer", "ratio"]}
with open(words["--results"], "w") as out:
    for cells in (["1,000", "first", f"9 ({cpu})", "not run", "2.0 x"], ["1,000", "after", "7", "not run", "-"]):
        out.write(json.dumps({**line, "cells": cells}) + "\\n")
    out.write(json.dumps({"title": "Whole", "columns": ["side", "CPU"], "cells": ["ours", cpu]}) + "\\n")
    out.write(json.dumps({"below": "a note"}) + "\\n")
assert cpu != "0", "a fake fails"
"""
_BUSY = """
import sys, time
with open(sys.argv[1], "w") as out:
    while time.process_time() < 0.8:
        until = time.process_time() + 0.001
        while time.process_time() < until:
            pass
        print(time.monotonic_ns(), file=out)
"""


def checkout(folder: Path, cpu: str) -> Path:
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "benchmarks" / "__init__.py").touch()
    (folder / "benchmarks" / "fake.py").write_text(_FAKE)
    (folder / "cpu").write_text(cpu)
    return folder


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(against, "ROOT", checkout(tmp_path / "here", "3,000"))
    return ["--only", "fake", "--work", str(tmp_path), "--results", str(tmp_path / "results")]


def test_cpu_times_of_both_stand_side_by_side(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        against.main([str(checkout(tmp_path / "there", "2,000")), *words])
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert not ended.value.code
    assert ["1,000,", "first", "ours", "2,000", "3,000", "1.50"] in said
    assert ["ours", "CPU", "2,000", "3,000", "1.50"] in said
    assert not any("after" in " ".join(line) for line in said)
    assert {path.name for path in tmp_path.iterdir()} == {"here", "there", "results"}


def test_a_side_that_fails_is_said(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        against.main([str(checkout(tmp_path / "there", "0")), *words])
    assert ended.value.code == "failed: fake"
    assert "a fake fails" in capsys.readouterr().out


def test_one_runs_while_the_other_stands_still(tmp_path: Path) -> None:
    logs = [tmp_path / "a", tmp_path / "b"]
    run = [subprocess.Popen([sys.executable, "-c", _BUSY, str(log)], start_new_session=True) for log in logs]
    against.in_slices(run)
    assert [process.wait() for process in run] == [0, 0]
    moments = sorted((int(line), log.name) for log in logs for line in log.read_text().splitlines())
    changes = sum(one != other for (_, one), (_, other) in pairwise(moments))
    assert 2 < changes < 40
