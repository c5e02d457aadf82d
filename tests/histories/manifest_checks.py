"""
What must hold of manifests and manifest lists: header, counts, sequence numbers, partition summaries.
"""

import json
import math
import struct
from collections.abc import Iterator
from typing import Any

from tests.histories.decoded import ADDED, DELETED, EXISTING, Manifest, Snapshot, local
from tests.histories.invariants import State, ours, rows_in

COUNTS = {ADDED: "added", EXISTING: "existing", DELETED: "deleted"}
_PACKED = {"int": "<i", "long": "<q", "float": "<f", "double": "<d"}


def lines_are_carried_on_as_they_were(state: State) -> Iterator[str]:
    """A manifest that is listed again is listed with the same line; any other is this snapshot's own."""
    for snapshot in filter(ours, state.new):
        parent = state.snapshots.get(snapshot.said.get("parent-snapshot-id") or -1)
        before = {manifest.path: manifest.line for manifest in parent.manifests} if parent else {}
        for manifest in snapshot.manifests:
            if manifest.line["added_snapshot_id"] != snapshot.id and before.get(manifest.path) != manifest.line:
                yield f"{manifest.path}: {manifest.line}, before {before.get(manifest.path)}"


def lists_describe_their_manifests(state: State) -> Iterator[str]:
    """Length, spec, counts, sequence numbers and partition summaries of each manifest that is new."""
    for snapshot in state.new:
        for manifest in snapshot.data:
            if manifest.line["added_snapshot_id"] == snapshot.id:
                yield from (f"{manifest.path}: {found}" for found in _line(manifest, snapshot))


def _line(manifest: Manifest, snapshot: Snapshot) -> Iterator[str]:
    line, live = manifest.line, manifest.live()
    expected = {
        "manifest_length": local(manifest.path).stat().st_size,
        "partition_spec_id": int(manifest.meta["partition-spec-id"]),
        "sequence_number": snapshot.said["sequence-number"],
        "min_sequence_number": min((entry.sequence for entry in live), default=line["min_sequence_number"]),
    }
    for status, name in COUNTS.items():
        of = [entry for entry in manifest.entries if entry.status == status]
        expected |= {f"{name}_files_count": len(of), f"{name}_rows_count": rows_in(of)}
    yield from (f"{key} is {line[key]}, not {value}" for key, value in expected.items() if line[key] != value)
    for index, kind in enumerate(manifest.partition_fields):
        values = [entry.partition[index] for entry in manifest.entries]
        said = line["partitions"][index]
        found = (said["contains_null"], bool(said["contains_nan"]), said["lower_bound"], said["upper_bound"])
        if found != summarised(values, kind["type"]):
            yield f"partition field {kind['name']}: {found}, not {summarised(values, kind['type'])}"


def summarised(values: list[Any], kind: Any) -> tuple[bool, bool, bytes | None, bytes | None]:
    """(contains null, contains NaN, lower, upper) of partition values, bounds as in the spec's Appendix D."""
    inner = kind[1] if isinstance(kind, list) else kind
    numbers = [item for item in values if item is not None]
    sound = [item for item in numbers if not (isinstance(item, float) and math.isnan(item))]
    bounds = [serialized(found, inner) for found in (min(sound), max(sound))] if sound else [None, None]
    return (len(numbers) < len(values), len(sound) < len(numbers), bounds[0], bounds[1])


def serialized(item: Any, kind: Any) -> bytes:
    """A single value in the form of the spec's Appendix D; decimals in the fewest bytes."""
    name = kind["type"] if isinstance(kind, dict) else kind
    if name in _PACKED:
        return struct.pack(_PACKED[name], item)
    if name == "fixed":
        unscaled = int(item.scaleb(kind["scale"]))
        return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
    return str(item).encode()


def manifests_stand_under_their_own_spec(state: State) -> Iterator[str]:
    """Header, Avro schema and table agree on content, schema and partition spec."""
    specs = {spec["spec-id"]: spec["fields"] for spec in state.metadata["partition-specs"]}
    schemas = {schema["schema-id"]: schema for schema in state.metadata["schemas"]}
    for snapshot in filter(ours, state.new):
        for manifest in snapshot.data:
            meta, fields = manifest.meta, specs[manifest.line["partition_spec_id"]]
            if (meta["content"], meta["format-version"]) != ("data", "2"):
                yield f"{manifest.path}: content {meta['content']}, version {meta['format-version']}"
            if _specified(json.loads(meta["partition-spec"])) != _specified(fields):
                yield f"{manifest.path}: partition-spec {meta['partition-spec']}"
            if [field["field-id"] for field in fields] != [field["field-id"] for field in manifest.partition_fields]:
                yield f"{manifest.path}: its tuples are not those of its spec"
            schema = json.loads(meta["schema"])
            if _typed(schema) != _typed(schemas.get(schema.get("schema-id", -1), schema)):
                yield f"{manifest.path}: schema {meta['schema']}"


def _specified(fields: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(field["field-id"], field["source-id"], field["transform"]) for field in fields]


def _typed(schema: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(field["id"], field["name"], field["type"]) for field in schema["fields"]]
