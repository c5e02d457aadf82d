"""
Maintenance that outgrows one machine: Iceberg's procedures on your Spark, with settings that suit a queue.

It refuses to remove orphans while txlogs name files that Iceberg does not know. For expiry prefer the reaper:
it knows the consumers, this job does not.
"""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.config import expiry
from bookkeeper.config.maintained import is_by_catalog
from bookkeeper.console.errors import Commands
from bookkeeper.console.options import DURATION, Instant, load_settings, pick_table
from bookkeeper.errors import NotPossible
from spark_jobs import compact, job, procedures, register, session
from spark_jobs.rewrite_groups import cause
from spark_jobs.table import load, location, main_head, main_history
from spark_jobs.table import metadata as table_metadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bookkeeper.config.settings import Table
    from bookkeeper.history.registry import Registry
    from bookkeeper.stores.store import Store

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")
_ROWS_SHOWN = 1000
#: small files are not merged for being small
_NEVER = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Work:
    """
    One maintenance run: session, table, the moment it began, and whether it only shows what it would do.
    """

    spark: SparkSession
    name: str
    table: Table
    now: datetime
    dry_run: bool = False
    storage: Mapping[str, str] = field(default_factory=dict)

    def call(self, sql: str, *, harmless: bool = False) -> list[dict[str, Any]]:
        """
        Print the SQL, run it unless this is a dry run of something harmful, and print and return what it returned.
        """
        click.echo(f"{sql};")
        if self.dry_run and not harmless:
            return []
        found = [row.asDict() for row in self.spark.sql(sql).take(_ROWS_SHOWN)]
        for row in found:
            click.echo("-- " + "  ".join(f"{key}={value}" for key, value in row.items()))
        return found

    def properties(self) -> Mapping[str, str]:
        """
        The table's properties.
        """
        rows = self.spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect()
        return {row.key: row.value for row in rows}

    def folds_paused(self) -> AbstractContextManager[object]:
        """
        The bookkeeper's folds pause meanwhile; of a table without keys, or in a dry run, there is nothing to pause.
        """
        from bookkeeper.contract import fold_pause, keyed

        if self.dry_run or keyed.PROPERTY not in self.properties():
            return nullcontext()
        return fold_pause.pausing(self.folder(), f"maintain-{uuid.uuid4().hex[:12]}", self.now)

    def folder(self) -> Store:
        """
        The store of the table's txlog folder.
        """
        from bookkeeper.contract.txlog_folder import folder_url
        from bookkeeper.stores.open import open_store

        return open_store(folder_url(self.table, location(self.spark, self.name)), self.storage)

    def registry(self) -> Registry:
        """
        The table's consumers; raises WrongFolder where the folder is not the table's.
        """
        from bookkeeper.history.registry import Registry

        folder = self.folder()
        register.check_folder(self.spark, folder, self.name)
        return Registry(folder, self.table.consumers)


def _refuse_to_delete(work: Work) -> None:
    if is_by_catalog(work.table):
        raise NotPossible(
            f"{work.name} is maintained by the catalog, whose service deletes its files",
            hint="`reaper run` expires its snapshots and deletes nothing.",
        )


@click.group(cls=Commands)
def main() -> None:
    """
    Maintain a table with Iceberg's procedures on Spark.

    Every command has --dry-run: it prints the SQL and changes nothing.

    \b
    Example: python -m spark_jobs.maintain rewrite-data-files --config bookkeeper.toml --older-than 2h
    """


def _command(function: job.Command) -> job.Command:
    @functools.wraps(function)
    def run(config: str | None, table: str | None, conf: tuple[str, ...], dry_run: bool, **own: Any) -> None:
        settings = load_settings(config, os.environ)
        name = session.table_name(settings, table)
        spark = job.begin(settings, f"maintain {name}", conf)
        function(Work(spark, name, pick_table(settings, table), datetime.now(UTC), dry_run, settings.storage), **own)

    dry = click.option("--dry-run", is_flag=True, help="Print the SQL and change nothing.")
    main.command(function.__name__.replace("_", "-"))(job.options(dry(run)))
    return function


