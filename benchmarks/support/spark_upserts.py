"""
Upserts from Spark: through txlogs, and by MERGE INTO.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.support.daemon import running
from benchmarks.support.harness import Chosen
from benchmarks.support.lake import Lake
from benchmarks.visibility import drained

TXLOGS, MERGE = "txlogs", "MERGE INTO"
KEYED = [
    {"name": "id", "type": "long", "required": True},
    {"name": "value", "type": "string", "required": False},
]


class Upserts:
    """Changes in files, one a micro-batch: `id`, `value`, `at` (their order) and `gone` (one in twenty deletes)."""

    SCHEMA = "id long, value string, at long, gone boolean"

    def __init__(self, spark: Any, root: Path, changes: int, keys: int, batches: int) -> None:
        self.spark, self.root, self.wanted = spark, root, dict[int, str]()
        random, each = Random(1), changes // batches
        self.folder = root / "changes"
        self.folder.mkdir()
        for batch in range(batches):
            ids = [random.randrange(keys) for _ in range(each)]
            at = list(range(batch * each, (batch + 1) * each))
            gone = [random.random() < 0.05 for _ in range(each)]
            values = [f"v{number:010d}-{'x' * 40}" for number in at]
            pq.write_table(
                pa.table({"id": ids, "value": values, "at": at, "gone": gone}), self.folder / f"{batch:04}.parquet"
            )
            for key, value, deleted in zip(ids, values, gone, strict=True):
                if deleted:
                    self.wanted.pop(key, None)
                else:
                    self.wanted[key] = value

    def run(self, name: str, each_batch: Callable[[Any, int], None]) -> str:
        """How long a query over all changes takes, in seconds, or what ended it."""
        rows = self.spark.readStream.schema(self.SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.folder))
        writing = rows.writeStream.foreachBatch(each_batch).option("checkpointLocation", self.checkpoint(name))
        began = time.perf_counter()
        try:
            writing.trigger(availableNow=True).start().awaitTermination()
        except Exception as exc:  # noqa: BLE001 - that it ends is a result
            return why(exc)
        return f"{time.perf_counter() - began:.0f} s"

    def checkpoint(self, name: str) -> str:
        """Of the query of this name."""
        return f"file://{self.root}/checkpoints/{name}"

    def sink(self, lake: Lake, name: str, share: str = "true") -> str:
        """Through txlogs, those rows for which `share` is true."""
        from spark_jobs import sink

        done = sink.into(
            lake.folder.store.url,
            name=name,
            checkpoint=self.checkpoint(name),
            mode="upsert",
            order_by="at",
            deletes="gone",
        )
        return self.run(name, lambda rows, batch: done(rows.where(share), batch))

    def merge(self, table: str, name: str, share: str = "true") -> str:
        """By MERGE INTO, those rows for which `share` is true."""

        def each_batch(rows: Any, _: int) -> None:
            rows.where(share).createOrReplaceTempView(f"changes_{name}")
            rows.sparkSession.sql(f"""
                MERGE INTO {table} t USING (
                  SELECT id, value, gone FROM
                    (SELECT *, row_number() OVER (PARTITION BY id ORDER BY at DESC) n FROM changes_{name}) WHERE n = 1
                ) s ON t.id = s.id
                WHEN MATCHED AND s.gone THEN DELETE
                WHEN MATCHED THEN UPDATE SET value = s.value
                WHEN NOT MATCHED AND NOT s.gone THEN INSERT (id, value) VALUES (s.id, s.value)
            """)

        return self.run(name, each_batch)


def why(exc: Exception) -> str:
    """
    What ended a query, by the name of its exception.
    """
    lines = str(exc).splitlines()
    said = [word for line in lines for word in line.replace(":", " ").split() if word.endswith("Exception")]
    known = [word for word in said if word.startswith("org.apache.iceberg")]
    return f"ended: {(known or said or [type(exc).__name__])[0].rpartition('.')[2]}"


UPSERTS = ("side", "one query", "two queries, half the keys each", "files of one", "state")


def measure_upserts(chosen: Chosen, spark: Any, root: Path, count: int, keys: int, batches: int) -> None:
    """
    The rows of the table of upserts: `count` changes of `keys` keys in `batches` micro-batches.
    """
    changes = Upserts(spark, root, count, keys, batches)
    keyed = partial(Lake.at, storage={"name": "keyed"}, discover="notify", schema=KEYED, partition_by=[], key=["id"])
    one, two = keyed(root / "keyed-1"), keyed(root / "keyed-2")
    with running(one.path):
        took = changes.sink(one, "one")
        drained(one)
    state = {row["id"]: row["value"] for row in _read(spark, one)}
    with running(two.path):
        both = _at_once(lambda share, name: changes.sink(two, name, share))
    files = sum(1 for _ in (root / "keyed-1" / "wh").rglob("*.parquet"))
    chosen.report.row(TXLOGS, took, both, files, "right" if state == changes.wanted else "WRONG")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.peer")
    for mode in ("copy-on-write", "merge-on-read"):
        first, second = (f"lake.peer.{mode.replace('-', '_')}_{number}" for number in (1, 2))
        for table in (first, second):
            properties = f"'format-version'='2', 'write.merge.mode'='{mode}'"
            spark.sql(f"CREATE TABLE {table} (id bigint NOT NULL, value string) TBLPROPERTIES ({properties})")
        took = changes.merge(first, f"{mode[:4]}1")
        right = {row.id: row.value for row in spark.table(first).collect()} == changes.wanted
        both = _at_once(lambda share, name, table=second, mode=mode: changes.merge(table, f"{mode[:4]}2{name}", share))
        files = spark.sql(f"SELECT count(*) n FROM {first}.all_files").collect()[0].n
        chosen.report.row(f"{MERGE}, {mode}", took, both, files, "right" if right else "WRONG")


def _at_once(run: Callable[[str, str], str]) -> str:
    with ThreadPoolExecutor(2) as pool:
        return ", ".join(pool.map(run, ("id % 2 = 0", "id % 2 = 1"), ("even", "odd")))


def _read(spark: Any, lake: Lake) -> Sequence[Mapping[str, Any]]:
    """The rows of a table of another catalog, as Spark reads them."""
    from spark_jobs import session

    for key, value in session.confs(lake.settings, app="benchmark").items():
        if key.startswith("spark.sql.catalog.keyed"):
            spark.conf.set(key, value)
    return [row.asDict() for row in spark.table(session.table_name(lake.settings, None)).collect()]
