"""The last rewrite of a partition sorts its rows by the table's sort order; a file says so only when it is true."""

import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform, YearTransform
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    FloatType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
)

from bookkeeper.format import parquet_writer as parquet
from bookkeeper.format.bounds import leaves
from bookkeeper.format.sorting import Sorter, sorter_of
from bookkeeper.stores.locations import local_path
from reaper.compactor import new_files
from tests.reaper.compactor.stage import Stage
from tests.support import wide
from tests.support.compactions import committed, rewritten, scanned
from tests.support.compactor import live
from tests.support.writer_queue import Queue

COLUMNS = ({"name": "n", "type": "long"}, {"name": "s", "type": "string"})
ASC, DESC = SortDirection.ASC, SortDirection.DESC
FIRST, LAST = NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST


def ordered(stage: Stage) -> Stage:
    with stage.lake.table().update_sort_order() as update:
        update.asc("n", IdentityTransform(), FIRST)
    return stage


def filled(root: Path, files: int = 3, rows: int = 50) -> Stage:
    stage = ordered(Stage(root, *COLUMNS))
    for number in range(files):
        noise = random.Random(number)
        found = [{"n": noise.randrange(1000), "s": noise.randbytes(25).hex()} for _ in range(rows)]
        stage.put(stage.arrow(*found, {"n": None, "s": "null"}))
    return stage


def numbers(stage: Stage) -> list[list[int | None]]:
    """Of each live file."""
    return [pq.read_table(local_path(item.file.path))["n"].to_pylist() for item in live(stage.lake)]


def is_sorted(values: list[int | None]) -> bool:
    return values == sorted(values, key=lambda value: (value is not None, value or 0))


def test_the_last_rewrite_of_a_partition_is_sorted(tmp_path: Path) -> None:
    stage = filled(tmp_path)
    before = scanned(stage.lake)
    rewritten(stage.lake, last=True)
    committed(stage.lake)
    (new,) = live(stage.lake)
    assert (new.file.sort_order_id, scanned(stage.lake)) == (1, before)
    assert is_sorted(numbers(stage)[0])


def test_other_rewrites_are_not(tmp_path: Path) -> None:
    stage = filled(tmp_path)
    rewritten(stage.lake)
    committed(stage.lake)
    (new,) = live(stage.lake)
    assert (new.file.sort_order_id, is_sorted(numbers(stage)[0])) == (0, False)


def test_a_table_without_an_order_is_not(tmp_path: Path) -> None:
    stage = Stage(tmp_path, *COLUMNS)
    stage.put(stage.arrow({"n": 2}, {"n": 1}))
    assert [row["n"] for row in stage.rewritten(last=True)] == [2, 1]
    assert [item.file.sort_order_id for item in live(stage.lake)] == [0]


@pytest.mark.parametrize("run_bytes", [1, 3_000, 9_000, 20_000])
def test_a_file_says_that_it_is_sorted_only_when_all_its_rows_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_bytes: int
) -> None:
    stage = filled(tmp_path, files=4)
    before = scanned(stage.lake)
    with stage.lake.table().transaction() as change:
        change.set_properties({"write.target-file-size-bytes": "4000"})
    monkeypatch.setattr(new_files, "RUN_BYTES", run_bytes)
    monkeypatch.setattr(new_files, "PIECE_BYTES", 500)
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 2_000)
    rewritten(stage.lake, last=True)
    committed(stage.lake)
    assert scanned(stage.lake) == before
    found = [
        (item.file.sort_order_id, is_sorted(values))
        for item, values in zip(live(stage.lake), numbers(stage), strict=True)
    ]
    assert all(really for said, really in found if said)
    assert len(found) > 1
    assert {said for said, _ in found} == ({1} if run_bytes == 20_000 else {0, 1})


def test_writers_sort_their_files(tmp_path: Path) -> None:
    queue = Queue(tmp_path, partition_by=())
    with queue.table().update_sort_order() as update:
        update.desc("key", IdentityTransform(), LAST)
    queue.tick()
    with queue.writer() as writer:
        rows = [{"timestamp": queue.clock(), "key": key, "value": b"v"} for key in ("b", "c", "a")]
        for row in rows:
            writer.write(pa.Table.from_pylist([row]))
    queue.tick()
    (task,) = queue.table().scan().plan_files()
    assert task.file.sort_order_id == 1
    assert pq.read_table(local_path(task.file.file_path))["key"].to_pylist() == ["c", "b", "a"]


def test_a_writers_file_of_two_row_groups_does_not_say_that_it_is_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1)
    schema = Schema(NestedField(1, "n", LongType(), required=False))
    order = sorter_of(SortOrder(SortField(1, IdentityTransform(), ASC, LAST), order_id=5), schema)
    for groups in (1, 2):
        file = parquet.ParquetFile(pa.schema([("n", pa.int64())]), leaves(schema, {}), "zstd", 2**20, order)
        for _ in range(groups):
            file.add(pa.table({"n": [2, 1]}))
        done = file.finish()
        assert done.sort_order_id == (5 if groups == 1 else 0)
        assert pq.read_table(pa.BufferReader(done.data))["n"].to_pylist() == [1, 2] * groups


