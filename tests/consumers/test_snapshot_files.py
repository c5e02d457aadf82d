"""What a snapshot added, and what was in the table then: the files that pyiceberg reads, in the order of a place."""

import zlib
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.catalogs.commit import load_table
from bookkeeper.consumers.lag import added_files
from bookkeeper.consumers.rows import Projection
from bookkeeper.consumers.snapshot_files import SnapshotFiles, TableFile
from bookkeeper.errors import Missing, NotPossible
from bookkeeper.format import avro
from bookkeeper.manifests import foreign
from bookkeeper.stores.local import LINKED
from tests.support.lake import Lake, Writes, append_by_others


def described(files: Sequence[Any]) -> list[object]:
    return [
        (file.file_path, file.file_format, file.record_count, file.file_size_in_bytes, file.spec_id) for file in files
    ]


def entries(table: Table, snapshot: Snapshot) -> list[tuple[str, ManifestEntry]]:
    """Entries of data manifests that pyiceberg reads, in the order of the list, each with the path of its manifest."""
    data = [item for item in snapshot.manifests(table.io) if item.content == ManifestContent.DATA]
    return [(item.manifest_path, entry) for item in data for entry in item.fetch_manifest_entry(table.io)]


def added(table: Table, snapshot: Snapshot) -> list[tuple[str, DataFile]]:
    own = {
        item.manifest_path for item in snapshot.manifests(table.io) if item.added_snapshot_id == snapshot.snapshot_id
    }
    return [
        (path, entry.data_file)
        for path, entry in entries(table, snapshot)
        if path in own and entry.status == ManifestEntryStatus.ADDED
    ]


def check(table: Table) -> int:
    """The number of files that all snapshots added."""
    count, reader, spark = 0, SnapshotFiles(), added_files(table.io)
    for snapshot in table.metadata.snapshots:
        expected = added(table, snapshot)
        by_path = [file for _, file in sorted(expected, key=lambda item: item[0])]
        assert described(reader.of(table.io, snapshot)) == described(by_path)
        assert spark(snapshot) == [(file.record_count, file.file_size_in_bytes) for _, file in expected]
        live = sorted(entries(table, snapshot), key=lambda item: (item[1].sequence_number or 0, item[0]))
        found = reader.of(table.io, snapshot, whole=True)
        assert [file.sequence_number for file in found] == [entry.sequence_number for _, entry in live]
        assert sorted(described(found)) == sorted(described([entry.data_file for _, entry in live]))  # type: ignore[type-var]
        numbers = {
            entry.data_file.file_path: (entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)
            for _, entry in live
        }
        assert {f.file_path: (f.snapshot_id, f.sequence_number, f.file_sequence_number) for f in found} == numbers
        count += len(expected)
    return count


@pytest.mark.parametrize("partition", [("day(timestamp)",), ("key",), ()])
def test_files_and_their_order_are_those_that_pyiceberg_reads(tmp_path: Path, partition: tuple[str, ...]) -> None:
    lake = Lake(tmp_path, partition_by=partition)
    writer, book = Writes(lake), lake.book()
    for number in range(25):  # enough for merges
        writer.publish(f"{number}.a", f"{number}.b")
        writer.publish(f"{number}.c")
        lake.tick(book)
    append_by_others(lake, writer.file(["x"]), writer.file(["y"]))
    assert set(lake.operations()) >= {"append", "replace"}
    assert check(lake.table()) >= 52


def committed(lake: Lake) -> tuple[Table, Snapshot]:
    Writes(lake).publish("a", "b")
    lake.tick()
    table = load_table(lake.catalog, lake.settings.identifier)
    (snapshot,) = table.metadata.snapshots
    return table, snapshot


def spoil_codec(path: Path) -> None:
    """Another codec, which our decoder does not take."""
    data = path.read_bytes()
    meta, blocks = avro.decode(data, 2**24)
    packed = [avro.PackedBlock(block.count, zlib.compress(block.payload)) for block in blocks]
    path.write_bytes(avro.encode(meta, packed).replace(b"\x0edeflate", b"\x0egzipped"))


