"""Avro becomes rows: each type in its column or a reason why not, a batch as its messages, and no bytes do harm."""

import io
import json
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from time import perf_counter
from typing import Any
from uuid import UUID

import pytest
from fastavro import schemaless_writer
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
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
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.kafka.test_messages import Fake, rows
from writers.kafka.avro import AvroForm, ById, OneSchema
from writers.kafka.avro_schema import MOST_DEPTH, MOST_MEMORY, SCHEMA_BYTES, AvroRefused, AvroSchema, NoAvro
from writers.kafka.messages import Converted, MessageReader, Outdated, converted
from writers.loader.records import BadLine

ADDRESS = StructType(NestedField(11, "street", StringType(), required=True), NestedField(12, "no", IntegerType()))
SCHEMA = Schema(NestedField(1, "n", LongType(), required=True), NestedField(2, "text", StringType()))
N_TEXT = {"n": "long", "text": ["null", "string"]}
#: no step over any bytes of a megabyte may take longer; the slowest takes half a second on a quiet machine
SECONDS = 20.0


def record(fields: dict[str, Any], name: str = "r") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def of(fields: dict[str, Any]) -> AvroSchema:
    return AvroSchema(json.dumps(record(fields, "top")))


def written(schema: Any, value: Any) -> bytes:
    """A value as an encoder writes it, logical types as their plain values."""
    out = io.BytesIO()
    schemaless_writer(out, schema, value)
    return out.getvalue()


def reader(
    schema: AvroSchema, table: Schema = SCHEMA, former: dict[str, int] | None = None, ignore_unknown: bool = False
) -> MessageReader:
    return MessageReader(table, (), former or {}, AvroForm(OneSchema(schema), ignore_unknown=ignore_unknown), {})


def read(schema: AvroSchema, values: Sequence[bytes], table: Schema = SCHEMA, **more: Any) -> Converted:
    messages = [Fake(value, at=at) for at, value in enumerate(values)]
    return converted(reader(schema, table, **more), messages, len(values), is_newest=True)


def cell(avro: Any, kind: IcebergType, value: Any) -> Any:
    """What a value gives in a column, one by one and in a batch alike; BadLine where it is refused."""
    fields = {"c": avro}
    table, data = Schema(NestedField(1, "c", kind)), written(record(fields, "top"), {"c": value})
    one, many = read(of(fields), [data], table), read(of(fields), [data] * 17, table)
    assert rows(many) == rows(one) * 17
    assert (len(many.tables) == 1, len(many.bad)) == ((True, 0) if not one.bad else (False, 17))
    if one.bad:
        raise BadLine(one.bad[0].reason)
    return rows(one)[0]["c"]


def logical(kind: Any, name: str, **more: Any) -> dict[str, Any]:
    return {**(kind if isinstance(kind, dict) else {"type": kind}), "logicalType": name, **more}


def plain(kind: Any) -> Any:
    """A fixed type of so many bytes."""
    return {"type": "fixed", "name": "f", "size": kind}


AT = datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)
MILLIS = 1_700_000_000_123


