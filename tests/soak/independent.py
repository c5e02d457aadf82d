"""
A reader of a table that shares no code with the project: what snapshots stand on, by json and fastavro alone.
"""

import json
import os
import re
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro


@dataclass
class Independent:
    """Looks at a table on local disk through its SQLite catalog; immutable files are read once."""

    database: Path
    table: str
    _lists: dict[str, list[str]] = field(default_factory=dict)
    _entries: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    def metadata_location(self) -> str:
        """Where the catalog points."""
        with sqlite3.connect(self.database) as connection:
            query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
            return str(connection.execute(query, (self.table,)).fetchone()[0])

    def metadata(self) -> Any:
        """The current metadata.json."""
        return json.loads(_path(self.metadata_location()).read_bytes())

    def disk(self) -> dict[str, int]:
        """Every file of the table but its txlog folder's: location -> bytes."""
        root = _path(self.metadata()["location"])
        found = {}
        for folder, names, files in os.walk(root):
            names[:] = [name for name in names if not name.startswith("_")]
            found |= {f"file://{folder}/{name}": os.path.getsize(f"{folder}/{name}") for name in files}
        return found

    def reachable(self) -> set[str]:
        """The current metadata, and what every snapshot in it stands on."""
        data = self.metadata()
        found = {self.metadata_location()}
        for snapshot in data.get("snapshots", []):
            listed = self.manifests(snapshot["manifest-list"])
            found |= {snapshot["manifest-list"], *listed}
            for manifest in listed:
                found |= {path for status, path in self.entries(manifest) if status != 2}
        return {location if "://" in location else f"file://{location}" for location in found}

    def logged(self) -> set[str]:
        """Older metadata files that the current one names: they go by age."""
        return {item["metadata-file"] for item in self.metadata().get("metadata-log", [])}

    def live(self) -> list[str]:
        """The live data files of the current snapshot."""
        data = self.metadata()
        head = next(item for item in data["snapshots"] if item["snapshot-id"] == data["current-snapshot-id"])
        manifests = self.manifests(head["manifest-list"])
        return [path for manifest in manifests for status, path in self.entries(manifest) if status != 2]

    def own(self, location: str, snapshot: int) -> list[str]:
        """The manifests in a list that this snapshot added."""
        with _path(location).open("rb") as file:
            records: Any = fastavro.reader(file)
            return [item["manifest_path"] for item in records if item["added_snapshot_id"] == snapshot]

    def manifests(self, location: str) -> list[str]:
        """The manifests in a list."""
        if location not in self._lists:
            with _path(location).open("rb") as file:
                records: Any = fastavro.reader(file)
                self._lists[location] = [item["manifest_path"] for item in records]
        return self._lists[location]

    def added(self, manifest: str, snapshot: int) -> list[str]:
        """Data files that this snapshot added, if the manifest is its own."""
        with _path(manifest).open("rb") as file:
            records: Any = fastavro.reader(file)
            return [
                item["data_file"]["file_path"]
                for item in records
                if item["status"] == 1 and item["snapshot_id"] in (snapshot, None)
            ]

    def entries(self, manifest: str) -> list[tuple[int, str]]:
        """Status and location of every entry."""
        if manifest not in self._entries:
            with _path(manifest).open("rb") as file:
                records: Any = fastavro.reader(file)
                self._entries[manifest] = [(item["status"], item["data_file"]["file_path"]) for item in records]
        return self._entries[manifest]


def _path(location: str) -> Path:
    # Spark on this machine's disk writes file:/x.
    return Path(re.sub("^file:/*", "/", location))