@pytest.mark.parametrize("which", ["list", "manifest"])
def test_a_form_that_our_decoder_does_not_know_is_left_to_pyiceberg(
    tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    table, snapshot = committed(lake)
    wanted = described(SnapshotFiles().of(table.io, snapshot))
    location = snapshot.manifest_list if which == "list" else snapshot.manifests(table.io)[0].manifest_path
    path, asked = Path(location.removeprefix("file://")), list[str]()
    whole = path.read_bytes()
    spoil_codec(path)
    reads = "read_list" if which == "list" else "read_rows"
    real: Callable[..., Any] = getattr(foreign, reads)

    def by_pyiceberg(data: bytes, what: Any) -> Any:
        asked.append(reads)
        return real(whole, what)

    monkeypatch.setattr(foreign, reads, by_pyiceberg)
    assert described(SnapshotFiles().of(table.io, snapshot)) == wanted
    assert asked == [reads]


@pytest.mark.parametrize("which", ["list", "manifest"])
def test_what_is_not_there_does_not_decode_or_is_a_link_is_said(tmp_path: Path, which: str) -> None:
    lake = Lake(tmp_path)
    table, snapshot = committed(lake)
    location = snapshot.manifest_list if which == "list" else snapshot.manifests(table.io)[0].manifest_path
    path = Path(location.removeprefix("file://"))
    kept = path.rename(path.with_name("kept"))
    for whole in (False, True):
        with pytest.raises(Missing):
            SnapshotFiles().of(table.io, snapshot, whole)
    path.symlink_to(kept)
    with pytest.raises(NotPossible, match="symbolic link") as caught:
        SnapshotFiles().of(table.io, snapshot)
    assert caught.value.hint == LINKED
    path.unlink()
    path.write_bytes(b"Obj\x01 and nothing more")
    with pytest.raises(NotPossible, match="does not decode"):
        SnapshotFiles().of(table.io, snapshot)


COLUMNS = [
    {"name": "timestamp", "type": "timestamptz", "required": True},
    {"name": "key", "type": "string", "required": True},
    {"name": "price", "type": "decimal(12, 2)", "required": False},
    {"name": "id", "type": "uuid", "required": False},
    {"name": "on", "type": "date", "required": False},
    {"name": "count", "type": "int", "required": False},
]
VALUES: dict[str, Any] = {"price": Decimal("-12.50"), "id": UUID(int=7), "on": date(2026, 11, 24), "count": -3}


def test_a_column_that_a_file_lacks_has_the_value_of_its_partition(tmp_path: Path) -> None:
    lake = Lake(tmp_path, columns=COLUMNS, partition_by=("price", "id", "on", "count"))
    when, table = datetime(2026, 11, 24, tzinfo=UTC), lake.table()
    path = tmp_path / "a.parquet"
    arrow = pa.schema([field for field in schema_to_pyarrow(table.schema()) if field.name in ("timestamp", "key")])
    pq.write_table(pa.Table.from_pylist([{"timestamp": when, "key": "a"}], schema=arrow), path)
    physical = ((-1250).to_bytes(6, "big", signed=True), VALUES["id"].bytes, (VALUES["on"] - date(1970, 1, 1)).days, -3)

    def read(partition: tuple[Any, ...]) -> list[dict[str, Any]]:
        file = TableFile(f"file://{path}", "PARQUET", partition, table.spec().spec_id, 1, 1, 1, 1, 1)
        (batch,) = Projection(table, table.schema()).batches(file, 0, 100, 2**20)
        return batch.to_pylist()

    assert read(physical) == [{"timestamp": when, "key": "a", **VALUES}]
    assert read((None,) * 4) == [{"timestamp": when, "key": "a", **dict.fromkeys(VALUES)}]
