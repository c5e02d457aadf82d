"""
Compaction on Spark through the bookkeeper: the rows stay equal, deletes are applied, and it loses no race.
"""

import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.types import StringType

from bookkeeper.config.settings import Reaper
from bookkeeper.contract import pending_rewrites
from bookkeeper.contract.rewrite import ReplacedFile
from bookkeeper.errors import NotPossible, Retry
from bookkeeper.stores.locations import local_path
from reaper.run import reap
from spark_jobs import compact, read_stream
from spark_jobs.compact import Compaction, Options, Outcome
from spark_jobs.rewrite_groups import Source, operation_id, spelled
from tests.support.compactor import live
from tests.support.deletes import commit_deletes, equality
from tests.support.lake import Lake as Queue
from tests.support.lake import WallClock, Writes, append_by_others

ID = "01a1fdf4-2b80-7001-8203-0405060708aa"
OLD, OLDER = timedelta(hours=5), timedelta(days=1, hours=5)


@pytest.fixture
def queue(lake: Any, request: pytest.FixtureRequest) -> Queue:
    """A queue in the lake of the Spark session, by day."""
    name = "".join(char for char in request.node.name if char.isalnum())[-40:]
    return Queue(lake.config.parent, identifier=f"queue.{name}", clock=WallClock())


def name_of(queue: Queue) -> str:
    return f"lake.{queue.settings.identifier}"


def publish(queue: Queue, keys: Iterable[str], *ago: timedelta) -> None:
    """A file for each key, of rows that are so old, all committed."""
    writer = Writes(queue)
    for age in ago or (OLD,):
        for key in keys:
            writer.publish(f"{key}-{age.days}", at=queue.clock.now - age)
    queue.tick()


def compaction(spark: Any, queue: Queue, **given: Any) -> Compaction:
    return Compaction(spark, name_of(queue), queue.settings, queue.folder, Options(**given))


def compacted(spark: Any, queue: Queue, **given: Any) -> Outcome:
    """One run, and the bookkeeper's tick that takes what it published."""
    outcome = compaction(spark, queue, **given).run(queue.clock.now)
    queue.tick()
    return outcome


def keys_in_spark(spark: Any, queue: Queue) -> list[str]:
    spark.sql(f"REFRESH TABLE {name_of(queue)}")
    return sorted(row.key for row in spark.table(name_of(queue)).select("key").collect())


def keys(spark: Any, queue: Queue) -> list[str]:
    """What Spark and pyiceberg both read."""
    found = keys_in_spark(spark, queue)
    assert found == queue.keys()
    return found


def specs(queue: Queue) -> Counter[int]:
    """How many live files each spec has."""
    files = queue.table().inspect.files()
    return Counter(files["spec_id"].to_pylist())


def path_of(item: ReplacedFile) -> Path:
    path = local_path(item.file.path)
    assert path is not None
    return Path(path)


def left_in_caches(spark: Any, queue: Queue) -> list[int]:
    """What Iceberg's caches of groups still hold of the table."""
    iceberg = spark._jvm.org.apache.iceberg.spark
    table = Source.load(spark, name_of(queue)).table
    sets = iceberg.ScanTaskSetManager.get().fetchSetIds(table), iceberg.FileRewriteCoordinator.get().fetchSetIds(table)
    return [iceberg.SparkTableCache.get().size(), *(len(found) for found in sets)]


def test_small_files_of_each_partition_and_spec_become_one_and_the_rows_stay_equal(spark: Any, queue: Queue) -> None:
    publish(queue, "abcde", OLD, OLDER)
    spark.sql(f"ALTER TABLE {name_of(queue)} ADD PARTITION FIELD truncate(1, key)")
    queue.tick(queue.book())
    publish(queue, [f"{letter}{number}" for letter in "km" for number in range(5)])
    before = keys(spark, queue)
    assert len(before) == 20 and len(specs(queue)) == 2

    outcome = compacted(spark, queue)

    assert (len(outcome.published), outcome.left_out, queue.rejected()) == (4, 0, {})
    assert keys(spark, queue) == before
    assert sorted(specs(queue).values()) == [2, 2] and queue.operations()[-1] == "replace"
    assert all(item.file.path.startswith("file:///") for item in live(queue))
    assert left_in_caches(spark, queue) == [0, 0, 0]


def test_files_of_the_present_hour_and_of_pending_rewrites_are_left_alone(spark: Any, queue: Queue) -> None:
    publish(queue, "abcde", timedelta(0))
    assert compaction(spark, queue).run(queue.clock.now).published == []
    publish(queue, "abcde", OLDER)
    first = compaction(spark, queue).run(queue.clock.now)
    again = compaction(spark, queue).run(queue.clock.now)
    assert (len(first.published), again.published) == (1, [])


