"""A column that partitions files was widened: tuples of before and after lie otherwise, in manifests of one spec."""

from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.ledger import merge
from tests.histories import pyiceberg_changes
from tests.histories.world import World
from tests.support.lake import live_files

COLUMNS = {"widen ratio": "ratio", "widen price": "price", "widen n": "n"}


@pytest.fixture(params=COLUMNS)
def widened(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    """A table in which manifests of before and after are one short of a merge."""
    world = World(tmp_path / "lake", (COLUMNS[request.param],), seed=3)
    for number in range(merge.FAN - 1):
        if number == merge.FAN // 2:
            pyiceberg_changes.change_schema(world, request.param)
            world.tick(minutes=1)
        world.publish([1, 1], hours=number % 4)
        world.tick()
    return world


def test_manifests_of_before_and_after_are_merged_into_one_that_can_be_read(widened: World) -> None:
    widened.publish([1])
    widened.tick()
    assert widened.lake.operations()[-1] == "replace"
    widened.look()
    assert {file.file_path for file in live_files(widened.lake)} == widened.model.live.keys()


def test_files_of_before_are_dropped_from_manifests_that_stay(widened: World) -> None:
    live = len(widened.model.live)
    widened.tick(minutes=timedelta(hours=3) / timedelta(minutes=1))
    widened.look()
    assert 0 < len(widened.model.live) < live