@_command
@click.option("--older-than", type=DURATION, help="Default: as the reaper, else 10m.")
@click.option("--before", type=Instant(), help="Instead of --older-than: a moment (the reaper's own plan).")
@click.option("--retain-last", type=click.IntRange(1), help="Default: as the reaper, else 100.")
def expire_snapshots(
    work: Work, older_than: timedelta | None = None, before: datetime | None = None, retain_last: int | None = None
) -> None:
    """
    Expire old snapshots and delete their files. Prefer the reaper.

    The newest append and the bookkeeper's newest snapshot stay, as streams and marks need them; so do the newest
    commits of streams that write, and staged snapshots for five days. But this job does not know
    your consumers: one that is further behind than --older-than loses its place and its query ends. The reaper
    knows the registered consumers and waits for them.

    \b
    Example: python -m spark_jobs.maintain expire-snapshots --older-than 1d --dry-run
    """
    from bookkeeper.history.main_history import MAIN

    _refuse_to_delete(work)
    history = main_history(work.spark, work.name)
    metadata = table_metadata(work.spark, load(work.spark, work.name))
    found = expiry.rules(work.table.reaper, metadata.properties, metadata.refs.get(MAIN))
    keep, last = older_than or found.older_than, retain_last or found.retain_last
    needed = procedures.needed_by_others(metadata, work.table.reaper, work.now)
    procedures.check_main(metadata, history, procedures.expire_before(history, work.now, needed), work.now)
    cutoff = procedures.expire_before(history, before or work.now - keep, needed)
    for snapshot in procedures.expired(history, cutoff, last):
        click.echo(f"-- snapshot {snapshot.snapshot_id} {snapshot.committed_at.isoformat()} {snapshot.operation}")
    work.call(procedures.expire_snapshots(work.name, cutoff, last))


@_command
@click.option(
    "--call", is_flag=True, help="Let Iceberg commit, where no bookkeeper is; of the options only --older-than."
)
@compact.options
def rewrite_data_files(work: Work, call: bool = False, **given: Any) -> None:
    """
    Compact small files of hours that are over.

    As `python -m spark_jobs.compact`: Iceberg rewrites, the bookkeeper commits.

    With --call Iceberg's procedure commits, and races against every other commit. While it runs it is registered as a
    consumer, so that the reaper keeps the snapshot it began with. The exit code is 4 when it compacted fewer files than
    it had found: beside a busy bookkeeper that may be all of them.

    \b
    Example: python -m spark_jobs.maintain rewrite-data-files --older-than 2h
    """
    chosen = compact.Options(**given)
    if call:
        assert chosen.older_than is not None, "the command line has a default"
        _call_rewrite(work, chosen.older_than)
    else:
        compact.compact(work.spark, work.name, work.table, work.storage, work.now, chosen, dry_run=work.dry_run)


def _call_rewrite(work: Work, older_than: timedelta) -> None:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    column = work.table.retention.column or procedures.time_column(work.spark.table(work.name).schema)
    before = procedures.closed(work.now - older_than)
    sql = procedures.rewrite_data_files(work.name, column, before)
    if work.dry_run or main_head(work.spark, work.name) is None:
        work.call(sql)
        return

    def head() -> int:
        found = main_head(work.spark, work.name)
        assert found is not None, "main never loses its last snapshot"
        return found

    def exists(snapshot: int) -> bool:
        return not work.spark.table(f"{work.name}.snapshots").where(f"snapshot_id = {snapshot}").isEmpty()

    # Held before it is planned: without its first snapshot Iceberg commits no group and reports success.
    with register.hold(work.registry(), head, exists, lambda: datetime.now(UTC)):
        began = head()
        try:
            groups, files = _to_rewrite(work, column, before)
            click.echo(f"-- found: {files} files in {groups} groups")
            with work.folds_paused():
                (result,) = work.call(sql)
        except (Py4JJavaError, PySparkException) as exc:
            if exists(began):
                raise
            raise procedures.lost_snapshot(work.name, began, cause(exc)) from exc
    procedures.check_rewritten(work.name, result["rewritten_data_files_count"], files, groups)