@pytest.mark.parametrize(
    ("avro", "kind", "value", "expected"),
    [
        ("boolean", BooleanType(), True, True),
        ("int", IntegerType(), -(2**31), -(2**31)),
        ("int", LongType(), 5, 5),
        ("int", DoubleType(), 5, 5.0),
        ("int", FloatType(), 5, 5.0),
        ("long", LongType(), -(2**63), -(2**63)),
        ("long", IntegerType(), 7, 7),
        ("long", DoubleType(), 2**53, 2.0**53),
        ("long", DecimalType(20, 2), 12, Decimal("12.00")),
        ("float", FloatType(), 0.5, 0.5),
        ("float", DoubleType(), 0.25, 0.25),
        ("double", DoubleType(), 0.1, 0.1),
        ("double", FloatType(), 0.5, 0.5),
        ("string", StringType(), "é", "é"),
        ("string", TimestamptzType(), "2023-11-14T22:13:20.123Z", AT),
        ("string", DecimalType(5, 2), "1.25", Decimal("1.25")),
        ("bytes", BinaryType(), b"\xff", b"\xff"),
        ("bytes", FixedType(2), b"ab", b"ab"),
        (plain(3), FixedType(3), b"abc", b"abc"),
        (plain(3), BinaryType(), b"abc", b"abc"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, StringType(), "B", "B"),
        (logical("int", "date"), DateType(), 19675, date(2023, 11, 14)),
        (logical("int", "time-millis"), TimeType(), 3_600_001, time(1, 0, 0, 1000)),
        (logical("long", "time-micros"), TimeType(), 1, time(0, 0, 0, 1)),
        (logical("long", "timestamp-millis"), TimestamptzType(), MILLIS, AT),
        (logical("long", "timestamp-micros"), TimestamptzType(), MILLIS * 1000, AT),
        (logical("long", "timestamp-nanos"), TimestamptzType(), MILLIS * 10**6, AT),
        (logical("long", "local-timestamp-millis"), TimestampType(), MILLIS, AT.replace(tzinfo=None)),
        (logical("long", "local-timestamp-micros"), TimestampType(), MILLIS * 1000, AT.replace(tzinfo=None)),
        (logical("long", "timestamp-millis"), LongType(), MILLIS, MILLIS),
        ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, TimestampType(), 0, datetime(1970, 1, 1)),
        ({"type": "int", "connect.name": "io.debezium.time.Date"}, DateType(), 0, date(1970, 1, 1)),
        (logical("string", "uuid"), UUIDType(), str(UUID(int=7)), UUID(int=7).bytes),
        (logical("string", "uuid"), StringType(), "any", "any"),
        (logical(plain(16), "uuid"), UUIDType(), UUID(int=7).bytes, UUID(int=7).bytes),
        (logical("bytes", "decimal", precision=9, scale=2), DecimalType(9, 2), b"\xff\x85", Decimal("-1.23")),
        (logical("bytes", "decimal", precision=9, scale=1), DecimalType(9, 2), b"\x0f", Decimal("1.50")),
        (logical(plain(20), "decimal", precision=38, scale=0), DecimalType(38, 0), b"\xff" * 20, Decimal(-1)),
        (["null", "long"], LongType(), None, None),
        (["long", "null"], LongType(), 3, 3),
        (
            record({"street": "string", "no": ["null", "int"]}),
            ADDRESS,
            {"street": "a", "no": 1},
            {"street": "a", "no": 1},
        ),
        (record({"street": "string"}), ADDRESS, {"street": "a"}, {"street": "a", "no": None}),
        ({"type": "array", "items": "int"}, ListType(3, LongType()), [1, 2], [1, 2]),
        ({"type": "array", "items": record({"street": "string"})}, ListType(3, ADDRESS), [], []),
        ({"type": "map", "values": "int"}, MapType(3, StringType(), 4, LongType()), {"a": 1}, [("a", 1)]),
        ({"type": "map", "values": "int"}, MapType(3, IntegerType(), 4, LongType()), {"7": 1}, [(7, 1)]),
    ],
)
def test_each_type_has_its_column(avro: Any, kind: IcebergType, value: Any, expected: Any) -> None:
    assert cell(avro, kind, value) == expected


