"""
An Iceberg table decoded by json and fastavro alone; shares no code with the product or pyiceberg.

Spec field names and inheritance as in "Manifests", "Manifest Lists" and "Sequence Number Inheritance".
"""

import json
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

import fastavro

EXISTING, ADDED, DELETED = 0, 1, 2
_EPOCH = date(1970, 1, 1)


def local(location: str) -> Path:
    """The file at a location of this machine."""
    return Path(location.removeprefix("file://").removeprefix("file:"))


@dataclass(frozen=True)
class Entry:
    """A manifest entry with what it inherits; `file` is its data_file record."""

    status: int
    snapshot_id: int
    sequence: int
    file_sequence: int
    file: dict[str, Any] = field(repr=False)

    @property
    def path(self) -> str:
        return str(self.file["file_path"])

    @property
    def partition(self) -> tuple[Any, ...]:
        return tuple(plain(item) for item in self.file["partition"].values())

    @property
    def ids(self) -> tuple[int, int, int]:
        return (self.snapshot_id, self.sequence, self.file_sequence)


@dataclass(frozen=True)
class Manifest:
    """A manifest's line in the list, header, Avro schema and entries."""

    line: dict[str, Any] = field(repr=False)
    meta: dict[str, str] = field(repr=False)
    schema: dict[str, Any] = field(repr=False)
    entries: list[Entry] = field(repr=False)

    @property
    def path(self) -> str:
        return str(self.line["manifest_path"])

    @property
    def partition_fields(self) -> list[dict[str, Any]]:
        """The Avro fields of the partition tuple."""
        data_file = next(item for item in self.schema["fields"] if item["name"] == "data_file")["type"]
        found = next(item for item in data_file["fields"] if item["name"] == "partition")["type"]
        return list(found["fields"])

    def live(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.status != DELETED]


@dataclass(frozen=True)
class Snapshot:
    """A snapshot: what the metadata says of it, its list's header, its manifests."""

    said: dict[str, Any] = field(repr=False)
    meta: dict[str, str] = field(repr=False)
    manifests: list[Manifest] = field(repr=False)

    @property
    def id(self) -> int:
        return int(self.said["snapshot-id"])

    @property
    def summary(self) -> dict[str, str]:
        return dict(self.said["summary"])

    @property
    def data(self) -> list[Manifest]:
        return [manifest for manifest in self.manifests if manifest.line["content"] == 0]

    @property
    def deletes(self) -> list[Manifest]:
        return [manifest for manifest in self.manifests if manifest.line["content"] == 1]

    def live(self) -> list[Entry]:
        """Every live data file's entry."""
        return [entry for manifest in self.data for entry in manifest.live()]

    def of(self, status: int) -> list[Entry]:
        """Entries with which this snapshot itself added or deleted data files."""
        own = (entry for manifest in self.data for entry in manifest.entries)
        return [entry for entry in own if entry.status == status and entry.snapshot_id == self.id]


class Decoder:
    """Decodes tables; remembers manifests by their line, as both never change."""

    def __init__(self) -> None:
        self._manifests: dict[str, tuple[dict[str, Any], Manifest]] = {}
        self._snapshots: dict[int, Snapshot] = {}

    def metadata(self, location: str) -> dict[str, Any]:
        """The table's metadata.json."""
        return dict(json.loads(local(location).read_text()))

    def snapshot(self, said: dict[str, Any]) -> Snapshot:
        """One snapshot of it, decoded."""
        found = self._snapshots.get(said["snapshot-id"])
        if found is None or found.said != said:
            with local(said["manifest-list"]).open("rb") as file:
                reader = fastavro.reader(file)
                lines = list(reader)
            found = Snapshot(said, dict(reader.metadata), [self._manifest(line) for line in lines])
            self._snapshots[said["snapshot-id"]] = found
        return found

    def _manifest(self, line: dict[str, Any]) -> Manifest:
        known = self._manifests.get(line["manifest_path"])
        if known is None or known[0] != line:
            with local(line["manifest_path"]).open("rb") as file:
                reader = fastavro.reader(file)
                entries = [_inherited(raw, line) for raw in reader]
            known = (line, Manifest(line, dict(reader.metadata), json.loads(reader.metadata["avro.schema"]), entries))
            self._manifests[line["manifest_path"]] = known
        return known[1]


def _inherited(raw: dict[str, Any], line: dict[str, Any]) -> Entry:
    ids = (raw["snapshot_id"], raw["sequence_number"], raw.get("file_sequence_number"))
    given = (line["added_snapshot_id"], line["sequence_number"], line["sequence_number"])
    filled = (own if own is not None else inherited for own, inherited in zip(ids, given, strict=True))
    return Entry(raw["status"], *filled, raw["data_file"])


def plain(item: Any) -> Any:
    """A partition value as the model has it: days are numbers."""
    return (item - _EPOCH).days if isinstance(item, date) and not isinstance(item, datetime) else item


def pairs(found: list[dict[str, Any]] | None) -> dict[int, Any]:
    """A map of statistics, which Avro holds as a list of pairs."""
    return {item["key"]: item["value"] for item in found or ()}
