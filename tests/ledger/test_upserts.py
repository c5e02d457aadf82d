"""Upserts in the commit engine: two snapshots, two manifests, a number of its own for each step."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent

from bookkeeper.commands.verify import verify
from bookkeeper.contract import txlog as txlog_format
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import StepFile
from bookkeeper.format import avro
from bookkeeper.format.avro import Block
from bookkeeper.ledger import merge
from bookkeeper.ledger.numbers import committed_number, numbered
from tests.support.keyed import Step, Steps, keyed_lake, replayed
from tests.support.keyed_rows import entries, state, streamed
from tests.support.lake import Lake, Writes


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return keyed_lake(tmp_path / "lake")


def snapshots(lake: Lake) -> list[Any]:
    return list(lake.table().metadata.snapshots)


def summary(snapshot: Any) -> dict[str, str]:
    return dict(snapshot.summary.additional_properties)


def own_manifests(lake: Lake, snapshot: Any) -> list[Any]:
    table = lake.table()
    return [item for item in snapshot.manifests(table.io) if item.added_snapshot_id == snapshot.snapshot_id]


TEN = [Step(upserts={key: f"{round_}-{key}" for key in range(5)}) for round_ in range(10)]


def test_ten_updates_and_a_delete_are_one_commit_with_two_snapshots_and_two_manifests(lake: Lake) -> None:
    steps = [*TEN, Step(deletes=[3])]
    Steps(lake).publish_steps(*steps)
    made = len(list(Path(lake.root).rglob("*.metadata.json")))
    lake.tick()
    assert len(list(Path(lake.root).rglob("*.metadata.json"))) == made + 1
    assert lake.operations() == ["delete", "append"]
    assert state(lake) == replayed(*steps)
    delete, append = snapshots(lake)
    assert append.parent_snapshot_id == delete.snapshot_id
    assert [len(own_manifests(lake, item)) for item in (delete, append)] == [1, 1]
    assert lake.table().metadata.current_snapshot_id == append.snapshot_id == lake.view().marks.snapshot


def test_each_step_has_its_own_number_and_a_shadow_file_that_of_the_step_before(lake: Lake) -> None:
    Steps(lake).publish_steps(Step(upserts={1: "a"}), Step(deletes=[1]), Step(upserts={2: "b"}))
    lake.tick()
    delete, append = snapshots(lake)
    found = sorted((int(entry.data_file.content), entry.sequence_number) for entry in entries(lake))
    # data: step 1, the shadow of step 2, step 3; span 4 begins at 1
    assert found == [(0, 2), (0, 2), (0, 4), (2, 2), (2, 3), (2, 4)]
    assert (delete.sequence_number, append.sequence_number) == (4, 5)
    assert lake.table().metadata.last_sequence_number == 5
    for entry in entries(lake):
        assert entry.file_sequence_number == (4 if entry.data_file.content else 5)
    assert [item.min_sequence_number for item in own_manifests(lake, delete)] == [2]
    assert [item.min_sequence_number for item in own_manifests(lake, append)] == [2]


def test_summaries_count_delete_files_exactly(lake: Lake) -> None:
    Steps(lake).publish_steps(Step(upserts={1: "a", 2: "b"}), Step(deletes=[1]))
    lake.tick()
    Steps(lake, "k2").publish_steps(Step(upserts={5: "c"}))
    lake.tick()
    first, append, second, last = map(summary, snapshots(lake))
    assert (first["added-delete-files"], first["added-equality-deletes"]) == ("2", "3")
    assert first["added-equality-delete-files"] == "2"
    assert (first["total-delete-files"], first["total-equality-deletes"]) == ("2", "3")
    assert (append["added-data-files"], append["added-records"]) == ("2", "3")
    assert (append["total-delete-files"], append["total-equality-deletes"]) == ("2", "3")
    assert (second["total-delete-files"], last["total-equality-deletes"]) == ("3", "4")
    assert (last["total-data-files"], last["total-position-deletes"]) == ("3", "0")
    sizes = sum(entry.data_file.file_size_in_bytes for entry in entries(lake))
    assert int(last["total-files-size"]) == sizes
    assert first["bookkeeper.append"] == str(snapshots(lake)[1].snapshot_id)
    assert "bookkeeper.txlogs" in append and "bookkeeper.txlogs" not in first


def test_a_txlog_without_deletes_inherits_no_number_beside_deletes(lake: Lake) -> None:
    """Key 1 is inserted by a txlog of version 1, and deleted by the next one of the same commit."""
    writer = Steps(lake)
    name, data = writer.encoded([writer.rows([{"id": 1, "value": "old"}])])
    lake.folder.publish(name, data)
    writer.publish_steps(Step(deletes=[1], upserts={2: "b"}))
    lake.tick()
    assert lake.operations() == ["delete", "append"]
    assert state(lake) == {2: "b"}


def test_txlogs_of_many_writers_and_versions_are_numbered_in_the_order_of_the_batch(lake: Lake) -> None:
    steps, last = list[Step](), 0
    for turn in range(6):
        writer = Steps(lake, f"k{turn}")
        step = Step(upserts={1: f"v{turn}", turn: "x"}) if turn % 3 else Step(deletes=[1, turn])
        writer.publish_steps(step, Step(upserts={9: str(turn)}))
        steps += [step, Step(upserts={9: str(turn)})]
        lake.clock.move(seconds=1)
        last += 3
    lake.tick()
    assert state(lake) == replayed(*steps)
    assert lake.table().metadata.last_sequence_number == last + 1


def test_a_commit_of_deletes_alone_is_one_delete_snapshot_that_names_its_txlogs(lake: Lake) -> None:
    writer = Steps(lake)
    writer.publish_steps(Step(upserts={1: "a", 2: "b"}))
    lake.tick()
    name = writer.publish_steps(Step(deletes=[1], shadow=False))
    lake.tick()
    assert lake.operations() == ["delete", "append", "delete"]
    assert state(lake) == {2: "b"}
    assert lake.pending() == []
    assert summary(snapshots(lake)[-1])["bookkeeper.txlogs"] == f"k1.{name.incarnation}:2-2"
    writer.publish_steps(Step(upserts={3: "c"}))
    lake.tick()
    assert state(lake) == {2: "b", 3: "c"}


def test_a_stream_sees_every_version_and_every_tombstone(lake: Lake) -> None:
    Steps(lake).publish_steps(Step(upserts={1: "a"}), Step(upserts={1: "b"}), Step(deletes=[1]))
    lake.tick()
    assert [(row["id"], row["value"], row["op"]) for row in sorted(streamed(lake), key=lambda row: row["seq"])] == [
        (1, "a", "U"),
        (1, "b", "U"),
        (1, None, "D"),
    ]
    assert state(lake) == {}


def test_delete_manifests_are_merged_in_tiers_of_their_own_and_keep_their_numbers(lake: Lake) -> None:
    writer, steps = Steps(lake), list[Step]()
    book = lake.book()
    for turn in range(2 * merge.FAN):
        steps.append(Step(upserts={turn % 7: str(turn)}, deletes=[(turn + 1) % 7] if turn % 2 else []))
        writer.publish_steps(steps[-1])
        lake.tick(book)
        assert state(lake) == replayed(*steps)
    assert "replace" in lake.operations()
    table = lake.table()
    manifests = table.current_snapshot().manifests(table.io)
    for content in (ManifestContent.DATA, ManifestContent.DELETES):
        assert len([item for item in manifests if item.content == content]) <= merge.FAN
    for item in manifests:
        numbers = [entry.sequence_number for entry in item.fetch_manifest_entry(table.io)]
        assert item.min_sequence_number == min(numbers)
    last = summary(table.current_snapshot())
    assert (last["total-delete-files"], last["total-equality-deletes"]) == ("32", str(32 + 16))


def test_records_whose_prefix_takes_more_bytes_than_it_needs_are_numbered_too(lake: Lake) -> None:
    """A status in two bytes decodes as one in one byte does."""
    writer = Steps(lake)
    name, data = writer.encoded_steps(
        [StepFile(writer.rows([{"id": 1, "value": "a"}]), 1)], [StepFile(writer.equality_deletes([1]), 1)]
    )
    found = avro.decode(data, 2**24)
    (block,) = found.blocks
    assert block.payload[0] == 2
    wider = Block(1, b"\x82\x00" + block.payload[1:])
    lake.folder.publish(name, avro.encode(found.meta, [wider]))
    lake.tick()
    assert state(lake) == {1: "a"}
    assert {entry.sequence_number for entry in entries(lake)} == {2}


def wider(lake: Lake, name: TxlogName, data: bytes) -> None:
    """Publishes a txlog whose first status takes two bytes instead of one."""
    found = avro.decode(data, 2**24)
    (block,) = found.blocks
    lake.folder.publish(name, avro.encode(found.meta, [Block(block.count, b"\x82\x00" + block.payload[1:])]))


def test_a_record_whose_prefix_takes_more_bytes_keeps_no_manifest_from_being_merged(lake: Lake) -> None:
    writer = Steps(lake)
    wider(lake, *writer.encoded([writer.rows([{"id": 0, "value": "a"}])]))
    lake.tick()
    for number in range(1, merge.FAN):
        writer.publish_rows({number: "b"})
        lake.tick()
    table = lake.table()
    assert lake.operations()[-1] == "replace" and len(table.current_snapshot().manifests(table.io)) == 1
    assert state(lake) == {0: "a"} | dict.fromkeys(range(1, merge.FAN), "b")


def test_an_append_only_commit_is_what_it_was(tmp_path: Path) -> None:
    """No number is written out, and the manifest's smallest number is that of its snapshot."""
    lake = keyed_lake(tmp_path / "plain")
    writer = Steps(lake)
    name, data = writer.encoded([writer.rows([{"id": 1, "value": "a"}])])
    lake.folder.publish(name, data)
    lake.tick()
    assert lake.operations() == ["append"]
    (snapshot,) = snapshots(lake)
    (manifest,) = own_manifests(lake, snapshot)
    assert manifest.min_sequence_number == manifest.sequence_number == snapshot.sequence_number == 1
    # Byte for byte the records of the txlog, under the header without our keys.
    published, written = avro.decode(data, 2**24), avro.decode(Path(local(manifest.manifest_path)).read_bytes(), 2**24)
    assert [block.payload for block in written.blocks] == [block.payload for block in published.blocks]
    assert written.meta == {key: value for key, value in published.meta.items() if not key.startswith("bookkeeper.")}


