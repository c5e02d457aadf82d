"""
Iceberg's procedures on a queue: the rows stay equal, and what streams and marks stand on stays.
"""

import contextlib
import itertools
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JJavaError
from pyiceberg.expressions import EqualTo

from bookkeeper.config.settings import Reaper
from bookkeeper.contract import marks
from bookkeeper.errors import NotPossible, Retry, StorageUnavailable, WrongFolder
from bookkeeper.history.registry import FOLDER, SUFFIX, reader
from reaper.run import reap
from spark_jobs import maintain, register
from spark_jobs.maintain import Work
from tests.support.spark_lake import START, days, folder_of, name_of, rows

EAGER = Reaper(older_than=timedelta(milliseconds=1), retain_last=1)
SOON = datetime.fromtimestamp(time.time(), UTC) + timedelta(hours=1)


@pytest.fixture
def work(spark, lake):
    """
    Make the Work for a table, an hour from now (so that its snapshots are old enough).
    """

    def make(table, **given):
        return Work(spark, name_of(table), lake.settings.tables[table.name()[-1]], SOON, **given)

    return make


def contents(work):
    return sorted((row.timestamp, row.key) for row in work.spark.table(work.name).collect())


def operations(work):
    return [row.operation for row in work.spark.table(f"{work.name}.snapshots").orderBy("committed_at").collect()]


def test_small_files_are_compacted_and_the_rows_stay_equal(lake, work):
    table = lake.append(lake.new_table(), *(rows([key]) for key in "abcdef"))
    job = work(table)
    before = contents(job)

    maintain.rewrite_data_files(job, call=True)

    assert (contents(job), job.spark.table(f"{job.name}.files").count()) == (before, 1)
    assert operations(job) == ["append", "replace"]


def test_files_whose_rows_are_young_are_left_alone(lake, work):
    table = lake.append(lake.new_table(), *(rows([key], SOON) for key in "abcdef"))
    job = work(table)

    maintain.rewrite_data_files(job, call=True, older_than=timedelta(minutes=1))

    assert job.spark.table(f"{job.name}.files").count() == 6


@contextmanager
def eagerly_reaped(lake, table, begins=None):
    """
    A table that gets an append and a run of the reaper several times a second, which keeps nothing that it may expire;
    from the event `begins` on, if there is one.
    """
    name = table.name()[-1]
    settings = replace(lake.settings.tables[name], reaper=EAGER)
    over, runs = threading.Event(), []

    def beside():
        if begins is not None:
            begins.wait(60)
        while not over.wait(0.2):
            lake.append(table, rows("z", SOON))
            # A run may lose its race for the commit: the next one goes on.
            with contextlib.suppress(Retry):
                runs.append(reap(lake.catalog, settings, datetime.now(UTC)).snapshots)

    running = threading.Thread(target=beside)
    running.start()
    try:
        yield runs
    finally:
        over.set()
        running.join()


def small_files(lake, days_of):
    """
    A table with five small files in each of so many partitions.

    A commit is retried often: a race that a busy machine loses is not what these tests are about.
    """
    retries = {"num-retries": "100", "min-wait-ms": "20", "max-wait-ms": "200"}
    table = lake.new_table(**{f"commit.retry.{key}": value for key, value in retries.items()})
    return lake.append(table, *(rows([key], START + days(day)) for day in range(days_of) for key in "abcde"))


def test_a_reaper_that_expires_all_it_may_takes_nothing_from_a_running_compaction(lake, work):
    table = small_files(lake, 6)
    job = work(table)

    with eagerly_reaped(lake, table) as runs:
        maintain.rewrite_data_files(job, call=True)

    young = len(runs)  # appends beside it, of files that are not compacted
    assert young > 2 and job.spark.table(f"{job.name}.files").count() <= 6 + young + 1
    assert job.registry().all() == []


#: of all files, or before the first one where the snapshot went while it planned
LOST = r"\d+ of 30 files of lake.queue|snapshot \d+ of .* was expired while its files were compacted"


def test_a_compaction_that_lost_its_first_snapshot_ends_with_an_error(lake, work, monkeypatch):
    table = small_files(lake, 6)
    job = work(table)
    monkeypatch.setattr(register, "hold", lambda *about: contextlib.nullcontext())
    planned, to_rewrite = threading.Event(), maintain._to_rewrite

    def plan(*about):
        found = to_rewrite(*about)
        planned.set()
        return found

    monkeypatch.setattr(maintain, "_to_rewrite", plan)

    with eagerly_reaped(lake, table, planned), pytest.raises(Retry, match=LOST):
        maintain.rewrite_data_files(job, call=True)