@pytest.mark.parametrize(
    ("avro", "kind", "value", "reason"),
    [
        ("long", IntegerType(), 2**31, "does not fit into 32 bits"),
        ("long", IntegerType(), -(2**31) - 1, "does not fit into 32 bits"),
        ("long", DoubleType(), 2**53 + 1, "more digits than a double"),
        ("int", FloatType(), 2**24 + 1, "more digits than a float"),
        ("double", FloatType(), 0.1, "more digits than a float"),
        ("double", FloatType(), 1e300, "does not fit into 32 bits"),
        ("double", LongType(), 1.0, "a double does not fit a column of long"),
        ("long", StringType(), 1, "a long does not fit a column of string"),
        ("string", LongType(), "1", "a string does not fit a column of long"),
        ("bytes", StringType(), b"a", "a bytes does not fit"),
        ("bytes", FixedType(2), b"abc", "3 bytes are given, the column has 2"),
        ("string", TimestamptzType(), "2023-11-14T22:13:20", "no time zone"),
        ("string", UUIDType(), "x", "not a UUID"),
        ("boolean", IntegerType(), True, "a boolean does not fit"),
        (["int", "string"], LongType(), 5, "several branches"),
        (["null", "int", "string"], StringType(), "a", "several branches"),
        (logical("int", "date"), DateType(), 2**31 - 1, "out of range for a date"),
        (logical("int", "time-millis"), TimeType(), 86_400_000, "out of range for a time"),
        (logical("long", "timestamp-millis"), TimestamptzType(), 2**62, "out of range for a timestamptz"),
        (logical("long", "timestamp-nanos"), TimestamptzType(), 1, "parts of a microsecond"),
        (logical("long", "timestamp-millis"), TimestampType(), 0, "has no time zone"),
        (logical("long", "local-timestamp-millis"), TimestamptzType(), 0, "is in UTC"),
        (logical("long", "timestamp-millis"), DoubleType(), 0, "does not fit a column of double"),
        (logical("bytes", "decimal", precision=9, scale=3), DecimalType(9, 2), b"\x01", "does not fit into decimal"),
        (logical("bytes", "decimal", precision=9, scale=0), DecimalType(2, 0), b"\x7f", "does not fit into decimal"),
        (logical("bytes", "decimal", precision=9, scale=0), DecimalType(9, 0), b"", "no decimal"),
        (record({"street": "string", "town": "int"}), ADDRESS, {"street": "a", "town": 1}, "'town' is not a field"),
        (record({"no": "int"}), ADDRESS, {"no": 1}, "required 'street' is missing"),
        (record({"street": ["null", "string"]}), ADDRESS, {"street": None}, "required 'street' is missing"),
        ({"type": "array", "items": ["null", "int"]}, ListType(3, LongType(), True), [None], "'element' is missing"),
        ({"type": "map", "values": "int"}, MapType(3, IntegerType(), 4, LongType()), {"x": 1}, "not a whole number"),
    ],
)
def test_what_does_not_fit_is_a_bad_message_and_never_another_value(
    avro: Any, kind: IcebergType, value: Any, reason: str
) -> None:
    with pytest.raises(BadLine, match=reason):
        cell(avro, kind, value)


GOOD = [written(record(N_TEXT), {"n": n, "text": "é" * (n % 3) or None}) for n in range(60)]


def test_a_good_batch_is_one_table_and_columns_that_the_schema_does_not_have_are_null() -> None:
    found = read(of({"n": "long"}), [written(record({"n": "long"}), {"n": n}) for n in range(60)])

    assert len(found.tables) == 1
    assert rows(found) == [{"n": n, "text": None} for n in range(60)]


def test_bad_messages_between_good_ones_cost_only_themselves() -> None:
    values = [*GOOD]
    values[20], values[41], values[42] = b"\x02\x05", GOOD[41] + b"\x00", b""

    found = read(of(N_TEXT), values)

    assert [bad.offset for bad in found.bad] == [20, 41, 42]
    assert "a branch or symbol that there is not" in found.bad[0].reason
    assert found.bad[1].reason == "not Avro of its schema: 1 bytes are left behind the value"
    assert [row["n"] for row in rows(found)] == [n for n in range(60) if n not in (20, 41, 42)]


@given(st.lists(st.one_of(st.sampled_from(GOOD), st.binary(max_size=8)), min_size=17, max_size=60))
def test_a_batch_gives_what_its_messages_give_one_by_one(values: list[bytes]) -> None:
    schema = of(N_TEXT)
    found, alone = read(schema, values), [read(schema, [value]) for value in values]

    assert rows(found) == [row for one in alone for row in rows(one)]
    assert [bad.offset for bad in found.bad] == [at for at, one in enumerate(alone) if one.bad]


def test_messages_of_several_schemas_stay_in_their_order() -> None:
    schemas = {1: of(N_TEXT), 2: of({"text": "string", "n": "int"})}
    other = record({"text": "string", "n": "int"})
    values = [
        bytes([0, 0, 0, 0, 2]) + written(other, {"n": n, "text": "b"}) if n % 3 else bytes([0, 0, 0, 0, 1]) + GOOD[n]
        for n in range(60)
    ]
    form = AvroForm(ById(schemas.__getitem__))

    found = converted(MessageReader(SCHEMA, (), {}, form, {}), [*map(Fake, values)], 0, is_newest=True)

    assert len(found.tables) == 1
    assert [row["n"] for row in rows(found)] == [*range(60)]
    assert {row["text"] for row in rows(found)[1::3]} == {"b"}


