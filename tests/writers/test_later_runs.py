"""Two runs of one name on a keyed table: the earlier one is told at its publish, before its txlogs are rejected."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.errors import Fenced
from tests.support.keyed import keyed_lake
from tests.support.keyed_rows import state
from tests.support.lake import Lake
from writers.writer import Writer


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return keyed_lake(tmp_path / "lake")


def opened(lake: Lake, name: str = "w1") -> Writer:
    lake.clock.move(seconds=2)
    return Writer.open(lake.folder, name, clock=lake.clock, stores=lake.store)


def upsert(lake: Lake, writer: Writer, key: int, value: str) -> None:
    lake.clock.move(seconds=2)
    writer.upsert(pa.table({"id": [key], "value": [value]}))
    writer.publish()


@pytest.mark.parametrize("committed", [False, True], ids=["pending", "in the table"])
def test_an_earlier_run_is_fenced_once_a_later_one_has_published(lake: Lake, committed: bool) -> None:
    """Without it what it publishes is rejected once the later one is in."""
    early, late = opened(lake), opened(lake)
    upsert(lake, early, 1, "early")
    upsert(lake, late, 2, "late")
    if committed:
        lake.drain()
    with pytest.raises(Fenced, match="a later run of w1"):
        upsert(lake, early, 3, "lost")
    upsert(lake, late, 3, "kept")
    lake.drain()
    assert (state(lake), lake.rejected()) == ({1: "early", 2: "late", 3: "kept"}, {})


def test_other_names_and_runs_from_the_future_fence_none(lake: Lake) -> None:
    writer, other = opened(lake), opened(lake, "w2")
    upsert(lake, other, 1, "other")
    forged = TxlogName("w1", new_incarnation(2**48 - 1, bytes(10)), 1)
    lake.put(f"pending/{forged}", b"anything")
    upsert(lake, writer, 2, "mine")
    lake.drain()
    assert (state(lake), [*lake.rejected()]) == ({1: "other", 2: "mine"}, [str(forged)])


def test_on_an_append_only_table_runs_go_on_side_by_side(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    early, late = opened(lake), opened(lake)
    at = datetime.now(UTC)
    for writer, key in ((late, "a"), (early, "b")):
        lake.clock.move(seconds=2)
        writer.write([{"timestamp": at, "key": key}])
        writer.publish()
        lake.tick()
    assert lake.keys() == ["a", "b"]
