"""The commit engine: joined records, merged manifests, exact summaries, whatever the history."""

import json
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.format import avro
from bookkeeper.format import manifest as manifest_format
from bookkeeper.ledger import merge, summary
from bookkeeper.retention.scan import find
from tests.support.lake import Lake, Writes


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, check_files=False)


def commits(lake: Lake, count: int) -> Writes:
    book, writer = lake.book(), Writes(lake)
    for number in range(count):
        writer.publish(f"k{number:04d}")
        lake.tick(book)
    return writer


def manifests(lake: Lake) -> list[Any]:
    table = lake.table()
    return list(table.current_snapshot().manifests(table.io))


def entries(lake: Lake) -> list[Any]:
    table = lake.table()
    return [entry for item in manifests(lake) for entry in item.fetch_manifest_entry(table.io)]


def test_full_tiers_of_manifests_become_one_in_the_same_commit_as_an_append(lake: Lake) -> None:
    writer = commits(lake, merge.FAN + 1)
    assert lake.operations() == ["append"] * merge.FAN + ["replace", "append"]
    assert lake.keys() == sorted(writer.keys)
    assert len(manifests(lake)) == 2


def test_the_append_and_the_merge_are_one_commit_with_ascending_times_and_sequences(lake: Lake) -> None:
    commits(lake, merge.FAN)
    append, replace = lake.table().metadata.snapshots[-2:]
    assert replace.parent_snapshot_id == append.snapshot_id
    assert replace.sequence_number == append.sequence_number + 1
    assert replace.timestamp_ms > append.timestamp_ms
    assert len(list(Path(lake.root, "demo/events/metadata").glob("*.metadata.json"))) == merge.FAN + 2  # init made two


def test_merged_entries_keep_the_snapshot_and_the_sequence_number_they_came_with(lake: Lake) -> None:
    commits(lake, 3 * merge.FAN)
    appends = {
        item.snapshot_id: item for item in lake.table().metadata.snapshots if item.summary.operation.value == "append"
    }
    found = entries(lake)
    assert len(found) == 3 * merge.FAN
    for entry in found:
        assert entry.sequence_number == entry.file_sequence_number == appends[entry.snapshot_id].sequence_number


def test_manifests_stay_few_however_many_commits(lake: Lake) -> None:
    commits(lake, 300)
    assert len(manifests(lake)) <= 3 * merge.FAN
    assert len(entries(lake)) == 300


def test_merging_carries_on_what_a_manifest_with_deleted_entries_has_left(lake: Lake) -> None:
    writer = commits(lake, merge.FAN)
    book = lake.book()
    view = lake.view()
    gone = sorted(entry.data_file.file_path for entry in entries(lake))[0]
    doomed = find(book.ledger, view, None, lambda _: True, lambda file, _: file.path == gone)
    book.ledger.drop(view, doomed)
    commits(lake, 2 * merge.FAN)
    assert gone not in {entry.data_file.file_path for entry in entries(lake)}
    assert len(entries(lake)) == 3 * merge.FAN - 1
    assert writer.keys


def test_data_manifests_lie_in_the_layout_of_iceberg_java(lake: Lake) -> None:
    commits(lake, 1)
    table = lake.table()
    (manifest,) = manifests(lake)
    schema = json.loads(_header(table, manifest.manifest_path)["avro.schema"])
    data_file = next(field for field in schema["fields"] if field["name"] == "data_file")["type"]
    assert [field["field-id"] for field in data_file["fields"]][-2:] == [140, 143]
    partition = next(field for field in data_file["fields"] if field["name"] == "partition")["type"]
    assert all(field["type"][0] == "null" for field in partition["fields"])


def _header(table: Any, path: str) -> dict[str, bytes]:
    return dict(avro.decode(Path(path.removeprefix("file://")).read_bytes(), 2**24).meta)


def test_a_txlog_in_another_layout_is_committed_beside_ours(lake: Lake) -> None:
    writer = Writes(lake)
    writer.publish("a")
    name, data = writer.encoded([writer.file(["b"])])
    lake.folder.publish(name, without_field_143(data))
    lake.tick()
    assert lake.keys() == ["a", "b"]


def test_a_summary_that_counts_another_number_of_files_is_never_committed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's stream would lose the rows of a file that is not counted."""
    writer = Writes(lake)
    writer.publish("a")
    counts = summary.append_counts
    monkeypatch.setattr(summary, "append_counts", lambda rows: counts(rows) | {"added-data-files": "0"})
    assert lake.tick().commit is None
    monkeypatch.undo()
    assert (lake.keys(), lake.pending()) == ([], [str(writer.name)])
    lake.tick()
    assert lake.keys() == ["a"]


def without_field_143(data: bytes) -> bytes:
    """The same txlog as Iceberg libraries without that field write it."""
    ours = manifest_format.decode(data, 2**24)
    meta = avro.read_header(data).meta
    schema = json.loads(meta["avro.schema"])
    data_file = next(field for field in schema["fields"] if field["name"] == "data_file")["type"]
    del data_file["fields"][-1]
    return manifest_format.encode({**meta, "avro.schema": json.dumps(schema).encode()}, ours.entries)
