"""Which Iceberg type holds an Arrow type: for new tables, columns on request and messages alike."""

import pyarrow as pa
import pytest

from bookkeeper.contract.column_requests import type_of
from bookkeeper.format.arrow_types import holding, type_of_arrow
from writers.values.unknown_fields import asked_type


@pytest.mark.parametrize(
    ("kind", "name", "asked"),
    [
        *((kind, "int", True) for kind in (pa.int8(), pa.int32(), pa.uint16())),
        *((kind, "long", True) for kind in (pa.int64(), pa.uint32())),
        (pa.uint64(), "decimal(20, 0)", True),
        (pa.float16(), "float", True),
        *(
            (kind, "string", True)
            for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
        ),
        *((kind, "decimal(9, 2)", True) for kind in (pa.decimal32(9, 2), pa.decimal128(9, 2), pa.decimal256(9, 2))),
        *((kind, None, False) for kind in (pa.decimal256(40, 2), pa.decimal128(5, -1), pa.duration("s"), pa.null())),
        *((kind, None, False) for kind in (pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.json_())),
        (pa.date64(), "date", True),
        (pa.time32("s"), "time", True),
        (pa.timestamp("ns"), "timestamp", True),
        (pa.timestamp("ns", "Europe/Berlin"), "timestamptz", True),
        (pa.uuid(), "uuid", True),
        (pa.binary(4), "fixed[4]", False),
        (pa.binary_view(), "binary", True),
    ],
    ids=str,
)
def test_each_arrow_type_has_one_iceberg_type(kind: pa.DataType, name: str | None, asked: bool) -> None:
    assert type_of_arrow(kind) == name
    assert type_of_arrow(holding(kind)) == name
    assert asked_type(kind) == (name if asked else None)
    if asked and name is not None:
        assert str(type_of(name)) == name, "the bookkeeper grants it"
