"""Lines of a manifest list: what is carried on for manifests of others is what they said."""

import io
from typing import Any

import pytest
from fastavro import schemaless_reader
from pyiceberg.manifest import ManifestContent, ManifestFile, PartitionFieldSummary

from bookkeeper.format.manifest_list import SCHEMA, encode_line

COUNTS = [f"{status}_{what}_count" for status in ("added", "existing", "deleted") for what in ("files", "rows")]


def line(partitions: Any) -> dict[str, Any]:
    manifest = ManifestFile.from_args(
        manifest_path="file:///m.avro",
        manifest_length=10,
        partition_spec_id=1,
        content=ManifestContent.DATA,
        sequence_number=3,
        min_sequence_number=2,
        added_snapshot_id=7,
        partitions=partitions,
        key_metadata=None,
        **dict.fromkeys(COUNTS, 1),
    )
    found: Any = schemaless_reader(io.BytesIO(encode_line(manifest)), SCHEMA, None)
    return dict(found)


def test_a_manifest_without_partition_summaries_is_not_given_an_empty_list_of_them() -> None:
    assert line(None)["partitions"] is None
    assert line([])["partitions"] == []


@pytest.mark.parametrize("nan", [None, True, False])
def test_summaries_are_carried_on_with_what_is_not_known_of_them(nan: bool | None) -> None:
    (found,) = line([PartitionFieldSummary(True, nan, b"a", None)])["partitions"]
    assert found == {"contains_null": True, "contains_nan": nan, "lower_bound": b"a", "upper_bound": None}