def test_a_compaction_that_lost_its_first_snapshot_while_it_planned_ends_with_an_error(lake, work, monkeypatch):
    table = small_files(lake, 1)
    job = work(table)
    monkeypatch.setattr(register, "hold", lambda *about: contextlib.nullcontext())
    first = table.refresh().metadata.current_snapshot_id

    def lost(work, sql):
        lake.append(table, rows("z", SOON))
        settings = replace(lake.settings.tables[table.name()[-1]], reaper=EAGER)
        assert reap(lake.catalog, settings, datetime.now(UTC)).snapshots == 1
        return work.spark.read.option("snapshot-id", first).table(work.name).collect()

    monkeypatch.setattr(Work, "call", lost)
    with pytest.raises(Retry, match=f"snapshot {first} of .* was expired while"):
        maintain.rewrite_data_files(job, call=True)


def test_a_compaction_that_misses_a_file_of_a_living_snapshot_ends_with_sparks_error(lake, work, monkeypatch):
    table = small_files(lake, 1)
    job, call = work(table), Work.call

    def damaged(work, sql):
        Path(table.refresh().current_snapshot().manifest_list.removeprefix("file:")).unlink()
        return call(work, sql)

    monkeypatch.setattr(Work, "call", damaged)
    with pytest.raises(Py4JJavaError, match="NotFoundException"):
        maintain.rewrite_data_files(job, call=True)


def test_a_hold_is_renewed_while_a_job_runs_and_released_at_its_end(lake, work):
    table = lake.append(lake.new_table(), rows("a"))
    registry, seen = work(table).registry(), []
    clock = itertools.count()

    def ticking():
        return SOON + timedelta(minutes=next(clock))

    yesterday = SOON - timedelta(days=1)
    for old in ("maintain-killed", "export"):
        registry.add(reader(old, 1, yesterday, timedelta(minutes=20)))
        os.utime(f"{folder_of(table)}/{FOLDER}{old}{SUFFIX}", (yesterday.timestamp(),) * 2)
    registry.add(reader("maintain-alive", 1, SOON - timedelta(minutes=40), timedelta(minutes=20)))  # another clock
    with register.hold(registry, lambda: 7, {7}.__contains__, ticking, timedelta(milliseconds=50)) as name:
        while len(set(seen)) < 3:
            seen.extend((item.until, item.snapshot) for item in registry.all() if item.name == name)

    assert [item.name for item in registry.all()] == ["export", "maintain-alive"]


def test_a_snapshot_that_was_expired_before_it_was_held_is_not_the_one(lake, work):
    registry = work(lake.append(lake.new_table(), rows("a"))).registry()
    heads = iter([1, 2, 3])

    with register.hold(registry, lambda: next(heads), {3}.__contains__, lambda: SOON):
        assert [item.snapshot for item in registry.all()] == [3]
    with (
        pytest.raises(Retry, match="expired so fast"),
        register.hold(registry, lambda: 1, set().__contains__, lambda: SOON),
    ):
        pass

    assert registry.all() == []


def test_a_dry_run_of_a_compaction_registers_nothing(lake, work):
    job = work(lake.append(lake.new_table(), rows("a")), dry_run=True)

    maintain.rewrite_data_files(job, call=True)

    assert job.registry().all() == []


def test_manifests_are_merged_and_the_rows_stay_equal(lake, work):
    table = lake.new_table()
    for key in "abc":
        table = lake.append(table, rows([key]))
    job = work(table)
    before = contents(job)

    maintain.rewrite_manifests(job)

    assert (contents(job), job.spark.table(f"{job.name}.manifests").count()) == (before, 1)


def test_expiry_keeps_the_newest_append_below_later_maintenance(lake, work):
    table = lake.new_table()
    for number, key in enumerate("abc"):
        table = lake.append(table, rows([key], START + days(number)))
    job = work(table)
    lake.drop_files(table, START + days(0.5))
    maintain.rewrite_manifests(job)
    before = contents(job)

    maintain.expire_snapshots(job, retain_last=1)

    assert (contents(job), operations(job)) == (before, ["append", "delete", "replace"])


def test_expiry_deletes_the_files_that_retention_dropped(lake, work):
    table = lake.append(lake.new_table(), rows("a"), rows("b", START + days(1)))
    location = next(task.file.file_path for task in table.scan(EqualTo("key", "a")).plan_files())
    dropped = Path(location.removeprefix("file://"))
    lake.drop_files(table, START + days(0.5))
    table = lake.append(table, rows("c", START + days(1)))
    assert dropped.exists()

    maintain.expire_snapshots(work(table), retain_last=1)

    assert not dropped.exists()
    assert [key for _, key in contents(work(table))] == ["b", "c"]


