"""Keys of every type, of one column and of two: deduplicated, sorted, and as the bookkeeper's check wants them."""

import decimal
import uuid
from datetime import UTC, date, datetime, time
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from bookkeeper.tick.check_txlog import Rules, check
from tests.support.desk import PLAIN, START, Desk, only
from tests.support.upserts import keyed_card, parquet

VALUES: list[tuple[Any, Any, Any]] = [
    (BooleanType(), False, True),
    (IntegerType(), -7, 7),
    (LongType(), -(2**60), 2**60),
    (DecimalType(9, 2), decimal.Decimal("-1.50"), decimal.Decimal("20.25")),
    (DecimalType(38, 4), decimal.Decimal("-1.5000"), decimal.Decimal("20.2500")),
    (DateType(), date(1969, 12, 31), date(2026, 1, 1)),
    (TimeType(), time(1), time(23)),
    (TimestampType(), datetime(1969, 1, 1), datetime(2026, 1, 1)),
    (TimestamptzType(), datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
    (StringType(), "Z", "é"),
    (BinaryType(), b"\x00", b"\xff"),
    (FixedType(3), b"\x00ab", b"\xffab"),
    (UUIDType(), uuid.UUID(int=1), uuid.UUID(int=2**127)),
]


@pytest.mark.parametrize(("kind", "low", "high"), VALUES, ids=lambda value: str(value)[:20])
def test_a_key_of_any_type_is_named_once_in_order_and_with_bounds(local: Desk, kind: Any, low: Any, high: Any) -> None:
    schema = Schema(
        NestedField(1, "key", kind, required=True),
        NestedField(2, "part", LongType(), required=True),
        NestedField(3, "value", StringType(), required=False),
        identifier_field_ids=[1, 2],
    )
    card = keyed_card(local, columns={}, schema=schema)
    raw = [value.bytes if isinstance(value, uuid.UUID) else value for value in (high, low, high, high)]
    column = pa.array(raw, schema_to_pyarrow(schema).field("key").type)
    rows = pa.table({"key": column, "part": [1, 1, 1, 0], "value": ["first", "low", "last", "other"]})
    with local.writer() as writer:
        writer.upsert(rows)
        writer.delete(rows.select(["key", "part"]).slice(1, 1))
    txlog = only(local.txlogs())
    rules = Rules(card.table_uuid, card.data_path, {0: schema}, {0: PLAIN}, frozenset({0}), card.keyed)
    check(txlog, rules, int(START.timestamp() * 1000))
    assert [row["value"] for row in local.rows(txlog.files)] == ["last", "other"]
    file = only(txlog.deletes.body.entries).data_file
    assert keys_of(local, file) == keys_of_table(rows.select(["key", "part"]).take([1, 3, 0]))
    # Iceberg Java orders UUIDs otherwise than bounds are, so they have none.
    known = () if isinstance(kind, UUIDType) else (to_bytes(kind, low), to_bytes(kind, high))
    assert tuple(bounds[1] for bounds in (file.lower_bounds, file.upper_bounds) if 1 in bounds) == known


def keys_of(desk: Desk, file: Any) -> list[tuple[Any, ...]]:
    return keys_of_table(parquet(desk, file).read())


def keys_of_table(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(raw_value(value) for value in row.values()) for row in table.to_pylist()]


def raw_value(value: Any) -> Any:
    return value.bytes if isinstance(value, uuid.UUID) else value


def test_bounds_of_long_keys_are_cut_and_files_hold_the_field_ids(local: Desk) -> None:
    schema = Schema(NestedField(5, "a b", StringType(), required=True), identifier_field_ids=[5])
    keyed_card(local, columns={}, schema=schema)
    with local.writer() as writer:
        writer.delete(pa.table({"a b": ["x" * 100, "y"]}))
    file = only(only(local.txlogs()).deletes.body.entries).data_file
    assert (file.lower_bounds, file.upper_bounds) == ({5: b"x" * 64}, {5: b"y"})
    assert parquet(local, file).schema_arrow.field("a b").metadata[b"PARQUET:field_id"] == b"5"
