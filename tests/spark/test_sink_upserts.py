"""Queries of a real Spark that upsert: of each key the newest row of a batch counts, compared with a dict."""

import json
import math
import os
import random
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bookkeeper.errors import ConfigInvalid, NotPossible, SchemaRefused
from spark_jobs.sink import into
from spark_jobs.sink_upserts import Arranged, written
from tests.histories.readers import duckdb_session
from tests.support import keyed_rows
from tests.support.desk import Desk
from tests.support.keyed import keyed_lake
from tests.support.lake import Lake
from tests.support.micro_batches import ticked
from tests.support.upserts import keyed_card, state
from writers.files import upsert_steps as steps

SCHEMA = "id string, value string, at long, gone boolean"
Change = tuple[Any, str | None, int | None, bool]
NAMES = ("id", "value", "at", "gone")


@pytest.fixture
def table(tmp_path: Path) -> Lake:
    return keyed_lake(tmp_path / "lake", file_names="strict")


def put(folder: Path, *batches: Sequence[Change | Mapping[str, Any]]) -> None:
    """A file of JSON lines for each micro-batch."""
    folder.mkdir(parents=True, exist_ok=True)
    for batch in batches:
        rows = [dict(zip(NAMES, row, strict=True)) if isinstance(row, tuple) else row for row in batch]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        number = len(list(folder.iterdir()))
        path = folder / f"{number:04d}.json"
        path.write_text(text)
        os.utime(path, (1_700_000_000 + number,) * 2)  # Spark reads the oldest first


def run(
    spark: Any, lake: Lake, root: Path, *batches: Any, schema: str = SCHEMA, shape: Any = None, **options: Any
) -> list[dict[int, str | None]]:
    """Upserts these micro-batches; the state of the table after each of them."""
    put(root / "in", *batches)
    given: dict[str, Any] = {
        "name": "query",
        "mode": "upsert",
        "checkpoint": str(root / "cp"),
        "runtime": ticked(lake),
    }
    output = options.pop("output", "append")
    sink = into(lake.made.folder, **given | options)
    states = list[dict[int, str | None]]()

    def write(rows: Any, batch: int) -> None:
        sink(rows, batch)
        states.append(keyed_rows.state(lake))

    read = spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").json(str(root / "in"))
    writer = (shape(read) if shape else read).writeStream.foreachBatch(write).outputMode(output)
    started = writer.option("checkpointLocation", str(root / "cp")).trigger(availableNow=True).start()
    started.awaitTermination()
    return states


def both(**more: Any) -> dict[str, Any]:
    return {"order_by": "at", "deletes": "gone", **more}


def merged(state: dict[int, str | None], batch: Sequence[Change]) -> dict[int, str | None]:
    """What the table holds behind a batch: the newest change of each key is applied, by a sort of Python."""
    made, newest = dict(state), dict[int, Change]()
    for row in sorted(batch, key=lambda row: -math.inf if row[2] is None else row[2]):
        newest[int(row[0])] = row
    for key, (_, value, _, gone) in newest.items():
        made.pop(key, None)
        made |= {} if gone else {key: value}
    return made


def test_of_each_key_the_newest_change_counts_and_keys_are_compared_as_the_table_has_them(
    spark: Any, keyed: Lake, tmp_path: Path
) -> None:
    dice = random.Random(7)
    batches = list[list[Change]]()
    for turn in range(4):
        orders = dice.sample(range(1000), 80)
        texts = [dice.choice(["{}", "0{}", "00{}"]).format(dice.randrange(20)) for _ in orders]
        pairs = enumerate(zip(texts, orders, strict=True))
        batches.append([(key, f"{turn}-{n}", at, dice.random() < 0.3) for n, (key, at) in pairs])
    states = run(spark, keyed, tmp_path, *batches, shape=lambda rows: rows.repartition(3), **both())

    wanted = dict[int, str | None]()
    for batch, found in zip(batches, states, strict=True):
        wanted = merged(wanted, batch)
        assert found == wanted
    name = f"{keyed.catalog_settings.name}.demo.events"
    spark.catalog.refreshTable(name)
    assert {row.id: row.value for row in spark.table(name).select("id", "value").collect()} == wanted
    query = f"SELECT id, value FROM iceberg_scan('{keyed.table().metadata_location}')"
    assert sorted(duckdb_session().execute(query).fetchall()) == sorted(wanted.items())
    assert keyed.rejected() == {}