@pytest.mark.parametrize(
    ("value", "hint"), [(b'{"n": 1}', "is it JSON"), (b"\x02\x00", "--schema"), (b"\x00\x00", "--schema")]
)
def test_a_message_without_the_header_is_bad_and_says_what_it_may_be(value: bytes, hint: str) -> None:
    form = AvroForm(ById(lambda number: of(N_TEXT)))

    found = converted(MessageReader(SCHEMA, (), {}, form, {}), [Fake(value)], 1, is_newest=True)

    assert hint in found.bad[0].reason


def test_names_are_those_of_columns_also_former_ones_and_others_are_unknown() -> None:
    data, schema = (
        written(record({"old": "long", "new": "int"}), {"old": 1, "new": 2}),
        of({"old": "long", "new": "int"}),
    )
    with pytest.raises(Outdated):
        converted(reader(schema, former={"old": 1}), [Fake(data)] * 20, 1, is_newest=False)

    found = read(schema, [data] * 20, former={"old": 1})
    ignored = read(schema, [data] * 20, former={"old": 1}, ignore_unknown=True)

    assert found.bad[0].reason == "the table has no column 'new'"
    assert rows(ignored) == [{"n": 1, "text": None}] * 20 and len(ignored.tables) == 1


def test_a_column_under_two_names_is_given_twice() -> None:
    fields = {"n": "long", "old": "long"}
    found = read(of(fields), [written(record(fields), {"n": 1, "old": 1})] * 20, former={"old": 1})

    assert len(found.bad) == 20 and "given twice" in found.bad[0].reason


def test_a_required_column_that_is_null_is_a_bad_message() -> None:
    fields = {"n": ["null", "long"]}
    values = [written(record(fields), {"n": None if n == 30 else n}) for n in range(40)]

    assert [bad.reason for bad in read(of(fields), values).bad] == ["required column 'n' is missing"]


ROW = record({"n": "long", "text": ["null", "string"], "data": ["null", "bytes"]}, "Value")
ENVELOPE = record({"before": ["null", ROW], "after": ["null", "Value"], "op": "string", "ts_ms": ["null", "long"]}, "E")
KEYED = Schema(*SCHEMA.fields, NestedField(3, "data", BinaryType()))


def changes(values: Sequence[dict[str, Any] | None], skips: int = 0) -> Converted:
    form = AvroForm(OneSchema(AvroSchema(json.dumps(ENVELOPE))), changes=True)
    usual: dict[str, Any] = {"before": None, "after": None, "ts_ms": 1}
    data = [None if value is None else written(ENVELOPE, {**usual, **value}) for value in values]
    messages = [Fake(value, at=at) for at, value in enumerate(data)]
    return converted(MessageReader(KEYED, ["n"], {}, form, {}), messages, skips, is_newest=True)


def value(n: int, text: str | None = None, data: bytes | None = None) -> dict[str, Any]:
    return {"n": n, "text": text, "data": data}


def test_changes_are_upserts_and_deletes_and_a_tombstone_is_nothing() -> None:
    found = changes(
        [
            {"op": "r", "after": value(1, "a")},
            {"op": "u", "before": value(1), "after": value(2, "b")},
            {"op": "d", "before": value(2, "b")},
            None,
            {"op": "c", "after": value(3, "c", b"\xff")},
        ]
    )

    assert [(row["n"], row["text"], row["data"], row["deleted"]) for row in rows(found)] == [
        (1, "a", None, False),
        (1, None, None, True),
        (2, "b", None, False),
        (2, None, None, True),
        (3, "c", b"\xff", False),
    ]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"op": "t"}, "truncates the table"),
        ({"op": "x"}, "not known"),
        ({"op": "d"}, "its key is not known"),
        ({"op": "u", "after": value(1, "__debezium_unavailable_value")}, "did not change and was left out"),
        ({"op": "u", "after": value(1, "a", b"__debezium_unavailable_value")}, "did not change and was left out"),
    ],
)
def test_a_change_that_cannot_be_applied_stops_its_partition(change: dict[str, Any], reason: str) -> None:
    found = changes([change, {"op": "c", "after": value(2)}], skips=9)

    assert [*found.stopped.values()] == [0] and reason in found.bad[0].reason and found.tables == []


