"""What a scraper sees of the reaper's runs, however they end."""

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import urlopen

import pytest

from bookkeeper.console.web import serve_metrics
from bookkeeper.errors import CatalogUnavailable, NotPossible
from reaper.compactor.compactor import Compacted
from reaper.metrics import Metrics
from reaper.result import Reaped
from tests.support.watched import samples

NOW = datetime(2050, 1, 1, tzinfo=UTC)


def value(text: str, name: str, **labels: str) -> float | None:
    return samples(text).get((name, frozenset({"table": "events", **labels}.items())))


def test_before_its_first_run_a_table_was_never_reaped() -> None:
    figures = Metrics()
    figures.begin("events")
    assert value(figures.text(), "reaper_last_success_timestamp_seconds") == 0


def test_runs_are_counted_however_they_end_and_what_they_deleted_by_kind() -> None:
    figures = Metrics()

    def down(now: datetime) -> Reaped:
        raise CatalogUnavailable("down")

    figures.run("events", lambda now: Reaped(3, 2, 1, 4, 1000, 5), NOW, lambda: NOW + timedelta(seconds=7))
    for _ in range(2):
        with pytest.raises(CatalogUnavailable):
            figures.run("events", down, NOW, lambda: NOW)
    text = figures.text()
    assert value(text, "reaper_last_success_timestamp_seconds") == NOW.timestamp() + 7
    assert value(text, "reaper_run_seconds_total") == 7
    assert [value(text, "reaper_runs_total", outcome=outcome) for outcome in ("done", "failed")] == [1, 2]
    assert value(text, "reaper_consecutive_failures") == 2
    kinds = {kind: value(text, "reaper_files_deleted_total", kind=kind) for kind in ("data", "manifest", "metadata")}
    assert kinds == {"data": 2, "manifest": 1, "metadata": 4}
    figures.run("events", lambda now: Reaped(), NOW, lambda: NOW)
    assert value(figures.text(), "reaper_consecutive_failures") == 0


def test_rounds_of_compaction_add_up_and_the_last_one_shows_the_table() -> None:
    figures = Metrics()
    figures.note_compacted("events", Compacted("off"), NOW)
    figures.note_compacted("events", Compacted("own", busy=True), NOW)
    assert "reaper_compaction" not in figures.text()
    more = Compacted("own", read_bytes=100, failed=1, backlog_bytes=7, left_alone={"deletes": 3})
    for minutes in (0, 5, 10):
        figures.note_compacted("events", replace(more, backlog_bytes=minutes + 7), NOW + timedelta(minutes=minutes))
    text = figures.text()

    def now(name: str, **labels: str) -> float | None:
        return value(text, f"reaper_compaction_{name}", **labels)

    assert (now("read_bytes_total"), now("failed_total")) == (300, 3)
    assert (now("backlog_bytes"), now("left_alone", reason="deletes")) == (17, 3)
    assert now("behind_seconds") == 600
    figures.note_compacted("events", Compacted("own"), NOW + timedelta(minutes=15))
    assert value(figures.text(), "reaper_compaction_behind_seconds") == 0


def test_it_is_served_too() -> None:
    figures = Metrics()
    figures.begin("events")
    with closing(serve_metrics("127.0.0.1:0", figures.text)) as web, urlopen(f"{web.url}metrics") as answer:
        assert answer.read().decode() == figures.text()


def test_a_file_that_cannot_be_written_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotPossible, match=r"the metrics file .*nowhere.* cannot be written") as refused:
        Metrics(str(tmp_path / "nowhere" / "x.prom")).begin("events")
    assert "folder must be there" in refused.value.hint