def test_a_key_deleted_and_inserted_again_in_a_batch_is_what_came_last(spark: Any, table: Lake, tmp_path: Path) -> None:
    first = [("1", "a", 1, False), ("2", "a", 1, False)]
    second = [("1", "back", 3, False), ("1", None, 2, True), ("2", "b", 2, False), ("2", None, 3, True)]
    assert run(spark, table, tmp_path, first, second, **both()) == [{1: "a", 2: "a"}, {1: "back"}]


def test_an_order_of_null_is_the_oldest(spark: Any, table: Lake, tmp_path: Path) -> None:
    batch = [("1", "null", None, False), ("1", "new", -5, False), ("2", "null", None, False)]
    assert run(spark, table, tmp_path, batch, **both()) == [{1: "new", 2: "null"}]


def test_an_order_of_several_and_expressions_are_taken(spark: Any, table: Lake, tmp_path: Path) -> None:
    batch = [("1", "b", 1, False), ("1", "a", 1, False), ("1", "z", 0, False), ("2", "x", -1, False)]
    states = run(spark, table, tmp_path, batch, order_by=["-at", "value"], deletes="not gone and AT < 0")
    assert states == [{1: "z"}]


@pytest.mark.parametrize(
    ("batch", "order", "why"),
    [
        ([("01", "a", 2, False), ("1", "b", 2, False)], "at", r"the key id=1 has more .* newest by order_by=at"),
        ([("1", "a", None, False), ("1", "b", None, False)], "at", "the key id=1 has more"),
        ([("1", "a", 1, False), ("01", "b", 2, False)], None, "the key id=1 has more .* order_by= must say"),
        ([(None, "a", 1, False), ("1", "b", 2, False)], "at", "required column 'id' holds 1 null"),
        ([("1x", "a", 1, False)], "at", "key column 'id' is bigint: 1x"),
        ([("1.5", "a", 1, False)], "at", "key column 'id' is bigint: 1.5"),
        ([{"id": "1", "value": "a", "at": 1}], "at", "`deleted` has 1 values of type boolean, 1 of them null"),
    ],
)
@pytest.mark.parametrize("ansi", [True, False])
def test_a_batch_that_does_not_say_which_row_a_key_has_is_refused_and_nothing_of_it_written(
    spark: Any, table: Lake, tmp_path: Path, batch: Any, order: Any, why: str, ansi: bool
) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        with pytest.raises(Exception, match=why):
            shape = None if order else lambda rows: rows.drop("at")
            run(spark, table, tmp_path, batch, order_by=order, deletes="gone", shape=shape)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert (table.pending(), table.rejected(), keyed_rows.state(table)) == ([], {}, {})


def test_a_tie_of_rows_that_are_not_the_newest_is_none(spark: Any, table: Lake, tmp_path: Path) -> None:
    batch = [("1", "a", 1, False), ("1", "b", 1, False), ("1", "c", 2, False)]
    assert run(spark, table, tmp_path, batch, **both()) == [{1: "c"}]


def test_columns_that_rows_lack_are_null_and_others_than_order_and_deletes_are_refused_before_a_task_runs(
    spark: Any, table: Lake, tmp_path: Path
) -> None:
    batch = [("1", "a", 1, False)]
    assert run(spark, table, tmp_path / "a", batch, **both(shape=lambda rows: rows.drop("value"))) == [{1: None}]
    with pytest.raises(Exception, match="no column 'gone'"):
        run(spark, table, tmp_path / "b", batch, order_by="at", name="b")
    with pytest.raises(Exception, match="key column 'id' is missing"):
        run(spark, table, tmp_path / "c", batch, **both(name="c", shape=lambda rows: rows.drop("id")))
    with pytest.raises(Exception, match=r"deletes='at' is bigint"):
        run(spark, table, tmp_path / "d", batch, deletes="at", name="d", shape=lambda rows: rows.drop("gone"))


