"""
What a metadata.json says (Iceberg spec, "Table Metadata"), read by code of the oracle's own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from pydantic_core import from_json

MAIN = "main"
MARKS = "bookkeeper.marks"


class Snapshot(NamedTuple):
    """One snapshot; `said` is its summary without the operation."""

    id: int
    parent: int | None
    number: int
    at_ms: int
    manifest_list: str
    operation: str
    said: Mapping[str, str]
    schema_id: int

    @property
    def ours(self) -> bool:
        """Whether a bookkeeper made it."""
        return any(key.startswith("bookkeeper.") for key in self.said)

    @property
    def about(self) -> str:
        """For messages."""
        return f"snapshot {self.number} ({self.operation})"


@dataclass(frozen=True)
class TableState:
    """One metadata.json."""

    raw: Mapping[str, Any]
    snapshots: Mapping[int, Snapshot] = field(default_factory=dict)

    @property
    def uuid(self) -> str:
        return str(self.raw["table-uuid"])

    @property
    def location(self) -> str:
        return str(self.raw["location"])

    @property
    def last_number(self) -> int:
        return int(self.raw["last-sequence-number"])

    @property
    def updated_ms(self) -> int:
        return int(self.raw["last-updated-ms"])

    @property
    def properties(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.raw["properties"]
        return found

    @cached_property
    def refs(self) -> Mapping[str, int]:
        """The snapshot that each ref names."""
        return {name: ref["snapshot-id"] for name, ref in self.raw["refs"].items()}

    @property
    def head(self) -> Snapshot | None:
        """What main names."""
        number = self.raw.get("current-snapshot-id")
        return None if number is None else self.snapshots[number]

    @property
    def logged(self) -> list[tuple[str, int]]:
        """The metadata files before this one, oldest first, and when each was written."""
        return [(item["metadata-file"], item["timestamp-ms"]) for item in self.raw.get("metadata-log", ())]

    @property
    def schema(self) -> Mapping[str, Any]:
        """The current schema."""
        return _of(self.raw["schemas"], "schema-id", self.raw["current-schema-id"])

    @property
    def spec(self) -> Mapping[str, Any]:
        """The default partition spec."""
        return self.spec_of(self.raw["default-spec-id"])

    def spec_of(self, number: int) -> Mapping[str, Any]:
        """The partition spec of this id."""
        return _of(self.raw["partition-specs"], "spec-id", number)

    def main(self) -> Iterator[Snapshot]:
        """The head and its ancestors, as far as they are kept, newest first."""
        at = self.head
        while at is not None:
            yield at
            at = self.snapshots.get(at.parent or 0)


def _of(items: Any, key: str, number: int) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(item for item in items if item[key] == number)
    return found


def read(data: bytes, before: TableState | None = None) -> TableState:
    """What the bytes of a metadata.json say; snapshots that are as in `before` are taken from there."""
    raw = from_json(data)
    known = before.snapshots if before is not None else {}
    snapshots = {}
    for item in raw["snapshots"]:
        found = known.get(item["snapshot-id"])
        parent = item.get("parent-snapshot-id")
        snapshots[item["snapshot-id"]] = found if found is not None and found.parent == parent else _snapshot(item)
    return TableState(raw, snapshots)


def _snapshot(raw: Mapping[str, Any]) -> Snapshot:
    said = dict(raw["summary"])
    return Snapshot(
        raw["snapshot-id"],
        raw.get("parent-snapshot-id"),
        raw["sequence-number"],
        raw["timestamp-ms"],
        raw["manifest-list"],
        said.pop("operation"),
        said,
        raw["schema-id"],
    )
