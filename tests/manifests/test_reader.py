"""What manifests hold, in any layout, read within bounds; and errors that say which file."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, write_manifest
from pyiceberg.manifest import ManifestEntryStatus as Status
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, NestedField, StringType, UUIDType

from bookkeeper.catalogs.file_io import DiskFirst
from bookkeeper.errors import BookkeeperError, ManifestCorrupt, Missing, PathRefused, StorageUnavailable, TooLarge
from bookkeeper.format import avro
from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.entries import Entry
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.records import ADDED, DELETED, EXISTING
from bookkeeper.manifests import fetch, walk
from bookkeeper.manifests.fetch import Fetch
from bookkeeper.manifests.reader import Manifests
from bookkeeper.manifests.walk import Heads, split
from bookkeeper.stores import together
from tests.support.manifest_lists import listed_manifest

GOLDEN = (Path(__file__).parents[1] / "golden/many.txlog.avro").read_bytes()
META = {key: value for key, value in avro.read_header(GOLDEN).meta.items() if key != avro.CODEC}
ENTRIES = manifest_format.decode(GOLDEN, 2**24).entries[:4]


class Files:
    """Files by location; notes the bounds that each is read with."""

    def __init__(self, files: Mapping[str, bytes | BookkeeperError]) -> None:
        self.files, self.asked = files, list[dict[str, int]]()

    def __call__(self, most: Mapping[str, int]) -> dict[str, bytes | BookkeeperError]:
        self.asked.append({**most})
        return {location: self._found(location, bound) for location, bound in most.items()}

    def _found(self, location: str, most: int) -> bytes | BookkeeperError:
        found = self.files[location]
        return TooLarge(location) if isinstance(found, bytes) and len(found) > most else found


def reader(*given: bytes | BookkeeperError, foreign: bool = False, io: Any = None) -> tuple[Manifests, Files]:
    """A reader of manifests 0.avro, 1.avro, ..."""
    files = Files({f"file:///{number}.avro": data for number, data in enumerate(given)})
    return Manifests(Fetch(files, io), foreign=foreign), files


def listed(*given: bytes, **more: Any) -> list[ListedManifest]:
    counts = {"added_files_count": 1, "existing_files_count": 1, "deleted_files_count": 1}
    return [
        listed_manifest(f"file:///{number}.avro", **{"manifest_length": len(data), **counts, **more})
        for number, data in enumerate(given)
    ]


def entry(number: int, status: int, *ids: int | None) -> Entry:
    return replace(
        ENTRIES[number], status=status, snapshot_id=ids[0], sequence_number=ids[1], file_sequence_number=ids[2]
    )


def encoded(entries: Iterable[Entry], codec: str = "deflate") -> bytes:
    """A manifest with a block for each entry."""
    blocks = [block for item in entries for block in manifest_format.encode_blocks(META["avro.schema"], [item])]
    return avro.encode(META, blocks, codec)


MIXED = [entry(0, ADDED, None, None, None), entry(1, EXISTING, 3, 2, 1), entry(2, DELETED, 7, 2, 2)]


@pytest.mark.parametrize("codec", ["deflate", "null"])
def test_records_have_what_they_inherit_and_live_ones_are_those_not_deleted(codec: str) -> None:
    data = encoded(MIXED, codec)
    its, _ = reader(data)
    given = listed(data, sequence_number=9)
    ((_, rows),) = its.rows(given)
    assert [(head.status, head.snapshot_id, head.sequence, head.file_sequence) for _, head in rows] == [
        (ADDED, 7, 9, 9),
        (EXISTING, 3, 2, 1),
        (DELETED, 7, 2, 2),
    ]
    paths = [item.data_file.path for item in MIXED]
    assert [row.found.path for row in rows] == paths
    ((_, live),) = its.live(given)
    assert [row.found.path for row in live] == paths[:2]
    ((_, entries),) = its.entries(given, ManifestContent.DATA)
    assert [(item.data_file, item.sequence_number) for item in entries] == [
        (MIXED[0].data_file, 9),
        (MIXED[1].data_file, 2),
    ]
    assert [*its.entries(given, ManifestContent.DELETES)] == [*its.live(given, ManifestContent.DELETES)] == []


def test_whether_a_sequence_number_was_inherited_is_known() -> None:
    (first, second, _) = split(encoded(MIXED))
    for block, inherits in ((first, True), (second, False)):
        heads = Heads(listed_manifest())
        for row in block.rows():
            heads.of(row)
        assert heads.inherited is inherits


def test_several_are_read_together_within_the_lengths_that_the_list_states(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(MIXED)
    monkeypatch.setattr(together, "READ_AT_ONCE", 3)
    its, files = reader(*[data] * 7)
    assert len([*its.rows(listed(*[data] * 7))]) == 7
    assert [[*asked.values()] for asked in files.asked] == [[len(data)] * 3, [len(data)] * 3, [len(data)]]


@pytest.mark.parametrize("length", [-1, 0, 10])
def test_one_that_is_longer_than_stated_is_read_alone_up_to_a_bound(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encoded(MIXED)
    its, files = reader(data)
    ((_, rows),) = its.rows(listed(data, manifest_length=length))
    assert len(rows) == 3
    assert [[*asked.values()] for asked in files.asked] == [[max(0, length)], [fetch.MOST_BYTES]]
    monkeypatch.setattr(fetch, "MOST_BYTES", len(data) - 1)
    with pytest.raises(TooLarge):
        [*its.rows(listed(data, manifest_length=length))]


def test_a_length_beyond_the_bound_is_no_bound_to_read_by(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(MIXED)
    its, files = reader(data)
    assert len([*its.rows(listed(data, manifest_length=2**62))]) == 1
    monkeypatch.setattr(fetch, "MOST_BYTES", len(data) - 1)
    with pytest.raises(TooLarge):
        [*its.rows(listed(data, manifest_length=2**62))]
    assert max(bound for asked in files.asked for bound in asked.values()) == 2**31


def test_a_manifest_that_a_list_names_twice_is_read_once_and_given_as_often_as_it_is_named() -> None:
    data = encoded(MIXED)
    its, files = reader(data)
    twice = [*listed(data, sequence_number=8), *listed(data, sequence_number=9)]
    assert [(item.sequence_number, rows[0].head.sequence) for item, rows in its.rows(twice)] == [(8, 8), (9, 9)]
    assert len(files.asked) == 1


@pytest.mark.parametrize("codec", ["deflate", "null"])
@pytest.mark.parametrize(("bound", "most"), [("MOST_ENTRIES", 2), ("MOST_BYTES", 400)])
def test_the_blocks_of_a_manifest_together_have_a_bound(
    codec: str, bound: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encoded(MIXED, codec)
    sizes = [len(block.read().block.payload) for block in split(data)]
    assert max(sizes) < 400 < sum(sizes)
    asks: list[Callable[[Manifests], Iterable[tuple[Any, Iterable[Any]]]]] = [
        lambda its: its.rows(listed(data)),
        lambda its: its.blocks(listed(data), ManifestContent.DATA),
        lambda its: its.entries(listed(data), ManifestContent.DATA),
    ]
    for ask in asks:
        assert [[*found] for _, found in ask(reader(data)[0])]
    monkeypatch.setattr(walk, bound, most)
    for ask in asks:
        with pytest.raises(ManifestCorrupt, match="at most"):
            [[*found] for _, found in ask(reader(data)[0])]


def test_what_cannot_be_read_is_an_error_of_its_own_and_the_files_before_it_are_given() -> None:
    data = encoded(MIXED)
    for error in (Missing("gone"), StorageUnavailable("down")):
        its, _ = reader(data, error)
        found = its.rows(listed(data, data))
        assert next(found)[0].manifest_path == "file:///0.avro"
        with pytest.raises(type(error)):
            next(found)


def test_what_lies_elsewhere_is_read_through_a_file_io_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encoded(MIXED)
    (tmp_path / "m.avro").write_bytes(data)
    manifest = listed_manifest(f"file://{tmp_path}/m.avro", manifest_length=len(data), added_files_count=1)
    refused = {manifest.manifest_path: PathRefused("elsewhere")}
    with pytest.raises(PathRefused):
        [*Manifests(Fetch(Files(refused), None), foreign=False).rows([manifest])]
    its = Manifests(Fetch(Files(refused), DiskFirst()), foreign=False)
    ((_, rows),) = its.rows([manifest])
    assert len(rows) == 3 and its.fetch.alone == 1
    monkeypatch.setattr(fetch, "MOST_BYTES", len(data) - 1)
    with pytest.raises(TooLarge):
        [*its.rows([manifest])]


def test_one_that_does_not_decode_names_its_file_and_costs_no_other() -> None:
    data = encoded(MIXED)
    for foreign in (False, True):
        its, _ = reader(data, data[:-20], foreign=foreign)
        found = its.rows(listed(data, data))
        next(found)
        with pytest.raises(ManifestCorrupt, match=r"file:///1\.avro"):
            next(found)


SCHEMA = Schema(
    NestedField(1, "key", StringType(), required=False),
    NestedField(2, "price", DecimalType(9, 2), required=False),
    NestedField(3, "id", UUIDType(), required=False),
)
SPEC = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "price"), PartitionField(3, 1001, IdentityTransform(), "id")
)


def by_pyiceberg(path: Path, version: Any, codec: Any) -> tuple[bytes, ListedManifest, tuple[Any, ...]]:
    """A manifest of two files, one of them deleted, and the partition of both."""
    partition = (Decimal("-1.25"), uuid.UUID(int=5))
    with write_manifest(version, SPEC, SCHEMA, DiskFirst().new_output(str(path)), 7, codec) as writer:
        for name, status in (("a", Status.ADDED), ("b", Status.DELETED)):
            file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"file:///{name}.parquet",
                file_format=FileFormat.PARQUET,
                partition=Record(*partition),
                record_count=3,
                file_size_in_bytes=40,
                sort_order_id=None,
                spec_id=0,
                equality_ids=None,
            )
            made = ManifestEntry.from_args(
                status=status, snapshot_id=7, sequence_number=4, file_sequence_number=4, data_file=file
            )
            writer.add_entry(made)
    data, physical = path.read_bytes(), ((-125).to_bytes(1, "big", signed=True), uuid.UUID(int=5).bytes)
    return data, listed(data, sequence_number=0 if version == 1 else 4)[0], physical


@pytest.mark.parametrize(("version", "codec"), [(1, "deflate"), (2, "zstandard")])
def test_a_manifest_of_another_layout_is_read_by_pyiceberg_unless_it_would_be_written_anew(
    version: int, codec: str, tmp_path: Path
) -> None:
    data, manifest, partition = by_pyiceberg(tmp_path / "m.avro", version, codec)
    its, _ = reader(data, foreign=True)
    ((_, rows),) = its.rows([manifest])
    assert [(row.found.path, row.head.status, row.head.snapshot_id) for row in rows] == [
        ("file:///a.parquet", ADDED, 7),
        ("file:///b.parquet", DELETED, 7),
    ]
    assert [(row.found.file_format, row.found.record_count, row.found.size_bytes) for row in rows] == [
        ("PARQUET", 3, 40)
    ] * 2
    assert [row.found.partition for row in rows] == [partition] * 2
    assert [row.head.sequence for row in rows] == [0 if version == 1 else 4] * 2
    strict, _ = reader(data)
    for ask in (strict.rows, strict.live, lambda given: strict.entries(given, ManifestContent.DATA)):
        with pytest.raises(ManifestCorrupt):
            [[*found] for _, found in ask([manifest])]
    with pytest.raises(ManifestCorrupt):  # pyiceberg leaves out a part of its entries
        [[*found] for _, found in its.entries([manifest], ManifestContent.DATA)]
