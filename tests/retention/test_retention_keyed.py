"""Retention of a keyed table: delete files that apply to nothing go with the data files they applied to."""

from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.commands.verify import Audit, verify
from bookkeeper.config.settings import Retention
from bookkeeper.format import avro
from bookkeeper.format.avro import Block
from bookkeeper.format.entries import DataFile
from tests.support.deletes import commit_deletes, positions
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.keyed_rows import entries, rows, state
from tests.support.lake import Lake, append_by_others


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return keyed_lake(tmp_path / "lake", retention=Retention(max_age=timedelta(hours=4), brake=1.0))


def deletes(lake: Lake) -> list[int]:
    return sorted(entry.sequence_number for entry in entries(lake) if entry.data_file.content)


def audited(lake: Lake) -> list[str]:
    audit = Audit(lake.view(), lake.folder, lake.book().ledger, lake.settings, lake.store)
    return [item.what for item in verify(audit)]


def test_dangling_equality_deletes_go_and_needed_ones_stay(lake: Lake) -> None:
    writer = Steps(lake)
    writer.publish_steps(Step(upserts={1: "a"}), Step(upserts={1: "b", 2: "c"}))
    lake.tick()
    lake.clock.move(hours=3)
    writer.publish_steps(Step(upserts={1: "d", 3: "e"}))
    lake.tick()
    lake.clock.move(hours=2)
    writer.publish_steps(Step(upserts={3: "f"}))
    lake.tick()
    assert lake.operations()[-1] == "delete"  # what the first commit wrote is past its age
    assert state(lake) == {1: "d", 3: "f"}
    # The newest delete still hides key 3 of the second commit.
    oldest = min(entry.sequence_number for entry in entries(lake) if not entry.data_file.content)
    assert deletes(lake) and min(deletes(lake)) > oldest
    assert audited(lake) == []
    said = dict(lake.table().current_snapshot().summary.additional_properties)
    assert (said["removed-delete-files"], said["removed-equality-delete-files"]) == ("3", "3")
    assert said["total-delete-files"] == str(len(deletes(lake)))


def test_all_delete_files_go_with_the_last_data_file(lake: Lake) -> None:
    Steps(lake).publish_steps(Step(upserts={1: "a"}), Step(upserts={1: "b"}))
    lake.tick()
    lake.tick(hours=5)
    assert entries(lake) == []
    assert audited(lake) == []
    table = lake.table()
    assert len(table.current_snapshot().manifests(table.io)) == 2  # DELETED entries, for the job that expires snapshots
    Steps(lake, "k2").publish_steps(Step(upserts={9: "z"}))
    lake.tick()
    assert state(lake) == {9: "z"}
    assert len(lake.table().current_snapshot().manifests(table.io)) == 2


def test_position_deletes_go_with_their_data_file(lake: Lake) -> None:
    writer = Steps(lake)
    writer.publish_steps(Step(upserts={1: "a", 2: "b"}))
    lake.tick()
    lake.clock.move(hours=3)
    writer.publish_steps(Step(upserts={3: "c", 4: "d"}))
    lake.tick()
    files = {entry.sequence_number: entry.data_file.file_path for entry in entries(lake) if not entry.data_file.content}
    old, new = (files[number] for number in sorted(files))
    commit_deletes(lake, positions(lake, {old: [0]}, referenced=old), positions(lake, {new: [1]}, referenced=new))
    assert state(lake) == {2: "b", 3: "c"}
    lake.tick(hours=2)
    assert state(lake) == {3: "c"}
    left = [entry.data_file for entry in entries(lake) if int(entry.data_file.content) == 1]
    assert len(left) == 1


def test_position_deletes_of_a_file_that_is_listed_twice_stay_as_long_as_one_of_the_two_does(lake: Lake) -> None:
    """As by `add_files`: what was deleted of it must not be in the table again when its older entry goes."""
    writer = Steps(lake)
    writer.publish_steps(Step(upserts={1: "a", 2: "b"}))
    lake.tick()
    (old,) = [entry.data_file for entry in entries(lake) if not entry.data_file.content]
    lake.clock.move(hours=3)
    size = old.file_size_in_bytes
    append_by_others(lake, DataFile(old.file_path, "PARQUET", (), old.record_count, size))
    writer.publish_steps(Step(upserts={3: "c"}))
    lake.tick()
    commit_deletes(lake, positions(lake, {old.file_path: [0]}, referenced=old.file_path))
    assert sorted(row["id"] for row in rows(lake)) == [2, 2, 3]
    lake.tick(hours=2)
    assert [entry.data_file.file_path for entry in entries(lake)].count(old.file_path) == 1
    assert state(lake) == {2: "b", 3: "c"}


def test_a_record_whose_prefix_takes_more_bytes_than_it_needs_is_dropped_like_any_other(lake: Lake) -> None:
    """A status in two bytes decodes as one in one byte does; no other file waits for it."""
    writer = Steps(lake)
    name, data = writer.encoded([writer.rows([{"id": 1, "value": "a"}])])
    found = avro.decode(data, 2**24)
    (block,) = found.blocks
    lake.folder.publish(name, avro.encode(found.meta, [Block(1, b"\x82\x00" + block.payload[1:])]))
    Steps(lake, "k2").publish_rows({2: "b"})
    lake.tick()
    assert state(lake) == {1: "a", 2: "b"}
    lake.tick(hours=5)
    assert state(lake) == {}
