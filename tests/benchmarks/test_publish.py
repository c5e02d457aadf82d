"""Results go into docs/figures/performance.md, which has a place for each table; the curve is drawn beside it."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks import publish
from benchmarks.support import harness, plot


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.jsonl"
    report = harness.Report(path)
    report.keep({"machine": {"cpu": "2 x fast", "line": "cpu 2 x fast"}})
    report.table("curve", "Commits; ms", ("side", "p50"), "of one run")
    report.row("ours", harness.Timing(12.3, 4.5))
    report.row("peer", None)
    report.note("it stops early")
    report.keep({"plot": "curve", "side": "ours", "window": 100, "points": [[10, 20], [11, 25]]})
    report.keep({"plot": "curve", "side": "peer", "window": 100, "points": [[30, 200]]})
    return path


@pytest.fixture
def doc(tmp_path: Path) -> Path:
    path = tmp_path / "performance.md"
    path.write_text(publish.DOC.read_text())
    return path


def test_what_was_measured_is_in_its_place_and_the_rest_stays(results: Path, doc: Path):
    publish.main([str(results), "--doc", str(doc)])
    text = doc.read_text()
    assert "* cpu: 2 x fast\n" not in text
    assert (
        "Commits; ms. Of one run.\n\n| side | p50 |\n|---|---:|\n| ours | 12.3 (4.50) |\n| peer | not run |\n" in text
    )
    assert "it stops early." in text
    begin = publish.BEGIN.format(name="drain")
    assert (
        text.partition(begin)[2].partition(publish.END)[0]
        == publish.DOC.read_text().partition(begin)[2].partition(publish.END)[0]
    )


def test_of_a_benchmark_that_ran_twice_the_last_run_counts(results: Path, doc: Path):
    report = harness.Report(results)
    report.keep({"machine": {"cpu": "1 x slow"}})
    report.table("curve", "Commits; ms", ("side", "p50"), "of another run")
    report.row("ours", harness.Timing(33.3, 4.5))
    publish.main([str(results), "--doc", str(doc)])
    text = doc.read_text()
    assert "Of another run.\n\n| side | p50 |\n|---|---:|\n| ours | 33.3 (4.50) |\n\n" in text
    assert "12.3" not in text.partition(publish.BEGIN.format(name="curve"))[2].partition(publish.END)[0]


def test_the_machine_is_written_when_all_of_the_page_was_measured_on_it(results: Path, doc: Path):
    places = [publish.BEGIN.format(name=name) + publish.END for name in ("machine", "curve")]
    doc.write_text("".join(places))
    publish.main([str(results), "--doc", str(doc)])
    assert "* cpu: 2 x fast\n" in doc.read_text()


def test_publishing_twice_is_publishing_once(results: Path, doc: Path):
    publish.main([str(results), "--doc", str(doc)])
    once = doc.read_text()
    publish.main([str(results), "--doc", str(doc)])
    assert doc.read_text() == once


def test_the_curve_is_drawn_with_a_line_for_each_side(results: Path, doc: Path):
    publish.main([str(results), "--doc", str(doc)])
    drawn = ET.fromstring(doc.with_name(publish.PLOT).read_text())
    names = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert {"ours", "peer", "commits"} <= set(names)
    assert sum(element.tag.endswith("polyline") for element in drawn.iter()) == 4


def test_what_is_slower_is_drawn_higher():
    drawn = ET.fromstring(plot.curve({"a": [[1, 2], [100, 200]]}, 100))
    line = next(element for element in drawn.iter() if element.tag.endswith("polyline"))
    first, second = (float(point.split(",")[1]) for point in line.attrib["points"].split())
    assert second < first