def test_a_file_that_is_listed_twice_is_left_alone_in_any_spelling(spark: Any, queue: Queue, capsys: Any) -> None:
    publish(queue, "abcdef")
    first, second = (item.file for item in live(queue)[:2])
    append_by_others(queue, first, replace(second, path=second.path.replace("file:///", "file:/")))
    before = keys(spark, queue)

    assert len(compacted(spark, queue, min_input_files=2).published) == 1

    assert (keys(spark, queue), len(live(queue))) == (before, 5)
    said = [line for line in capsys.readouterr().out.splitlines() if "lists it more than once" in line]
    assert len(said) == 3 and any(first.path in line for line in said)


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(spark: Any, queue: Queue, capsys: Any) -> None:
    publish(queue, "abcde")
    before = sorted(Path(str(local_path(queue.made.folder))).parent.rglob("*"))

    outcome = compaction(spark, queue).run(queue.clock.now, dry_run=True)

    assert outcome.published == [] and "would rewrite: 5 files of spec 0 timestamp_day=" in capsys.readouterr().out
    assert sorted(Path(str(local_path(queue.made.folder))).parent.rglob("*")) == before


def test_a_filter_chooses_files_and_a_bad_one_is_refused(spark: Any, queue: Queue) -> None:
    publish(queue, "abcde", OLD, OLDER)
    day = f"{queue.clock.now - timedelta(days=1):%Y-%m-%d %H:%M:%S}"
    assert len(compacted(spark, queue, where=f"timestamp < TIMESTAMP '{day} UTC'").published) == 1
    with pytest.raises(NotPossible, match="Iceberg cannot choose files by this"):
        compacted(spark, queue, where="no_such_column = 1")


def test_streams_behind_and_at_the_head_read_every_row_once(spark: Any, queue: Queue, tmp_path: Path) -> None:
    found = list[str]()

    def drain(checkpoint: str) -> list[str]:
        found.clear()
        stream = read_stream.read(spark, name_of(queue)).writeStream
        query = stream.foreachBatch(lambda rows, _: found.extend(row.key for row in rows.collect()))
        started = query.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        started.awaitTermination()
        return sorted(found)

    publish(queue, "abcde")
    assert len(drain("head")) == 5
    compacted(spark, queue)
    assert drain("head") == []
    publish(queue, "f")
    assert (drain("head"), drain("behind")) == (["f-0"], [f"{key}-0" for key in "abcdef"])


def test_rows_that_position_deletes_of_spark_took_are_left_out(spark: Any, queue: Queue) -> None:
    publish(queue, "abcde")
    modes = ", ".join(f"'write.delete.{key}'" for key in ("mode'='merge-on-read", "granularity'='partition"))
    spark.sql(f"ALTER TABLE {name_of(queue)} SET TBLPROPERTIES ({modes})")
    # Two rows in one file: Spark would drop a file whose every row goes.
    Writes(queue).publish("gone", "stays", at=queue.clock.now - OLD)
    queue.tick()
    spark.sql(f"DELETE FROM {name_of(queue)} WHERE key = 'gone'")
    assert spark.table(f"{name_of(queue)}.delete_files").count() == 1
    before = keys(spark, queue)

    assert len(compacted(spark, queue).published) == 1

    assert keys(spark, queue) == before == [*(f"{key}-0" for key in "abcde"), "stays"]
    (new,) = live(queue)
    assert pq.read_metadata(path_of(new)).num_rows == 6


def with_bounds(item: Any, low: str, high: str) -> dict[str, Any]:
    bound = {2: to_bytes(StringType(), low)}, {2: to_bytes(StringType(), high)}
    return {"lower_bounds": {**item.lower_bounds, **bound[0]}, "upper_bounds": {**item.upper_bounds, **bound[1]}}


@contextmanager
def without_metadata(queue: Queue) -> Iterator[None]:
    """As after the expiry of every snapshot that there is."""
    metadata = Path(str(local_path(queue.table().location()))) / "metadata"
    away = metadata.rename(metadata.with_name("away"))
    try:
        yield
    finally:
        away.rename(metadata)


