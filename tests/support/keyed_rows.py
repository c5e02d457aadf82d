"""What readers of a keyed table see, by the rule of the Iceberg spec alone: manifests, Parquet and sequence numbers."""

from collections import Counter
from functools import lru_cache
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestEntryStatus

from tests.support.lake import Lake

Rows = list[dict[str, Any]]


@lru_cache(maxsize=4096)
def _rows(path: str) -> Rows:
    return pq.read_table(path.removeprefix("file://")).to_pylist()


def entries(lake: Lake) -> list[ManifestEntry]:
    """The live entries of the head, with what they inherit."""
    table = lake.table()
    head = table.metadata.current_snapshot()
    manifests = head.manifests(table.io) if head else []
    return [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)]


def rows(lake: Lake, *key: str) -> Rows:
    """
    The live rows: those that no equality delete with a larger number and no position delete with one as large removes.

    Equality deletes are by the columns of `key`, usually `id`, and apply wherever the row lies; each position delete
    names its data file.
    """
    names = key or ("id",)
    data, removed, places = list[ManifestEntry](), dict[tuple[Any, ...], int](), set[tuple[str, int]]()
    for entry in entries(lake):
        file, number = entry.data_file, entry.sequence_number or 0
        if file.content == DataFileContent.DATA:
            data.append(entry)
            continue
        for row in _rows(file.file_path):
            if file.content == DataFileContent.EQUALITY_DELETES:
                of = tuple(row[name] for name in names)
                removed[of] = max(number, removed.get(of, 0))
            else:
                places.add((row["file_path"], row["pos"]))
    return [
        row
        for entry in data
        for place, row in enumerate(_rows(entry.data_file.file_path))
        if removed.get(tuple(row[name] for name in names), 0) <= (entry.sequence_number or 0)
        and (entry.data_file.file_path, place) not in places
    ]


def state(lake: Lake) -> dict[int, str | None]:
    """
    The value of each key; fails when a key has two live rows.
    """
    live = rows(lake)
    twice = [key for key, times in Counter(row["id"] for row in live).items() if times > 1]
    assert not twice, f"live twice: {twice}"
    return {row["id"]: row["value"] for row in live}


def streamed(lake: Lake) -> Rows:
    """
    The rows of each append, in the order of the commits: what a stream sees that passes over deletes.
    """
    table, found = lake.table(), Rows()
    for snapshot in table.metadata.snapshots:
        if snapshot.summary.operation.value == "append":
            own = [item for item in snapshot.manifests(table.io) if item.added_snapshot_id == snapshot.snapshot_id]
            for entry in [entry for item in own for entry in item.fetch_manifest_entry(table.io)]:
                assert entry.status == ManifestEntryStatus.ADDED
                found += _rows(entry.data_file.file_path)
    return found
