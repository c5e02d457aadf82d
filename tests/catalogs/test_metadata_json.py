"""metadata.json is what pyiceberg would write, however its lists changed since the last time."""

import json
from collections.abc import Callable
from operator import is_
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from bookkeeper.catalogs.metadata_json import Growing, MetadataJson, parse
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


def test_snapshots_that_are_known_are_not_validated_again(versions: list[TableMetadata]) -> None:
    before, after = versions[-2], versions[-1]
    found = parse(after.model_dump_json().encode(), [before])
    assert found == after
    assert all(map(is_, found.snapshots, before.snapshots))
    assert all(map(is_, found.snapshot_log, before.snapshot_log))


def changed(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Gives the first snapshot of a metadata.json another value."""
    return lambda data: data["snapshots"][0].update({name: value})


@pytest.mark.parametrize(
    "change",
    [
        changed("parent-snapshot-id", 7),
        changed("sequence-number", 7),
        changed("timestamp-ms", 7),
        changed("manifest-list", "elsewhere"),
        changed("schema-id", 7),
        changed("summary", {"operation": "delete"}),
        changed("summary", None),
        lambda data: data["snapshots"][1].pop("parent-snapshot-id"),
        lambda data: data["snapshot-log"][0].update({"timestamp-ms": 7}),
        lambda data: data["snapshots"].pop(0),
        lambda data: data.update({"table-uuid": str(UUID(int=7))}),
    ],
)
def test_whatever_a_metadata_file_says_otherwise_of_a_snapshot_counts(
    versions: list[TableMetadata], change: Callable[[dict[str, Any]], None]
) -> None:
    data = json.loads(versions[-1].model_dump_json())
    change(data)
    text = json.dumps(data)
    found = parse(text.encode(), versions)
    assert found == TableMetadataUtil.parse_raw(text)
    assert same(MetadataJson().dump(found), TableMetadataUtil.parse_raw(text))


def test_what_is_no_metadata_is_refused_as_by_pyiceberg(versions: list[TableMetadata]) -> None:
    for text in ("", "[]", "7", "{}", '{"format-version": 2}', versions[-1].model_dump_json()[:-1]):
        with pytest.raises((ValueError, ValidationError)):
            parse(text.encode(), versions)


@pytest.mark.parametrize("broken", [{"snapshots": [7]}, {"snapshot-log": "x"}, {"snapshots": [{"snapshot-id": []}]}])
def test_a_list_of_snapshots_that_is_none_is_refused(versions: list[TableMetadata], broken: dict[str, Any]) -> None:
    data = json.loads(versions[-1].model_dump_json()) | broken
    with pytest.raises((ValueError, ValidationError)):
        parse(json.dumps(data).encode(), versions)
