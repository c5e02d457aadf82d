"""
Tests of the tests: each rule of keyed tables, broken on purpose, brings a deleted row back, loses a row, or hides one.

Broken elsewhere: numbers in `tests/tick/test_upsert_histories.py`; folds in `tests/fold/test_mutations.py`,
`tests/fold/test_races.py` and `tests/spark/test_fold.py`; the orphan sweep in `tests/reaper/test_keyed.py`.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.config.settings import Retention
from bookkeeper.core.folder import PENDING
from bookkeeper.ledger import dangling, numbers
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.txlog_groups import NumberedGroup
from bookkeeper.retention.scan import find
from bookkeeper.tick.prune import Prune
from bookkeeper.tick.writer_order import WriterOrder
from tests.histories.decoded import Decoder
from tests.histories.keyed_world import KeyedWorld, history, keyed_table
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.keyed_rows import state
from tests.support.lake import Lake
from tests.tick.test_upsert_histories import inherited_numbers

# what a rule is for: each fails where the rule is broken


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


def nothing_comes_back_when_a_txlog_is_late(lake: Lake) -> None:
    late, data = late_txlog(lake)
    lake.folder.publish(late, data)
    drain(lake)
    assert state(lake) == {2: "new"}


def nothing_comes_back_days_later(lake: Lake) -> None:
    late, data = late_txlog(lake)
    lake.clock.move(days=3)
    Steps(lake, "k2").publish_steps(Step(upserts={3: "x"}))
    drain(lake)
    lake.folder.publish(late, data)
    drain(lake)
    assert 1 not in state(lake) and lake.rejected() == {str(late): "OutOfOrder"}


def an_insert_is_not_replayed_after_its_delete(lake: Lake) -> None:
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


def a_delete_that_is_needed_outlives_other_rows(lake: Lake) -> None:
    """Key 1 has a row with the number just below that of its delete; a file of other rows is dropped."""
    Steps(lake, "k2").publish_rows({7: "goes"})
    lake.tick()
    Steps(lake).publish_steps(Step(upserts={1: "a"}), Step(deletes=[1], shadow=False), Step(upserts={2: "b"}))
    lake.tick()
    ledger, view = lake.book().ledger, lake.view()
    gone = find(ledger, view, None, lambda _: True, lambda row, sequence: sequence == 1)
    ledger.drop(view, gone)
    assert state(lake) == {2: "b"}


def manifests_say_their_smallest_number(lake: Lake) -> None:
    """Readers and retention pass over deletes that are older than it."""
    Steps(lake).publish_steps(*(Step(upserts={1: str(turn)}) for turn in range(3)))
    lake.tick()
    decoder = Decoder()
    snapshots = decoder.metadata(lake.table().metadata_location)["snapshots"]
    for manifest in decoder.snapshot(snapshots[-1]).manifests:
        assert manifest.line["min_sequence_number"] == min(entry.sequence for entry in manifest.entries)


def the_head_is_an_append_with_the_largest_number(lake: Lake) -> None:
    Steps(lake).publish_steps(Step(upserts={1: "a"}), Step(upserts={1: "b"}))
    lake.tick()
    metadata = lake.table().metadata
    assert lake.operations() == ["delete", "append"]
    assert metadata.current_snapshot().sequence_number == metadata.last_sequence_number
    assert state(lake) == {1: "b"}


def rows_live_as_long_as_retention_says(lake: Lake) -> None:
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


# the rules, broken


def least_left_out(patch: pytest.MonkeyPatch) -> None:
    whole = NumberedGroup.records
    patch.setattr(NumberedGroup, "records", lambda *given: replace(whole(*given), least_sequence=None))


def append_first(patch: pytest.MonkeyPatch) -> None:
    whole = Ledger._build_upserts

    def swapped(*given: Any) -> Any:
        delete, append = whole(*given)
        return [replace(append, sequence=delete.sequence), replace(delete, sequence=append.sequence)]

    patch.setattr(Ledger, "_build_upserts", swapped)


def one_dangling_too_many(patch: pytest.MonkeyPatch) -> None:
    whole = dangling.least_number
    patch.setattr("bookkeeper.ledger.ledger.least_number", lambda *given: whole(*given) + 1)


def order_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WriterOrder, "check", lambda *_: None)


def newest_mark_pruned(patch: pytest.MonkeyPatch) -> None:
    whole = Prune.pruned
    patch.setattr(Prune, "pruned", lambda self, marks, now, keyed=False: whole(self, marks, now))


def times_of_the_first_number(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("bookkeeper.tick.tick.committed_number", lambda last, txlogs: last + 1)


def times_of_a_later_number(patch: pytest.MonkeyPatch) -> None:
    whole = numbers.committed_number
    patch.setattr("bookkeeper.tick.tick.committed_number", lambda last, txlogs: whole(last, txlogs) + 3)


BROKEN: tuple[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[Lake], None]], ...] = (
    (order_ignored, nothing_comes_back_when_a_txlog_is_late),
    (order_ignored, an_insert_is_not_replayed_after_its_delete),
    (newest_mark_pruned, nothing_comes_back_days_later),
    (least_left_out, a_delete_that_is_needed_outlives_other_rows),
    (least_left_out, manifests_say_their_smallest_number),
    (one_dangling_too_many, a_delete_that_is_needed_outlives_other_rows),
    (append_first, the_head_is_an_append_with_the_largest_number),
    (times_of_the_first_number, rows_live_as_long_as_retention_says),
    (times_of_a_later_number, rows_live_as_long_as_retention_says),
)


@pytest.mark.parametrize(
    ("broken", "holds"), BROKEN, ids=[f"{broken.__name__}-{holds.__name__}" for broken, holds in BROKEN]
)
def test_a_broken_rule_is_seen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[pytest.MonkeyPatch], None],
    holds: Callable[[Lake], None],
) -> None:
    holds(keyed_lake(tmp_path / "right"))
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        holds(keyed_lake(tmp_path / "broken"))


def test_numbers_that_are_inherited_are_seen_by_the_histories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookkeeper.ledger.ledger.numbered_data", inherited_numbers)
    with pytest.raises(AssertionError):
        for seed in range(6):
            history(KeyedWorld(keyed_table(tmp_path / str(seed), "one"), "one", seed), 30)
