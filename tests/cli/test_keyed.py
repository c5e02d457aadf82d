"""Commands that show a keyed table: rows and files are those of data, and what waits to be folded is shown."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import StorageUnavailable
from bookkeeper.folds.stats import EqualityDeletes
from tests.cli.test_top import seen
from tests.support.folds import fold
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.lake import Lake, Writes


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return keyed_lake(tmp_path, check_files=False)


@pytest.fixture
def keyed(lake: Lake) -> Steps:
    return Steps(lake)


WAITING = ("data_files", "rows", "hidden_rows", "delete_files", "unfolded")


def test_status_shows_deletes_and_what_waits_to_be_folded(lake: Lake, keyed: Steps, asked: Any, run: Any) -> None:
    status = asked("status")
    assert [status[name] for name in WAITING] == [0, 0, 0, 0, 0] and status["oldest_unfolded"] is None
    for value in "ab":
        keyed.publish_steps(Step(upserts={1: value, 2: value}))
        lake.tick()
    status = asked("status")
    assert [status[name] for name in WAITING] == [2, 4, 0, 2, 2]
    assert status["oldest_unfolded"] is not None and "oldest unfolded" in run("status").stdout
    keyed.publish_steps(Step(deletes=[1], shadow=False))
    lake.tick()
    fold(lake)
    status = asked("status")
    # The first file went; one row of the second is hidden.
    assert [status[name] for name in WAITING] == [1, 2, 1, 1, 0]
    assert status["oldest_unfolded"] is None


def test_an_append_only_table_says_nothing_of_deletes(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "plain")
    Writes(lake).publish("a")
    lake.tick()
    (row,) = seen(lake)
    assert row["unfolded"] is None


def test_status_is_shown_when_manifests_cannot_be_read(
    lake: Lake, keyed: Steps, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed.publish_steps(Step(upserts={1: "a"}))
    lake.tick()

    def fails(known: EqualityDeletes, *given: Any) -> None:
        raise StorageUnavailable("no answer")

    monkeypatch.setattr(EqualityDeletes, "refreshed", fails)
    status = asked("status")
    assert (status["rows"], status["delete_files"], status["unfolded"]) == (1, 1, None)


def test_top_counts_rows_of_data_files_and_what_waits_to_be_folded(lake: Lake, keyed: Steps) -> None:
    for value in "ab":
        keyed.publish_steps(Step(upserts={1: value, 2: value}), Step(deletes=[2]))
        lake.tick()
    (row,) = seen(lake)
    # Each commit has two rows and a shadow row, in two files.
    assert (row["rows_per_s"], row["files_per_s"], row["unfolded"]) == (0.1, 0.1, 4)
    assert row["trouble"] is None
    lake.clock.move(minutes=20)
    (row,) = seen(lake)
    assert row["trouble"] == "deletes not folded for 20 min" and "bookkeeper fold" in row["hint"]
    fold(lake)
    (row,) = seen(lake)
    assert (row["unfolded"], row["trouble"], row["rows_per_s"]) == (0, None, 0)


def test_a_commit_of_deletes_alone_is_the_last_commit_and_a_fold_is_not(lake: Lake, keyed: Steps) -> None:
    keyed.publish_steps(Step(upserts={1: "a"}))
    lake.tick()
    lake.tick(seconds=100)
    keyed.publish_steps(Step(deletes=[1], shadow=False))
    lake.tick()
    lake.clock.move(seconds=10)
    assert timedelta(seconds=9) < seen(lake)[0]["last_commit"] < timedelta(seconds=12)
    fold(lake)
    lake.clock.move(seconds=10)
    assert timedelta(seconds=19) < seen(lake)[0]["last_commit"] < timedelta(seconds=22)


def test_show_tells_data_from_deletes(lake: Lake, keyed: Steps, asked: Any) -> None:
    name = keyed.publish_steps(Step(upserts={1: "a", 2: "b"}), Step(deletes=[1]))
    shown = asked("show", str(name))
    assert (shown["verdict"], shown["rows"], shown["deletes"]) == ("fits the table", 3, 3)
    assert [(file["is"], file["rows"]) for file in shown["files"]] == [
        ("data", 2),
        ("data", 1),
        ("deletes", 2),
        ("deletes", 1),
    ]
