"""
The closing table tells what the evidence on disk says, and the exit code follows.
"""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from demo import closing, evidence
from demo.evidence import Evidence
from demo.latency import percentile, percentiles
from tests.demo import observed as seen


def kept(run: Evidence, root: Path) -> Path:
    """The evidence as a demo leaves it behind."""
    folder = root / "evidence"
    evidence.consumed_folder(folder).mkdir(parents=True)
    for item in [*run.published, *run.committed]:
        evidence.write(folder, item)
    for batch in run.consumed:
        (evidence.consumed_folder(folder) / f"{batch.batch:06d}.json").write_text(json.dumps(asdict(batch)))
    return folder


def test_evidence_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert evidence.load(kept(seen.run(), tmp_path)) == seen.run()


def test_an_even_run_ends_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(seen.run(), tmp_path)
    assert closing.main(str(tmp_path)) == 0
    out = capsys.readouterr().out
    assert "Each of 12 published rows arrived exactly once" in out
    assert "4 txlogs in 2 commits, read in 2 micro-batches" in out


@pytest.mark.parametrize("paths", ["published.jsonl", "committed.jsonl", "consumed/000001.json"])
def test_one_key_changed_anywhere_in_the_evidence_ends_badly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], paths: str
) -> None:
    path = kept(seen.run(), tmp_path) / paths
    path.write_text(path.read_text().replace("writer-2/2/1", "writer-2/2/0"))
    assert closing.main(str(tmp_path)) == closing.MISSED
    out = capsys.readouterr().out
    assert "NOT exactly once" in out and "\n  writer-2/2/1\n" in out


def test_a_run_in_which_nothing_was_published_proves_nothing(tmp_path: Path) -> None:
    kept(Evidence([], [], []), tmp_path)
    assert closing.main(str(tmp_path)) == closing.MISSED


def test_figures_are_measured_from_closed_file_and_published_txlog() -> None:
    lines = closing.closing(seen.run()).lines
    assert any("seen by Spark" in line and "p50 1 s   p99 1 s" in line for line in lines)
    assert any("in the table" in line and "p50 400 ms   p99 400 ms" in line for line in lines)


def test_percentiles_are_the_nearest_ranks() -> None:
    ordered = list(range(1, 101))
    assert [percentile(ordered, p).total_seconds() * 1000 for p in (50, 99, 100)] == [50, 99, 100]
    assert percentile([7], 99) == percentile([7], 1)
    assert percentiles([]) is None
