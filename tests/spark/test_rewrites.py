"""Rewrites and Iceberg Java: it writes them, reads the table after them, streams over them, and expires after them."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bookkeeper.contract.rewrite import PREFIX, Rewrite, decode, encode
from bookkeeper.format import avro
from bookkeeper.ledger.rewrite_groups import RewriteGroup
from tests.support.compactor import MOST, commit, compacted, live
from tests.support.deletes import commit_deletes, equality
from tests.support.lake import Lake as Queue
from tests.support.lake import Writes


@pytest.fixture
def queue(lake: Any, request: pytest.FixtureRequest) -> Queue:
    """A queue in the lake of the Spark session."""
    name = "".join(char for char in request.node.name if char.isalnum())[-40:]
    return Queue(lake.config.parent, identifier=f"queue.{name}", partition_by=())


def publish(queue: Queue, *keys: str) -> None:
    Writes(queue).publish(*keys)
    queue.tick()


def keys(spark: Any, queue: Queue) -> list[str]:
    name = f"lake.{queue.settings.identifier}"
    spark.sql(f"REFRESH TABLE {name}")
    return sorted(row.key for row in spark.table(name).select("key").collect())


def streamed(spark: Any, queue: Queue, checkpoint: Path) -> Iterator[str]:
    """What a stream reads until it has caught up."""
    found = list[str]()
    stream = spark.readStream.format("iceberg").load(f"lake.{queue.settings.identifier}").writeStream
    query = stream.foreachBatch(lambda rows, _: found.extend(row.key for row in rows.collect()))
    query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return iter(sorted(found))


def written_by_java(spark: Any, queue: Queue, ours: Rewrite, old: list[Any], path: Path) -> Rewrite:
    """The same rewrite as Iceberg Java writes it, with our header keys."""
    iceberg = spark._jvm.org.apache.iceberg
    table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"lake.{queue.settings.identifier}")

    def described(file: Any) -> Any:
        made = iceberg.DataFiles.builder(table.spec()).withPath(file.path).withFormat("parquet")
        return made.withFileSizeInBytes(file.size_bytes).withRecordCount(file.record_count).build()

    writer = iceberg.ManifestFiles.write(2, table.spec(), table.io().newOutputFile(f"file://{path}"), None)
    (index,) = ours.added_indexes
    writer.add(described(ours.body.entries[index].data_file))
    for item in old:
        writer.delete(described(item.file), item.sequence_number, item.file_sequence_number)
    writer.close()
    java, card = avro.decode(path.read_bytes(), MOST), queue.folder.card()
    header = avro.decode(encode(ours.id, ours.base, card.schema, card.spec, [], old), MOST).meta
    own = {key: value for key, value in header.items() if key.startswith(PREFIX)}
    own["bookkeeper.entries"] = str(len(old) + 1).encode()
    return decode(ours.id, avro.encode({**java.meta, **own}, java.blocks), MOST)


def test_a_rewrite_that_iceberg_java_wrote_is_committed_and_read(spark: Any, queue: Queue, tmp_path: Path) -> None:
    for number in range(4):
        publish(queue, f"k{number}", f"k{number}-b")
    old, before = live(queue), keys(spark, queue)
    rewrite = written_by_java(spark, queue, compacted(queue, old), old, tmp_path / "java.avro")
    assert len(commit(queue, rewrite).good) == 1
    assert keys(spark, queue) == queue.keys() == before
    assert spark.table(f"lake.{queue.settings.identifier}.files").count() == 1


def test_streams_pass_over_rewrites_and_read_every_row_once(spark: Any, queue: Queue, tmp_path: Path) -> None:
    publish(queue, "a")
    publish(queue, "b")
    assert list(streamed(spark, queue, tmp_path / "at-the-head")) == ["a", "b"]
    commit(queue, compacted(queue, live(queue)))
    publish(queue, "c")
    commit(queue, compacted(queue, live(queue)))
    publish(queue, "d")
    assert list(streamed(spark, queue, tmp_path / "at-the-head")) == ["c", "d"]
    commit(queue, compacted(queue, live(queue)))
    assert list(streamed(spark, queue, tmp_path / "at-the-head")) == []
    assert list(streamed(spark, queue, tmp_path / "late")) == ["a", "b", "c", "d"]


def test_a_commit_of_javas_keeps_equality_deletes_that_new_files_need_and_would_drop_them_without_the_manifests_number(
    spark: Any, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    # When it takes files out, Java drops delete files that are older than the smallest number of all data manifests.
    assert rewritten_and_deleted(spark, queue) == ["a", "b"]
    other = Queue(queue.root, identifier=f"{queue.settings.identifier}b", partition_by=())
    rightly = RewriteGroup.records
    monkeypatch.setattr(
        RewriteGroup, "records", lambda group, header: replace(rightly(group, header), least_sequence=None)
    )
    assert rewritten_and_deleted(spark, other) == ["a", "b", "gone"]


def rewritten_and_deleted(spark: Any, queue: Queue) -> list[str]:
    publish(queue, "a", "gone")
    publish(queue, "b")
    rewrite = compacted(queue, live(queue))
    commit_deletes(queue, equality(queue, ["gone"]))
    Writes(queue).publish("c", at=queue.clock.now - timedelta(days=2))
    queue.tick()
    assert len(commit(queue, rewrite).good) == 1
    assert keys(spark, queue) == ["a", "b", "c"]
    limit = f"{queue.clock.now - timedelta(days=1):%Y-%m-%d %H:%M:%S}"
    spark.sql(f"DELETE FROM lake.{queue.settings.identifier} WHERE timestamp < TIMESTAMP '{limit}'")
    assert queue.operations()[-1] == "delete", "a whole file went"
    return keys(spark, queue)


def test_javas_own_rewrite_and_expiry_work_after_ours(spark: Any, queue: Queue) -> None:
    for number in range(6):
        publish(queue, f"k{number}")
    replaced = [item.file.path for item in live(queue)[:3]]
    commit(queue, compacted(queue, live(queue)[:3]))
    name, before = f"lake.{queue.settings.identifier}", keys(spark, queue)
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name[5:]}', options => map('rewrite-all', 'true'))")
    spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{name[5:]}', retain_last => 1, older_than => TIMESTAMP "
        "'2100-01-01 00:00:00')"
    )
    assert keys(spark, queue) == before
    assert not any(Path(path.removeprefix("file://")).exists() for path in replaced)
    for item in live(queue):
        assert pq.read_metadata(item.file.path.removeprefix("file:").replace("//", "")).num_rows == 6
