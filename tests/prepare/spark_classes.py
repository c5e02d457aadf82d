"""
Makes the archive of classes that Spark's JVMs in tests start with: a process of its own, for its JVM ends with it.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from spark_jobs import query, session
from tests.servers import spark as prepared
from tests.support.spark_lake import name_of, new_lake, rows

#: until the JVM has written it: seconds, and more on a busy machine
_LONGEST_SECONDS = 600


def read(spark: Any, name: str) -> None:
    """Rows, files and history, and rows that go through a Python process."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    spark.table(name).groupBy("key").count().orderBy("key").collect()
    spark.sql(f"SELECT a.key FROM {name} a JOIN {name} b ON a.key = b.key WHERE a.key > 'a'").collect()
    for part in ("files", "snapshots", "history", "entries"):
        spark.table(f"{name}.{part}").collect()
    same = UserDefinedFunction(lambda batches: batches, "key string", evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    keys: Any = spark.table(name).select("key")
    DataFrame(keys._jdf.mapInArrow(cast(Any, same("key"))._jc, False, None), spark).collect()


def follow(spark: Any, name: str, folder: Path) -> None:
    """A stream of the table, and one of files into it."""
    counted = _following(spark.readStream.table(name), folder / "out").foreachBatch(lambda rows, batch: rows.count())
    counted.start().awaitTermination()
    kept = spark.table(name)
    kept.write.json(str(folder / "rows"))
    arriving = spark.readStream.schema(kept.schema).json(str(folder / "rows"))
    query.append_to(_following(arriving, folder / "in"), name).awaitTermination()


def _following(rows: Any, checkpoint: Path) -> Any:
    return rows.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)


def change(spark: Any, name: str) -> None:
    """The statements and procedures of the jobs."""
    catalog, table = name.split(".", 1)
    spark.sql(
        f"MERGE INTO {name} o USING (SELECT DISTINCT * FROM {name} WHERE key = 'b') n ON o.key = n.key "
        "WHEN MATCHED AND n.key = 'c' THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    spark.sql(f"DELETE FROM {name} WHERE key = 'a'")
    for call in (
        f"rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))",
        f"rewrite_manifests('{table}')",
        f"expire_snapshots(table => '{table}', retain_last => 1)",
        f"remove_orphan_files(table => '{table}', dry_run => true)",
    ):
        spark.sql(f"CALL {catalog}.system.{call}").collect()


def main() -> None:
    """
    Does with a small table what tests do with theirs, and has the JVM write down what it loaded.
    """
    prepared.ready(os.environ)
    made = prepared.archive(os.environ)
    assert made is not None
    unfinished = made.with_suffix(f".{os.getpid()}")
    try:
        with TemporaryDirectory() as folder:
            _write(unfinished, Path(folder))
        unfinished.rename(made)
    finally:
        unfinished.unlink(missing_ok=True)


def _write(archive: Path, folder: Path) -> None:
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={archive} -Xlog:cds*=off {prepared.QUICK}"
    lake = new_lake(folder / "lake")
    table = lake.append(lake.new_table(), rows("ab"), rows("cde"))
    spark = session.build(lake.settings, app="classes")
    jvm = spark.sparkContext._gateway.proc
    try:
        read(spark, name_of(table))
        follow(spark, name_of(table), folder)
        change(spark, name_of(table))
        spark.stop()
        jvm.stdin.close()
        jvm.wait(_LONGEST_SECONDS)
    finally:
        jvm.kill()


if __name__ == "__main__":
    main()
