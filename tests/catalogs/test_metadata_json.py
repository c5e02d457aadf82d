"""metadata.json is what pyiceberg would write, however its lists changed since the last time."""

import json
from pathlib import Path
from uuid import UUID

import pytest
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from bookkeeper.catalogs.metadata_json import Growing, MetadataJson
from tests.support.lake import Lake, Writes


@pytest.fixture
def versions(tmp_path: Path) -> list[TableMetadata]:
    """The table's metadata after each of six commits."""
    lake, found = Lake(tmp_path), []
    writes, book = Writes(lake), lake.book()
    for number in range(6):
        writes.publish(f"k{number}")
        lake.tick(book)
        found.append(book.view.metadata)  # type: ignore[union-attr]
    return found


def same(written: bytes, metadata: TableMetadata) -> bool:
    return bool(json.loads(written) == json.loads(metadata.model_dump_json()))


def without(metadata: TableMetadata, count: int) -> TableMetadata:
    """After the first snapshots were expired."""
    log = metadata.snapshot_log[count:]
    return metadata.model_copy(update={"snapshots": metadata.snapshots[count:], "snapshot_log": log})


def loaded(metadata: TableMetadata) -> TableMetadata:
    """The same, read from a file: equal objects, not the same ones."""
    return TableMetadataUtil.parse_raw(metadata.model_dump_json())


def test_it_is_right_while_the_table_grows(versions: list[TableMetadata]) -> None:
    written = MetadataJson()
    assert all(same(written.dump(metadata), metadata) for metadata in versions)


def test_it_is_right_after_expiry_reload_rollback_and_growth_again(versions: list[TableMetadata]) -> None:
    written, newest = MetadataJson(), versions[-1]
    course = [newest, without(newest, 2), loaded(newest), versions[2], versions[3], without(loaded(newest), 6), newest]
    assert all(same(written.dump(metadata), metadata) for metadata in course)


def test_another_snapshot_in_the_place_of_one_is_written(versions: list[TableMetadata]) -> None:
    written, newest = MetadataJson(), versions[-1]
    written.dump(newest)
    orphan = newest.snapshots[0].model_copy(update={"parent_snapshot_id": 7})
    changed = newest.model_copy(update={"snapshots": [orphan, *newest.snapshots[1:]]})
    assert same(written.dump(changed), changed)


def test_two_tables_do_not_get_into_each_others_way(versions: list[TableMetadata]) -> None:
    written = MetadataJson()
    other = versions[-1].model_copy(update={"table_uuid": UUID(int=7), "snapshots": versions[-1].snapshots[:1]})
    for metadata in (versions[2], other, versions[3], other, versions[4]):
        assert same(written.dump(metadata), metadata)


def test_a_snapshot_is_serialized_once_also_when_it_was_loaded_anew(versions: list[TableMetadata]) -> None:
    lines = Growing(lambda item: (item.snapshot_id,))
    first = bytes(lines.text(versions[-1].snapshots))
    assert bytes(lines.text(loaded(versions[-1]).snapshots)) == first
    assert lines._known.keys() == {(item.snapshot_id,) for item in versions[-1].snapshots}


def test_what_is_expired_is_forgotten(versions: list[TableMetadata]) -> None:
    lines = Growing(lambda item: (item.snapshot_id,))
    lines.text(versions[-1].snapshots)
    lines.text(versions[-1].snapshots[4:])
    assert len(lines._known) == 2
