"""Random schemas, changed at random: each value is found by its field id, wherever it is and whatever it is named."""

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
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
)

from bookkeeper.format.projection import Projection

#: more by hand: RANDOM_SCHEMAS=3000
EXAMPLES = int(os.environ.get("RANDOM_SCHEMAS", "120"))
#: type before, type after, values
LEAVES: list[tuple[IcebergType, IcebergType, st.SearchStrategy[Any]]] = [
    (IntegerType(), IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    (IntegerType(), LongType(), st.integers(-(2**31), 2**31 - 1)),
    (LongType(), LongType(), st.integers(-(2**63), 2**63 - 1)),
    (FloatType(), DoubleType(), st.floats(width=32, allow_nan=False)),
    (DecimalType(7, 2), DecimalType(30, 2), st.integers(-(10**7) + 1, 10**7 - 1).map(lambda n: Decimal(n) / 100)),
    (StringType(), StringType(), st.text(max_size=5)),
    (BinaryType(), BinaryType(), st.binary(max_size=5)),
    (FixedType(3), FixedType(3), st.binary(min_size=3, max_size=3)),
    (BooleanType(), BooleanType(), st.booleans()),
    (DateType(), DateType(), st.dates()),
]


@dataclass
class Kind:
    """A type before and after, its values before, and what each becomes."""

    before: IcebergType
    after: IcebergType
    values: st.SearchStrategy[Any]
    becomes: Callable[[Any], Any]


@st.composite
def kinds(draw: st.DrawFn, ids: Iterator[int], depth: int) -> Kind:
    shape = draw(st.sampled_from(["leaf", "leaf", "struct", "list", "map"])) if depth else "leaf"
    if shape == "leaf":
        before, after, values = draw(st.sampled_from(LEAVES))
        return Kind(before, after, values, lambda value: value)
    if shape == "struct":
        return draw(structs(ids, depth - 1))
    inner, number = draw(kinds(ids, depth - 1)), next(ids)
    values = st.none() | inner.values
    if shape == "list":
        return Kind(
            ListType(number, inner.before, element_required=False),
            ListType(number, inner.after, element_required=False),
            st.lists(values, max_size=3),
            lambda items: [None if item is None else inner.becomes(item) for item in items],
        )
    key = next(ids)
    return Kind(
        MapType(key, StringType(), number, inner.before, value_required=False),
        MapType(key, StringType(), number, inner.after, value_required=False),
        st.lists(st.tuples(st.text(max_size=2), values), max_size=3),
        lambda pairs: [(name, None if item is None else inner.becomes(item)) for name, item in pairs],
    )


@st.composite
def structs(draw: st.DrawFn, ids: Iterator[int], depth: int) -> Kind:
    fates = draw(st.lists(st.sampled_from(["kept", "kept", "dropped", "added"]), min_size=1, max_size=4))
    fates = [*fates, "kept"]
    # Few names: old ones come back at other columns.
    names = st.permutations([f"c{number}" for number in range(len(fates))])
    old_names, new_names = draw(names), draw(names)
    before, after, parts, given_values = [], [], [], {}
    for index, fate in enumerate(fates):
        kind, number = draw(kinds(ids, depth)), next(ids)
        old, new = old_names[index], new_names[index]
        if fate != "added":
            before.append(NestedField(number, old, kind.before, required=False))
            given_values[old] = st.none() | kind.values
        if fate != "dropped":
            after.append(NestedField(number, new, kind.after, required=False))
            parts.append((new, old if fate == "kept" else None, kind))
    before, after = draw(st.permutations(before)), draw(st.permutations(after))

    def becomes(row: dict[str, Any]) -> dict[str, Any]:
        return {new: None if old is None or row[old] is None else kind.becomes(row[old]) for new, old, kind in parts}

    return Kind(StructType(*before), StructType(*after), st.fixed_dictionaries(given_values), becomes)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Kind, list[dict[str, Any]]]:
    kind = draw(structs(count(1), 2))
    return kind, draw(st.lists(kind.values, min_size=1, max_size=6))


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(), st.booleans(), st.integers(1, 4), st.booleans())
def test_each_value_is_found_by_its_id(
    case: tuple[Kind, list[dict[str, Any]]], with_ids: bool, batch_rows: int, arrows_types: bool
) -> None:
    kind, rows = case
    old, new = Schema(*kind.before.fields), Schema(*kind.after.fields)  # type: ignore[attr-defined]
    table = pa.Table.from_pylist(rows, schema=schema_to_pyarrow(old, include_field_ids=with_ids))
    out = io.BytesIO()
    pq.write_table(table, out, store_schema=arrows_types, row_group_size=3)
    opened = pq.ParquetFile(out)
    mapping = None if with_ids else create_mapping_from_schema(old)
    projection = Projection(opened.schema_arrow, new, schema_to_pyarrow(new), mapping, {})
    found = []
    for batch in opened.iter_batches(batch_rows, columns=projection.source.names):
        for sliced in (batch.slice(0, 1), batch.slice(1, 1), batch.slice(2)):
            part = projection.rows(sliced)
            part.validate(full=True)
            assert part.schema.equals(schema_to_pyarrow(new), check_metadata=True)
            found += part.to_pylist()
    assert found == [kind.becomes(row) for row in rows]
