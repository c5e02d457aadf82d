"""
A consumer is killed before, in and after every change of the output and of its record: each row is there once.

After the kill the reaper expires what it may, and the table goes on, before the next run.
"""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bookkeeper.consumers import source
from bookkeeper.errors import BookkeeperError, StorageUnavailable
from tests.consumers.consumers import KeyedOutput, Output, ParquetOutput, SqliteOutput, expire
from tests.support.enumerated import Point, crash_points, crashed, erred, error_points, recorded
from tests.support.faults import Faults, FaultyStore
from tests.support.lake import Lake, Writes

OUTPUTS = [SqliteOutput, ParquetOutput, KeyedOutput]


class Stage:
    """One lake and, for each point, a consumer and an output of its own."""

    def __init__(self, root: Path, kind: type[Output], monkeypatch: pytest.MonkeyPatch) -> None:
        self.lake = Lake(root / "lake")
        self.root, self.kind, self.count = root, kind, 0
        self.faults = Faults()
        monkeypatch.setattr(source, "stores_of", lambda *_: self.faulty)
        self.commits()
        self.saved = self.lake.saved()

    def faulty(self, url: str) -> FaultyStore:
        """The folder of consumers."""
        return FaultyStore(self.lake.store(url), self.faults, "f")

    def commits(self) -> None:
        """Three commits, of 3, 1 and 2 rows."""
        writer, book = Writes(self.lake), self.lake.book()
        for size in (3, 1, 2):
            self.count += 1
            writer.publish(*[f"{self.count}.{number}" for number in range(size)])
            self.lake.tick(book)

    def begin(self) -> None:
        """The table as it was, a consumer and an output that nothing is known of."""
        self.saved.restore()
        self.count += 1
        self.name, self.place = f"c{self.count}", self.root / f"o{self.count}"

    def run(self, faults: Faults) -> None:
        """One run of it."""
        self.faults = faults
        self.kind(self.place, faults).take(self.lake, name=self.name)

    def wrong(self) -> tuple[list[str], list[str]]:
        """What is missing in the output, and what is there twice, once everything was read."""
        expire(self.lake)
        self.commits()
        for _ in range(2):
            self.run(Faults())
        found = self.kind(self.place).keys()
        return sorted(set(self.lake.keys()) - set(found)), sorted(key for key in set(found) if found.count(key) > 1)


@pytest.fixture(params=OUTPUTS)
def stage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    (tmp_path / "lake").mkdir()
    return Stage(tmp_path, request.param, monkeypatch)


def points(stage: Stage, of: Callable[[list[str]], Iterator[Point]]) -> list[Point]:
    """Of a run that is new, and of one that goes on."""
    stage.begin()
    seen = recorded(stage.run)
    assert stage.wrong() == ([], [])
    assert any(operation.startswith(("commit", "create", "replace output")) for operation in seen)
    return list(of(seen))


@pytest.mark.slow
def test_a_kill_at_any_change_loses_no_row_and_doubles_none(stage: Stage) -> None:
    tried = points(stage, crash_points)
    for point in tried:
        stage.begin()
        assert crashed(stage.run, point), point
        assert stage.wrong() == ([], []), point
    assert len(tried) >= 12


def _of_its_kind(operation: str) -> BaseException:
    database = operation.split(maxsplit=1)[0] in ("read", "change", "insert", "commit") and "/" not in operation
    return sqlite3.OperationalError("disk I/O error") if database else StorageUnavailable("no answer")


@pytest.mark.slow
def test_an_error_at_any_operation_loses_no_row_and_doubles_none(stage: Stage) -> None:
    for point in points(stage, error_points):
        stage.begin()

        def act(faults: Faults) -> None:
            try:
                stage.run(faults)
            except (BookkeeperError, sqlite3.Error):
                return

        erred(act, point, _of_its_kind)
        assert stage.wrong() == ([], []), point
