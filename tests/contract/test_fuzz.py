"""
Whatever bytes lie under the name of a txlog or a rewrite: they are one, or are refused or held, and nothing else.

Here by rules that hypothesis can shrink; tests.chaos.fuzz does the same by the hundred thousand.
"""

import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.contract import rewrite as rewrite_format
from bookkeeper.contract import txlog as txlog_format
from bookkeeper.errors import Hold, NewerVersion, Reject, RewriteCorrupt
from bookkeeper.format import avro
from tests.contract.test_txlog_steps import steps
from tests.support.rewrites import ID, rewrite
from tests.support.txlogs import MOST, NAME, txlog


class Kind:
    """A good file, the exceptions that refuse or hold what is none, and what holds of one that is read."""

    def __init__(self, good: bytes, read: Callable[[bytes], bool], refused: tuple[type[Exception], ...]) -> None:
        self.good, self.read, self.refused = good, read, refused

    @cached_property
    def header(self) -> dict[str, bytes]:
        return dict(avro.read_header(self.good).meta)

    @cached_property
    def blocks(self) -> Any:
        return avro.decode(self.good, MOST).blocks

    def judged(self, data: bytes) -> bool:
        """Whether it is one; any exception but those that refuse or hold is a crash of the bookkeeper."""
        try:
            assert self.read(data)
        except self.refused:
            return False
        return True


def read_txlog(data: bytes) -> bool:
    found = txlog_format.decode(NAME, data, MOST)
    numbered = found.deletes is None or len(found.numbers) == len(found.files)
    return numbered and all(file.path is not None for file in found.files)


def read_rewrite(data: bytes) -> bool:
    found = rewrite_format.decode(ID, data, MOST)
    return bool(found.replaced) and found.sequence_number >= 0


STEPS = Kind(steps(), read_txlog, (Reject, Hold))
TXLOG = Kind(txlog(3), read_txlog, (Reject, Hold))
REWRITE = Kind(rewrite(), read_rewrite, (RewriteCorrupt, NewerVersion))
KINDS = {"txlog": TXLOG, "txlog with deletes": STEPS, "rewrite": REWRITE}
of_each = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@of_each
def test_what_is_mutated_is_good(kind: Kind) -> None:
    assert kind.judged(kind.good)


@of_each
@given(st.data(), st.integers(0, 60), st.binary(max_size=60))
def test_a_part_replaced_by_other_bytes_is_judged(kind: Kind, data: Any, length: int, other: bytes) -> None:
    start = data.draw(st.integers(0, len(kind.good)))
    kind.judged(kind.good[:start] + other + kind.good[start + length :])


@of_each
@given(st.data(), st.integers(0, 20), st.binary(max_size=20), st.integers(1, 6))
def test_a_part_of_the_records_replaced_is_judged(kind: Kind, data: Any, length: int, other: bytes, count: int) -> None:
    payload = kind.blocks[0].payload
    start = data.draw(st.integers(0, len(payload)))
    kind.judged(
        avro.encode(kind.header, [avro.Block(count, payload[:start] + other + payload[start + length :])], "null")
    )


@of_each
@given(st.data(), st.binary(max_size=30) | st.text(max_size=30).map(str.encode))
def test_any_value_of_any_header_key_is_judged(kind: Kind, data: Any, value: bytes) -> None:
    key = data.draw(st.sampled_from(sorted(kind.header)))
    kind.judged(avro.encode({**kind.header, key: value}, kind.blocks))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats(allow_nan=False) | st.text(max_size=8)
    | st.sampled_from(["null", "int", "long", "string", "bytes", "record", "array", "fixed", "r2", "r102"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["type", "fields", "name", "items", "size", "field-id", "values", "logicalType"]), inner
    ),
    max_leaves=6,
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """
    The path to every value in JSON data.
    """
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return other
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = replaced(value[path[0]], path[1:], other)
    return copied


@of_each
@given(st.data(), json_values)
def test_any_change_of_the_avro_schema_is_judged(kind: Kind, data: Any, other: Any) -> None:
    schema = json.loads(kind.header["avro.schema"])
    path = data.draw(st.sampled_from(places(schema)))
    changed = json.dumps(replaced(schema, path, other)).encode()
    kind.judged(avro.encode({**kind.header, "avro.schema": changed}, kind.blocks))


@of_each
@given(json_values)
def test_any_avro_schema_is_judged(kind: Kind, schema: Any) -> None:
    kind.judged(avro.encode({**kind.header, "avro.schema": json.dumps(schema).encode()}, kind.blocks))


@of_each
@given(st.binary(max_size=300))
def test_any_bytes_at_all_are_judged(kind: Kind, data: bytes) -> None:
    assert not kind.judged(data)
