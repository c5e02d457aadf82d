"""Counts and bounds in the txlog against the truth, computed from the rows."""

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.types import BinaryType, DecimalType, LongType, StringType

from bookkeeper.errors import ConfigInvalid
from bookkeeper.format.bounds import UNORDERED, Leaf, leaves, lower_bound, serialized, unscaled, upper_bound
from bookkeeper.format.open_file import OpenFile
from bookkeeper.format.parquet_writer import ParquetFile
from tests.support import wide
from tests.support.desk import SCHEMA, Desk, noisy_rows, only, rows
from writers.files.avro import AvroFile

LEAVES = leaves(wide.SCHEMA, {})
EMPTY: dict[str, Any] = dict.fromkeys([*wide.COLUMNS, "box", "tags", "counts"])
KINDS = {leaf.field_id: leaf.kind for leaf in LEAVES}
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _new(kind: str) -> OpenFile:
    if kind == "avro":
        return AvroFile(wide.SCHEMA, LEAVES, "gzip", 2**20)
    return ParquetFile(wide.ARROW, LEAVES, "zstd", 2**20)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _comparable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (value, math.copysign(1, value))
    return getattr(value, "bytes", value)


def _bound(number: int, data: bytes) -> Any:
    return _comparable(from_bytes(KINDS[number], data))


def _as_stored(number: int, value: Any) -> Any:
    """The value as `from_bytes` would give it back."""
    return _comparable(from_bytes(KINDS[number], to_bytes(KINDS[number], value)))


@quick
@given(st.sampled_from(["parquet", "avro"]), wide.ROWS, wide.ROWS)
def test_metrics_say_the_truth_about_every_column(kind: str, first: list[Any], second: list[Any]) -> None:
    file = _new(kind)
    for content in (first, second):
        file.add(wide.table(content))
    metrics = file.finish().metrics
    for number, values in wide.leaf_values(first + second).items():
        present = [value for value in values if value is not None]
        numbers = [_as_stored(number, value) for value in present if not _is_nan(value)]
        assert metrics.value_counts.get(number, 0) == len(values)
        assert metrics.null_value_counts.get(number, 0) == len(values) - len(present)
        if str(KINDS[number]) in ("float", "double"):
            assert metrics.nan_value_counts.get(number, 0) == len(present) - len(numbers)
        bounded = bool(numbers) and str(KINDS[number]) not in UNORDERED
        assert (number in metrics.lower_bounds) == bounded
        if not bounded:
            assert number not in metrics.upper_bounds
            continue
        assert _bound(number, metrics.lower_bounds[number]) <= min(numbers)
        if number in metrics.upper_bounds:
            assert _bound(number, metrics.upper_bounds[number]) >= max(numbers)
        else:
            assert str(KINDS[number]) in ("string", "binary")


@quick
@given(wide.ROWS)
def test_bounds_are_tight_where_nothing_is_cut(content: list[Any]) -> None:
    for kind in ("parquet", "avro"):
        file = _new(kind)
        file.add(wide.table(content))
        metrics = file.finish().metrics
        for number, values in wide.leaf_values(content).items():
            numbers = [_as_stored(number, value) for value in values if value is not None and not _is_nan(value)]
            if not numbers or str(KINDS[number]) in ("string", "binary", *UNORDERED):
                continue
            least, greatest = (
                _bound(number, bounds[number]) for bounds in (metrics.lower_bounds, metrics.upper_bounds)
            )
            if isinstance(least, tuple):  # a zero bound is -0.0 below and 0.0 above
                assert (least[0], greatest[0]) == (min(numbers)[0], max(numbers)[0])
            else:
                assert (least, greatest) == (min(numbers), max(numbers))


def test_columns_inside_lists_and_maps_have_no_bounds() -> None:
    assert {leaf.field_id for leaf in LEAVES if leaf.repeated} == {61, 71, 72}
    file = _new("parquet")
    file.add(wide.table([{**EMPTY, "tags": ["a", None], "counts": [("k", 1)]}]))
    metrics = file.finish().metrics
    assert metrics.value_counts[61] == 2
    assert not {61, 71, 72} & (metrics.lower_bounds.keys() | metrics.upper_bounds.keys())


def test_a_cut_text_is_raised_by_characters_over_the_surrogates() -> None:
    leaf = Leaf(1, ("t",), StringType(), False, True, True, 2)
    assert lower_bound(leaf, "a\U0001f389c".encode()) == "a\U0001f389".encode()
    assert upper_bound(leaf, b"abc") == b"ac"
    assert upper_bound(leaf, b"ab") == b"ab"
    assert upper_bound(leaf, "a\ud7ffx".encode()) == "a\ue000".encode()
    assert upper_bound(leaf, "a\U0010ffffx".encode()) == b"b"
    assert upper_bound(leaf, "\U0010ffff\U0010ffffx".encode()) is None