def test_equality_deletes_are_applied_and_named_also_those_that_statistics_rule_out(spark: Any, queue: Queue) -> None:
    writer, at = Writes(queue), queue.clock.now - OLD
    files = [writer.file([key], at) for key in ("a", "b", "c", "d", "gone")]
    files = [replace(item, **with_bounds(item, "a", "gone")) for item in files]
    queue.folder.publish(*writer.encoded(files))
    queue.tick()
    partition = live(queue)[0].file.partition
    taken, other = equality(queue, ["gone"], partition), equality(queue, ["zzz"], partition)
    pruned = replace(other, file=replace(other.file, **with_bounds(other.file, "zzz", "zzz")))
    commit_deletes(queue, taken, pruned)
    source = Source.load(spark, name_of(queue))
    (group,) = source.plan([], {"min-input-files": "5"})
    seen = {deletes.location() for task in group.tasks for deletes in task.deletes()}
    assert seen == {taken.applied()}, "Iceberg leaves the other out"
    with without_metadata(queue):
        assert source.applied_deletes(group) == {taken.applied(), pruned.applied()}, "known since the plan"

    compacted(spark, queue)

    # pyiceberg reads no equality deletes
    assert keys_in_spark(spark, queue) == ["a", "b", "c", "d"] and len(live(queue)) == 1
    assert pq.read_metadata(path_of(live(queue)[0])).num_rows == 4


def test_a_source_file_that_is_gone_costs_its_group_only(spark: Any, queue: Queue, capsys: Any) -> None:
    publish(queue, "abcde", OLD, OLDER)
    lost = path_of(live(queue)[0])
    content = lost.read_bytes()
    lost.unlink()

    with pytest.raises(Retry, match="1 rewrites published; 1 groups left out"):
        compaction(spark, queue).run(queue.clock.now)

    assert re.search(rf"-- left out: 5 files .*NotFoundException.*{lost.name}", capsys.readouterr().err)
    assert left_in_caches(spark, queue) == [0, 0, 0]
    lost.write_bytes(content)
    queue.tick()
    assert len(live(queue)) == 6 and len(keys(spark, queue)) == 10


def test_a_group_whose_every_row_is_deleted_leaves_no_file(spark: Any, queue: Queue) -> None:
    publish(queue, "abcde")
    commit_deletes(queue, equality(queue, [f"{key}-0" for key in "abcde"], live(queue)[0].file.partition))

    assert len(compacted(spark, queue).published) == 1

    assert keys_in_spark(spark, queue) == live(queue) == [] and queue.operations()[-1] == "replace"


