"""
Manifest lists and manifests are read several at once, within bounds; what cannot be read so is read alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io import FileIO

from bookkeeper.errors import StorageUnavailable
from bookkeeper.format import avro, manifest_list
from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.records import ADDED, DELETED
from bookkeeper.manifests import reader
from bookkeeper.stores import together
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from bookkeeper.stores.together import in_parts
from reaper.files import storage
from reaper.files.manifest_reader import ManifestReader
from tests.support.manifest_lists import listed_manifest
from tests.support.reaper_lake import ReaperLake


class Counting:
    """A store that notes how many keys it was asked for at once, within how many bytes."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.reads: list[int] = []
        self.bytes: list[int] = []
        self.deletes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read_many(self, keys: Sequence[str], most: Any) -> Any:
        if isinstance(most, Mapping):
            self.reads.append(len(keys))
            self.bytes.append(sum(most.values()))
        return self._inner.read_many(keys, most)

    def delete_many(self, keys: Any) -> int:
        self.deletes.append(len(keys))
        return self._inner.delete_many(keys)


def opened(made: list[Counting], inner: Callable[[str], Store] = open_store) -> Callable[[str], Any]:
    def open_one(url: str) -> Any:
        made.append(Counting(inner(url)))
        return made[-1]

    return open_one


def test_parts_are_bounded_in_files_and_in_bytes() -> None:
    assert [*in_parts([])] == []
    assert [len(part) for part in in_parts((str(number), 1) for number in range(130))] == [64, 64, 2]
    half = together.BYTES_AT_ONCE // 2
    sizes = {"a": half, "b": half, "c": 1, "huge": 10 * half, "d": 1}
    assert [[*part] for part in in_parts(sizes.items())] == [["a", "b"], ["c"], ["huge"], ["d"]]


def test_a_run_reads_lists_and_manifests_together_and_deletes_every_kind_in_one_batch(lake: ReaperLake) -> None:
    files = [lake.data_file() for _ in range(3)]
    lake.append(*files)
    lake.delete(files[0].file_path)
    for _ in range(40):
        lake.append()
    made: list[Counting] = []
    done = lake.reap(open_store=opened(made, lake.stores(lake.now + timedelta(hours=1))))
    assert done.snapshots == 40 and done.data_files == 1
    reads = [count for store in made for count in store.reads]
    assert max(reads) >= 40 and len(reads) < 10
    assert max(total for store in made for total in store.bytes) <= together.BYTES_AT_ONCE
    deletes = [count for store in made for count in store.deletes if count > 1]
    assert max(deletes) == done.data_files + done.manifests


def test_five_thousand_files_go_in_two_batches(lake: ReaperLake) -> None:
    made: list[Counting] = []
    table = storage.Storage(lake.table().metadata, f"file://{lake.folder_path}", opened(made), storage.Pace())
    table.delete(f"file://{lake.location}/data/{number}" for number in range(5000))
    assert [store.deletes for store in made] == [[4000, 1000]]


def test_a_list_larger_than_it_may_be_among_others_is_read_alone(
    lake: ReaperLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "LIST_BYTES", 100)
    before = lake.append()
    for _ in range(4):
        lake.append()
    planned = lake.outlook().files
    assert lake.reap().snapshots == 3 and before not in lake.history()
    assert all(size > 100 for size in planned.manifest_lists.values())
    assert lake.reachable() <= lake.disk().keys()


