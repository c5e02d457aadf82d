"""What a snapshot added, read in two ways: the files and their order are the same, or a place would mean others."""

from pathlib import Path

import pytest
from pyiceberg.table import Table

from bookkeeper.streams import added_files
from bookkeeper.streams.added_files import AddedFiles
from tests.support.lake import Lake, Writes, append_by_others


def described(files: list[added_files.DataFile]) -> list[object]:
    return [
        (file.file_path, file.file_format, file.record_count, file.file_size_in_bytes, file.spec_id) for file in files
    ]


def check(table: Table) -> int:
    """The number of files that all snapshots added."""
    count, reader = 0, AddedFiles()
    for snapshot in table.metadata.snapshots:
        found = described(reader.of(table, snapshot))
        assert found == described(added_files._by_pyiceberg(table.io, snapshot))
        count += len(found)
    return count


@pytest.mark.parametrize("partition", [("day(timestamp)",), ("key",), ()])
def test_both_ways_give_the_same_files_in_the_same_order(tmp_path: Path, partition: tuple[str, ...]) -> None:
    lake = Lake(tmp_path, partition_by=partition)
    writer, book = Writes(lake), lake.book()
    for number in range(25):  # enough for merges
        writer.publish(f"{number}.a", f"{number}.b")
        writer.publish(f"{number}.c")
        lake.tick(book)
    append_by_others(lake, writer.file(["x"]), writer.file(["y"]))
    assert set(lake.operations()) >= {"append", "replace"}
    assert check(lake.table()) >= 52


def test_a_manifest_that_the_fast_way_does_not_know_goes_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    writer = Writes(lake)
    writer.publish("a")
    lake.tick()
    table = lake.table()
    (snapshot,) = table.metadata.snapshots
    wanted = described(AddedFiles().of(table, snapshot))
    real, way, went = added_files._read, added_files._by_pyiceberg, list[object]()
    monkeypatch.setattr(added_files, "_by_pyiceberg", lambda *given: went.append(given) or way(*given))
    for broken in (snapshot.manifest_list, snapshot.manifests(table.io)[0].manifest_path):
        monkeypatch.setattr(
            added_files, "_read", lambda io, path, broken=broken: b"" if path == broken else real(io, path)
        )
        assert described(AddedFiles().of(table, snapshot)) == wanted
    assert len(went) == 2