SCHEMA = Schema(
    NestedField(1, "f", DoubleType(), required=False),
    NestedField(2, "s", StringType(), required=False),
    NestedField(3, "l", ListType(4, LongType(), element_required=False), required=False),
)


def test_floats_are_in_icebergs_order() -> None:
    values = [1.0, None, 0.0, -0.0, math.nan, -math.inf, 5e-324, -1.5, math.inf, None]
    for kind in (pa.float64(), pa.float32()):
        rows = pa.table(
            {"f": pa.array([0.25 if value == 5e-324 else value for value in values], kind), "s": list("0123456789")}
        )
        orders = [
            SortOrder(SortField(1, IdentityTransform(), way, nulls), order_id=1)
            for way, nulls in ((ASC, FIRST), (DESC, LAST))
        ]
        found = [Sorter(order, SCHEMA).sort(rows)["s"].to_pylist() for order in orders]
        assert found == [list("1957326084"), list("4806237519")]


def test_what_cannot_be_sorted_here_stays_as_it_is() -> None:
    fields = [
        SortField(3, IdentityTransform(), ASC, LAST),
        SortField(99, IdentityTransform(), ASC, LAST),
        SortField(2, YearTransform(), ASC, LAST),
        SortField(4, IdentityTransform(), ASC, LAST),
    ]
    assert [sorter_of(SortOrder(field, order_id=1), SCHEMA) for field in fields] == [None] * 4
    assert sorter_of(SortOrder(SortField(2, BucketTransform(4), ASC, LAST), order_id=1), SCHEMA) is not None
    assert sorter_of(SortOrder(order_id=0), SCHEMA) is None


@pytest.mark.parametrize("kind", [BooleanType(), FloatType(), DoubleType()])
def test_a_transform_that_its_type_does_not_have_leaves_rows_unsorted(kind: PrimitiveType) -> None:
    schema = Schema(NestedField(1, "a", kind, required=False))
    order = SortOrder(SortField(1, BucketTransform(4), ASC, LAST), order_id=1)
    assert sorter_of(order, schema) is None
    rows = pa.table({"a": [1, None]}).cast(schema_to_pyarrow(schema))
    assert Sorter(order, schema).sort(rows) is None


def test_a_value_that_has_no_place_in_the_order_leaves_a_file_unsorted(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"name": "d", "type": "decimal(4, 2)"})
    with stage.lake.table().update_sort_order() as update:
        update.asc("d", TruncateTransform(10), FIRST)
    stage.put(stage.arrow({"d": Decimal("1.00")}, {"d": Decimal("-99.99")}))
    assert [row["d"] for row in stage.rewritten(last=True)] == [Decimal("1.00"), Decimal("-99.99")]
    assert [item.file.sort_order_id for item in live(stage.lake)] == [0]
    table = stage.lake.table()
    sorter = sorter_of(table.sort_order(), table.schema())
    file = parquet.ParquetFile(stage.arrow().schema, leaves(table.schema(), {}), "zstd", 2**20, sorter)
    file.add(stage.arrow({"d": Decimal("2.00")}, {"d": Decimal("1.00")}, {"d": Decimal("-99.99")}))
    done = file.finish()
    assert (done.sort_order_id, done.rows) == (0, 3)


def _sortable(value: Any) -> Any:
    return value.bytes if hasattr(value, "bytes") else value


SORTABLE = [field for field in wide.FIELDS if field.name not in ("single", "double")]


@settings(max_examples=60, deadline=None)
@given(wide.ROWS, st.sampled_from(SORTABLE), st.sampled_from([ASC, DESC]), st.sampled_from([FIRST, LAST]))
def test_every_type_is_sorted_as_python_sorts_it(rows: Any, field: NestedField, way: Any, nulls: Any) -> None:
    sorter = sorter_of(SortOrder(SortField(field.field_id, IdentityTransform(), way, nulls), order_id=1), wide.SCHEMA)
    assert sorter is not None
    table = wide.table(rows)
    given_rows = [(_sortable(value), at) for at, value in enumerate(table[field.name].to_pylist())]

    def key(pair: Any) -> Any:
        return pair[0].encode() if isinstance(pair[0], str) else pair[0]

    some = sorted((pair for pair in given_rows if pair[0] is not None), key=key, reverse=way == DESC)
    none = [pair for pair in given_rows if pair[0] is None]
    expected = none + some if nulls == FIRST else some + none
    found = sorter.sort(table)
    assert found is not None
    assert [_sortable(value) for value in found[field.name].to_pylist()] == [value for value, _ in expected]
    whole = sorted(map(repr, found.to_pylist()))
    assert whole == sorted(map(repr, table.to_pylist()))
    parts = [table.slice(0, 2), table.slice(2, 0), table.slice(2, 3), table.slice(5)]
    pieces = list(sorter.pieces(parts, 64) or ())
    assert [row for piece in pieces for row in piece.to_pylist()] == found.to_pylist() or "nan" in repr(
        found.to_pylist()
    )


def test_a_transform_sorts_by_its_result() -> None:
    order = SortOrder(SortField(2, TruncateTransform(1), DESC, LAST), order_id=1)
    found = Sorter(order, SCHEMA).sort(pa.table({"f": [1.0, 2.0, 3.0], "s": ["ab", "ba", "aa"]}))
    assert found["s"].to_pylist() == ["ba", "ab", "aa"]
