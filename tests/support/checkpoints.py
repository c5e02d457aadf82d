"""
A checkpoint as Spark writes it, batch by batch, without Spark.
"""

import json
from pathlib import Path

CONF = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})
BEGINNING = -1


def offset(snapshot: int, position: int = 0, whole: bool = False) -> str:
    """One source's offset in Iceberg's JSON."""
    data = {"version": 1, "snapshot_id": snapshot, "position": position, "scan_all_files": whole}
    return json.dumps(data, separators=(",", ":"))


class Query:
    """The checkpoint of one query with one or several sources."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.batch = -1

    @property
    def url(self) -> str:
        return f"file://{self.root}"

    def write(self, key: str, text: str) -> None:
        """A file and its checksum file, as Hadoop's local filesystem leaves them."""
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.with_name(f".{path.name}.crc").write_bytes(b"crc\0")

    def begin(self, *offsets: str) -> "Query":
        """Where each source begins."""
        for index, text in enumerate(offsets):
            self.write(f"sources/{index}/offsets/0", text)
        return self

    def plan(self, *offsets: str, version: str = "v1") -> "Query":
        """The next batch, planned and not done."""
        self.batch += 1
        self.write(f"offsets/{self.batch}", "\n".join([version, CONF, *offsets]))
        return self

    def commit(self) -> "Query":
        """The planned batch is done."""
        self.write(f"commits/{self.batch}", 'v1\n{"nextBatchWatermarkMs":0}')
        return self

    def done(self, *offsets: str) -> "Query":
        """The next batch, planned and done."""
        return self.plan(*offsets).commit()
