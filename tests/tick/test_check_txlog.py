"""What a txlog may hold: the rules that need no table on disk."""

from dataclasses import replace

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, VoidTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType, TimestamptzType

from bookkeeper.contract.txlog import Txlog
from bookkeeper.errors import EntryInvalid, FileMissing, FromTheFuture, UnknownSpec
from bookkeeper.format import manifest
from bookkeeper.format.entries import DataFile, added
from bookkeeper.tick.check_txlog import Rules, bind, check
from tests.support.plans import CREATED, name

INNER = StructType(NestedField(5, "day", TimestamptzType(), required=True))
SCHEMA = Schema(
    NestedField(1, "timestamp", TimestamptzType(), required=True),
    NestedField(2, "key", StringType(), required=False),
    NestedField(3, "number", IntegerType(), required=True),
    NestedField(4, "inner", INNER, required=False),
    schema_id=0,
)
WIDER = Schema(*SCHEMA.fields[:2], NestedField(3, "number", LongType(), required=True), schema_id=1)


def spec(source: int, transform: object, spec_id: int = 0) -> PartitionSpec:
    return PartitionSpec(PartitionField(source, 1000, transform, "part"), spec_id=spec_id)


def rules(one: PartitionSpec) -> Rules:
    return Rules("uuid", "file:///t/data", {0: SCHEMA, 1: WIDER}, {one.spec_id: one}, frozenset({0}))


def txlog(one: PartitionSpec, value: object, schema_id: int = 0, **file: object) -> Txlog:
    data = DataFile(f"file:///t/data/{name(1).incarnation}", "PARQUET", (value,), 1, 1, **file)  # type: ignore[arg-type]
    schema = {0: SCHEMA, 1: WIDER}[schema_id]
    body = manifest.decode(manifest.encode(manifest.header(schema, one), [added(data)]), 2**20)
    return Txlog(name(1), "uuid", CREATED, schema_id, one.spec_id, bind(one, schema).partition, None, None, body)


def test_a_null_partition_of_a_required_column_is_refused() -> None:
    days = spec(1, DayTransform())
    with pytest.raises(EntryInvalid, match="null"):
        check(txlog(days, None), rules(days), CREATED)


@pytest.mark.parametrize(
    ("source", "transform"),
    [(2, IdentityTransform()), (2, BucketTransform(4)), (1, VoidTransform()), (5, DayTransform())],
    ids=["optional column", "optional bucket", "void of a required column", "required column of an optional struct"],
)
def test_a_null_partition_is_fine_where_the_value_can_be_null(source: int, transform: object) -> None:
    one = spec(source, transform)
    check(txlog(one, None), rules(one), CREATED)


@pytest.mark.parametrize("schema_id", [0, 1])
@pytest.mark.parametrize("width", [4, 8])
def test_bounds_of_a_widened_column_have_either_width(schema_id: int, width: int) -> None:
    days = spec(1, DayTransform())
    check(txlog(days, 1, schema_id, upper_bounds={3: b"\1" * width}), rules(days), CREATED)


@pytest.mark.parametrize("width", [0, 3, 9])
def test_bounds_of_no_possible_width_are_refused(width: int) -> None:
    days = spec(1, DayTransform())
    with pytest.raises(EntryInvalid, match="bound"):
        check(txlog(days, 1, lower_bounds={1: b"\1" * width}), rules(days), CREATED)


def test_bounds_of_texts_have_any_width() -> None:
    days = spec(1, DayTransform())
    check(txlog(days, 1, lower_bounds={2: b"abc"}), rules(days), CREATED)


def test_a_spec_whose_column_the_schema_lacks_is_refused() -> None:
    gone = spec(4, IdentityTransform())
    with pytest.raises(UnknownSpec, match="columns"):
        bind(gone, WIDER)


def test_an_hour_ahead_is_allowed_and_no_more() -> None:
    days = spec(1, DayTransform())
    made = txlog(days, 1)
    check(replace(made, created_ms=CREATED + 3_600_000), rules(days), CREATED)
    with pytest.raises(FromTheFuture, match=r"1\.0 h"):
        check(replace(made, created_ms=CREATED + 3_600_001), rules(days), CREATED)


@pytest.mark.parametrize(
    ("created_ms", "says"),
    [
        (1_800_003_600_000, "works from 2027-01-15 08:00:00 UTC on"),
        (1_800_003_600_001, "works from 2027-01-15 08:00:01 UTC on"),
        (253_402_304_399_000, "works from 9999-12-31 23:59:59 UTC on"),
        (253_402_304_399_001, "write these rows again"),
        (2**63 - 1, "write these rows again"),
    ],
)
def test_a_txlog_from_the_future_says_from_when_on_a_replay_works(created_ms: int, says: str) -> None:
    days = spec(1, DayTransform())
    with pytest.raises(FromTheFuture) as caught:
        check(replace(txlog(days, 1), created_ms=created_ms), rules(days), 1_700_000_000_000)
    assert says in caught.value.hint


def test_a_txlog_whose_file_is_missing_says_what_to_do() -> None:
    assert "Put the file back" in FileMissing("a.parquet does not exist").hint
