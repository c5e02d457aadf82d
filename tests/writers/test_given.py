"""What `write` takes as rows: Arrow, frames, files and Python objects, all with the checks of Arrow rows."""

import asyncio
import enum
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from bookkeeper.contract.card import Card
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import SchemaRefused, StorageUnavailable
from tests.support.desk import Desk, rows
from tests.support.upserts import keyed_card

WHEN = datetime(2026, 3, 1, tzinfo=UTC)
WIDE = Schema(
    NestedField(1, "timestamp", TimestamptzType(), required=True),
    NestedField(2, "n", DoubleType()),
    NestedField(3, "id", UUIDType()),
    NestedField(4, "price", DecimalType(10, 2)),
    NestedField(5, "day", DateType()),
    NestedField(6, "tags", ListType(20, StringType(), False)),
    NestedField(7, "counts", MapType(21, StringType(), 22, LongType(), False)),
    NestedField(8, "at", StructType(NestedField(23, "x", LongType()))),
    NestedField(9, "kind", StringType()),
)


@dataclass
class Event:
    timestamp: datetime
    key: str
    value: bytes | None = None


class Model(BaseModel):
    timestamp: datetime
    key: str
    value: bytes | None = None


class Kind(enum.Enum):
    FULL = "full"


class Stream:
    """A frame of another library: polars, pandas, duckdb."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class LazyFrame:
    """As polars names it: it has no Arrow C stream until it is collected."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def collect(self) -> Stream:
        return Stream(self._table)


