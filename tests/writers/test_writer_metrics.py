"""What a scraper is told of a writer."""

from contextlib import closing
from datetime import timedelta
from pathlib import Path
from urllib.request import urlopen

import pytest

from bookkeeper.console.web import serve_metrics
from bookkeeper.errors import Backpressure, NotPossible
from tests.support.desk import Desk, rows
from tests.support.watched import samples
from writers.metrics import WriterMetrics


def told(figures: WriterMetrics) -> dict[str, float]:
    return {name.removeprefix("writer_"): value for (name, _), value in samples(figures.text()).items()}


def test_what_is_published_is_counted_and_what_is_not_yet_is_said(local: Desk) -> None:
    with local.writer() as writer:
        writer.write(rows("a", "b", "c"))
        before = told(writer.figures)
        writer.publish()
        after = told(writer.figures)
    assert (before["unpublished_rows"], before["rows_published_total"]) == (3, 0)
    assert before["last_publish_timestamp_seconds"] == 0
    assert (after["unpublished_rows"], after["rows_published_total"], after["txlogs_published_total"]) == (0, 3, 1)
    assert after["files_published_total"] == 1 and after["bytes_published_total"] > 500
    assert after["last_publish_timestamp_seconds"] == local.clock.now.timestamp()


def test_a_writer_that_waits_for_the_bookkeeper_says_so_and_for_how_long(local: Desk) -> None:
    local.set_card(pending_limit=1)
    writer = local.writer(patience=timedelta(seconds=5))
    writer.write(rows("a"))
    writer.publish()
    writer.write(rows("a"))
    with pytest.raises(Backpressure):
        writer.publish()
    found = told(writer.figures)
    assert (found["waiting"], found["waited_seconds_total"]) == (1, 5)
    local.folder.delete([item.name for item in local.folder.pending()])
    local.clock.move(seconds=2)
    writer.publish()
    assert told(writer.figures)["waiting"] == 0


def test_a_clock_that_is_put_back_makes_no_wait_longer(local: Desk) -> None:
    local.set_card(pending_limit=1)
    jumps = iter([-3600.0])

    def wait(seconds: float) -> None:
        local.clock.wait(seconds)
        local.clock.move(seconds=next(jumps, 0.0))

    writer = local.writer(patience=timedelta(seconds=5), wait=wait)
    writer.write(rows("a"))
    writer.publish()
    writer.write(rows("a"))
    with pytest.raises(Backpressure):
        writer.publish()
    assert len(local.clock.waits) == 6
    assert told(writer.figures)["waited_seconds_total"] == 5


def test_figures_are_a_file_after_each_txlog_and_trouble_with_it_is_no_trouble_of_the_rows(
    local: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "textfile"
    folder.mkdir()
    with local.writer() as writer:
        writer.figures.path = str(folder / "writer.prom")
        writer.write(rows("a", "b"))
        writer.publish()
        assert (folder / "writer.prom").read_text() == writer.figures.text()
        (folder / "writer.prom").unlink()
        folder.rmdir()
        writer.write(rows("a", "b"))
        writer.publish()
    assert [record.name for record in caplog.records if record.levelname == "WARNING"].count("writers.metrics") == 1
    assert told(writer.figures)["txlogs_published_total"] == 2
    with pytest.raises(NotPossible):
        writer.figures.write()


def test_figures_are_served_too(local: Desk) -> None:
    figures = local.writer().figures
    with closing(serve_metrics("127.0.0.1:0", figures.text)) as web, urlopen(f"{web.url}metrics") as answer:
        assert answer.read().decode() == figures.text()
