"""
Spark reads a keyed table as its state, and streams it as its changes.
"""

from collections import Counter

from spark_jobs import read_stream
from tests.histories.readers import duckdb_session
from tests.support.keyed import Step, Steps, replayed
from tests.support.keyed_rows import streamed


def named(lake):
    return f"{lake.catalog_settings.name}.demo.events"


def state(spark, lake):
    spark.catalog.refreshTable(named(lake))
    found = spark.table(named(lake)).select("id", "value").collect()
    return sorted((row.id, row.value) for row in found)


def duckdb_state(lake):
    query = f"SELECT id, value FROM iceberg_scan('{lake.table().metadata_location}')"
    return sorted(duckdb_session().execute(query).fetchall())


def test_ten_updates_and_a_delete_in_one_commit_are_read_right(spark, keyed):
    steps = [Step(upserts={key: f"{turn}-{key}" for key in range(20)}) for turn in range(10)]
    steps += [Step(deletes=[3, 4]), Step(upserts={4: "back"}), Step(writes={99: "new"}, upserts={1: "last"})]
    Steps(keyed).publish_steps(*steps)
    keyed.tick()

    assert keyed.operations() == ["delete", "append"]
    assert state(spark, keyed) == sorted(replayed(*steps).items())
    assert duckdb_state(keyed) == state(spark, keyed)


def test_commits_merges_and_txlogs_without_deletes_are_read_right(spark, keyed):
    steps = []
    book = keyed.book()
    for turn in range(18):
        writer = Steps(keyed, f"k{turn}")
        steps += [Step(upserts={1: str(turn), turn: "x"}), Step(deletes=[turn - 1])]
        writer.publish_steps(*steps[-2:])
        plain = Steps(keyed, f"p{turn}")
        name, data = plain.encoded([plain.rows([{"id": 100 + turn, "value": "plain"}])])
        keyed.folder.publish(name, data)
        steps.append(Step(writes={100 + turn: "plain"}))
        keyed.tick(book)
    assert "replace" in keyed.operations()

    assert state(spark, keyed) == sorted(replayed(*steps).items())
    assert duckdb_state(keyed) == state(spark, keyed)


def test_a_stream_sees_each_version_and_passes_over_a_commit_of_deletes_alone(spark, keyed, tmp_path):
    """A query that runs, one that starts on a head of deletes alone, and one that goes on from its checkpoint."""
    seen = []

    def query(checkpoint):
        stream = read_stream.read(spark, named(keyed))
        writer = stream.writeStream.foreachBatch(lambda batch, _: seen.extend(batch.collect()))
        return (
            writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(processingTime="0 seconds").start()
        )

    def drained(checkpoint):
        running = query(checkpoint)
        running.processAllAvailable()
        running.stop()
        return consumed()

    def consumed():
        return Counter((row["id"], row["value"], row["op"]) for row in seen)

    def published():
        return Counter((row["id"], row["value"], row["op"]) for row in streamed(keyed))

    writer = Steps(keyed)
    writer.publish_steps(Step(upserts={1: "a", 2: "b"}), Step(upserts={1: "c"}), Step(deletes=[2]))
    keyed.tick()
    assert drained("one") == published()

    running = query("one")
    running.processAllAvailable()
    writer.publish_steps(Step(deletes=[1], shadow=False))
    keyed.tick()
    assert keyed.operations()[-1] == "delete"
    running.processAllAvailable()
    assert running.isActive
    writer.publish_steps(Step(upserts={5: "e"}))
    keyed.tick()
    running.processAllAvailable()
    running.stop()
    assert consumed() == published() and published()[(2, None, "D")] == 1
    assert state(spark, keyed) == [(5, "e")]

    writer.publish_steps(Step(deletes=[5], shadow=False))
    keyed.tick()
    assert drained("one") == published()
    seen.clear()
    assert drained("two") == published()
    writer.publish_steps(Step(upserts={6: "f"}))
    keyed.tick()
    assert drained("two") == published()
    assert state(spark, keyed) == [(6, "f")]
