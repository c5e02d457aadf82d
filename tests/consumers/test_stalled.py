"""
An available-now query that its first offset stops: when it is said, and what its mend writes.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata

from bookkeeper.config.settings import Reaper
from bookkeeper.errors import NotPossible
from bookkeeper.history import consumer_state as states
from bookkeeper.history import mend as mending
from bookkeeper.history.checkpoint_store import open_checkpoint
from bookkeeper.history.consumer_state import ConsumerState, evaluate, read_all
from bookkeeper.history.registry import COMMAND, Registry, spark
from bookkeeper.stores.open import open_store
from tests.support.checkpoints import BEGINNING, Query, offset
from tests.support.table_metadata import minute, snapshot, table

BILLION = 10**9


def billions(*rows: int, files: int = 1) -> TableMetadata:
    """Appends of so many billion rows each, numbered from 1; 0 is an append without a file."""
    counts = [{"added-data-files": str(files if count else 0), "added-records": str(count * BILLION)} for count in rows]
    return table(*(snapshot(number, number - 1 or None, **said) for number, said in enumerate(counts, 1)))


class Stage:
    """A query with Spark's own trigger available-now on such a table."""

    def __init__(self, root: Path, metadata: TableMetadata, **how: Any) -> None:
        self.query, self.metadata = Query(root / "cp"), metadata
        self.registry = Registry(open_store(str(root)))
        self.registry.add(spark("q", self.query.url, minute(0), by=COMMAND, **{"available_now": True, **how}))

    @property
    def consumer(self) -> ConsumerState:
        (found,) = evaluate(read_all(self.registry, open_store), self.metadata, Reaper(), minute(10))
        return found

    def mend(self) -> str | None:
        """What the first offset says after the mend; None where there is none."""
        store = open_checkpoint(self.query.url)
        planned = mending.plan(self.consumer, store)
        if planned is None:
            return None
        mending.mend(store, planned, None)
        return (self.query.root / "sources/0/offsets/0").read_text()


@pytest.mark.parametrize(
    ("first", "committed", "state"),
    [
        (offset(1), offset(3, 1), states.STALLED),
        (offset(BEGINNING, -1), offset(3, 1), states.STALLED),
        (offset(1), offset(2, 1), states.LIVE),  # two billion: one more file is read
        (offset(2), offset(3, 1), states.LIVE),
        (offset(1), offset(4, 1), states.LIVE),  # nothing is unread: the fifth has no file
        (offset(3, 1), offset(3, 1), states.LIVE),
    ],
)
def test_unread_rows_behind_two_to_the_31_are_said_as_stalled(
    tmp_path: Path, first: str, committed: str, state: str
) -> None:
    stage = Stage(tmp_path, billions(1, 1, 1, 1, 0))
    stage.query.begin(first).done(committed)
    assert stage.consumer.state == state


def test_of_a_snapshot_that_is_half_read_the_share_of_its_files_counts(tmp_path: Path) -> None:
    stage = Stage(tmp_path, billions(4, files=4))
    stage.query.begin(offset(1)).done(offset(1, 2))
    assert stage.consumer.state == states.LIVE
    stage.query.done(offset(1, 3))
    assert stage.consumer.state == states.STALLED


def test_a_query_with_another_trigger_is_never_stalled(tmp_path: Path) -> None:
    stage = Stage(tmp_path, billions(1, 1, 1, 1), available_now=False)
    stage.query.begin(offset(1)).done(offset(3, 1))
    assert stage.consumer.state == states.LIVE


def test_the_mend_of_a_stalled_query_begins_where_it_is(tmp_path: Path) -> None:
    stage = Stage(tmp_path, billions(1, 1, 1, 1))
    stage.query.begin(offset(1)).done(offset(3, 1))
    assert stage.mend() == offset(3, 1)
    assert stage.consumer.state == states.LIVE
    assert stage.mend() is None


def test_also_where_a_mend_was_cut_off_before_it_wrote(tmp_path: Path) -> None:
    stage = Stage(tmp_path, billions(1, 1, 1, 1))
    stage.query.begin(offset(1)).done(offset(3, 1))
    (stage.query.root / "sources/0/offsets/0").unlink()
    assert stage.consumer.state == states.STALLED
    assert stage.mend() == offset(3, 1)


def test_a_mend_that_would_stall_the_query_is_not_made(tmp_path: Path) -> None:
    stage = Stage(tmp_path, billions(1, 1, 1, 1))
    stage.query.begin(offset(2)).done(offset(4, 1))
    with pytest.raises(NotPossible, match="4,000,000,000 rows"):
        stage.mend()
    stage.query.begin(offset(99)).done(offset(3, 1))
    assert stage.consumer.state == states.TO_MEND
    assert stage.mend() == offset(3, 1)


def test_with_fewer_rows_it_begins_at_the_oldest_snapshot_as_ever(tmp_path: Path) -> None:
    stage = Stage(tmp_path, billions(1, 1))
    stage.query.begin(offset(1)).done(offset(2, 1))
    assert json.loads(stage.mend() or "")["snapshot_id"] == BEGINNING
