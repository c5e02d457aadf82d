"""
Two queries of one Spark driver that write through txlogs: rows of `events`, and upserts and deletes of `state`.

    python -m tests.soak.queries CONFIG ROOT SEED TRIGGER [SPARK-OPTION ...]

Each notes its batches as a writer notes its txlogs. Spark gives a batch again until it is done: so the first batch of a
run says that all rows before it are in the table.
"""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bookkeeper.config import load as config
from bookkeeper.console.signals import StopSignal
from spark_jobs import prepare, session, sink
from tests.soak.journal import AT, DONE, TRY, Journal
from tests.soak.plan import QUERY, UPSERTS, folder_of
from tests.soak.roles import changes, now_ms

ROWS_PER_SECOND = 20
#: of the rate source one in so many is an operation on `state`
OPERATIONS = 10
Write = Callable[[Any, int], None]


class Noted:
    """A function for `foreachBatch` that notes each batch before and after `write` has it; the last one ends whole."""

    def __init__(self, journal: Journal, write: Write) -> None:
        self._journal, self._write, self._begun = journal, write, False
        self.at_work = threading.Lock()

    def __call__(self, rows: Any, batch: int) -> None:
        """The rows have `number`, without gaps over all batches, and one `timestamp`."""
        with self.at_work:
            first, last, at = rows.selectExpr("min(number)", "max(number)", "max(unix_millis(timestamp))").first()
            if first is None:
                self._write(rows, batch)
                return
            if not self._begun:
                self._journal.say(AT, position=first)
                self._begun = True
            self._journal.say(TRY, first=first, last=last, ms=at)
            self._write(rows, batch)
            self._journal.say(DONE, first=first, last=last, ms=at, published=now_ms(), position=last + 1)


def changed(rows: Any, seed: int) -> Any:
    """
    The operations with the numbers of these rows, one a row: id, value, order and whether it deletes.
    """
    numbers = [row.number for row in rows.select("number").collect()]
    made = [
        (key, value, 100 * number + place, value is None)
        for number in numbers
        for place, (key, value) in enumerate(changes(seed, UPSERTS, number))
    ]
    return rows.sparkSession.createDataFrame(made, "id bigint, value string, at bigint, gone boolean")


def main(path: str, root: str, seed: str, trigger: str, *options: str) -> None:
    """
    Until SIGTERM; raises what ends a query.
    """
    stop = StopSignal.on_signals()
    prepare.prepare(os.environ)
    settings = config.load(path, os.environ)
    extra = dict(option.removeprefix("--conf=").split("=", 1) for option in options)
    spark = session.build(settings, app="soak", extra=extra)
    spark.sparkContext.setLogLevel("ERROR")

    def begin(name: str, write: Write, rate: int, *columns: str) -> tuple[Any, Noted]:
        source = spark.readStream.format("rate").option("rowsPerSecond", rate).option("numPartitions", 2).load()
        noted = Noted(Journal(Path(root) / "journal" / name), write)
        writing = source.selectExpr("current_timestamp() AS timestamp", "value AS number", *columns).writeStream
        writing = writing.foreachBatch(noted).option("checkpointLocation", f"{root}/checkpoints/{name}")
        return writing.trigger(processingTime=trigger).start(), noted

    def into(name: str, table: str, **how: Any) -> Write:
        return sink.into(folder_of(path, table), name=name, checkpoint=f"{root}/checkpoints/{name}", **how)

    upserts = into(UPSERTS, "state", mode="upsert", order_by="at", deletes="gone")
    said = f"concat('{QUERY} says ', value) AS value"
    began = [
        begin(QUERY, into(QUERY, "events"), ROWS_PER_SECOND, f"'{QUERY}' AS writer", said),
        begin(UPSERTS, lambda rows, batch: upserts(changed(rows, int(seed)), batch), ROWS_PER_SECOND // OPERATIONS),
    ]
    while not stop.wait(0.5):
        for query, _ in began:
            if not query.isActive:
                raise query.exception() or RuntimeError(f"{query.name} ended")
    for _, noted in began:
        noted.at_work.acquire()  # no batch is at work, and none begins
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
