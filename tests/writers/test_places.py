"""Where a writer is told to find its folder and to take its notes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.lake import Lake
from tests.support.logs import logging_put_back
from writers.cli import main
from writers.writer import Writer


def test_a_folder_may_be_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)
    folder = Path(lake.made.folder.removeprefix("file://"))
    monkeypatch.chdir(folder.parent)
    with Writer.open(folder.name, "w1") as writer:
        assert writer.card.table == "demo.events"


@pytest.fixture
def _loggers() -> Iterator[None]:
    with logging_put_back():
        yield


@pytest.mark.usefixtures("_loggers")
def test_a_close_log_that_cannot_be_written_is_said_before_anything_is_published(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    log = str(tmp_path / "missing" / "log.jsonl")
    done = CliRunner().invoke(
        main, ["generate", "--folder", lake.made.folder, "--name", "w1", "--files", "1", "--close-log", log]
    )
    assert done.exit_code == 1
    assert "cannot be written" in done.stderr
    assert lake.pending() == []