def local(path: str) -> str:
    return path.removeprefix("file://")


def test_numbers_of_spans_three_one_and_two(lake: Lake) -> None:
    txlogs = []
    for writer, steps in (("a", 2), ("b", 0), ("c", 1)):
        made = Steps(lake, writer)
        parts = made.files_of(*[Step(upserts={1: "x"})] * steps)
        name, data = made.encoded_steps(*parts) if steps else made.encoded([made.rows([{"id": 1}])])
        txlogs.append(txlog_format.decode(name, data, 2**24))
    found = numbered(7, txlogs)
    assert ([*found.first.values()], found.delete, found.append) == ([8, 11, 12], 13, 14)
    assert committed_number(7, txlogs) == 14
    assert committed_number(7, txlogs[1:2]) == 8


def test_a_plain_queue_keeps_its_summaries(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "queue")
    Writes(lake).publish("a")
    lake.tick()
    totals = {key: value for key, value in summary(snapshots(lake)[0]).items() if key.startswith("total-")}
    assert [*totals] == [
        "total-data-files",
        "total-records",
        "total-files-size",
        "total-delete-files",
        "total-position-deletes",
        "total-equality-deletes",
    ]
    assert [totals[key] for key in totals if "delete" in key] == ["0", "0", "0"]


def test_verify_counts_delete_files_and_misses_one_that_is_gone(lake: Lake) -> None:
    writer = Steps(lake)
    writer.publish_steps(Step(upserts={1: "a", 2: "b"}), Step(deletes=[1]))
    lake.tick()

    def found() -> list[tuple[str, str]]:
        audit = lake.audit()
        return [(item.severity, item.what) for item in verify(audit)]

    assert found() == []
    gone = next(entry.data_file.file_path for entry in entries(lake) if entry.data_file.content)
    Path(local(gone)).unlink()
    assert found() == [
        ("error", "the table names the file, but it does not exist: readers fail, or show rows that it deleted")
    ]
