"""
Tables with a long history, made quickly: the snapshots of a real commit, copied under ids and times of their own.

Only the metadata is as large as after so many commits: what a commit costs depends on that and on the head, which
is real. The older snapshots cannot be read.
"""

import json
import shutil
import sqlite3
import uuid
from pathlib import Path
from typing import Any

from benchmarks.support.synthetic import Queue

_EVERY_MS = 5_000


def lengthen(queue: Queue, snapshots: int) -> None:
    """
    Gives the table of `queue` a history of so many snapshots: before those it has, one every 5 s.
    """
    with sqlite3.connect(queue.root / "cat.db") as catalog:
        (location,) = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
        made = f"{location.rpartition('/')[0]}/{99999:05d}-{uuid.uuid4()}.metadata.json"
        data = json.loads(_path(location).read_text())
        _path(made).write_text(json.dumps(_lengthened(data, snapshots)))
        catalog.execute("UPDATE iceberg_tables SET metadata_location = ?", (made,))
    catalog.close()


def _lengthened(data: dict[str, Any], snapshots: int) -> dict[str, Any]:
    real = sorted(data["snapshots"], key=lambda item: item["timestamp-ms"])
    model = next(item for item in reversed(real) if item["summary"]["operation"] == "append")
    count, first = snapshots - len(real), 10**15 + 10**6 * len(real)
    older = [
        {
            **model,
            "snapshot-id": first + number,
            "parent-snapshot-id": first + number - 1,
            "timestamp-ms": real[0]["timestamp-ms"] - _EVERY_MS * (count - number),
            "sequence-number": 0,
        }
        for number in range(count)
    ]
    older[0].pop("parent-snapshot-id")
    real[0]["parent-snapshot-id"] = older[-1]["snapshot-id"]
    chain = [*older, *real]
    log = [{"snapshot-id": item["snapshot-id"], "timestamp-ms": item["timestamp-ms"]} for item in chain]
    return {**data, "snapshots": chain, "snapshot-log": log, "metadata-log": []}


def share_with_hadoop(queue: Queue, other: Path) -> None:
    """
    Lets the peer's HadoopTables table below `other` have the same metadata, as its next version.
    """
    with sqlite3.connect(queue.root / "cat.db") as catalog:
        (location,) = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
    catalog.close()
    folder = other / "wh" / "ns" / "t" / "metadata"
    data = json.loads(_path(location).read_text())
    data |= {"location": f"file://{folder.parent}", "properties": {"format-version": "2"}}
    shutil.copytree(_path(location).parent, folder, dirs_exist_ok=True)
    (folder / "v2.metadata.json").write_text(json.dumps(data))
    (folder / "version-hint.text").write_text("2")


def _path(location: str) -> Path:
    return Path(location.removeprefix("file://"))