def test_cut_bytes_are_raised_or_left_out() -> None:
    leaf = Leaf(1, ("b",), BinaryType(), False, True, True, 2)
    assert lower_bound(leaf, b"\xff\xff\xff") == b"\xff\xff"
    assert upper_bound(leaf, b"a\xffc") == b"b"
    assert upper_bound(leaf, b"\xff\xff") == b"\xff\xff"
    assert upper_bound(leaf, b"\xff\xff\xff") is None


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 10))
def test_decimals_are_serialized_like_pyiceberg_does(number: int, scale: int) -> None:
    kind = DecimalType(38, scale)
    value = from_bytes(kind, serialized(kind, number))
    assert unscaled(value, scale) == number
    assert to_bytes(kind, value) == serialized(kind, value) == serialized(kind, number)


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_a_column_of_nothing_but_nan_has_counts_and_no_bounds(kind: str) -> None:
    file = _new(kind)
    file.add(wide.table([{**EMPTY, "double": math.nan, "single": 1.5}] * 2 + [{**EMPTY, "single": math.nan}]))
    metrics = file.finish().metrics
    single, double = (wide.SCHEMA.find_field(name).field_id for name in ("single", "double"))
    assert (metrics.nan_value_counts[single], metrics.nan_value_counts[double]) == (1, 2)
    assert metrics.null_value_counts[double] == 1
    assert single in metrics.lower_bounds and double not in metrics.lower_bounds
    assert single in metrics.upper_bounds and double not in metrics.upper_bounds


def test_one_row_group_without_bounds_takes_them_from_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookkeeper.format.parquet_writer.ROW_GROUP_BYTES", 1)
    long, nothing = {**EMPTY, "text": "y" * 5000, "double": 1.0}, {**EMPTY, "double": math.nan}
    for other, bounded in ((long, False), (nothing, True)):
        file = _new("parquet")
        for row in ({**EMPTY, "text": "x", "double": 2.0}, other, {**EMPTY, "text": "z"}):
            file.add(wide.table([row]))
        metrics = file.finish().metrics
        assert len(metrics.split_offsets or ()) == 3
        text, double = (wide.SCHEMA.find_field(name).field_id for name in ("text", "double"))
        assert (text in metrics.lower_bounds, text in metrics.upper_bounds) == (bounded, bounded)
        assert from_bytes(KINDS[double], metrics.upper_bounds[double]) == 2.0


def test_a_column_whose_values_are_too_long_for_parquet_has_counts_but_no_bounds(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(noisy_rows(["a", "b"], 5000))
        writer.write(rows("c"))
    file = only(only(desk.txlogs()).files)
    assert file.value_counts[3] == 3
    assert 3 not in file.lower_bounds
    assert file.lower_bounds[2] == b"a"


def test_the_txlog_holds_sizes_counts_bounds_and_split_offsets(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a", "key-longer-than-sixteen", value=None))
    file = only(only(desk.txlogs()).files)
    assert set(file.column_sizes) == {1, 2, 3}
    assert file.value_counts == {1: 2, 2: 2, 3: 2}
    assert file.null_value_counts == {1: 0, 2: 0, 3: 2}
    assert file.lower_bounds[2] == b"a"
    assert file.upper_bounds[2] == b"key-longer-than."
    assert set(file.lower_bounds) == {1, 2}
    assert file.split_offsets == (4,)
    assert file.sort_order_id == 0


def test_metrics_modes_of_the_card_are_followed() -> None:
    prefix = "write.metadata.metrics."
    modes = {f"{prefix}default": "none", f"{prefix}column.key": "truncate(3)", f"{prefix}column.value": "counts"}
    by_id = {leaf.field_id: leaf for leaf in leaves(SCHEMA, modes)}
    assert (by_id[2].counts, by_id[2].bounds, by_id[2].width) == (True, True, 3)
    assert (by_id[3].counts, by_id[3].bounds) == (True, False)


def test_metrics_modes_may_come_without_icebergs_prefix() -> None:
    by_id = {leaf.field_id: leaf for leaf in leaves(SCHEMA, {"default": "counts", "column.key": "full"})}
    assert (by_id[2].bounds, by_id[2].width, by_id[3].bounds) == (True, None, False)


def test_timestamps_always_have_bounds_for_retention(desk: Desk) -> None:
    desk.set_card(metrics={"write.metadata.metrics.default": "none"})
    with desk.writer() as writer:
        writer.write(rows("a"))
    file = only(only(desk.txlogs()).files)
    assert set(file.lower_bounds) == set(file.upper_bounds) == set(file.value_counts) == {1}


def test_full_bounds_are_not_cut(desk: Desk) -> None:
    desk.set_card(metrics={"write.metadata.metrics.default": "full"})
    with desk.writer() as writer:
        writer.write(rows("k" * 100))
    file = only(only(desk.txlogs()).files)
    assert file.upper_bounds[2] == b"k" * 100


def test_an_unknown_metrics_mode_is_refused_by_name() -> None:
    with pytest.raises(ConfigInvalid, match="sometimes"):
        leaves(SCHEMA, {"write.metadata.metrics.default": "sometimes"})


def test_widths_are_only_for_texts_and_bytes() -> None:
    assert lower_bound(Leaf(1, ("n",), LongType(), False, True, True, None), 5) == b"\x05" + bytes(7)
