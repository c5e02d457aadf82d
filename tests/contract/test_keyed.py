"""Keyed tables: what the property may say, and which columns can serve."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from bookkeeper.contract import card as cards
from bookkeeper.contract.keyed import PROPERTY, Keyed, check, dumps, is_within_keys, keyed_of, parse, to_json
from bookkeeper.errors import TableUnusable, WrongFolder
from tests.support.cards import card
from tests.support.table_metadata import EMPTY


def schema(*more: NestedField, keys: list[int] | None = None) -> Schema:
    columns = (
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "value", StringType(), required=False),
        NestedField(3, "op", StringType(), required=False),
        NestedField(4, "seq", LongType(), required=False),
    )
    return Schema(*columns, *more, identifier_field_ids=[1] if keys is None else keys)


def unvalidated(found: Schema, keys: list[int]) -> Schema:
    """A schema that pyiceberg itself would not take."""
    return found.model_copy(update={"identifier_field_ids": keys})


@pytest.mark.parametrize("keyed", [Keyed((1,), 0), Keyed((1,), 3, 3, 4), Keyed((1,), 0, None, 4)])
def test_the_property_is_read_as_it_was_written(keyed: Keyed) -> None:
    assert parse(json.loads(dumps(keyed)), schema()) == keyed


def test_keys_come_in_the_order_of_their_ids() -> None:
    second = NestedField(5, "part", IntegerType(), required=True)
    assert parse({"delete-spec-id": 0}, schema(second, keys=[5, 1])).key_ids == (1, 5)


WRONG: list[Any] = [
    {},
    [],
    None,
    3,
    "x",
    {"delete-spec-id": "0"},
    {"delete-spec-id": True},
    {"delete-spec-id": -1},
    {"delete-spec-id": 2**31},
    {"delete-spec-id": None},
    {"delete-spec-id": 0, "new": 1},
    {"op-field-id": 3},
    {"delete-spec-id": 0, "op-field-id": 9},
    {"delete-spec-id": 0, "op-field-id": 4},
    {"delete-spec-id": 0, "order-field-id": 3},
    {"delete-spec-id": 0, "order-field-id": 1},
    {"delete-spec-id": 0, "op-field-id": 1},
    {"delete-spec-id": 0, "op-field-id": 3.0},
]


@pytest.mark.parametrize("said", WRONG)
def test_anything_else_is_refused(said: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(said, schema())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["delete-spec-id", "op-field-id"]), inner),
    )
)
def test_whatever_the_property_says_it_is_known_or_refused(said: Any) -> None:
    try:
        found = parse(said, schema())
    except ValueError:
        return
    assert to_json(found) == said


def test_a_table_without_the_property_is_not_keyed() -> None:
    assert keyed_of(table({})) is None


def test_a_property_that_does_not_fit_says_what_to_do() -> None:
    for text in ("{", "{}", "[" * 100_000, '{"delete-spec-id": 0, "op-field-id": 70}'):
        with pytest.raises(TableUnusable) as caught:
            keyed_of(table({PROPERTY: text}))
        assert "bookkeeper init --key" in caught.value.hint


def table(properties: dict[str, str]) -> TableMetadata:
    return EMPTY.model_copy(update={"schemas": [schema()], "properties": properties})


@pytest.mark.parametrize(
    "kind", [FloatType(), DoubleType(), StructType(NestedField(6, "x", LongType(), required=True))]
)
def test_a_key_is_of_a_type_that_has_one_value_for_each_key(kind: IcebergType) -> None:
    found = unvalidated(schema(NestedField(5, "k", kind, required=True)), [5])
    with pytest.raises(ValueError, match=r"'k' is .*, which no key can be"):
        check(Keyed((5,), 0), found)


def test_a_key_is_a_required_column_and_lies_in_none() -> None:
    inner = NestedField(6, "k", LongType(), required=True)
    with pytest.raises(ValueError, match="'value' is optional"):
        check(Keyed((2,), 0), schema())
    for required in (True, False):
        found = schema(NestedField(5, "part", StructType(inner), required=required))
        with pytest.raises(ValueError, match="keys are whole columns"):
            check(Keyed((6,), 0), found)
    listed = schema(NestedField(5, "part", ListType(6, LongType(), element_required=True), required=True))
    with pytest.raises(ValueError, match="keys are whole columns"):
        check(Keyed((6,), 0), listed)


def test_a_table_has_keys() -> None:
    with pytest.raises(ValueError, match="no identifier fields"):
        parse({"delete-spec-id": 0}, schema(keys=[]))


def test_tombstones_carry_only_the_keys() -> None:
    needed = NestedField(5, "needed", LongType(), required=True)
    check(Keyed((1,), 0, None, 4), schema(needed))
    for column in (
        needed,
        NestedField(5, "s", StructType(NestedField(6, "needed", LongType(), required=True)), required=True),
    ):
        with pytest.raises(ValueError, match="'needed' is required, but a tombstone carries only the keys"):
            check(Keyed((1,), 0, 3, 4), schema(column))
    # Inside an optional struct it is null with the struct.
    check(
        Keyed((1,), 0, 3, 4),
        schema(NestedField(5, "s", StructType(needed.model_copy(update={"field_id": 6})), required=False)),
    )


def test_a_spec_is_within_the_keys_when_all_its_sources_are() -> None:
    by_key = PartitionSpec(PartitionField(1, 1000, BucketTransform(8), "id_bucket"), spec_id=1)
    by_day = PartitionSpec(*by_key.fields, PartitionField(5, 1001, DayTransform(), "day"), spec_id=2)
    assert [is_within_keys(spec, Keyed((1,), 0)) for spec in (PartitionSpec(), by_key, by_day)] == [True, True, False]


# the card


def keyed_card(**upserts: int) -> cards.Card:
    return card(
        table_schema=json.loads(schema().model_dump_json()), upserts=upserts and to_json(Keyed((1,), **upserts))
    )


def test_the_card_of_an_append_only_table_has_no_key_for_upserts() -> None:
    data = cards.dumps(keyed_card())
    assert b"upserts" not in data
    assert (cards.loads(data).keyed, cards.loads(data).upserts) == (None, {})


def test_the_card_of_a_keyed_table_says_how() -> None:
    made = keyed_card(delete_spec_id=0, op_field_id=3)
    found = cards.loads(cards.dumps(made))
    assert found == made
    assert found.keyed == Keyed((1,), 0, 3)


@pytest.mark.parametrize("said", [{"delete-spec-id": "0"}, {"x": 1}, [], 7, {"delete-spec-id": 0, "op-field-id": 9}])
def test_a_card_whose_upserts_do_not_fit_its_schema_is_refused(said: Any) -> None:
    raw = json.loads(cards.dumps(keyed_card(delete_spec_id=0)))
    with pytest.raises(WrongFolder, match=r"card\.json is not readable"):
        cards.loads(json.dumps({**raw, "upserts": said}).encode())