@pytest.mark.parametrize("length", [-1, 0, 10, 2**40])
def test_a_manifest_whose_length_is_stated_wrong_is_read_all_the_same(
    lake: ReaperLake, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = lake.data_file()
    lake.append(file)
    lake.delete(file.file_path)
    for _ in range(4):
        lake.append()
    decode = manifest_list.decode

    def lying(*given: Any) -> list[ListedManifest]:
        return [line._replace(manifest_length=length) for line in decode(*given)]

    monkeypatch.setattr(manifest_list, "decode", lying)
    assert lake.reap().data_files == 1
    assert file.file_path not in lake.disk() and lake.reachable() <= lake.disk().keys()


def test_a_list_of_a_layout_that_we_do_not_read_is_read_by_pyiceberg(lake: ReaperLake) -> None:
    file = lake.data_file()
    lake.append(file)
    lake.delete(file.file_path)
    for _ in range(4):
        lake.append()
    for snapshot in lake.table().metadata.snapshots:
        path = Path(snapshot.manifest_list.removeprefix("file://"))
        meta, blocks = avro.decode(path.read_bytes(), 2**20)
        changed = meta["avro.schema"].replace(b'"field-id": 517', b'"field-id": 9517')
        assert changed != meta["avro.schema"]
        path.write_bytes(avro.encode({**meta, "avro.schema": changed}, blocks))
    assert lake.reap().data_files == 1
    assert lake.reachable() <= lake.disk().keys() and lake.rows() == [1, 2, 3, 4]


@pytest.mark.parametrize("which", ["list", "manifest"])
def test_one_that_is_not_there_ends_the_run_before_anything_is_journaled(lake: ReaperLake, which: str) -> None:
    file = lake.data_file()
    lake.append(file)
    lake.delete(file.file_path)
    for _ in range(4):
        lake.append()
    lists = lake._lists(lake.table())
    oldest = lake.table().metadata.snapshot_by_id(lake.history()[1])
    assert oldest is not None
    gone = oldest.manifest_list if which == "list" else lists[oldest.snapshot_id][0]
    Path(gone.removeprefix("file://")).unlink()
    before = lake.disk()
    with pytest.raises(StorageUnavailable):
        lake.reap()
    assert lake.disk() == before and not (lake.folder_path / "reaper/journal.json").exists()


def test_a_block_without_an_entry_of_a_status_is_not_read_for_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data = (Path(__file__).parents[1] / "golden/many.txlog.avro").read_bytes()
    lines = [
        listed_manifest(f"file:///{number}.avro", manifest_length=len(data), added_files_count=1, deleted_files_count=1)
        for number in range(2)
    ]
    reader = ManifestReader(FileIO, lambda most: dict.fromkeys(most, data))  # type: ignore[arg-type]
    read: list[int] = []
    with_status = manifest_format.with_status

    def noted(*given: Any) -> Any:
        read.append(given[-1])
        return with_status(*given)

    monkeypatch.setattr(manifest_format, "with_status", noted)
    blocks = len(avro.decode(data, 2**24).blocks)
    added = [len(rows) for _, rows in reader.with_status(lines, ADDED)]
    assert added[0] == added[1] > 1 and read == [ADDED] * 2 * blocks
    assert [rows for _, rows in reader.with_status(lines, DELETED)] == [[], []]
    assert read.count(DELETED) == blocks
    assert [len(rows) for _, rows in reader.with_status(lines, ADDED)] == added


def test_behind_as_many_deletions_as_the_list_states_nothing_is_read() -> None:
    golden = (Path(__file__).parents[1] / "golden/many.txlog.avro").read_bytes()
    header = {key: value for key, value in avro.read_header(golden).meta.items() if key != avro.CODEC}
    rows = manifest_format.decode(golden, 2**24).entries[:3]
    deleted = [replace(entry, status=DELETED, snapshot_id=7) for entry in rows]
    (block,) = manifest_format.encode_blocks(header["avro.schema"], deleted)
    data = avro.encode(header, [block, avro.Block(1, b"no record")])
    reader = ManifestReader(FileIO, lambda most: dict.fromkeys(most, data))  # type: ignore[arg-type]
    stated = listed_manifest(manifest_length=len(data), deleted_files_count=3)
    paths = [entry.data_file.path for entry in deleted]
    assert [[path for _, path, _ in found] for _, found in reader.with_status([stated], DELETED)] == [paths]
    for line, status in ((stated._replace(deleted_files_count=4), DELETED), (stated, ADDED)):
        with pytest.raises(StorageUnavailable):
            list(reader.with_status([line], status))
