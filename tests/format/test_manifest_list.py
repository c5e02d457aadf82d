"""
Lines of a manifest list: what is carried on for manifests of others is what they said, and what is read is what
pyiceberg reads.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fastavro import schemaless_reader
from pyiceberg.manifest import (
    ManifestContent,
    ManifestFile,
    PartitionFieldSummary,
    read_manifest_list,
)

from bookkeeper.catalogs.file_io import DiskFirst
from bookkeeper.errors import TxlogCorrupt, TxlogTooLarge
from bookkeeper.format import avro
from bookkeeper.format.avro import Block
from bookkeeper.format.manifest_list import SCHEMA, KnownLines, ListedManifest, decode, encode, encode_line
from tests.support.manifest_lists import COUNTS, listed, write


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


def facts(manifest: Any) -> list[object]:
    """Every field, whoever read it."""
    named = {name: getattr(manifest, name) for name in ListedManifest._fields}
    if named["partitions"] is not None:
        named["partitions"] = [
            (item.contains_null, item.contains_nan, item.lower_bound, item.upper_bound) for item in named["partitions"]
        ]
    return [*named.values()]


def ours(manifests: list[ManifestFile]) -> bytes:
    return encode(1, None, 1, [encode_line(item) for item in manifests])  # type: ignore[arg-type]


def theirs(manifests: list[ManifestFile]) -> bytes:
    """As pyiceberg writes it."""
    with TemporaryDirectory() as folder:
        write(path := Path(folder) / "list.avro", manifests)
        return path.read_bytes()


@pytest.mark.parametrize("written", [ours, theirs])
@pytest.mark.parametrize("count", [1, 300])
def test_a_list_says_the_same_as_pyiceberg_reads(written: Callable[[list[ManifestFile]], bytes], count: int) -> None:
    manifests = listed(count)
    assert [*map(facts, decode(written(manifests), 2**20, {}))] == [*map(facts, manifests)]


SUMMARIES: dict[str, Any] = {
    "no summaries": None,
    "an empty list of them": [],
    "bounds": [PartitionFieldSummary(True, None, b"a", None), PartitionFieldSummary(False, True, b"", b"\xff")],
}


@pytest.mark.parametrize("written", [ours, theirs])
@pytest.mark.parametrize("summaries", SUMMARIES)
def test_each_manifest_is_in_every_field_as_pyiceberg_reads_it(
    written: Callable[[list[ManifestFile]], bytes], summaries: str, tmp_path: Path
) -> None:
    manifests = listed(3, partitions=SUMMARIES[summaries], key_metadata=b"k")
    manifests += listed(2, path="file:///d{}.avro", content=ManifestContent.DELETES, partitions=SUMMARIES[summaries])
    data = written(manifests)
    (tmp_path / "list.avro").write_bytes(data)
    expected = list(read_manifest_list(DiskFirst().new_input(str(tmp_path / "list.avro"))))
    found = decode(data, 2**20, {})
    assert [*map(facts, found)] == [*map(facts, expected)]
    assert [type(item.content) for item in found] == [ManifestContent] * 5


def test_an_empty_list_of_ours_has_no_line_and_pyicebergs_is_left_to_pyiceberg() -> None:
    assert decode(ours([]), 2**20, {}) == []
    with pytest.raises(TxlogCorrupt, match="a block of 0 records"):
        decode(theirs([]), 2**20, {})


def test_lines_that_were_met_before_are_the_same_objects_and_a_changed_one_is_decoded() -> None:
    known: KnownLines = {}
    before = decode(ours(listed(3)), 2**20, known)
    after = decode(ours([*listed(2), *listed(3, added_files_count=9)]), 2**20, known)
    assert after[0] is before[0] and after[1] is before[1]
    assert [line.added_files_count for line in after] == [0, 1, 9, 9, 9]


def test_a_line_of_the_same_bytes_is_another_line_under_another_schema() -> None:
    known: KnownLines = {}
    data = ours(listed(3, existing_files_count=5))
    assert [line.added_files_count for line in decode(data, 2**20, known)] == [0, 1, 2]
    assert [line.added_files_count for line in decode(renamed(data, 504, 505, 505, 504), 2**20, known)] == [5, 5, 5]
    assert [line.added_files_count for line in decode(data, 2**20, known)] == [0, 1, 2]


def renamed(data: bytes, *numbers: int) -> bytes:
    """The list with field ids exchanged, first for second, third for fourth."""
    meta, blocks = avro.decode(data, 2**20)
    schema = json.loads(meta["avro.schema"])
    changes = dict(zip(numbers[::2], numbers[1::2], strict=True))
    for item in schema["fields"]:
        item["field-id"] = changes.get(item["field-id"], item["field-id"])
    return avro.encode({**meta, "avro.schema": json.dumps(schema).encode()}, blocks)


def with_schema(change: Callable[[list[Any]], object]) -> bytes:
    meta, blocks = avro.decode(ours(listed(2)), 2**20)
    schema = json.loads(meta["avro.schema"])
    change(schema["fields"])
    return avro.encode({**meta, "avro.schema": json.dumps(schema).encode()}, blocks)


def with_block(change: Callable[[Block], Block]) -> bytes:
    meta, blocks = avro.decode(ours(listed(2)), 2**20)
    return avro.encode(meta, [change(Block(block.count, block.payload)) for block in blocks])


FIELDS = [item["name"] for item in SCHEMA["fields"]]
HOSTILE = {
    "no Avro file": lambda: b"{}",
    "cut short": lambda: ours(listed(2))[:-20],
    "no schema": lambda: avro.encode({}, []),
    "a schema that is no record": lambda: avro.encode({"avro.schema": b'"long"'}, []),
    "a large schema": lambda: avro.encode({"avro.schema": b" " * 2**17 + b"{}"}, []),
    "a field that is not known": lambda: with_schema(lambda fields: fields[3].update({"field-id": 777})),
    "a field without an id": lambda: with_schema(lambda fields: fields[3].pop("field-id")),
    "a field twice": lambda: with_schema(lambda fields: fields.append(fields[1])),
    "no path": lambda: with_schema(lambda fields: fields.pop(0)),
    "the path not first": lambda: with_schema(lambda fields: fields.insert(1, fields.pop(0))),
    "a path of bytes": lambda: with_schema(lambda fields: fields[0].update({"type": "bytes"})),
    "partitions without fields": lambda: with_schema(
        lambda fields: fields[FIELDS.index("partitions")]["type"][1]["items"].update({"fields": []})
    ),
    "partitions of another type": lambda: with_schema(
        lambda fields: fields[FIELDS.index("partitions")]["type"][1]["items"]["fields"][0].update({"type": "null"})
    ),
    "bounds that are no bytes": lambda: with_schema(
        lambda fields: fields[FIELDS.index("partitions")]["type"][1]["items"]["fields"][2].update({"type": "boolean"})
    ),
    "a bound twice": lambda: with_schema(
        lambda fields: fields[FIELDS.index("partitions")]["type"][1]["items"]["fields"][2].update({"field-id": 511})
    ),
    "more lines than bytes": lambda: with_block(lambda block: Block(10**9, block.payload)),
    "one line more": lambda: with_block(lambda block: Block(block.count + 1, block.payload)),
    "one line less": lambda: with_block(lambda block: Block(block.count - 1, block.payload)),
    "bytes behind": lambda: with_block(lambda block: Block(block.count, block.payload + b"\\0")),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_list_is_refused(what: str) -> None:
    with pytest.raises(TxlogCorrupt):
        decode(HOSTILE[what](), 2**20, {})


LEFT_TO_PYICEBERG = {
    "no content": lambda: with_schema(lambda fields: fields.pop(FIELDS.index("content"))),
    "a content that is not known": lambda: with_content(7),
    "bounds without ids": lambda: with_schema(
        lambda fields: fields[FIELDS.index("partitions")]["type"][1]["items"]["fields"][2].pop("field-id")
    ),
}


def with_content(content: int) -> bytes:
    first, second = map(encode_line, listed(2))  # type: ignore[arg-type]
    at = len("file:///0.avro") + 3  # behind the path, its length, the manifest's length and its spec
    return encode(1, None, 1, [first[:at] + bytes([content << 1]) + first[at + 1 :], second])


@pytest.mark.parametrize("what", LEFT_TO_PYICEBERG)
def test_a_list_without_all_of_format_v2_is_left_to_pyiceberg(what: str) -> None:
    with pytest.raises(TxlogCorrupt):
        decode(LEFT_TO_PYICEBERG[what](), 2**20, {})


def test_a_list_that_is_too_large_is_refused() -> None:
    with pytest.raises(TxlogTooLarge):
        decode(ours(listed(300)), 1000, {})
