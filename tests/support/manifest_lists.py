"""Manifest lists by pyiceberg."""

from pathlib import Path
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestFile, PartitionFieldSummary, write_manifest_list

from bookkeeper.catalogs.file_io import DiskFirst
from bookkeeper.format.manifest_list import ListedManifest

COUNTS = [f"{status}_{what}_count" for status in ("added", "existing", "deleted") for what in ("files", "rows")]


def listed(count: int, path: str = "file:///{}.avro", **more: Any) -> list[ManifestFile]:
    """Manifests as pyiceberg knows them."""
    return [
        ManifestFile.from_args(
            manifest_path=path.format(number),
            manifest_length=10 + number,
            partition_spec_id=number % 3,
            **{
                "content": ManifestContent.DATA,
                "sequence_number": 3 + number,
                "min_sequence_number": 2,
                "added_snapshot_id": 7 + number,
                "partitions": [PartitionFieldSummary(True, None, b"a", None)],
                "key_metadata": None,
                **dict.fromkeys(COUNTS, number),
                **more,
            },
        )
        for number in range(count)
    ]


def listed_manifest(path: str = "file:///m.avro", **more: Any) -> ListedManifest:
    """A manifest as a list names it: of data, without files, unless it is said otherwise."""
    values: dict[str, Any] = {
        "manifest_length": 10,
        "partition_spec_id": 0,
        "content": ManifestContent.DATA,
        "sequence_number": 1,
        "min_sequence_number": 1,
        "added_snapshot_id": 7,
        **dict.fromkeys(COUNTS, 0),
        **more,
    }
    return ListedManifest(path, **values)


def write(path: Path, manifests: list[ManifestFile], version: Any = 2, codec: Any = "deflate") -> None:
    """A list as pyiceberg writes it."""
    with write_manifest_list(version, DiskFirst().new_output(str(path)), 1, None, 1, codec) as writer:
        writer.add_manifests(manifests)
