"""
Whatever bytes lie under a txlog's name: it is a txlog, or it is refused or held; nothing else ever happens.

Here by rules that hypothesis can shrink; tests.chaos.fuzz does the same by the hundred thousand.
"""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.core.txlog import decode
from bookkeeper.errors import Hold, Reject
from bookkeeper.format import avro
from tests.support.txlogs import MOST, NAME, txlog

GOOD = txlog(3)
HEADER = avro.read_header(GOOD).meta
BLOCKS = avro.decode(GOOD, MOST).blocks
SCHEMA = json.loads(HEADER["avro.schema"])


def judged(data: bytes) -> bool:
    """
    Whether it is a txlog; any other exception than a Reject or a Hold is a crash of the bookkeeper.
    """
    try:
        found = decode(NAME, data, MOST)
    except (Reject, Hold):
        return False
    assert all(file.path is not None for file in found.files)
    return True


def test_the_txlog_that_is_mutated_is_good() -> None:
    assert judged(GOOD)


@given(st.integers(0, len(GOOD)), st.integers(0, 60), st.binary(max_size=60))
def test_a_part_replaced_by_other_bytes_is_judged(start: int, length: int, other: bytes) -> None:
    judged(GOOD[:start] + other + GOOD[start + length :])


@given(st.integers(0, len(BLOCKS[0].payload)), st.integers(0, 20), st.binary(max_size=20), st.integers(1, 5))
def test_a_part_of_the_records_replaced_is_judged(start: int, length: int, other: bytes, count: int) -> None:
    payload = BLOCKS[0].payload
    judged(avro.encode(HEADER, [avro.Block(count, payload[:start] + other + payload[start + length :])], "null"))


@given(st.sampled_from(sorted(HEADER)), st.binary(max_size=30) | st.text(max_size=30).map(str.encode))
def test_any_value_of_any_header_key_is_judged(key: str, value: bytes) -> None:
    judged(avro.encode({**HEADER, key: value}, BLOCKS))


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


@given(st.sampled_from(places(SCHEMA)), json_values)
def test_any_change_of_the_avro_schema_is_judged(path: tuple[Any, ...], other: Any) -> None:
    schema = json.dumps(replaced(SCHEMA, path, other)).encode()
    judged(avro.encode({**HEADER, "avro.schema": schema}, BLOCKS))


@given(json_values)
def test_any_avro_schema_is_judged(schema: Any) -> None:
    judged(avro.encode({**HEADER, "avro.schema": json.dumps(schema).encode()}, BLOCKS))


@given(st.binary(max_size=300))
def test_any_bytes_at_all_are_judged(data: bytes) -> None:
    assert not judged(data)
