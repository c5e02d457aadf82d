"""`verify --deep` finds keys that are live twice, and no other."""

from pathlib import Path
from uuid import UUID

import pytest

from bookkeeper.commands.verify_keys import double_keys
from tests.support.deletes import commit_deletes, positions
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.keyed_rows import entries, rows
from tests.support.lake import Lake
from writers import Writer


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return keyed_lake(tmp_path / "lake")


def found(lake: Lake) -> list[tuple[str, str]]:
    audit = lake.audit()
    return [(item.severity, item.what) for item in double_keys(audit)]


def test_versions_that_deletes_hide_are_not_live(lake: Lake) -> None:
    writer = Steps(lake)
    writer.publish_steps(Step(upserts={1: "a", 2: "x"}), Step(upserts={1: "b"}), Step(deletes=[2]))
    lake.tick()
    writer.publish_steps(Step(upserts={1: "c"}), Step(upserts={2: "y"}))
    lake.tick()
    assert found(lake) == []


def test_an_insert_of_a_key_that_is_there_is_found_until_a_position_delete_hides_one(lake: Lake) -> None:
    writer = Steps(lake)
    writer.publish_steps(Step(upserts={1: "a", 2: "x"}))
    lake.tick()
    writer.publish_rows({3: "z", 1: "again"})
    lake.tick()
    assert len(rows(lake)) == 4
    assert found(lake) == [("error", "2 rows with id = 1 are live, of 1 such keys")]
    last = max(entries(lake), key=lambda entry: entry.sequence_number or 0).data_file.file_path
    commit_deletes(lake, positions(lake, {last: [1]}, referenced=last))
    assert found(lake) == []


def test_keys_that_are_uuids_are_compared(tmp_path: Path) -> None:
    columns = ({"name": "id", "type": "uuid", "required": True}, {"name": "value", "type": "string", "required": False})
    lake, first, second = keyed_lake(tmp_path / "uuids", columns=columns), UUID(int=1), UUID(int=2)
    with Writer.open(lake.made.folder, name="w", clock=lake.clock) as writer:
        writer.upsert([{"id": first, "value": "a"}, {"id": second, "value": "a"}])
        writer.publish()
        lake.tick()
        writer.upsert([{"id": first, "value": "b"}])
        writer.publish()
        lake.tick()
        assert found(lake) == []
        writer.write([{"id": second, "value": "double"}])
        writer.publish()
        lake.tick()
    assert found(lake) == [("error", f"2 rows with id = '{second}' are live, of 1 such keys")]


def test_what_cannot_be_read_is_said(lake: Lake) -> None:
    Steps(lake).publish_steps(Step(upserts={1: "a"}))
    lake.tick()
    path = next(entry.data_file.file_path for entry in entries(lake) if not entry.data_file.content)
    whole = Path(path.removeprefix("file://"))
    whole.write_bytes(b"PAR1" + bytes(whole.stat().st_size - 4))
    ((severity, what),) = found(lake)
    assert severity == "warning" and "which keys are live is not known" in what


def test_a_queue_has_no_keys(tmp_path: Path) -> None:
    assert found(Lake(tmp_path / "queue")) == []
