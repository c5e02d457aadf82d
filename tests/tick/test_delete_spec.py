"""The spec of a keyed table's deletes: other programs may clean it away or partition the table otherwise."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table.update import AssertTableUUID, RemovePartitionSpecsUpdate

from bookkeeper.catalogs.commit import commit
from bookkeeper.contract.keyed import PROPERTY, Keyed
from bookkeeper.errors import CommitConflict, TableUnusable
from tests.support.enumerated import crash_points, crashed, recorded
from tests.support.faults import Faults
from tests.support.keyed import ID, OP, SEQ, Steps, keyed_lake
from tests.support.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Partitioned by a column that is no key: deletes have spec 1, without partitions."""
    made = keyed_lake(tmp_path, partition_by=("value",))
    assert made.folder.card().keyed == Keyed((ID,), 1, OP, SEQ)
    return made


def clean_away(lake: Lake, *spec_ids: int) -> None:
    """What Spark's expire_snapshots does to specs that no manifest has, where it cleans up metadata."""
    table = lake.table()
    guard = AssertTableUUID(uuid=table.metadata.table_uuid)
    commit(table, (guard,), (RemovePartitionSpecsUpdate(spec_ids=list(spec_ids)),))


def specs(lake: Lake) -> dict[int, int]:
    return {spec.spec_id: len(spec.fields) for spec in lake.table().metadata.partition_specs}


def check_goes_on(lake: Lake) -> None:
    """The card names the delete spec that the table has, and txlogs with and without deletes pass the check."""
    card = lake.folder.card()
    assert card.keyed is not None and specs(lake)[card.keyed.delete_spec_id] == 0
    assert card.keyed.delete_spec_id in [spec["spec-id"] for spec in card.specs]
    assert lake.table().metadata.default_spec_id == card.spec_id
    writer = Steps(lake, "after")
    writer.publish_rows({7: "x"})
    lake.tick()
    assert (lake.rejected(), lake.pending()) == ({}, [])


def test_a_delete_spec_that_is_there_costs_no_commit(lake: Lake) -> None:
    before = lake.table().metadata_location
    lake.tick()
    assert lake.table().metadata_location == before


def test_a_delete_spec_that_was_cleaned_away_is_added_again_with_its_id(lake: Lake) -> None:
    """Pending txlogs name it by that id."""
    clean_away(lake, 1)
    assert specs(lake) == {0: 1}
    lake.tick()
    assert specs(lake) == {0: 1, 1: 0}
    assert lake.folder.card().keyed == Keyed((ID,), 1, OP, SEQ)
    assert lake.table().metadata.default_spec_id == 0
    check_goes_on(lake)


def test_a_delete_spec_whose_id_was_taken_meanwhile_gets_another_and_the_card_says_so(lake: Lake) -> None:
    clean_away(lake, 1)
    with lake.table().update_spec() as change:  # takes id 1
        change.add_identity("op")
    lake.tick()
    assert specs(lake) == {0: 1, 1: 2, 2: 0}
    assert lake.folder.card().keyed == Keyed((ID,), 2, OP, SEQ)
    check_goes_on(lake)


def test_another_unpartitioned_spec_is_used(lake: Lake) -> None:
    with lake.table().update_spec() as change:
        change.remove_field("value")
    unpartitioned = lake.table().metadata.default_spec_id
    if unpartitioned != 1:
        clean_away(lake, 1)
    before = specs(lake)
    lake.tick()
    assert specs(lake) == before
    check_goes_on(lake)


def test_deletes_of_a_table_that_is_partitioned_otherwise_by_now_have_no_partitions(tmp_path: Path) -> None:
    """Deletes in partitions of the old spec would miss rows in files of the new one."""
    lake = keyed_lake(tmp_path, partition_by=("bucket(4, id)",))
    assert lake.folder.card().keyed == Keyed((ID,), 0, OP, SEQ)
    with lake.table().update_spec() as change:
        change.add_identity("value")
    lake.tick()
    assert specs(lake) == {0: 1, 1: 2, 2: 0}
    assert lake.folder.card().keyed == Keyed((ID,), 2, OP, SEQ)
    check_goes_on(lake)


def test_a_crash_at_any_step_is_mended_by_the_next_tick(tmp_path: Path) -> None:
    def prepared(root: Path) -> Lake:
        lake = keyed_lake(root, partition_by=("value",))
        clean_away(lake, 1)
        with lake.table().update_spec() as change:
            change.add_identity("op")
        return lake

    def act(lake: Lake) -> Callable[[Faults], None]:
        return lambda faults: lake.tick(lake.book(faults))

    points = list(crash_points(recorded(act(prepared(tmp_path / "whole")))))
    assert sum("commit_table" in str(point) for point in points) == 3 * len(["the spec", "the property"])
    for number, point in enumerate(points):
        lake = prepared(tmp_path / str(number))
        assert crashed(act(lake), point)
        lake.tick()
        assert specs(lake) == {0: 1, 1: 2, 2: 0}, str(point)
        check_goes_on(lake)


def test_another_commit_in_between_makes_the_tick_try_again(lake: Lake) -> None:
    clean_away(lake, 1)
    faults = Faults()
    faults.between("commit_table", lake.tick)
    book = lake.book(faults)
    with pytest.raises(CommitConflict):
        lake.tick(book)
    lake.tick(book)
    assert specs(lake) == {0: 1, 1: 0}
    check_goes_on(lake)


@pytest.mark.parametrize("said", ["{", '{"delete-spec-id": 0, "order-field-id": 2}'])
def test_a_property_that_does_not_fit_halts_the_table_and_says_what_to_do(lake: Lake, said: str) -> None:
    """A guess would delete rows by the wrong columns."""
    with lake.table().transaction() as transaction:
        transaction.set_properties({PROPERTY: said})
    Steps(lake).publish_rows({1: "a"})
    with pytest.raises(TableUnusable) as caught:
        lake.tick()
    assert "init --key" in caught.value.hint and len(lake.pending()) == 1


def test_a_table_whose_property_is_gone_is_append_only_again(lake: Lake) -> None:
    with lake.table().transaction() as transaction:
        transaction.remove_properties(PROPERTY)
    lake.tick()
    assert (lake.folder.card().keyed, lake.folder.card().upserts) == (None, {})