def test_a_snapshot_that_expires_while_it_is_planned_is_planned_anew(
    spark: Any, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(queue, "abcde")
    plan, failing = Source.plan, [OSError("a manifest is gone")] * 2

    def flaky(source: Source, *given: Any) -> Any:
        if failing:
            raise failing.pop()
        return plan(source, *given)

    monkeypatch.setattr(Source, "plan", flaky)
    assert len(compaction(spark, queue).run(queue.clock.now).published) == 1
    failing += [OSError("all manifests are gone")] * 3
    with pytest.raises(Retry, match="cannot be planned: all manifests are gone"):
        compaction(spark, queue).run(queue.clock.now)


class Killed(BaseException):
    """What ends the process there."""


def test_a_job_killed_before_it_publishes_leaves_orphans_and_the_next_one_rewrites(
    spark: Any, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(queue, "abcde")
    before, named = keys(spark, queue), {path_of(item) for item in live(queue)}

    def killed(*given: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(pending_rewrites, "publish", killed)
        with pytest.raises(Killed):
            compaction(spark, queue).run(queue.clock.now)
    data = Path(str(local_path(queue.folder.card().data_path)))
    orphans = set(data.rglob("*.parquet")) - named
    queue.tick()

    assert len(orphans) == 1 and pending_rewrites.pending_rewrites(queue.folder) == []
    assert (keys(spark, queue), {path_of(item) for item in live(queue)}) == (before, named)
    assert left_in_caches(spark, queue) == [0, 0, 0]
    compacted(spark, queue)
    assert keys(spark, queue) == before and len(live(queue)) == 1


def test_a_group_that_took_half_of_the_orphan_age_is_not_published(spark: Any, queue: Queue, capsys: Any) -> None:
    publish(queue, "abcde")
    queue.folder.write_card(replace(queue.folder.card(), orphan_age_ms=1))
    with pytest.raises(Retry, match="0 rewrites published; 1 groups left out"):
        compaction(spark, queue).run(queue.clock.now)
    assert "at most half of orphan-age is allowed" in capsys.readouterr().err
    assert pending_rewrites.pending_rewrites(queue.folder) == []


def test_it_sorts_by_the_tables_sort_order_and_marks_the_files(spark: Any, queue: Queue) -> None:
    publish(queue, "ecadb")
    with pytest.raises(NotPossible, match="has no sort order"):
        compaction(spark, queue, sort=True).run(queue.clock.now)
    spark.sql(f"ALTER TABLE {name_of(queue)} WRITE ORDERED BY key DESC")
    queue.tick(queue.book())

    assert len(compacted(spark, queue, sort=True).published) == 1

    (new,) = live(queue)
    assert pq.read_table(path_of(new))["key"].to_pylist() == [f"{key}-0" for key in "edcba"]
    assert new.file.sort_order_id == queue.table().sort_order().order_id != 0


@contextmanager
def at_work(queue: Queue) -> Iterator[list[int]]:
    """A bookkeeper that ticks with an append each, and a reaper that expires all it may; gives how many expired."""
    over, expired = threading.Event(), list[int]()
    eager = replace(queue.settings, reaper=Reaper(older_than=timedelta(milliseconds=1), retain_last=1))

    def beside() -> None:
        writer, book = Writes(queue, "beside"), queue.book()
        while not over.wait(0.3):
            writer.publish(f"z{len(writer.keys)}")
            # A tick or a run may lose its race for a commit: the next one goes on.
            with suppress(Retry):
                book.tick(queue.clock.now)
            with suppress(Retry):
                expired.append(reap(queue.catalog, eager, queue.clock.now).snapshots)

    running = threading.Thread(target=beside)
    running.start()
    try:
        yield expired
    finally:
        over.set()
        running.join()


def test_every_group_is_committed_beside_a_busy_bookkeeper_though_the_base_expires(spark: Any, queue: Queue) -> None:
    for day in range(6):
        publish(queue, "abcde", OLD + timedelta(days=day))
    table = queue.table()
    base, before = table.current_snapshot().snapshot_id, keys(spark, queue)

    with at_work(queue) as expired:
        outcome = compaction(spark, queue, in_flight=1, wait=timedelta(minutes=2)).run(queue.clock.now)

    queue.tick()
    assert (len(outcome.published), outcome.rejected, outcome.pending) == (6, {}, [])
    assert sum(expired) > 0 and queue.table().metadata.snapshot_by_id(base) is None
    after = keys(spark, queue)
    assert [key for key in after if not key.startswith("z")] == before
    assert len(set(after) - set(before)) == len(after) - len(before) == queue.table().scan().count() - len(before)


def test_waiting_says_what_was_rejected_and_what_is_pending(spark: Any, queue: Queue, capsys: Any) -> None:
    publish(queue, "abcde")
    with pytest.raises(Retry, match="1 rewrites published: 0 committed, 0 rejected, 1 pending"):
        compaction(spark, queue, wait=timedelta(milliseconds=1)).run(queue.clock.now)
    (item,) = pending_rewrites.pending_rewrites(queue.folder)
    rewrite_id = item.name.removesuffix(".avro")
    pending_rewrites.reject(queue.folder, item.name, NotPossible("so it is"), queue.clock.now)
    assert compact.still_pending(queue.folder, [rewrite_id]) == []
    assert compact.rejected_of(queue.folder, [rewrite_id, ID]) == {rewrite_id: "NotPossible: so it is"}


def test_a_table_without_a_bookkeeper_is_refused(spark: Any, queue: Queue) -> None:
    publish(queue, "abcde")
    Path(str(local_path(queue.made.folder)), "card.json").unlink()
    with pytest.raises(NotPossible, match="no bookkeeper commits rewrites"):
        compaction(spark, queue).run(queue.clock.now)


def test_the_id_of_a_rewrite_is_the_one_in_all_names() -> None:
    assert operation_id([f"s3://b/{'f' * 8}/00000-1-{ID}-0-0000{n}.parquet" for n in (1, 2)]) == ID
    assert operation_id([f"s3://b/0110/00000-1-{ID}-0-00001.zstd.avro"]) == ID
    assert re.fullmatch(r"[0-9a-f-]{36}", operation_id([]))
    other = ID.replace("aa", "bb")
    for names in ([f"a-{ID}.parquet"], [f"0-1-{ID}-0-1.parquet", f"0-1-{other}-0-1.parquet"], ["x.parquet"]):
        with pytest.raises(NotPossible, match="not one id"):
            operation_id(names)


def test_only_hadoops_spelling_of_local_files_is_changed() -> None:
    assert spelled("file:/lake/a.parquet") == spelled("file:///lake/a.parquet") == "file:///lake/a.parquet"
    assert spelled("s3a://lake/a.parquet") == "s3a://lake/a.parquet"
