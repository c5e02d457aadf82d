"""A table that was of format v1, whose snapshots had no sequence numbers: its first one of v2 has number 1."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.update import RemoveSnapshotsUpdate

from bookkeeper.commands.init import schema_for
from bookkeeper.errors import PlaceExpired
from bookkeeper.history.main_history import is_first
from tests.consumers.consumers import commit, taken
from tests.support.lake import Lake, Writes
from tests.tick.test_history import change


class Upgraded(Lake):
    """A queue that was made of a table of format v1 with the rows a and b, in two snapshots."""

    def make(self, schema: Schema | None = None) -> None:
        self.catalog.create_namespace_if_not_exists("demo")
        columns = schema_for(self.settings)
        table = self.catalog.create_table("demo.events", columns, properties={"format-version": "1"})
        for key in "ab":
            rows = [{"timestamp": self.clock.now, "key": key, "value": b""}]
            table.append(pa.Table.from_pylist(rows, schema=schema_to_pyarrow(table.schema())))
        with table.transaction() as transaction:
            transaction.upgrade_table_version(2)
        super().make(schema)


@pytest.fixture
def lake(tmp_path: Path) -> Upgraded:
    return Upgraded(tmp_path / "lake", file_names=None)


def expire(lake: Lake, count: int) -> None:
    oldest = lake.table().metadata.snapshots[:count]
    change(lake, RemoveSnapshotsUpdate(snapshot_ids=[item.snapshot_id for item in oldest]))


@pytest.mark.parametrize("expired", [0, 1, 2])
def test_who_comes_after_its_first_snapshots_expired_misses_nothing(lake: Upgraded, expired: int) -> None:
    commit(lake, Writes(lake), "c", "d")
    assert is_first(lake.table().metadata.snapshots[0])
    expire(lake, expired)
    assert is_first(lake.table().metadata.snapshots[0]) is (expired == 0)
    assert sorted(taken(lake)) == ["a", "b", "c", "d"]
    if expired:
        with pytest.raises(PlaceExpired):
            taken(lake, name="since", start=lake.clock.now - timedelta(days=1))
