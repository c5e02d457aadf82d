"""Manifest lists of a table: by our decoder, and those that it does not take by pyiceberg."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io import InputFile
from pyiceberg.manifest import PartitionFieldSummary, read_manifest_list
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.catalogs.file_io import DiskFirst
from bookkeeper.errors import ManifestCorrupt, Missing, PathRefused
from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.manifest_list import ListedManifest, encode, encode_line
from bookkeeper.manifests import foreign, reader
from bookkeeper.manifests.fetch import Fetch
from bookkeeper.manifests.reader import Manifests
from bookkeeper.stores.local import LocalStore
from tests.support.manifest_lists import COUNTS, listed, listed_manifest, write

GOLDEN = Path(__file__).parents[1] / "golden/many.txlog.avro"


def snapshot(path: Path) -> Snapshot:
    return Snapshot(snapshot_id=1, timestamp_ms=1, manifest_list=f"file://{path}")


def manifests(folder: Path, io: Any = None) -> Manifests:
    return Manifests(Fetch.of(LocalStore(str(folder)), io), foreign=False)


def described(found: Any) -> list[object]:
    """Every field, whoever read it."""
    return [
        [
            tuple(map(described_summary, value)) if name == "partitions" and value is not None else value
            for name in ListedManifest._fields
            for value in (getattr(item, name),)
        ]
        for item in found
    ]


def described_summary(item: Any) -> tuple[object, ...]:
    return item.contains_null, item.contains_nan, item.lower_bound, item.upper_bound


@pytest.mark.parametrize(
    ("version", "codec", "by_pyiceberg"), [(2, "deflate", 0), (2, "null", 0), (1, "deflate", 1), (2, "zstandard", 1)]
)
def test_a_list_in_any_form_gives_the_manifests_that_pyiceberg_reads(
    version: Any, codec: str, by_pyiceberg: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    def counted(file: InputFile) -> Any:
        asked.append(file.location)
        return read_manifest_list(file)

    monkeypatch.setattr(foreign, "read_manifest_list", counted)
    path = tmp_path / "list.avro"
    write(path, listed(2, partitions=[PartitionFieldSummary(False, None, b"a", b"b")]), version, codec)
    (found,) = manifests(tmp_path).lists([snapshot(path)])
    assert described(found) == described(read_manifest_list(DiskFirst().new_input(str(path))))
    assert len(found) == 2
    assert asked == [f"file://{path}"] * by_pyiceberg


def test_counts_that_an_old_list_does_not_give_are_counted_in_the_manifest(tmp_path: Path) -> None:
    data = GOLDEN.read_bytes()
    (tmp_path / "m.avro").write_bytes(data)
    rows = manifest_format.decode(data, 2**24).rows
    given = listed(1, path=f"file://{tmp_path}/m.avro", **dict.fromkeys(COUNTS))
    write(tmp_path / "list.avro", given, version=1)
    ((found,),) = manifests(tmp_path).lists([snapshot(tmp_path / "list.avro")])
    assert (found.added_files_count, found.added_rows_count) == (len(rows), sum(row.record_count for row in rows))
    assert found.live_files == len(rows) > 1
    assert [found.existing_files_count, found.deleted_files_count, found.deleted_rows_count] == [0, 0, 0]


def test_a_list_that_lies_elsewhere_is_read_through_the_tables_own_access(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "list.avro").write_bytes(encode(1, None, 1, [encode_line(listed_manifest())]))
    where = snapshot(tmp_path / "list.avro")
    ((found,),) = manifests(tmp_path / "here", DiskFirst()).lists([where])
    assert found == listed_manifest()
    with pytest.raises(PathRefused):
        manifests(tmp_path / "here").lists([where])


def test_one_that_is_not_there_is_missing_whichever_way_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    for place, io in ((tmp_path, None), (tmp_path / "here", DiskFirst())):
        with pytest.raises(Missing):
            manifests(place, io).lists([snapshot(tmp_path / "gone.avro")])


def test_one_that_no_decoder_takes_says_which_it_is(tmp_path: Path) -> None:
    (tmp_path / "list.avro").write_bytes(b"no Avro file")
    with pytest.raises(ManifestCorrupt, match=r"list\.avro does not decode") as caught:
        manifests(tmp_path).lists([snapshot(tmp_path / "list.avro")])
    assert "rewrite_manifests" in (caught.value.hint or "")


def test_lines_are_shared_by_lists_and_those_of_lists_long_gone_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_SLACK", 4)
    lines = [encode_line(listed_manifest(f"file:///{at}.avro")) for at in range(40)]
    its, found = manifests(tmp_path), list[tuple[ListedManifest, ...]]()
    for first in range(30):
        path = tmp_path / f"{first}.avro"
        path.write_bytes(encode(first, None, first, lines[first : first + 3]))
        found += its.lists([snapshot(path)])
        assert len(its._lines) <= 10
    assert all(before[1] is after[0] for before, after in pairwise(found))
