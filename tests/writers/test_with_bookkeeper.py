"""What writers publish, committed by the real bookkeeper and read by another library."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, IsNull, LessThan
from pyiceberg.schema import Schema
from pyiceberg.types import LongType

from tests.support import wide
from tests.support.desk import rows
from tests.support.writer_queue import Queue
from writers.generate import Load, publish_file

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def content(count: int) -> list[dict[str, Any]]:
    """Rows in which every column differs from row to row, with a null in every seventh."""
    made = []
    for number in range(count):
        row: dict[str, Any] = {
            "truth": bool(number % 2),
            "small": number - 5,
            "large": -number * 10**12,
            "single": number / 4,
            "double": number / 3,
            "cents": Decimal(number - 5) / 100,
            "euros": Decimal(number) * 10**9,
            "debts": -Decimal(number) * 10**20,
            "day": NOON.date().replace(day=1 + number % 28),
            "clock": NOON.time().replace(second=number % 60),
            "local": NOON.replace(tzinfo=None, year=1960 + number),
            "instant": NOON.replace(hour=number % 24),
            "text": f"{number:03d}-" + "é" * number,
            "blob": bytes([255]) * (number % 20) + bytes([number]),
            "hash": number.to_bytes(4, "big"),
            "id": UUID(int=number << 64),
            "box": {"inner": number, "note": None},
            "tags": ["a", None] * (number % 3),
            "counts": [(str(number), number)],
        }
        made.append(dict.fromkeys(row) | {"small": number - 5} if number % 7 == 6 else row)
    return made


SPECS = [
    (),
    ("day(instant)", "bucket(4, text)"),
    ("hour(local)", "truncate(10, small)"),
    ("month(day)", "bucket(3, id)", "truth"),
    ("year(local)", "truncate(2, text)", "bucket(5, cents)"),
    ("cents", "hash", "truncate(1, blob)"),  # never a plain uuid: pyiceberg finds no row in such a partition
    ("bucket(4, large)", "bucket(4, clock)", "truncate(100, euros)"),
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_every_partitioning_is_committed_and_filters_find_their_rows(tmp_path: Path, spec: tuple[str, ...]) -> None:
    fields = [field.model_copy(update={"required": False}) for field in wide.SCHEMA.fields]
    queue = Queue(tmp_path, schema=Schema(*fields), partition_by=spec)
    truth = content(40)
    with queue.writer() as writer:
        writer.write(wide.table(truth[:20]))
        writer.write(wide.table(truth[20:]))
    done = queue.tick()
    assert not queue.table().scan().to_arrow().num_rows - 40, done
    for name, pick in (("text", 3), ("large", 8), ("id", 9), ("cents", 2), ("instant", 11), ("blob", 15), ("day", 4)):
        value = truth[pick][name]
        expected = sorted(row["small"] for row in truth if row[name] == value)
        found = queue.table().scan(EqualTo(name, _literal(value)), selected_fields=("small",)).to_arrow()
        assert sorted(found["small"].to_pylist()) == expected, name
    assert queue.table().scan(IsNull("text")).to_arrow().num_rows == sum(row["text"] is None for row in truth)
    early = queue.table().scan(LessThan("local", "1980-01-01T00:00:00")).to_arrow()
    assert early.num_rows == sum(row["local"] is not None and row["local"].year < 1980 for row in truth)


def _literal(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def test_bounds_let_readers_skip_files(tmp_path: Path) -> None:
    queue = Queue(tmp_path, partition_by=())
    for number in range(3):
        with queue.writer() as writer:
            writer.write(rows("k", at=NOON.replace(day=number + 1)))
    queue.tick()
    scan = queue.table().scan(GreaterThanOrEqual("timestamp", NOON.replace(day=3).isoformat()))
    assert len(list(scan.plan_files())) == 1


def test_a_table_that_changes_under_a_writer_keeps_every_row(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    with queue.writer() as writer:
        publish_file(writer, Load("w1", "r", records=5, value_bytes=3), 0, queue.clock)
        queue.tick()
        with queue.table().update_schema() as change:
            change.add_column("count", LongType())
            change.rename_column("value", "payload")
        with queue.table().update_spec() as respec:
            respec.add_identity("key")
        queue.tick()
        publish_file(writer, Load("w1", "r", records=5, value_bytes=3), 1, queue.clock)
        publish_file(writer, Load("w1", "r", records=5, value_bytes=3), 2, queue.clock)
    queue.tick()
    table = queue.table().scan().to_arrow()
    assert sorted(table["key"].to_pylist()) == [f"w1/r/{number:012d}" for number in range(15)]
    assert table["payload"].null_count == 0
    assert {file.spec_id for file in _files(queue)} == {0, 1}


def _files(queue: Queue) -> list[Any]:
    return [task.file for task in queue.table().scan().plan_files()]
