"""
Every order of the steps of a fold, of another fold or a rewrite, and of commits between: no deleted row ever returns.

What was planned before is refused where it does not fit any more. After each commit the rows are right.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.snapshots import Operation

from bookkeeper.errors import FoldOutdated
from tests.folds.test_races import drop, files_of, ids, rewrite_of, rows
from tests.support import compactor
from tests.support.folds import committed, data, keys, lake_of, live, planned, put
from tests.support.lake import Lake

Step = Callable[[], None]


class Race:
    """A table with a deleted key, and what several programs do to it; `alive` are the keys that it must show."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.alive, self.refused = lake, {1, 3, 4, 5}, 0

    def fold(self) -> list[Step]:
        plans = list[Any]()

        def plan() -> None:
            plans.append(planned(self.lake))

        def commit() -> None:
            if plans[0].plan is not None:
                try:
                    committed(self.lake, plans[0])
                except FoldOutdated:
                    self.refused += 1

        return [plan, commit]

    def rewrite(self, applies: bool) -> list[Step]:
        """Both files become one: without the rows that are deleted by now, or with all."""
        made = list[Any]()

        def make() -> None:
            deletes = [item.file["file_path"] for item in live(self.lake) if item.file.get("content", 0)]
            old = self.old = files_of(self.lake)[:2]
            gone = tuple({1, 2, 3, 4, 5} - self.alive) if applies else ()
            made.append(rewrite_of(self.lake, old, gone, tuple(deletes) if applies else ()))

        def commit() -> None:
            checked = compactor.commit(self.lake, made[0])
            self.refused += len(checked.rejected)

        return [make, commit]

    def delete(self) -> list[Step]:
        """Key 4 is deleted, and a new key comes."""

        def delete() -> None:
            put(self.lake, keys(self.lake, rows(4)))
            put(self.lake, data(self.lake, rows(6)), operation=Operation.APPEND)
            self.alive = (self.alive - {4}) | {6}

        return [delete]

    def retention(self) -> list[Step]:
        """The file of keys 4 and 5 goes, if it is still there."""
        path = files_of(self.lake)[1].file.path

        def take() -> None:
            if path in [item.file.path for item in files_of(self.lake)]:
                drop(self.lake, path)
                self.alive -= {4, 5}

        return [take]


def orders(*programs: Sequence[Any]) -> Iterator[list[Any]]:
    """Every order of their steps in which each program's own come one after the other."""
    if not any(programs):
        yield []
    for index, steps in enumerate(programs):
        if steps:
            rest = [*programs[:index], steps[1:], *programs[index + 1 :]]
            yield from ([steps[0], *others] for others in orders(*rest))


RACES: dict[str, tuple[str, ...]] = {
    "a rewrite that applies deletes": ("fold", "applying", "delete"),
    "a rewrite that knows none, and retention": ("fold", "blind", "retention"),
    "two folds": ("fold", "fold"),
}


def programs_of(race: Race, names: Sequence[str]) -> list[list[Step]]:
    made: dict[str, Callable[[], list[Step]]] = {
        "fold": race.fold,
        "applying": lambda: race.rewrite(True),
        "blind": lambda: race.rewrite(False),
        "delete": race.delete,
        "retention": race.retention,
    }
    return [made[name]() for name in names]


def wrong(root: Path, names: Sequence[str]) -> tuple[list[str], int, int]:
    """Orders after a step of which a row was wrong, how many orders there are, and how often one was refused."""
    lake = lake_of(root)
    put(lake, data(lake, rows(1, 2, 3)), operation=Operation.APPEND)
    put(lake, data(lake, rows(4, 5)), operation=Operation.APPEND)
    put(lake, keys(lake, rows(2)))
    saved, found, refused = lake.saved(), list[str](), 0
    lengths = [len(steps) for steps in programs_of(Race(lake), names)]
    tried = list(orders(*([index] * length for index, length in enumerate(lengths))))
    for order in tried:
        saved.restore()
        lake.clock.now = datetime.now(UTC)  # a commit of properties was stamped by it
        race = Race(lake)
        programs = [iter(steps) for steps in programs_of(race, names)]
        for number, index in enumerate(order):
            next(programs[index])()
            if index not in order[number + 1 :] and ids(lake) != sorted(race.alive):
                found.append(f"{[names[index] for index in order[: number + 1]]}: {ids(lake)}")
                break
        refused += race.refused
    return found, len(tried), refused


@pytest.mark.parametrize("names", RACES.values(), ids=RACES)
def test_no_deleted_row_returns_in_any_order(tmp_path: Path, names: tuple[str, ...]) -> None:
    found, tried, refused = wrong(tmp_path / "lake", names)
    assert found == [] and tried >= 6 and refused