def test_an_order_that_the_table_has_is_written_and_one_that_the_writer_fills_is_not(
    spark: Any, tmp_path: Path
) -> None:
    columns = [
        {"name": "id", "type": "long", "required": True},
        {"name": "value", "type": "string", "required": False},
        {"name": "at", "type": "long", "required": False},
        {"name": "seq", "type": "long", "required": False},
    ]
    lake = keyed_lake(tmp_path / "lake", columns=columns, file_names="strict", order_column="seq")
    run(
        spark,
        lake,
        tmp_path,
        [("1", "a", 5, False), ("1", "b", 6, False)],
        order_by=["at", "seq"],
        deletes="gone",
        shape=lambda rows: rows.withColumn("seq", rows["at"]),
    )
    (row,) = keyed_rows.rows(lake)
    assert (row["value"], row["at"]) == ("b", 6) and row["seq"] > 2**40


@pytest.mark.parametrize("output", ["complete", "update"])
def test_states_of_an_aggregation_are_upserted(spark: Any, table: Lake, tmp_path: Path, output: str) -> None:
    def newest(rows: Any) -> Any:
        return rows.groupBy("id").agg({"value": "max"}).withColumnRenamed("max(value)", "value")

    batches = [[("1", "a", 1, False), ("2", "a", 1, False)], [("2", "b", 1, False)]]
    states = run(spark, table, tmp_path, *batches, shape=newest, output=output)
    assert states == [{1: "a", 2: "a"}, {1: "a", 2: "b"}]


def test_texts_with_a_collation_are_keys_by_their_bytes(spark: Any, tmp_path: Path) -> None:
    columns = [
        {"name": "id", "type": "string", "required": True},
        {"name": "value", "type": "string", "required": False},
    ]
    lake = keyed_lake(tmp_path / "lake", columns=columns, file_names="strict")
    schema = SCHEMA.replace("id string", "id string collate UTF8_LCASE")
    batch = [("a", "1", 1, False), ("A", "2", 2, False), ("a", "3", 3, False), ("A", "4", 4, False)]
    found = run(spark, lake, tmp_path, batch, schema=schema, **both())
    assert found == [{"a": "3", "A": "4"}]
    tie = [("b", "1", 1, False), ("B", "2", 1, False), ("b", "3", 1, False)]
    with pytest.raises(Exception, match="the key id='b' has more than one row"):
        run(spark, lake, tmp_path / "tie", tie, schema=schema, **both(name="tie"))


def keyed_by(root: Path, **kinds: str) -> Lake:
    """A table with these key columns, and `value`."""
    columns = [{"name": name, "type": kind, "required": True} for name, kind in kinds.items()]
    columns.append({"name": "value", "type": "string", "required": False})
    return keyed_lake(root / "lake", columns=columns, file_names="strict", key=tuple(kinds))


def test_texts_are_keys_of_uuids_however_they_are_spelled(spark: Any, tmp_path: Path) -> None:
    """Spark has no type of UUIDs: it reads them as text."""
    lake = keyed_by(tmp_path, id="uuid")
    spelled = (str, lambda one: str(one).upper(), lambda one: one.hex, lambda one: one.urn, lambda one: f"{{{one}}}")
    dice = random.Random(5)
    made = [uuid.UUID(int=number) for number in (7, 2**127 + 11, *(dice.getrandbits(128) for _ in range(6)))]
    batch = [(spell(one), f"{n}", n, False) for one in made for n, spell in enumerate(spelled)]
    dice.shuffle(batch)
    run(spark, lake, tmp_path, batch, **both())
    found = keyed_rows.rows(lake)
    assert {uuid.UUID(bytes=bytes(row["id"])) if isinstance(row["id"], bytes) else row["id"] for row in found} == {
        *made
    }
    assert [row["value"] for row in found] == ["4"] * len(made)

    one = str(made[1])
    for batch, why in (
        ([(one, "a", 1, False), (one.upper(), "b", 1, False)], f"the key id='{made[1].hex}' has more than one row"),
        ([("sixteen letters!", "a", 1, False)], "key column 'id' is uuid: sixteen letters!"),
        ([(f"{one}\n", "a", 1, False)], f"key column 'id' is uuid: {one}"),
        ([(None, "a", 1, False)], "required column 'id' holds 1 null"),
    ):
        name = f"q{uuid.uuid4().hex[:8]}"
        with pytest.raises(Exception, match=why):
            run(spark, lake, tmp_path / name, batch, name=name, **both())


