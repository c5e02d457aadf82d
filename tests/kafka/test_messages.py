"""Messages become rows: a batch at once gives what its messages give one by one, and a bad one costs only itself."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, LongType, NestedField, StringType, TimestamptzType

from bookkeeper.errors import ConfigInvalid
from writers.kafka.messages import Converted, MessageReader, Outdated, converted
from writers.kafka.partitions import Partition
from writers.loader.formats import Format

JSON, DEBEZIUM = Format("ndjson"), Format("ndjson", debezium=True)
SCHEMA = Schema(
    NestedField(1, "n", LongType(), required=True),
    NestedField(2, "text", StringType()),
    NestedField(3, "at", LongType()),
)
RAW = Schema(
    NestedField(1, "value", BinaryType()),
    NestedField(2, "key", StringType(), required=True),
    NestedField(3, "headers", StringType()),
    NestedField(4, "timestamp", TimestamptzType()),
    NestedField(5, "other", StringType()),
)


@dataclass(frozen=True)
class Fake:
    """A message as the client gives it."""

    data: bytes | None
    number: int = 0
    at: int = 0
    name: bytes | None = None
    given: Sequence[tuple[str, bytes | None]] | None = None
    when: tuple[int, int] = (1, 1_700_000_000_123)

    def value(self) -> bytes | None:
        return self.data

    def key(self) -> bytes | None:
        return self.name

    def headers(self) -> Any:
        return self.given

    def timestamp(self) -> tuple[int, int]:
        return self.when

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at


def reader(
    schema: Schema = SCHEMA, form: Format | None = JSON, filled: dict[str, str] | None = None, keys: Sequence[str] = ()
) -> MessageReader:
    return MessageReader(schema, keys, {}, form, {"offset": "at"} if filled is None else filled)


def rows(found: Converted) -> list[dict[str, Any]]:
    return [row for table in found.tables for row in table.to_pylist()]


def read(values: Sequence[bytes | None], skips: int = 0, partitions: int = 1) -> Converted:
    messages = [Fake(value, at % partitions, at) for at, value in enumerate(values)]
    return converted(reader(), messages, skips, is_newest=True)


GOOD = [json.dumps({"n": number, "text": "é" * (number % 3)}).encode() for number in range(100)]


def test_a_good_batch_is_one_table_with_the_parts_that_were_asked_for() -> None:
    found = read(GOOD)

    assert len(found.tables) == 1
    assert rows(found) == [{"n": n, "text": "é" * (n % 3), "at": n} for n in range(100)]


def test_bad_messages_are_passed_over_as_often_as_it_is_allowed_and_named() -> None:
    values: list[bytes | None] = [*GOOD]
    values[40], values[70] = b"{", None

    found = read(values, skips=2)

    assert [row["at"] for row in rows(found)] == [at for at in range(100) if at not in (40, 70)]
    assert [(bad.offset, bad.skipped) for bad in found.bad] == [(40, True), (70, True)]
    assert found.bad[1].reason == "a message without a value"


def test_a_partition_stops_before_its_bad_message_and_the_others_go_on() -> None:
    values: list[bytes | None] = [*GOOD]
    values[41] = b"[]"

    found = read(values, partitions=2)

    assert found.stopped == {Partition("t", 1): 41}
    assert [row["at"] for row in rows(found)] == [at for at in range(100) if at % 2 == 0 or at < 41]


@pytest.mark.parametrize(
    "pair",
    [
        (b'{"n": 1}\n{"n": 2}', b""),
        (b'{"n": 1}{"n": 2}', b""),
        (b'{"n": 1', b"}"),
        (b'{"n":1,\n"text":"a"}', b'{"n": 2}'),
        (b"", b'{"n": 1}\n{"n": 2}'),
    ],
)
@pytest.mark.parametrize("behind", [0, 30])
def test_what_is_one_message_is_one_row_whatever_its_neighbour_holds(pair: tuple[bytes, bytes], behind: int) -> None:
    values = [*GOOD[:30], *pair, *GOOD[:behind]]

    found = read(values, skips=10)

    alone = [read([value], skips=1) for value in values]
    assert [row["n"] for row in rows(found)] == [row["n"] for one in alone for row in rows(one)]
    assert [bad.offset for bad in found.bad] == [at for at, one in enumerate(alone) if one.bad]


PIECES = st.one_of(
    st.sampled_from(GOOD),
    st.sampled_from(
        [b"", b"\n", b"{}", b"null", b'{"n":1}\n', b'{"n":1}\r', b'\xef\xbb\xbf{"n":1}', b'{"n":1}\n{"n":2}']
    ),
    st.sampled_from([b'{"n":-0}', b'{"n":1.0}', b'{"n":9223372036854775808}', b'{"n":1,"n":2}', b'{"n":"1"}', b"\xff"]),
    st.binary(max_size=6),
)


@given(st.lists(PIECES, min_size=17, max_size=60))
def test_a_batch_gives_what_its_messages_give_one_by_one(values: list[bytes]) -> None:
    found = read(values, skips=len(values))

    alone = [read([value], skips=1) for value in values]
    assert [(row["n"], row["text"]) for row in rows(found)] == [
        (row["n"], row["text"]) for one in alone for row in rows(one)
    ]
    assert [bad.offset for bad in found.bad] == [at for at, one in enumerate(alone) if one.bad]


def test_raw_messages_fill_the_columns_of_their_parts() -> None:
    parts = {part: part for part in ("value", "key", "headers", "timestamp")}
    messages = [Fake(b"\xff", at=at, name=b"k%d" % at, given=[("a", b"1"), ("a", None)]) for at in range(40)]

    found = converted(reader(RAW, None, parts), messages, 0, is_newest=True)

    assert len(found.tables) == 1 and found.tables[0].num_rows == 40
    row = rows(found)[7]
    assert (row["value"], row["key"], row["other"]) == (b"\xff", "k7", None)
    assert row["headers"] == '[["a", "1"], ["a", null]]'
    assert row["timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"


@pytest.mark.parametrize("name", [None, b"\xff"])
def test_a_part_that_its_column_cannot_hold_makes_a_bad_message(name: bytes | None) -> None:
    parts = {part: part for part in ("value", "key", "headers", "timestamp")}
    messages = [Fake(b"v", at=at, name=name if at == 21 else b"k") for at in range(40)]

    found = converted(reader(RAW, None, parts), messages, 1, is_newest=True)

    assert [bad.offset for bad in found.bad] == [21]
    assert sum(table.num_rows for table in found.tables) == 39


@pytest.mark.parametrize(
    ("schema", "form", "filled", "keys"),
    [
        (SCHEMA, JSON, {"offset": "nowhere"}, []),
        (SCHEMA, JSON, {"offset": "text"}, []),
        (RAW, None, {"value": "value"}, []),
        (SCHEMA, DEBEZIUM, {"offset": "n"}, ["n"]),
    ],
)
def test_columns_that_cannot_be_filled_are_refused_before_anything_is_read(
    schema: Schema, form: Format | None, filled: dict[str, str], keys: list[str]
) -> None:
    with pytest.raises(ConfigInvalid, match="column"):
        reader(schema, form, filled, keys)


def test_an_unknown_column_is_bad_only_where_the_table_is_known_as_it_is_now() -> None:
    messages = [Fake(b'{"n": 1, "new": 2}')]
    with pytest.raises(Outdated):
        converted(reader(), messages, 1, is_newest=False)

    found = converted(reader(), messages, 1, is_newest=True)

    assert found.bad[0].reason == "the table has no column 'new'"


def test_changes_are_upserts_and_deletes_and_a_tombstone_is_nothing() -> None:
    values = [
        {"op": "c", "before": None, "after": {"n": 1, "text": "a"}},
        {"op": "u", "before": {"n": 1}, "after": {"n": 2, "text": "b"}},
        {"op": "d", "before": {"n": 2, "text": "b"}, "after": None},
        None,
    ]
    messages = [Fake(None if value is None else json.dumps(value).encode(), at=at) for at, value in enumerate(values)]

    found = converted(reader(SCHEMA, DEBEZIUM, keys=["n"]), messages, 0, is_newest=True)

    assert [(row["n"], row["deleted"], row["at"]) for row in rows(found)] == [
        (1, False, 0),
        (1, True, 1),
        (2, False, 1),
        (2, True, 2),
    ]


def test_a_change_that_cannot_be_applied_stops_its_partition_also_where_bad_messages_may_be_passed_over() -> None:
    messages = [Fake(b'{"op": "t"}', at=4), Fake(b'{"op": "c", "after": {"n": 1}}', at=5)]

    found = converted(reader(SCHEMA, DEBEZIUM, keys=["n"]), messages, 9, is_newest=True)

    assert (found.stopped, found.tables) == ({Partition("t", 0): 4}, [])
    assert pa.__version__