def test_rows_without_an_envelope_are_no_changes() -> None:
    form = AvroForm(OneSchema(of(N_TEXT)), changes=True)

    found = converted(MessageReader(SCHEMA, ["n"], {}, form, {}), [Fake(GOOD[1])], 1, is_newest=True)

    assert found.stopped and "there is no op" in found.bad[0].reason


def test_a_logical_type_that_is_not_valid_means_nothing() -> None:
    table, fields = Schema(NestedField(1, "c", DecimalType(9, 2))), {"c": logical("bytes", "decimal", scale=2)}

    assert "a bytes does not fit" in read(of(fields), [b"\x02\x01"], table).bad[0].reason


NEVER = {"type": "array", "items": "int"}
LONGEST = b"\xfe" + b"\xff" * 8 + b"\x01"  # the greatest number of 64 bits


@pytest.mark.parametrize(
    ("fields", "data"),
    [
        ({"a": "string"}, b""),
        ({"a": "string"}, LONGEST + b"abc"),
        ({"a": "bytes"}, b"\x01abc"),
        ({"a": plain(2**30)}, b"abc"),
        ({"a": "string"}, b"\x02\xff"),
        ({"a": "long"}, b"\x80"),
        ({"a": "double"}, b"1234567"),
        ({"a": ["null", "string"]}, b"\x01\x02a"),  # branch -1, which Python counts from the end
        ({"a": ["null", "string"]}, b"\x04\x02a"),
        ({"a": {"type": "enum", "name": "e", "symbols": ["A", "B"]}}, b"\x01"),
        ({"a": {"type": "enum", "name": "e", "symbols": ["A", "B"]}}, b"\x04"),
        ({"a": NEVER}, LONGEST + b"\x02" * 2**20),
        ({"a": NEVER}, b"\x02\x02" * 2**19),
        ({"a": {"type": "map", "values": "int"}}, LONGEST + b"\x02a\x02"),
        ({"a": {"type": "array", "items": NEVER}}, LONGEST + b"\x00" * 2**20),
        ({"a": {"type": "array", "items": record({"b": ["null", "int"]})}}, LONGEST + b"\x00" * 2**20),
        ({"a": "long"}, b"\x80" * 2**20),
        ({"a": "long"}, b"\x02" + b"\x00" * 2**20),
    ],
)
def test_hostile_bytes_are_refused_in_time(fields: dict[str, Any], data: bytes) -> None:
    schema, began = of(fields), perf_counter()

    with pytest.raises(NoAvro):
        schema.read(data, 0)

    assert perf_counter() - began < SECONDS


def chain(depth: int) -> Any:
    return record({"a": chain(depth - 1)}, f"c{depth}") if depth else ["null", "int"]


@pytest.mark.parametrize(
    ("items", "fits"), [(chain(20), False), (chain(1), True), ({"type": "map", "values": "int"}, True), ("int", True)]
)
def test_a_byte_of_a_message_makes_no_kilobytes_of_memory(items: Any, fits: bool) -> None:
    schema, number = of({"a": {"type": "array", "items": items}}), 2**20 - 7
    data = written("long", number) + b"\x00" * (number + 1)
    tracemalloc.start()

    try:
        if fits:
            assert len(schema.read(data, 0)["a"]) == number
        else:
            with pytest.raises(NoAvro, match="could take more than 256 MiB"):
                schema.read(data, 0)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


def test_a_key_that_a_map_gives_twice_is_refused() -> None:
    kind = MapType(3, StringType(), 4, LongType())
    table = Schema(NestedField(1, "c", kind))
    data = b"\x04\x02a\x02\x02a\x04\x00"

    assert "given twice" in read(of({"c": {"type": "map", "values": "int"}}), [data], table).bad[0].reason


def test_a_decimal_of_a_megabyte_is_refused_in_time() -> None:
    kind, began = logical("bytes", "decimal", precision=9, scale=2), perf_counter()

    with pytest.raises(BadLine, match="no decimal"):
        cell(kind, DecimalType(9, 2), b"\x7f" * 2**20)

    assert perf_counter() - began < SECONDS


def test_an_int_of_more_than_32_bits_is_refused() -> None:
    table, data = Schema(NestedField(1, "c", LongType())), written(record({"c": "long"}), {"c": 2**31})

    assert "more than 32 bits" in read(of({"c": "int"}), [data], table).bad[0].reason


