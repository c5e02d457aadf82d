"""Footers of delete files: of every kind of key that there is, and damaged in any way."""

import io
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from bookkeeper.errors import Reject
from bookkeeper.format.entries import ADDED, EQUALITY_DELETES, DataFile, Entry
from bookkeeper.stores.local import LocalStore
from bookkeeper.tick.check_delete_files import footer_error, read_footers

#: values of an Arrow type, types that they are read as, and types that they are not
KINDS: list[tuple[pa.DataType, Any, tuple[IcebergType, ...], tuple[IcebergType, ...]]] = [
    (pa.bool_(), True, (BooleanType(),), (IntegerType(), StringType())),
    (pa.int8(), 1, (IntegerType(), LongType()), (DateType(), DecimalType(9, 0))),
    (pa.int32(), 1, (IntegerType(), LongType()), (DateType(), DecimalType(9, 0))),
    (pa.int64(), 1, (LongType(),), (IntegerType(), TimestampType(), TimeType())),
    (pa.uint32(), 1, (), (IntegerType(), LongType())),
    (pa.float64(), 1.0, (), (LongType(), DecimalType(9, 0))),
    (pa.date32(), 1, (DateType(),), (IntegerType(), LongType())),
    (pa.time64("us"), 1, (TimeType(),), (LongType(), TimestampType())),
    (pa.timestamp("us"), 1, (TimestampType(),), (TimestamptzType(), LongType())),
    (pa.timestamp("us", "UTC"), 1, (TimestamptzType(),), (TimestampType(), LongType())),
    (pa.timestamp("ms"), 1, (), (TimestampType(), TimestamptzType())),
    (pa.timestamp("ns"), 1, (), (TimestampType(), TimestamptzType())),
    (pa.string(), "a", (StringType(),), (BinaryType(), UUIDType())),
    (pa.large_string(), "a", (StringType(),), (BinaryType(),)),
    (pa.binary(), b"a", (BinaryType(),), (StringType(), FixedType(1))),
    (pa.binary(16), b"a" * 16, (FixedType(16), UUIDType()), (FixedType(15), BinaryType())),
    (pa.decimal128(9, 2), Decimal("1.50"), (DecimalType(9, 2), DecimalType(12, 2)), (DecimalType(8, 2),)),
    (pa.decimal128(38, 9), Decimal(1), (DecimalType(38, 9),), (DecimalType(38, 8), LongType(), StringType())),
]


def found(tmp_path: Any, data: bytes, kind: IcebergType, rows: int = 1) -> Reject | None:
    store = LocalStore(str(tmp_path))
    store.replace("d.parquet", data)
    footer = read_footers(store, {"d.parquet": len(data)})["d.parquet"]
    file = DataFile("d.parquet", "PARQUET", (), rows, len(data))
    entry = Entry(ADDED, None, 1, None, EQUALITY_DELETES, (1,), None, file)
    return footer_error(entry, footer, [NestedField(1, "id", kind, required=True)])


def written(kind: pa.DataType, value: Any, **how: Any) -> bytes:
    out, schema = io.BytesIO(), pa.schema([pa.field("id", kind, False, {"PARQUET:field_id": "1"})])
    pq.write_table(pa.table([pa.array([value], kind)], schema=schema), out, **how)
    return out.getvalue()


@pytest.mark.parametrize(("kind", "value", "fit", "unfit"), KINDS, ids=lambda item: str(item)[:20])
def test_a_column_fits_the_types_it_is_read_as_and_no_other(
    tmp_path: Any, kind: pa.DataType, value: Any, fit: Any, unfit: Any
) -> None:
    data = written(kind, value)
    assert [str(item) for item in fit if found(tmp_path, data, item) is not None] == []
    assert [str(item) for item in unfit if found(tmp_path, data, item) is None] == []


def test_whatever_a_footer_says_no_error_but_a_reject_comes_of_it(tmp_path: Any) -> None:
    whole, chance, verdicts = written(pa.int64(), 1, store_schema=False), random.Random(7), set[str]()
    length = int.from_bytes(whole[-8:-4], "little")
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data) - 8 - length, len(data))] = chance.randrange(256)
        error = found(tmp_path, bytes(data), LongType())
        verdicts.add(type(error).__name__)
    assert verdicts == {"NoneType", "FileFormatDiffers", "DeleteFileDiffers"}
