"""
Spark finds rows by a UUID column, and hides those that were deleted by a UUID key.

Iceberg Java 1.11 compares the halves of a UUID as signed numbers, and bounds are in the order of bytes.
"""

import uuid

import pyarrow as pa

from bookkeeper.commands.fold import fold
from spark_jobs.compact import Compaction, Options
from tests.spark.conftest import new_catalog, registered
from tests.support.keyed import keyed_lake
from writers.writer import Writer

COLUMNS = ({"name": "id", "type": "uuid", "required": True}, {"name": "value", "type": "string", "required": False})
LOW, MIDDLE, HIGH = (uuid.UUID(int=first << 120) for first in (0x10, 0x20, 0xF0))


def found(spark, lake):
    """The values that Spark finds by each id, one at a time, and those that it finds without a filter."""
    name = f"{lake.catalog_settings.name}.demo.events"
    spark.catalog.refreshTable(name)
    by_id = [
        row.value
        for one in (LOW, MIDDLE, HIGH)
        for row in spark.sql(f"SELECT * FROM {name} WHERE id = '{one}'").collect()
    ]
    return by_id, sorted(row.value for row in spark.table(name).collect())


def ids(*given):
    return pa.table(
        {"id": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([one.bytes for one in given], pa.binary(16)))}
    )


def publish(lake, act):
    with Writer.open(lake.folder, "w1", clock=lake.clock, stores=lake.store) as writer:
        act(writer)
    lake.tick()


def test_spark_finds_all_rows_by_a_uuid_and_no_deleted_one_before_and_after_a_fold(spark, lake, tmp_path):
    lake = registered(keyed_lake(tmp_path / "lake", columns=COLUMNS, catalog=new_catalog()), spark, lake)
    rows = ids(LOW, MIDDLE, HIGH).append_column("value", pa.array(["low", "middle", "high"]))
    publish(lake, lambda writer: writer.write(rows))
    assert found(spark, lake) == (["low", "middle", "high"], ["high", "low", "middle"])

    publish(lake, lambda writer: writer.delete(ids(LOW, HIGH)))
    assert found(spark, lake) == (["middle"], ["middle"])
    book = lake.book()
    assert fold(book.ledger, lake.folder, book.publisher, lake.clock.now, bytes).outcome == "folded"
    assert found(spark, lake) == (["middle"], ["middle"])


def test_files_that_spark_writes_are_found_once_the_table_says_no_statistics_and_earlier_ones_when_rewritten(
    spark, lake, tmp_path
):
    lake = registered(keyed_lake(tmp_path / "lake", columns=COLUMNS, catalog=new_catalog()), spark, lake)
    catalog = lake.catalog_settings.name
    name = f"{catalog}.demo.events"
    values = ", ".join(f"('{one}', '{value}')" for one, value in ((LOW, "low"), (MIDDLE, "middle"), (HIGH, "high")))
    insert = f"SELECT /*+ COALESCE(1) */ * FROM VALUES {values} AS rows (id, value)"
    spark.conf.set("spark.sql.iceberg.check-nullability", "false")
    try:
        spark.sql(f"INSERT INTO {name} {insert}")
        assert found(spark, lake) == ([], ["high", "low", "middle"]), "Iceberg compares UUIDs right: say so in docs"
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.parquet.stats-enabled.column.id' = 'false')")
        chosen = Options(older_than=None, everything=True)
        done = Compaction(spark, name, lake.settings, lake.folder, chosen).run(lake.clock.now)
        lake.tick()
        assert len(done.published) == 1 and lake.operations()[-1] == "replace"
    finally:
        spark.conf.unset("spark.sql.iceberg.check-nullability")
    assert found(spark, lake) == (["low", "middle", "high"], ["high", "low", "middle"])
