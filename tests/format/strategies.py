"""Strategies for manifest entries: every type a partition field can have, and whatever statistics may say."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
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

from bookkeeper.format import manifest
from bookkeeper.format.entries import DataFile, Entry
from bookkeeper.format.layout import Physical, parse_layout

TYPES: tuple[IcebergType, ...] = (
    BooleanType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DecimalType(10, 2),
    DecimalType(38, 0),
    DateType(),
    TimeType(),
    TimestampType(),
    TimestamptzType(),
    StringType(),
    UUIDType(),
    FixedType(7),
    BinaryType(),
)
TRANSFORMS: tuple[Transform[Any, Any], ...] = (
    IdentityTransform(),
    BucketTransform(16),
    TruncateTransform(4),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
    VoidTransform(),
)
#: every second column required
SCHEMA = Schema(
    *(NestedField(number, f"c {number}", kind, required=number % 2 == 0) for number, kind in enumerate(TYPES, 1))
)
FIELDS = [
    (source.field_id, transform)
    for source in SCHEMA.fields
    for transform in TRANSFORMS
    if transform.can_transform(source.field_type)
]
INT, LONG = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
_VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": INT,
    "long": LONG,
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
}


def spec_of(*chosen: tuple[int, Transform[Any, Any]]) -> PartitionSpec:
    """
    A spec of these (source column, transform) pairs.
    """
    named = enumerate(chosen)
    return PartitionSpec(
        *(
            PartitionField(source, 1000 + index, transform, f"{index} p-{source}")
            for index, (source, transform) in named
        ),
        spec_id=3,
    )


specs = st.lists(st.sampled_from(FIELDS), max_size=5).map(lambda chosen: spec_of(*chosen))


def value_of(kind: Physical) -> st.SearchStrategy[Any]:
    """
    Values of one physical Avro type.
    """
    return st.binary(min_size=kind[1], max_size=kind[1]) if isinstance(kind, tuple) else _VALUES[kind]


def header_of(spec: PartitionSpec) -> dict[str, bytes]:
    """
    The header of a manifest with this spec.
    """
    return manifest.header(SCHEMA, spec)


def tuples(header: Mapping[str, bytes]) -> st.SearchStrategy[tuple[Any, ...]]:
    """
    Partition tuples that fit a header.
    """
    kinds = [kind for _, kind in parse_layout(header["avro.schema"]).partition]
    return st.tuples(*(st.none() | value_of(kind) for kind in kinds))


counts = st.dictionaries(INT, LONG, max_size=4)
bounds = st.dictionaries(INT, st.binary(max_size=20), max_size=4)
optional_long = st.none() | LONG
offsets = st.none() | st.lists(LONG, max_size=4).map(tuple)


def data_files(header: Mapping[str, bytes]) -> st.SearchStrategy[DataFile]:
    """
    Data files that fit a header; the statistics make no sense, and need not.
    """
    return st.builds(
        DataFile,
        path=st.text(max_size=80),
        file_format=st.sampled_from(["PARQUET", "AVRO", "parquet", ""]),
        partition=tuples(header),
        record_count=LONG,
        size_bytes=LONG,
        split_offsets=offsets,
        sort_order_id=st.none() | INT,
        key_metadata=st.none() | st.binary(max_size=10),
        **dict.fromkeys(COUNTS, counts),
        **dict.fromkeys(BOUNDS, bounds),
    )


COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
BOUNDS = ("lower_bounds", "upper_bounds")


def entries(header: Mapping[str, bytes]) -> st.SearchStrategy[Entry]:
    """
    Entries that fit a header, also those no txlog may hold.
    """
    made = st.builds(
        Entry,
        status=INT,
        snapshot_id=optional_long,
        sequence_number=optional_long,
        file_sequence_number=optional_long,
        content=INT,
        equality_ids=st.none() | st.lists(INT, max_size=3).map(tuple),
        referenced_data_file=st.none() | st.text(max_size=20),
        data_file=data_files(header),
    )
    assert len(fields(Entry)) == 8
    return made