def test_a_dry_run_prints_the_plan_and_changes_nothing(lake, work, capsys):
    table = lake.append(lake.append(lake.new_table(), rows("a")), rows("b"))
    job = work(table, dry_run=True)

    maintain.expire_snapshots(job, retain_last=1)
    maintain.rewrite_data_files(job, call=True)
    maintain.rewrite_manifests(job)
    maintain.remove_orphan_files(job)

    printed = capsys.readouterr().out
    assert [line.split("(")[0] for line in printed.splitlines() if line.startswith("CALL")] == [
        "CALL lake.system.expire_snapshots",
        "CALL lake.system.rewrite_data_files",
        "CALL lake.system.rewrite_manifests",
        "CALL lake.system.remove_orphan_files",
    ]
    assert f"-- snapshot {table.metadata.snapshots[0].snapshot_id} " in printed
    assert operations(job) == ["append", "append"]


def orphan(table, name, age):
    path = Path(table.location().removeprefix("file://")) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    old = time.time() - age.total_seconds()
    os.utime(path, (old, old))
    return path


def test_orphans_go_and_live_files_young_files_and_the_folder_stay(lake, work):
    table = lake.append(lake.new_table(), rows("a"))
    job = work(table)
    old, young = orphan(table, "data/old.parquet", days(9)), orphan(table, "data/young.parquet", days(1))
    folder = orphan(table, "_bookkeeper/card.json", days(9))

    maintain.remove_orphan_files(job)

    assert (old.exists(), young.exists(), folder.exists()) == (False, True, True)
    assert [key for _, key in contents(job)] == ["a"]


def test_a_dry_run_lists_orphans_and_deletes_none(lake, work, capsys):
    table = lake.append(lake.new_table(), rows("a"))
    old = orphan(table, "data/old.parquet", days(9))

    maintain.remove_orphan_files(work(table, dry_run=True))

    assert old.exists() and "data/old.parquet" in capsys.readouterr().out


def test_files_of_a_rejected_txlog_are_not_taken_for_orphans(lake, work):
    table = lake.append(lake.new_table(), rows("a"))
    named = orphan(table, "data/named-by-a-txlog.parquet", days(9))
    name = "writer-1.0190163d-8694-739b-aea5-966c26f8ad91.0000000001.txlog.avro"
    orphan(table, f"_bookkeeper/rejected/{name}", days(9))

    with pytest.raises(NotPossible, match="rejected"):
        maintain.remove_orphan_files(work(table))

    assert named.exists()


def test_orphans_are_left_alone_where_the_folder_is_not_the_one_of_the_marks(lake, work):
    table = lake.append(lake.new_table(**{marks.PROPERTY: "{}"}), rows("a"))
    old = orphan(table, "data/old.parquet", days(9))

    with pytest.raises(WrongFolder, match="no card"):
        maintain.remove_orphan_files(work(table))

    assert old.exists()


def test_orphans_are_left_alone_while_the_txlog_folder_cannot_be_read(lake, work):
    table = lake.append(lake.new_table(), rows("a"))
    old = orphan(table, "data/old.parquet", days(9))
    folder_of(table).rmdir()

    with pytest.raises(StorageUnavailable):
        maintain.remove_orphan_files(work(table))

    assert old.exists()


def test_the_commands_find_the_table_in_the_configuration(lake, work):
    table = lake.append(lake.append(lake.new_table(), rows("a")), rows("b"))
    common = ["--config", str(lake.config), "--table", table.name()[-1]]

    done = CliRunner().invoke(maintain.main, ["expire-snapshots", *common, "--retain-last", "1", "--older-than", "1ms"])

    assert done.exit_code == 0 and f"CALL lake.system.expire_snapshots(table => '{name_of(table)}'" in done.output
    assert operations(work(table)) == ["append"]


def test_a_refusal_is_one_line_and_a_hint(lake, spark):
    table = lake.new_table()
    common = ["--config", str(lake.config), "--table", table.name()[-1]]

    done = CliRunner().invoke(maintain.main, ["remove-orphan-files", *common, "--older-than", "30m"])

    assert done.exit_code == 1
    assert done.stderr.splitlines()[0] == "error: --older-than 30 m is refused: at least 3 d is needed here"
