"""Partition summaries: what readers prune manifests by, so never narrower than the tuples."""

import math
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.utils.decimal import decimal_to_bytes

from bookkeeper.format.partition_tuples import FieldSummary, summarise


def only(kind: Any, *values: Any, decimal: bool = False) -> FieldSummary:
    (found,) = summarise([(kind, decimal)], [(value,) for value in values])
    return found


@given(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), min_size=1))
def test_numbers_are_bounded_by_the_least_and_the_greatest(values: list[int | None]) -> None:
    found = only("int", *values)
    numbers = [value for value in values if value is not None]
    assert found.contains_null == (None in values)
    assert found.lower_bound == (struct.pack("<i", min(numbers)) if numbers else None)
    assert found.upper_bound == (struct.pack("<i", max(numbers)) if numbers else None)


def test_nan_is_told_apart_and_bounds_nothing() -> None:
    assert only("double", math.nan, 1.0) == FieldSummary(False, True, struct.pack("<d", 1.0), struct.pack("<d", 1.0))
    assert only("float", math.nan, None) == FieldSummary(True, True, None, None)


def test_decimals_are_compared_as_signed_numbers() -> None:
    minus, plus = ((value).to_bytes(5, "big", signed=True) for value in (-1, 1))
    found = only(("fixed", 5), plus, minus, decimal=True)
    assert (found.lower_bound, found.upper_bound) == (b"\xff", b"\x01")


@pytest.mark.parametrize("number", [0, 127, 128, -128, -129, 2**31 - 1, -(2**31)])
def test_the_bound_of_a_decimal_has_the_fewest_bytes_that_hold_it(number: int) -> None:
    found = only(("fixed", 9), number.to_bytes(9, "big", signed=True), decimal=True).lower_bound
    assert found == decimal_to_bytes(Decimal(number))


def test_other_fixed_values_are_compared_as_bytes() -> None:
    low, high = bytes(16), b"\xff" * 16
    found = only(("fixed", 16), high, low)
    assert (found.lower_bound, found.upper_bound) == (low, high)


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("boolean", True, b"\x01"),
        ("long", -1, b"\xff" * 8),
        ("string", "é", b"\xc3\xa9"),
        ("bytes", b"\x00", b"\x00"),
    ],
)
def test_a_bound_is_stored_as_a_single_value(kind: str, value: Any, stored: bytes) -> None:
    assert only(kind, value) == FieldSummary(False, False, stored, stored)


def test_a_table_without_partitions_has_no_summaries() -> None:
    assert summarise([], [(), ()]) == []


def test_each_field_has_a_summary_of_its_own() -> None:
    found = summarise([("int", False), ("string", False)], [(1, "b"), (None, "a")])
    assert [(item.contains_null, item.lower_bound, item.upper_bound) for item in found] == [
        (True, struct.pack("<i", 1), struct.pack("<i", 1)),
        (False, b"a", b"b"),
    ]