class Interchange:
    """A frame of an older one."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        return self._table.__dataframe__(nan_as_null, allow_copy)


GIVEN = {
    "dict": {"timestamp": WHEN, "key": "k", "value": "v"},
    "dicts": [{"timestamp": WHEN, "key": "k", "value": b"v"}],
    "dataclass": Event(WHEN, "k", b"v"),
    "dataclasses": (Event(WHEN, "k", b"v"),),
    "pydantic": Model(timestamp=WHEN, key="k", value=b"v"),
    "mixed": [Model(timestamp=WHEN, key="k", value=b"v"), Event(WHEN, "k", b"v"), {"key": "k", "timestamp": WHEN}],
    "batch": rows("k").to_batches()[0],
    "stream": Stream(rows("k")),
    "reader": rows("k").to_reader(),
    "lazy": LazyFrame(rows("k")),
    "interchange": Interchange(rows("k").select(["timestamp", "key"])),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_rows_are_taken_as_they_come(local: Desk, given: Any) -> None:
    with local.writer() as writer:
        writer.write(given)
    assert set(local.keys()) == {"k"} and len(local.keys()) == (len(given) if isinstance(given, list) else 1)


def test_a_generator_is_read_to_its_end_before_a_row_is_taken(local: Desk) -> None:
    def broken() -> Iterator[Event]:
        yield Event(WHEN, "never")
        raise ZeroDivisionError

    with local.writer() as writer:
        writer.write(Event(WHEN, key) for key in "abc")
        writer.write(iter([]))
        with pytest.raises(ZeroDivisionError):
            writer.write(broken())
        assert writer.unpublished_rows == 3
    assert local.keys() == ["a", "b", "c"]


@pytest.mark.parametrize(
    "row, said",
    [
        ({"timestamp": WHEN, "key": 1}, "column 'key' has type long, the table wants string"),
        ({"timestamp": WHEN.replace(tzinfo=None), "key": "k"}, "has type timestamp, the table wants timestamptz"),
        ({"timestamp": "now", "key": "k"}, "has type string, the table wants timestamptz"),
    ],
)
def test_types_are_named_as_iceberg_names_them(local: Desk, row: dict[str, Any], said: str) -> None:
    with local.writer() as writer, pytest.raises(SchemaRefused, match=said):
        writer.write(row)


def test_python_values_of_every_type_arrive_as_they_are(local: Desk) -> None:
    local.set_card(WIDE)
    number = uuid.uuid4()
    full = {
        "timestamp": WHEN,
        "n": 1,
        "id": number,
        "price": Decimal("1.50"),
        "day": date(2026, 3, 1),
        "tags": ["a", None],
        "counts": {"a": 1, "b": None},
        "at": {"x": 3},
        "kind": Kind.FULL,
    }
    with local.writer() as writer:
        writer.write([{"timestamp": WHEN}, full, {"timestamp": WHEN, "n": 2.5, "counts": {}}])
    empty = dict.fromkeys(full)
    first, second, third = local.rows()
    assert first == {**empty, "timestamp": WHEN}
    assert second == {**full, "n": 1.0, "counts": [("a", 1), ("b", None)], "kind": "full", "id": second["id"]}
    assert second["id"] in (number, number.bytes)
    assert third == {**empty, "timestamp": WHEN, "n": 2.5, "counts": []}


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_path_is_read_as_what_its_file_is(local: Desk, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "rows"
    if kind == "parquet":
        pq.write_table(rows("a", "b"), path)
    else:
        with pa.ipc.new_file(str(path), rows("a").schema) as file:
            file.write_table(rows("a", "b"))
    with local.writer() as writer:
        writer.write(path)
    assert local.keys() == ["a", "b"]


BAD = [
    ([{"timestamp": WHEN, "key": "k"}, {"timestamp": WHEN, "key": "k", "new": 1}], "no column 'new'"),
    ([{"timestamp": WHEN, "key": "k"}, {"key": "k"}], "required column 'timestamp' holds 1 null"),
    ({"timestamp": WHEN.replace(tzinfo=None), "key": "k"}, "has type timestamp"),
    ({"timestamp": WHEN, "key": 1}, "column 'key' has type long"),
    ([{"timestamp": WHEN, "key": "k"}, {"timestamp": WHEN, "key": 1}], "column 'key'"),
    ({"timestamp": WHEN, "key": object()}, "column 'key'"),
    ([1], "int is no row"),
    ("k", "str is no row"),
    (Event, "type is no row"),
    (Path("no-such-file"), "cannot be read"),
    (Path(__file__), "is no Parquet or Arrow file"),
]


@pytest.mark.parametrize(("given", "why"), BAD, ids=[why for _, why in BAD])
def test_what_does_not_fit_is_refused_and_none_of_it_taken(local: Desk, given: Any, why: str) -> None:
    with local.writer() as writer:
        with pytest.raises(SchemaRefused, match=why):
            writer.write(given)
        assert writer.unpublished_rows == 0


def test_no_rows_are_taken_as_none(local: Desk) -> None:
    with local.writer() as writer:
        writer.write([])
    assert local.txlogs() == []


def test_upserts_and_deletes_take_python_rows_too(tmp_path: Path) -> None:
    desk = Desk(f"file://{tmp_path}")
    keyed_card(desk)
    with desk.writer() as writer:
        writer.upsert([{"id": 1, "value": "a"}, {"id": 2, "value": "b"}])
        writer.delete({"id": 3})
        assert writer.unpublished_rows == 3


def test_threads_that_share_a_writer_lose_no_row_and_double_none(local: Desk) -> None:
    """Each writes, asks and publishes as it likes."""
    local.set_card(roll_after_ms=1)
    failed: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for number in range(25):
                writer.write({"timestamp": WHEN, "key": f"{thread}-{number:02d}"})
                if writer.due() or number % 5 == thread:
                    writer.publish()
        except BaseException as error:  # noqa: BLE001 whatever it is, the test says it
            failed.append(error)

    with local.writer() as writer:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    assert local.keys() == sorted(f"{thread}-{number:02d}" for thread in range(4) for number in range(25))


def test_a_wait_may_ask_for_the_unpublished_rows_from_any_thread(local: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    failed: list[threading.Thread] = []
    card = Folder.card

    def fails_once(folder: Folder) -> Card:
        if not failed:
            failed.append(threading.current_thread())
            raise StorageUnavailable("not now")
        return card(folder)

    def wait(seconds: float) -> None:
        # A thread of its own: a lock that the publish holds makes this test red, and does not hang it.
        asks = threading.Thread(target=lambda: asked.append(writer.unpublished_rows), daemon=True)
        asks.start()
        asks.join(60)
        local.clock.wait(seconds)

    with local.writer(wait=wait) as writer:
        writer.write(rows("a"))
        monkeypatch.setattr(Folder, "card", fails_once)
        writer.publish()
        assert (asked, writer.unpublished_rows) == ([1], 0)
    assert failed[0] is not threading.current_thread()


def test_a_coroutine_writes_and_publishes_in_a_thread(local: Desk) -> None:
    async def work() -> None:
        with local.writer() as writer:
            await asyncio.gather(*(asyncio.to_thread(writer.write, rows(key)) for key in "abc"))
            await asyncio.to_thread(writer.publish)

    asyncio.run(work())
    assert local.keys() == ["a", "b", "c"]


def no_utf8(*keys: bytes) -> pa.Table:
    texts = pa.array(keys, pa.binary())
    key = pa.StringArray.from_buffers(len(keys), texts.buffers()[1], texts.buffers()[2])
    return pa.table({"timestamp": pa.array([WHEN] * len(keys), pa.timestamp("us", "UTC")), "key": key})


@pytest.mark.parametrize("keys", [(b"a", b"m\xff", b"z"), (b"\xff",)])
@pytest.mark.parametrize("how", ["table", "batch", "file", "task"])
def test_text_that_is_no_utf8_is_refused_and_costs_no_other_row(
    local: Desk, tmp_path: Path, keys: tuple[bytes, ...], how: str
) -> None:
    writer, bad = local.writer(), no_utf8(*keys)
    pq.write_table(bad, tmp_path / "bad.parquet")
    given = {"batch": bad.to_batches()[0], "file": tmp_path / "bad.parquet"}.get(how, bad)
    if how == "task":
        with writer.task().open() as files:
            with pytest.raises(SchemaRefused, match="UTF"):
                files.write(given)
            files.write(rows("a"))
        assert writer.take([files.result]) == 1
    else:
        writer.write(rows("a"))
        with pytest.raises(SchemaRefused, match="UTF"):
            writer.write(given)
    assert writer.publish() is not None
