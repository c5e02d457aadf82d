"""
Iceberg's maintenance procedures as SQL, and the rules of a queue that they must not break. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from bookkeeper.config.units import epoch_ms, format_duration, from_epoch_ms
from bookkeeper.errors import NotPossible, Retry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyspark.sql.types import StructType

    from bookkeeper.config.settings import Reaper
    from spark_jobs.table import Snapshot

#: Iceberg's procedure refuses anything younger.
LEAST_ORPHAN_AGE = timedelta(days=1)

REWRITE = {
    # One conflict (a file dropped by retention meanwhile) then costs one group, not the whole run.
    "partial-progress.enabled": "true",
    "partial-progress.max-commits": "10",
    "min-input-files": "5",
}


class Txlog(Protocol):
    """An object in the txlog folder, as a listing shows it."""

    @property
    def modified(self) -> datetime: ...


def expire_before(history: Sequence[Snapshot], cutoff: datetime, needed: Iterable[datetime] = ()) -> datetime:
    """
    The cutoff, moved back so that the newest append and the bookkeeper's newest snapshot stay, and what is `needed`.

    A stream's offset stands on the newest append, and the marks name the snapshot they came with.
    """
    appends = [s.committed_at for s in history if s.operation == "append"]
    bookkeepers = [s.committed_at for s in history if s.by_bookkeeper]
    return min([cutoff, *appends[:1], *bookkeepers[:1], *needed])


def needed_by_others(metadata: TableMetadata, settings: Reaper, now: datetime) -> list[datetime]:
    """
    The times of the newest commits of streams that write, and of what is staged to be published, for five days.
    """
    from bookkeeper.history import others
    from bookkeeper.history.main_history import MainHistory

    history = MainHistory(metadata)
    streams = [history.snapshots[index] for index in others.newest_of_streams(history, settings, now)]
    oldest_ms = epoch_ms(now - others.STAGED_FOR)
    staged = [item for item in others.waiting(history) if item.timestamp_ms >= oldest_ms]
    return [from_epoch_ms(item.timestamp_ms) for item in (*streams, *staged)]


def check_main(metadata: TableMetadata, history: Sequence[Snapshot], needed: datetime, now: datetime) -> None:
    """
    Raises NotPossible where Iceberg takes what is needed despite its arguments: by what main says of its snapshots.
    """
    from bookkeeper.history import others

    taken = others.taken_by_main(metadata, now)
    if any(item.snapshot_id in taken and item.committed_at >= needed for item in history):
        raise NotPossible(
            "Iceberg would expire what streams or marks need: by what main says of the age of its snapshots",
            hint="ALTER TABLE ... REPLACE BRANCH main without SNAPSHOT RETENTION, or the reaper, which keeps it.",
        )


def expired(history: Sequence[Snapshot], before: datetime, retain_last: int) -> list[Snapshot]:
    """
    The snapshots of `main` that Iceberg will expire, oldest last, unless a branch or tag keeps them.
    """
    return [s for s in history[retain_last:] if s.committed_at < before]


def expire_snapshots(table: str, before: datetime, retain_last: int) -> str:
    """
    The call that expires what is older than `before`, without collecting the file list on the driver.
    """
    return _call(
        table,
        "expire_snapshots",
        older_than=timestamp(before),
        retain_last=str(retain_last),
        stream_results="true",
    )


def closed(moment: datetime) -> datetime:
    """
    The end of the last hour that was over at `moment`, so that an hour is compacted once and not by every run.
    """
    return moment.replace(minute=0, second=0, microsecond=0)


def rewrite_data_files(table: str, column: str | None, before: datetime) -> str:
    """
    The call that compacts files with rows older than `before` in `column` (None: all files).
    """
    pairs = ", ".join(f"'{key}', '{value}'" for key, value in REWRITE.items())
    where = {"where": f'"{column} < {timestamp(before)}"'} if column else {}
    return _call(table, "rewrite_data_files", options=f"map({pairs})", **where)


def rewrite_position_delete_files(table: str) -> str:
    """
    The call that merges position delete files, without the positions in data files that are gone.
    """
    return _call(table, "rewrite_position_delete_files")


def rewrite_manifests(table: str) -> str:
    """
    The call that merges manifests, without caching their entries in memory.
    """
    return _call(table, "rewrite_manifests", use_caching="false")


def remove_orphan_files(table: str, before: datetime, *, dry_run: bool) -> str:
    """
    The call that deletes (or lists) files older than `before` that no snapshot names.
    """
    return _call(table, "remove_orphan_files", older_than=timestamp(before), dry_run=str(dry_run).lower())


def check_orphan_age(older_than: timedelta, orphan_age: timedelta) -> None:
    """
    Raises NotPossible for an age at which live writers' files could be taken for orphans.
    """
    least = max(orphan_age, LEAST_ORPHAN_AGE)
    if older_than < least:
        raise NotPossible(
            f"--older-than {format_duration(older_than)} is refused: at least {format_duration(least)} is needed here",
            hint="A writer may still publish younger files (orphan-age); Iceberg refuses less than a day.",
        )


def check_txlogs(pending: Sequence[Txlog], rejected: Sequence[Txlog], now: datetime, most: timedelta) -> None:
    """
    Raises NotPossible while a txlog may name files that look like orphans to Iceberg.
    """
    if rejected:
        raise NotPossible(
            f"{len(rejected)} objects in rejected/ name files that would be deleted",
            hint="Replay or discard them (bookkeeper rejected), or use the reaper, which knows them.",
        )
    old = [txlog for txlog in pending if now - txlog.modified > most]
    if old:
        raise NotPossible(
            f"{len(old)} pending txlogs are older than {format_duration(most)} and name files that would be deleted",
            hint="Let the bookkeeper commit them first (bookkeeper status).",
        )


def check_rewritten(table: str, files: int, planned: int, groups: int) -> None:
    """
    Raises Retry when fewer files were compacted than were found: Iceberg reports success all the same.
    """
    if files >= planned:
        return
    raise Retry(
        f"{files} of {planned} files of {table}, in {groups} groups, were compacted; the rest is as it was",
        hint="No row is lost. Spark's log above says what took the rest: retention dropped a file, others committed in "
        "between, or an expiry that does not ask the consumers. Run it again.",
    )


def lost_snapshot(table: str, snapshot: int, cause: str) -> Retry:
    """
    The error of a compaction that lost the snapshot by which Iceberg planned.
    """
    return Retry(
        f"snapshot {snapshot} of {table} was expired while its files were compacted; "
        f"what is not committed is as it was: {cause}",
        hint="No row is lost. An expiry that does not ask the consumers took it. Run it again.",
    )


def time_column(schema: StructType) -> str | None:
    """
    The first timestamp column, or None.
    """
    return next((field.name for field in schema.fields if field.dataType.typeName().startswith("timestamp")), None)


def timestamp(moment: datetime) -> str:
    """
    A moment as SQL, with its zone.
    """
    return f"TIMESTAMP '{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f} UTC'"


def _call(table: str, procedure: str, **arguments: str) -> str:
    catalog = table.split(".", 1)[0]
    named = ", ".join(f"{name} => {value}" for name, value in {"table": f"'{table}'", **arguments}.items())
    return f"CALL {catalog}.system.{procedure}({named})"