def many(depth: int) -> Any:
    return {"type": "array", "items": many(depth - 1)} if depth else "int"


def doubled(times: int) -> dict[str, Any]:
    """A record that names one that names one, twice each."""
    kind: Any = "int"
    for number in range(times):
        kind = record({"a": kind, "b": f"r{number - 1}" if number else "int"}, f"r{number}")
    return kind  # type: ignore[no-any-return]


NODE = record({"next": ["null", "node"]}, "node")


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        (" " * SCHEMA_BYTES + "{}", "larger than"),
        (many(MOST_DEPTH + 1), "in one another"),
        (doubled(20), "more than 20000 types"),
        (NODE, "holds itself"),
        (record({"a": {"type": "array", "items": "null"}}), "without bytes"),
        (record({"a": {"type": "array", "items": plain(0)}}), "without bytes"),
        (record({"a": {"type": "array", "items": record({}, "x")}}), "without bytes"),
        (record({"a": {"type": "map", "values": record({"n": "null", "m": "int"}, "x")}}), "without bytes"),
        (record({"a": "node"}), "'node' is no type"),
        (record({"a": {"type": "fixed", "name": "f", "size": -1}}), "no size"),
        (record({"a": {"type": "enum", "name": "e", "symbols": []}}), "symbols"),
        (record({"a": {"type": "record", "name": "x"}}), "no list of fields"),
        ({"type": "record", "name": "r", "fields": [{"name": "a"}]}, "no field with name and type"),
        ({"type": "record", "fields": []}, "without a name"),
        ({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}] * 2}, "two fields 'a'"),
        (record({"a": record({"b": "int"}, "x"), "c": record({"b": "long"}, "x")}), "defined twice"),
        (record({"a": [["int"]]}), "no unions"),
        (record({"a": []}), "no unions"),
        (record({"a": 1}), "no type of Avro"),
        (None, "no type of Avro"),
        (record({"a": {"type": "array"}}), "no type of Avro"),
    ],
)
def test_schemas_that_are_none_or_without_bounds_are_refused_in_time(schema: Any, reason: str) -> None:
    began = perf_counter()

    with pytest.raises(AvroRefused, match=reason):
        AvroSchema(schema if isinstance(schema, str) else json.dumps(schema))

    assert perf_counter() - began < SECONDS


@pytest.mark.parametrize("name", ["x.y.r", "y.r", "r"])
def test_named_types_are_found_by_their_namespace(name: str) -> None:
    inner = {**record({"b": "int"}, "r"), "namespace": "x.y"}
    fields = [{"name": "a", "type": inner}, {"name": "c", "type": name}]
    written = {"type": "record", "name": "top", "namespace": "x.y", "fields": fields}

    if name == "y.r":
        with pytest.raises(AvroRefused):
            AvroSchema(json.dumps(written))
    else:
        assert AvroSchema(json.dumps(written)).read(b"\x02\x04", 0) == {"a": {"b": 1}, "c": {"b": 2}}


def test_types_of_references_can_be_used() -> None:
    schema = AvroSchema(json.dumps(record({"a": "x.r"})), [json.dumps({**record({"b": "int"}), "namespace": "x"})])

    assert schema.read(b"\x02", 0) == {"a": {"b": 1}}


WORDS = st.sampled_from(
    ["type", "name", "fields", "items", "record", "array", "enum", "symbols", "int", "size", "fixed"]
)


def _nested(inner: Any) -> Any:
    return st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4)


@given(st.recursive(WORDS | st.none() | st.booleans() | st.integers() | st.text(max_size=6), _nested, max_leaves=12))
def test_whatever_json_a_schema_is_nothing_but_a_refusal_is_raised(schema: Any) -> None:
    with suppress(AvroRefused):
        AvroSchema(json.dumps(schema))


SHAPES = of(
    {
        "a": ["null", "long", "string"],
        "b": {"type": "map", "values": ["null", "double"]},
        "c": {"type": "array", "items": record({"d": "boolean", "e": plain(2)}, "x")},
        "f": logical("bytes", "decimal", precision=9, scale=2),
    }
)


@given(st.binary(max_size=60))
def test_whatever_bytes_a_message_is_nothing_but_no_avro_is_raised(data: bytes) -> None:
    with suppress(NoAvro):
        SHAPES.read(data, 0)
