"""A table compacted while writers, bookkeeper and a stream are at work: no row lost or doubled, no stream stopped."""

import contextlib
import threading
from datetime import UTC, datetime, timedelta

from bookkeeper.errors import Retry
from spark_jobs import maintain, query, read_stream
from spark_jobs.maintain import Work
from tests.support.lake import Clock, Writes
from tests.support.lake import Lake as Queue

LEAST = 60


class At:
    """Writers and a bookkeeper in a thread of their own, until told to stop."""

    def __init__(self, queue):
        self.queue, self.over, self.error = queue, threading.Event(), None
        self.writers = [Writes(queue, name) for name in ("a", "b")]
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            book = self.queue.book()
            while not self.over.is_set() or self.queue.pending():
                if not self.over.is_set():
                    for writer in self.writers:
                        # Rows of long ago: all of them lie in closed hours.
                        writer.publish(f"{writer.name.writer}-{len(writer.keys):04d}", at=self.old)
                self.queue.clock.now = datetime.now(UTC)
                with contextlib.suppress(Retry):
                    book.tick(self.queue.clock.now)
                self.over.wait(0.3)  # room for Iceberg's commit, which a busy machine makes slow
        except Exception as exc:  # noqa: BLE001 the test says it
            self.error = exc

    @property
    def old(self):
        return self.queue.clock.now - timedelta(hours=5)

    @property
    def keys(self):
        return sorted(key for writer in self.writers for key in writer.keys)


def test_compaction_beside_writers_bookkeeper_and_a_stream_loses_and_doubles_nothing(spark, lake, tmp_path):
    queue = Queue(lake.config.parent, clock=Clock(), identifier="queue.compacted")
    name, seen, compactions = "lake.queue.compacted", [], []
    # With Iceberg's 4 retries a compaction would lose the race against the bookkeeper's commits by chance.
    retries = (
        "'commit.retry.num-retries' = '100', 'commit.retry.min-wait-ms' = '20', 'commit.retry.max-wait-ms' = '200'"
    )
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({retries})")
    there = At(queue)
    there.thread.start()
    stream = read_stream.read(spark, name)
    started = read_stream.start(stream, "table:queue.copied", "lake", str(tmp_path / "cp"), "100ms")
    work = Work(spark, name, queue.settings, datetime.now(UTC))

    def turn(progress):
        seen.append(progress["rows"])
        if len(compactions) < 3 and sum(seen) > LEAST // 3 * (len(compactions) + 1):
            maintain.rewrite_data_files(work, call=True, older_than=timedelta(hours=1))
            compactions.append(sum(seen))
        if len(compactions) == 3 and sum(seen) > LEAST:
            there.over.set()

    query.follow(started, lambda: there.over.is_set() and sum(seen) == len(there.keys), turn)
    there.thread.join()

    assert there.error is None
    operations = [row.operation for row in spark.table(f"{name}.snapshots").collect()]
    assert operations.count("replace") >= 3 and "overwrite" not in operations
    assert sorted(row.key for row in spark.table(name).select("key").collect()) == there.keys
    assert sorted(row.key for row in spark.table("lake.queue.copied").select("key").collect()) == there.keys
