"""Manifest lists that are read from the table's store: by our decoder, and those that it does not take by pyiceberg."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io import InputFile
from pyiceberg.manifest import (
    PartitionFieldSummary,
    read_manifest_list,
)
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.catalogs.file_io import DiskFirst
from bookkeeper.ledger import contents
from bookkeeper.stores.local import LocalStore
from tests.support.manifest_lists import listed, write


@pytest.mark.parametrize(
    ("version", "codec", "by_pyiceberg"), [(2, "deflate", 0), (2, "null", 0), (1, "deflate", 1), (2, "zstandard", 1)]
)
def test_a_list_in_any_form_gives_the_manifests_that_pyiceberg_reads(
    version: Any, codec: str, by_pyiceberg: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()
    read = read_manifest_list

    def counted(file: InputFile) -> Any:
        asked.append(file.location)
        return read(file)

    monkeypatch.setattr(contents, "read_manifest_list", counted)
    path = tmp_path / "list.avro"
    write(path, listed(2, partitions=[PartitionFieldSummary(False, None, b"a", b"b")]), version, codec)
    snapshot = Snapshot(snapshot_id=1, timestamp_ms=1, manifest_list=f"file://{path}")
    store: Any = LocalStore(str(tmp_path))
    found = contents.read_list(store, None, snapshot)  # type: ignore[arg-type]
    assert [item._data for item in found] == [item._data for item in read(DiskFirst().new_input(str(path)))]
    assert len(found) == 2
    assert asked == [f"file://{path}"] * by_pyiceberg
