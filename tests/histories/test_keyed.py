"""
Random histories of a keyed table are the replay of their writers' operations, by the spec's rule, DuckDB,
iceberg-rust and pyiceberg.

Spark reads such histories in `tests/spark/test_upsert_histories.py`; `make chaos ARGS="--only upserts"` draws more.
"""

from pathlib import Path

import pytest

from bookkeeper.ledger import merge
from tests.histories.keyed_readers import Readers
from tests.histories.keyed_world import LAYOUTS, KeyedWorld, history, keyed_table


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_keyed_table_is_the_replay_of_its_writers_operations(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "FAN", 4)
    readers = Readers()
    world = KeyedWorld(keyed_table(tmp_path / "lake", layout), layout, 2, expire=layout == "by key", read=readers)
    history(world, 40)
    assert readers.read["DuckDB"] == world.checks > 3 and world.crashes
    assert readers.read["iceberg-rust"] > 3
