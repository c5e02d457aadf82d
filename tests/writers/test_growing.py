"""Schemas that grow: a writer asks for the columns of its rows, waits for the card, and goes on."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from threading import Condition, get_ident
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from bookkeeper.config.settings import Evolve
from bookkeeper.contract.column_requests import COLUMNS, TRAY
from bookkeeper.errors import Backpressure, SchemaRefused
from tests.support.lake import Lake
from writers import Writer

GROWING = Evolve(add=True, widen=True)
NUMBERED = (
    {"name": "timestamp", "type": "timestamptz", "required": True},
    {"name": "key", "type": "string"},
    {"name": "n", "type": "int"},
    {"name": "price", "type": "decimal(6, 2)"},
)


class Growing(Lake):
    """A lake whose bookkeeper ticks whenever a writer waits, unless it is `silent`."""

    def __init__(self, root: Path, **settings: Any) -> None:
        super().__init__(root, columns=NUMBERED, **{"evolve": GROWING, **settings})
        self.tick(self.book())
        self.daemon, self.silent, self.waits = self.book(), False, 0

    def wait(self, seconds: float) -> None:
        self.waits += 1
        self.clock.move(seconds=seconds)
        if not self.silent:
            self.tick(self.daemon, seconds=6)

    def writer(self, name: str = "w1", wait: Callable[[float], object] | None = None, **more: Any) -> Writer:
        return Writer.open(self.folder, name, clock=self.clock, wait=wait or self.wait, stores=self.store, **more)

    def rows(self) -> list[dict[str, Any]]:
        self.drain()
        found = self.table().scan().to_arrow().drop_columns(["timestamp"]).to_pylist()
        return sorted(found, key=lambda row: str(row["key"]))

    def columns(self) -> dict[str, str]:
        fields = self.table().schema().fields[len(NUMBERED) :]
        return {field.name: str(field.field_type) for field in fields}


@pytest.fixture
def lake(tmp_path: Path) -> Growing:
    return Growing(tmp_path / "lake")


def made(lake: Lake, *rows: dict[str, Any], **types: pa.DataType) -> pa.Table:
    table = pa.Table.from_pylist([{"timestamp": lake.clock.now} | row for row in rows])
    for name, kind in types.items():
        table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
    return table


def test_a_writer_asks_for_an_unknown_column_and_goes_on_with_it(lake: Growing) -> None:
    with lake.writer() as writer:
        writer.write(made(lake, {"key": "a"}))
        writer.write(made(lake, {"key": "b", "wind": 1.5, "gust": None, "note": "x"}))
        assert writer.publish() is not None
    assert lake.columns() == {"wind": "double", "note": "string"}
    assert [(row["key"], row["wind"], row["note"]) for row in lake.rows()] == [("a", None, None), ("b", 1.5, "x")]
    assert (lake.rejected(), TRAY.pending(lake.folder)) == ({}, [])


def test_a_table_that_does_not_grow_refuses_the_rows_and_is_asked_for_nothing(tmp_path: Path) -> None:
    lake = Growing(tmp_path / "lake", evolve=Evolve())
    writer = lake.writer()
    with pytest.raises(SchemaRefused, match="no column 'wind'"):
        writer.write(made(lake, {"key": "a", "wind": 1.5}))
    with pytest.raises(SchemaRefused, match="'n'"):
        writer.write(made(lake, {"key": "a", "n": 2**40}))
    assert (lake.waits, list(lake.folder.store.list(COLUMNS))) == (0, [])


def test_a_column_of_nothing_but_null_asks_for_nothing(lake: Growing) -> None:
    with lake.writer() as writer:
        writer.write(made(lake, {"key": "a", "wind": None}))
    assert (lake.columns(), lake.waits, [row["key"] for row in lake.rows()]) == ({}, 0, ["a"])


ARROW = [
    (pa.bool_(), True, "boolean"),
    (pa.int8(), 7, "int"),
    (pa.uint16(), 7, "int"),
    (pa.uint32(), 7, "long"),
    (pa.int64(), 7, "long"),
    (pa.float32(), 0.5, "float"),
    (pa.float64(), 0.5, "double"),
    (pa.large_string(), "x", "string"),
    (pa.dictionary(pa.int8(), pa.string()), "x", "string"),
    (pa.binary(), b"x", "binary"),
    (pa.date32(), date(2026, 3, 1), "date"),
    (pa.time64("us"), time(12), "time"),
    (pa.timestamp("us"), datetime(2026, 3, 1, 12), "timestamp"),
    (pa.timestamp("us", "UTC"), None, "timestamptz"),
    (pa.decimal128(9, 2), Decimal("1.25"), "decimal(9, 2)"),
    (pa.uuid(), UUID(int=7).bytes, "uuid"),
]


def test_each_plain_arrow_type_becomes_a_column(lake: Growing) -> None:
    table = made(lake, {"key": "a"})
    for number, (kind, value, _) in enumerate(ARROW):
        table = table.append_column(f"c{number}", pa.array([value], kind))
    with lake.writer() as writer:
        writer.write(table)
    assert lake.columns() == {f"c{number}": given for number, (_, _, given) in enumerate(ARROW)}
    (row,) = lake.rows()
    assert [row[f"c{number}"] for number in range(len(ARROW) - 1)] == [value for _, value, _ in ARROW[:-1]]


def test_nested_columns_are_not_asked_for(lake: Growing) -> None:
    writer = lake.writer()
    with pytest.raises(SchemaRefused, match="no column 'box'"):
        writer.write(made(lake, {"key": "a", "box": {"x": 1}}))
    assert lake.waits == 0


def test_a_refusal_is_told_at_once_and_not_asked_for_again(lake: Growing) -> None:
    writer = lake.writer()
    for again in range(2):
        with pytest.raises(SchemaRefused, match="'KEY', and gets none: 'KEY' and the column 'key' differ in case"):
            writer.write(made(lake, {"key": "a", "KEY": "b", "wind": 1.5}))
        assert lake.waits == 1, again
    with pytest.raises(SchemaRefused, match=r"'a\.b', and gets none: the name"):
        writer.write(made(lake, {"key": "a", "a.b": 1}))
    with pytest.raises(SchemaRefused, match="differ in case"):
        lake.writer("w2").write(made(lake, {"key": "a", "KEY": "b"}))
    assert (writer.unpublished_rows, lake.waits) == (0, 1)
    writer.write(made(lake, {"key": "a", "wind": 1.5}))
    writer.publish()
    assert [row["wind"] for row in lake.rows()] == [1.5]


def test_without_a_bookkeeper_the_rows_are_not_taken_and_the_next_try_takes_them_once(lake: Growing) -> None:
    lake.silent = True
    writer = lake.writer(patience=timedelta(seconds=30))
    writer.write(made(lake, {"key": "a"}))
    with pytest.raises(Backpressure, match="has not answered a request for 'wind'"):
        writer.write(made(lake, {"key": "b", "wind": 1.5}))
    assert (writer.unpublished_rows, lake.waits < 30) == (1, True)
    lake.silent = False
    writer.write(made(lake, {"key": "b", "wind": 1.5}))
    writer.publish()
    assert [(row["key"], row["wind"]) for row in lake.rows()] == [("a", None), ("b", 1.5)]


def test_a_clock_that_is_put_back_makes_the_wait_for_a_column_no_longer(lake: Growing) -> None:
    lake.silent, jumps = True, iter([0.0, -3600.0])

    def wait(seconds: float) -> None:
        lake.wait(seconds)
        lake.clock.move(seconds=next(jumps, 0.0))

    writer = lake.writer(wait=wait, patience=timedelta(seconds=30))
    with pytest.raises(Backpressure):
        writer.write(made(lake, {"key": "b", "wind": 1.5}))
    assert lake.waits < 60


def test_a_stop_ends_the_wait(lake: Growing) -> None:
    writer = lake.writer(wait=lambda seconds: True)
    with pytest.raises(Backpressure):
        writer.write(made(lake, {"key": "b", "wind": 1.5}))


def test_a_table_that_stops_growing_while_a_writer_waits_refuses_the_rows(lake: Growing) -> None:
    lake.daemon = lake.book(evolve=Evolve())
    writer = lake.writer()
    with pytest.raises(SchemaRefused, match="no column 'wind'"):
        writer.write(made(lake, {"key": "b", "wind": 1.5}))


def test_what_was_refused_for_a_limit_is_asked_for_again_once_that_is_over(lake: Growing) -> None:
    lake.daemon = lake.book(evolve=Evolve(add=True, columns_per_hour=1))
    writer = lake.writer()
    writer.write(made(lake, {"key": "a", "wind": 1.5}))
    waits = list[int]()
    for _ in range(2):
        with pytest.raises(SchemaRefused, match="columns-per-hour"):
            writer.write(made(lake, {"key": "b", "gust": 2.5}))
        waits.append(lake.waits)
    assert waits[0] == waits[1]  # the answer stands
    lake.clock.move(hours=2)
    lake.tick(lake.daemon, seconds=6)
    writer.write(made(lake, {"key": "b", "gust": 2.5}))
    writer.publish()
    assert [(row["key"], row["wind"], row["gust"]) for row in lake.rows()] == [("a", 1.5, None), ("b", None, 2.5)]


def test_what_is_refused_for_good_is_asked_for_less_and_less(lake: Growing) -> None:
    writer, waited = lake.writer(), list[float]()
    for minute in range(0, 24 * 60, 5):
        before = lake.waits
        with pytest.raises(SchemaRefused, match="differ in case"):
            writer.write(made(lake, {"key": "b", "Key": 1}))
        waited += [minute] if lake.waits > before else []
        lake.clock.move(minutes=5)
        lake.tick(lake.daemon)
    assert 5 <= len(waited) < 10


def test_a_writer_has_narrow_columns_widened_for_values_that_do_not_fit(lake: Growing) -> None:
    with lake.writer() as writer:
        writer.write(made(lake, {"key": "a", "n": 7, "price": Decimal("1.25")}, price=pa.decimal128(9, 2)))
        assert lake.waits == 0  # it fits as it is
        writer.write(made(lake, {"key": "b", "n": 2**40, "price": Decimal("1234567.5")}, price=pa.decimal128(9, 1)))
    schema = lake.table().schema()
    assert [str(schema.find_type(name)) for name in ("n", "price")] == ["long", "decimal(10, 2)"]
    rows = [(row["n"], row["price"]) for row in lake.rows()]
    assert rows == [(7, Decimal("1.25")), (2**40, Decimal("1234567.50"))]


def test_what_no_promotion_helps_is_refused(lake: Growing) -> None:
    writer = lake.writer()
    for row in ({"n": 1.5}, {"n": "x"}, {"n": 7, "price": Decimal("1.255")}):
        with pytest.raises(SchemaRefused):
            writer.write(made(lake, {"key": "a"} | row))
    assert lake.waits == 0


def test_a_hundred_writers_add_ten_columns_at_once_and_every_row_is_in_once_with_its_values(tmp_path: Path) -> None:
    count, lake = 100, Growing(tmp_path / "lake", partition_by=())
    turn, waiting, ticks = Condition(), set[int](), [0]

    def wait(seconds: float) -> None:
        with turn:
            before = ticks[0]
            waiting.add(get_ident())
            turn.notify_all()
            assert turn.wait_for(lambda: ticks[0] > before, 120)

    def values(number: int) -> dict[str, Any]:
        return {f"c{column}": number * 10 + column for column in range(5)} | {
            f"c{column}": f"{number}/{column}" for column in range(5, 10)
        }

    def run(number: int) -> None:
        row = [*values(number).items()]
        random.Random(number).shuffle(row)
        with lake.writer(f"w{number}", wait, patience=timedelta(days=1)) as writer:
            writer.write(made(lake, {"key": f"k{number:03d}", **dict(row)}))

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(run, number) for number in range(count)]
        with turn:
            assert turn.wait_for(lambda: len(waiting) == count, 120)  # all have asked, and none was answered
        assert len(TRAY.pending(lake.folder)) == 10
        while not all(future.done() for future in futures):
            lake.tick(lake.daemon, seconds=6)
            with turn:
                ticks[0] += 1
                turn.notify_all()
    for future in futures:
        future.result()
    rows = lake.rows()
    assert lake.rejected() == {}
    assert sorted(lake.columns()) == [f"c{column}" for column in range(10)]
    assert [row["key"] for row in rows] == [f"k{number:03d}" for number in range(count)]
    assert [{name: row[name] for name in values(0)} for row in rows] == [values(number) for number in range(count)]


def test_a_limit_that_is_reached_refuses_the_rest_and_keeps_what_fits(tmp_path: Path) -> None:
    lake = Growing(tmp_path / "lake", evolve=replace(GROWING, columns_per_hour=2))
    writer = lake.writer()
    with pytest.raises(SchemaRefused, match=r"evolve\.columns-per-hour"):
        writer.write(made(lake, {"key": "a", "x": 1, "y": 1, "z": 1}))
    assert len(lake.columns()) == 2