def test_keys_of_other_types_are_compared_as_the_table_has_them(spark: Any, tmp_path: Path) -> None:
    lake = keyed_by(tmp_path, id="decimal(10, 2)", code="binary", moment="timestamptz")
    schema = "id decimal(12, 4), code string, moment timestamp, value string, at long, gone boolean"
    rows = [
        ("1.5", "é", "2026-01-01T00:00:00Z"),
        ("1.5000", "é", "2026-01-01T01:00:00+01:00"),
        ("1.5", "e", "2026-01-01T00:00:00Z"),
    ]
    batch = [
        {"id": key, "code": code, "moment": moment, "value": f"{at}", "at": at, "gone": False}
        for at, (key, code, moment) in enumerate(rows)
    ]
    run(spark, lake, tmp_path, batch, schema=schema, **both())
    query = f"SELECT value FROM iceberg_scan('{lake.table().metadata_location}') ORDER BY value"
    assert duckdb_session().execute(query).fetchall() == [("1",), ("2",)]


ARRANGED = Arranged(2, ("id",), ("_o",), None, ("at",))


def in_batches(rows: Sequence[tuple[int, str, float | None]], size: int) -> list[pa.RecordBatch]:
    ids, values, orders = (list(column) for column in zip(*rows, strict=True))
    columns = {"id": pa.array(ids, pa.int64()), "value": values, "_o": pa.array(orders, pa.float64())}
    return pa.table(columns).to_batches(max_chunksize=size)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_key_may_go_on_in_any_number_of_batches_and_a_task_have_any_number_of_steps(
    monkeypatch: Any, size: int
) -> None:
    monkeypatch.setattr(steps, "STEP_ROWS", 3)
    desk, dice = Desk(f"memory://{uuid.uuid4()}"), random.Random(size)
    keyed_card(desk)
    rows = [(key, f"{key}-{at}", float(at)) for key in range(20) for at in range(dice.choice([1, 1, 2, 5, 12]))]
    with desk.writer() as writer:
        with writer.task().open(clock=desk.clock) as files:
            ARRANGED.write(in_batches(rows, size), files)
        assert writer.take([files.result]) == 20
        writer.publish()
    (txlog,) = desk.txlogs()
    assert txlog.span >= 1 + math.ceil(20 / 3)
    assert state(desk, [txlog]) == {key: value for key, value, _ in rows}


@pytest.mark.parametrize("order", [None, math.nan, 4.0])
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_tie_is_found_wherever_a_batch_of_arrow_ends(order: float | None, size: int) -> None:
    desk = Desk(f"memory://{uuid.uuid4()}")
    keyed_card(desk)
    rows = [(1, "a", 1.0), (2, "a", order), (2, "b", order), (3, "a", 1.0), (4, "a", 1.0)]
    with desk.writer() as writer:
        with pytest.raises(NotPossible, match="the key id=2 has"), writer.task().open(clock=desk.clock) as files:
            ARRANGED.write(in_batches(rows, size), files)
        writer.discard()


def test_null_and_not_a_number_are_no_tie() -> None:
    desk = Desk(f"memory://{uuid.uuid4()}")
    keyed_card(desk)
    with desk.writer() as writer:
        with writer.task().open(clock=desk.clock) as files:
            ARRANGED.write(in_batches([(1, "a", None), (1, "b", math.nan)], 1), files)
        writer.take([files.result])
        writer.publish()
    assert state(desk, desk.txlogs()) == {1: "b"}


def test_a_table_without_all_keys_in_the_rows_is_refused() -> None:
    desk = Desk(f"memory://{uuid.uuid4()}")
    with pytest.raises(SchemaRefused, match="key column 'id' is missing"):
        written(pa.schema([("value", pa.string())]), keyed_card(desk), ())


def test_an_order_or_deletes_are_refused_where_rows_are_appended() -> None:
    for wrong in ({"order_by": "at"}, {"deletes": "gone"}):
        with pytest.raises(ConfigInvalid, match="mode is 'append'"):
            into("/lake", name="query", checkpoint="/cp", **wrong)  # type: ignore[arg-type]
