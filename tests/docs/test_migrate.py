"""The copy of docs/migrate-from-kafka.md: killed at any poll and started again, each record becomes a row once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.docs.blocks import blocks
from tests.packaging.project import ROOT
from tests.support.writer_queue import Queue

(COPY,) = [block.text for block in blocks(ROOT / "docs" / "migrate-from-kafka.md") if block.kind == "python"]


@dataclass(frozen=True)
class Record:
    offset: int


class Killed(BaseException):
    """The process is gone."""


class Topic:
    """One partition with holes in its offsets, as transactions and compaction leave them; dies at one of its polls."""

    def __init__(self, offsets: Sequence[int], dies_at: int) -> None:
        self.offsets, self.polls, self.dies_at = offsets, 0, dies_at

    def poll(self, offset: int, most: int) -> list[Record]:
        self.polls += 1
        if self.polls == self.dies_at:
            raise Killed
        return [Record(found) for found in self.offsets if found >= offset][:3]


def rows_of(queue: Queue, records: Sequence[Record]) -> pa.Table:
    return pa.table(
        {
            "timestamp": pa.array([queue.clock()] * len(records), pa.timestamp("us", "UTC")),
            "key": [f"{record.offset:04}" for record in records],
            "value": [b"v"] * len(records),
        }
    )


def run(queue: Queue, topic: Topic) -> None:
    known: dict[str, Any] = {}
    exec(COPY, known)
    folder = queue.made.folder
    known["copy"](folder, "orders-0", topic, lambda records: rows_of(queue, records), lambda: topic.polls > 12)


@pytest.mark.parametrize("dies_at", [1, 2, 3, 5, 8])
def test_a_copy_that_is_killed_and_started_again_brings_each_record_once(tmp_path: Path, dies_at: int) -> None:
    queue, offsets = Queue(tmp_path), [number for number in range(30) if number % 7]
    with pytest.raises(Killed):
        run(queue, Topic(offsets, dies_at))
    queue.tick()

    run(queue, Topic(offsets, dies_at=-1))
    queue.tick()

    keys = sorted(queue.table().scan(selected_fields=("key",)).to_arrow()["key"].to_pylist())
    assert keys == [f"{offset:04}" for offset in offsets]