@_command
@click.option("--delete-files", type=click.IntRange(1), help="Of a data file that is rewritten; default: fold.files.")
@click.option("--wait", type=DURATION, default="30m", help="How long the bookkeeper may take to commit it (30m).")
def fold(work: Work, delete_files: int | None = None, wait: timedelta = timedelta(minutes=30)) -> None:
    """
    Apply the deletes that a fold leaves.

    It is for keyed tables with more deletes than `bookkeeper fold` takes. Data files to which many delete files apply
    are rewritten, as `python -m spark_jobs.compact` does it: the bookkeeper commits. Then Iceberg merges position
    delete files. The bookkeeper's folds pause meanwhile (fold.pause-most, fold.pause-files); afterwards they take the
    equality deletes that apply to nothing any more. The exit code is 4 when a part was left as it was.

    \b
    Example: python -m spark_jobs.maintain fold --table events
    """
    most = delete_files or work.table.fold.files
    chosen = compact.Options(older_than=None, wait=wait, delete_files=most, min_input_files=_NEVER)
    with work.folds_paused():
        compact.compact(work.spark, work.name, work.table, work.storage, work.now, chosen, dry_run=work.dry_run)
        work.call(procedures.rewrite_position_delete_files(work.name))


@_command
def rewrite_manifests(work: Work) -> None:
    """
    Merge manifests, so that planning stays quick.

    \b
    Example: python -m spark_jobs.maintain rewrite-manifests
    """
    work.call(procedures.rewrite_manifests(work.name))


@_command
@click.option("--older-than", type=DURATION, help="Default: orphan-age, at least 1d.")
def remove_orphan_files(work: Work, older_than: timedelta | None = None) -> None:
    """
    Delete files that no snapshot names. --dry-run lists them.

    Refused while there are rejected or old pending txlogs: the files they name are no orphans, but Iceberg
    cannot know that. The reaper can.

    \b
    Example: python -m spark_jobs.maintain remove-orphan-files --dry-run
    """
    from bookkeeper.contract.pending_rewrites import is_rewrite
    from bookkeeper.contract.rewrite import REWRITES
    from bookkeeper.contract.txlog_folder import PENDING, REASON, REJECTED

    _refuse_to_delete(work)
    keep = older_than or max(work.table.orphan_age, procedures.LEAST_ORPHAN_AGE)
    procedures.check_orphan_age(keep, work.table.orphan_age)
    folder = work.folder()
    register.check_folder(work.spark, folder, work.name)
    # A writer publishes no file older than half the orphan age.
    oldest = keep - work.table.orphan_age / 2
    pending = [*folder.list(PENDING), *folder.list(REWRITES)]
    # What a rejected rewrite made is in the table, or never will be.
    rejected = [
        item for item in folder.list(REJECTED) if not is_rewrite(item.key.removeprefix(REJECTED).removesuffix(REASON))
    ]
    procedures.check_txlogs(pending, rejected, work.now, oldest)
    work.call(
        procedures.remove_orphan_files(work.name, work.now - keep, dry_run=work.dry_run),
        harmless=work.dry_run,
    )


def _to_rewrite(work: Work, column: str | None, before: datetime) -> tuple[int, int]:
    """
    How many groups and files Iceberg finds to compact: its own planner, which the procedure asks as well.
    """
    jvm: Any = work.spark.sparkContext._jvm
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(work.spark._jsparkSession, work.name)
    expressions = jvm.org.apache.iceberg.expressions.Expressions
    micros = (before - _EPOCH) // timedelta(microseconds=1)
    chosen = expressions.lessThan(column, micros) if column else expressions.alwaysTrue()
    head = table.currentSnapshot().snapshotId()
    planner = jvm.org.apache.iceberg.actions.BinPackRewriteFilePlanner(table, chosen, head, False)
    wanted = jvm.java.util.HashMap()
    for key, value in procedures.REWRITE.items():
        wanted.put(key, value)
    planner.init(wanted)
    plan = planner.plan()
    return plan.totalGroupCount(), sum(group.inputFileNum() for group in plan.groups().iterator())


if __name__ == "__main__":
    main()
