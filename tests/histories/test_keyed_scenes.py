"""Scenes of keyed tables: each brings a deleted row back, loses a row, or hides one, where a rule does not hold."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.config.settings import Retention
from bookkeeper.contract.txlog_folder import PENDING
from bookkeeper.retention.scan import find
from tests.histories.decoded import Decoder
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.keyed_rows import state
from tests.support.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return keyed_lake(tmp_path / "lake")


def drain(lake: Lake) -> None:
    book = lake.book()
    lake.tick(book)
    lake.tick(book, seconds=11)


def late_txlog(lake: Lake) -> tuple[Any, bytes]:
    """An upsert of key 1 whose create is still under way; a later run has deleted the key since."""
    old = Steps(lake)
    late = old.publish_steps(Step(upserts={1: "old"}))
    data = lake.folder.store.read(f"{PENDING}{late}")
    lake.folder.delete([late])
    lake.clock.move(seconds=60)
    Steps(lake).publish_steps(Step(deletes=[1]), Step(upserts={2: "new"}))
    drain(lake)
    return late, data


def test_nothing_comes_back_when_a_txlog_is_late(lake: Lake) -> None:
    late, data = late_txlog(lake)
    lake.folder.publish(late, data)
    drain(lake)
    assert state(lake) == {2: "new"}


def test_nothing_comes_back_days_later(lake: Lake) -> None:
    late, data = late_txlog(lake)
    lake.clock.move(days=3)
    Steps(lake, "k2").publish_steps(Step(upserts={3: "x"}))
    drain(lake)
    lake.folder.publish(late, data)
    drain(lake)
    assert 1 not in state(lake) and lake.rejected() == {str(late): "OutOfOrder"}


def test_an_insert_is_not_replayed_after_its_delete(lake: Lake) -> None:
    """It was rejected, and the delete of a later run is held until it is replayed."""
    writer = Steps(lake)
    data, deletes = writer.files_of(Step(writes={1: "old"}, upserts={2: "x"}))
    path = Path(data[0].file.path.removeprefix("file://"))
    content = path.read_bytes()
    path.unlink()
    insert, encoded = writer.encoded_steps(data, deletes)
    lake.folder.publish(insert, encoded)
    drain(lake)
    lake.clock.move(seconds=60)
    Steps(lake).publish_steps(Step(deletes=[1]), Step(upserts={2: "new"}))
    drain(lake)
    path.write_bytes(content)
    lake.folder.replay(insert)
    drain(lake)
    assert lake.pending() == [] and state(lake) == {2: "new"}


def test_a_delete_that_is_needed_outlives_other_rows(lake: Lake) -> None:
    """Key 1 has a row with the number just below that of its delete; a file of other rows is dropped."""
    Steps(lake, "k2").publish_rows({7: "goes"})
    lake.tick()
    Steps(lake).publish_steps(Step(upserts={1: "a"}), Step(deletes=[1], shadow=False), Step(upserts={2: "b"}))
    lake.tick()
    ledger, view = lake.book().ledger, lake.view()
    gone = find(ledger, view, None, lambda _: True, lambda row, sequence: sequence == 1)
    ledger.drop(view, gone)
    assert state(lake) == {2: "b"}


def test_manifests_say_their_smallest_number(lake: Lake) -> None:
    """Readers and retention pass over deletes that are older than it."""
    Steps(lake).publish_steps(*(Step(upserts={1: str(turn)}) for turn in range(3)))
    lake.tick()
    decoder = Decoder()
    snapshots = decoder.metadata(lake.table().metadata_location)["snapshots"]
    for manifest in decoder.snapshot(snapshots[-1]).manifests:
        assert manifest.line["min_sequence_number"] == min(entry.sequence for entry in manifest.entries)


def test_the_head_is_an_append_with_the_largest_number(lake: Lake) -> None:
    Steps(lake).publish_steps(Step(upserts={1: "a"}), Step(upserts={1: "b"}))
    lake.tick()
    metadata = lake.table().metadata
    assert lake.operations() == ["delete", "append"]
    assert metadata.current_snapshot().sequence_number == metadata.last_sequence_number
    assert state(lake) == {1: "b"}


def test_rows_live_as_long_as_retention_says(lake: Lake) -> None:
    """Two commits, three hours apart; the first is five hours old, and the second two."""
    settings = {"retention": Retention(max_age=timedelta(hours=4), brake=1.0)}
    writer = Steps(lake)
    writer.publish_steps(Step(upserts={1: "a"}), Step(upserts={2: "b"}), Step(upserts={3: "c"}))
    lake.tick(lake.book(**settings))
    lake.clock.move(hours=3)
    writer.publish_steps(Step(upserts={4: "d"}))
    lake.tick(lake.book(**settings))
    lake.tick(lake.book(**settings), hours=2)
    assert state(lake) == {4: "d"}
