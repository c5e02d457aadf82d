"""
Where a new query begins: the words of --start, and the first offset of the stream that each of them means.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.config.units import duration, from_epoch_ms
from bookkeeper.errors import ConfigInvalid, NotPossible
from spark_jobs import table as tables

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql import SparkSession

    from bookkeeper.history.checkpoint import Offset
    from bookkeeper.history.main_history import MainHistory
    from spark_jobs.job import Command

BEGINNING, OLDEST, END = "beginning", "oldest", "end"
_WORDS = (BEGINNING, OLDEST, END)
_ALLOWED = "beginning, oldest, end, a time such as 2026-01-31T12:00:00Z, or an age (10m)"
#: a word, or the time from which on commits are read
Start = str | datetime


def option(command: Command) -> Command:
    """
    Add --start (argument `start`, None when it is not given), also by its old name --from.
    """
    text = (
        "Where a new checkpoint begins. beginning (the default): all rows that the table holds, then what is committed "
        "after them. oldest: the oldest commit that is kept. end: what is committed from now on. A time or an age "
        "(10m): commits since, if they are kept."
    )
    return click.option("--start", "--from", "start", metavar="WHERE", help=text)(command)


def parsed(text: str | None, now: datetime) -> Start | None:
    """
    What --start says; raises ConfigInvalid.
    """
    if text is None or text in _WORDS:
        return text
    try:
        return now - duration(text) if text[-1:].isalpha() and "T" not in text else datetime.fromisoformat(text)
    except (ValueError, OverflowError) as exc:
        raise ConfigInvalid(f"--start {text}: {_ALLOWED} is expected") from exc


def check(start: Start, now: datetime) -> None:
    """
    Raises ConfigInvalid for another word, a time without a zone, and one that has not come yet.
    """
    if not isinstance(start, datetime):
        if start not in _WORDS:
            raise ConfigInvalid(f"start = {start!r}: {_ALLOWED} is expected")
    elif start.tzinfo is None:
        hint = f"In UTC it is {start.isoformat()}Z."
        raise ConfigInvalid(f"start = {start.isoformat()}: the time names no zone", hint=hint)
    elif start > now:
        hint = "To read only what is committed from now on: end."
        raise ConfigInvalid(f"start = {start.isoformat()}: that time has not come yet", hint=hint)


@dataclass(frozen=True, slots=True)
class Loaded:
    """One load of the table: Iceberg's own object of it, its uuid, its name, and the history of main."""

    table: Any
    uuid: str
    name: str
    history: MainHistory

    def newest(self) -> Snapshot | None:
        """
        The newest append of main; its head where no append is kept or rows were overwritten since, None in an empty
        table. Raises NotPossible where that head is an overwrite: no stream begins at it, or passes it.
        """
        from bookkeeper.history.main_history import is_append, is_overwrite

        found = self.history.snapshots
        head = found[-1] if found else None
        newest = next((item for item in reversed(found) if is_append(item) or is_overwrite(item)), head)
        if newest is None or not is_overwrite(newest):
            return newest
        if newest is head:
            raise NotPossible(
                f"the newest commit of {self.name} overwrote rows: no stream begins there",
                hint="Start the query once rows were appended.",
            )
        return head

    def total(self, snapshot: int | None) -> tuple[int, int]:
        """The data files of the table in a kept snapshot (None: before the first), and their rows, by its summary."""
        from bookkeeper.history.main_history import counted

        if snapshot is None:
            return 0, 0
        held = self.history.by_id[snapshot]
        return counted(held, "total-data-files"), counted(held, "total-records")

    def after(self, snapshot: int | None) -> Offset:
        """
        The offset behind all files that the snapshot added; before everything, where there is none.
        """
        from bookkeeper.history.checkpoint import Offset

        # As Iceberg counts: the files that a manifest took over from others have positions too, its last ones not.
        # With appends that merge no manifests that is how many files the snapshot added.
        if snapshot is None:
            return Offset(None, 0)
        manifests = self.table.snapshot(snapshot).dataManifests(self.table.io())
        own = [item for item in manifests if item.snapshotId() == snapshot]
        before = sum(item.addedFilesCount() + item.existingFilesCount() for item in own[:-1])
        return Offset(snapshot, before + sum(item.addedFilesCount() for item in own[-1:]))

    def first_of(self, start: Start) -> Offset:
        """
        The first offset of a stream that begins at `start`; raises NotPossible when that is expired, and as `newest`.
        """
        from bookkeeper.history.checkpoint import Offset

        kept = self.history.snapshots
        if start == OLDEST:
            return Offset(kept[0].snapshot_id, 0) if kept else Offset(None, 0)
        if isinstance(start, datetime):
            return self._since(start)
        newest = self.newest()
        return self.after(None if newest is None else newest.snapshot_id)

    def has_all_after(self, offset: Offset) -> bool:
        """Whether a stream from this offset misses nothing that was committed after it."""
        return offset.snapshot in self.history.index if offset.snapshot is not None else self.history.is_whole

    def _since(self, moment: datetime) -> Offset:
        from bookkeeper.history.checkpoint import Offset

        kept, index = self.history.snapshots, self.history.first_since(moment)
        if index == len(kept):
            return self.first_of(END)
        if index is None:
            oldest = from_epoch_ms(kept[0].timestamp_ms).isoformat(timespec="seconds")
            raise NotPossible(
                f"{self.name}: commits before {oldest} are expired: what came since {moment.isoformat()} is unknown",
                hint="--start beginning reads all rows that the table holds, and then what is committed after them.",
            )
        return Offset(kept[index].snapshot_id, 0)


def load(spark: SparkSession, name: str) -> Loaded:
    """
    The table `name` (catalog.namespace.table) as it is now.
    """
    from bookkeeper.history.main_history import MainHistory

    found = tables.load(spark, name)
    metadata = tables.metadata(spark, found)
    return Loaded(found, str(metadata.table_uuid), name, MainHistory(metadata))


def left_out(spark: SparkSession, loaded: Loaded) -> tuple[int, int]:
    """
    How many rows of the table a stream from the oldest snapshot on leaves out: for certain, and at most besides.

    The first are in files of expired snapshots; of rewritten files nothing says which rows were read before.
    """
    from bookkeeper.history.main_history import is_append

    kept = loaded.history.snapshots
    if loaded.history.is_whole:
        return 0, 0
    entries = spark.sql(
        "SELECT snapshot_id AS id, sum(data_file.record_count) AS rows "
        f"FROM {loaded.name}.entries WHERE status < 2 AND data_file.content = 0 GROUP BY snapshot_id"
    ).collect()
    rows = {row.id: int(row.rows) for row in entries}
    gone = sum(count for snapshot, count in rows.items() if snapshot not in loaded.history.index)
    others = sum(rows.get(item.snapshot_id, 0) for item in kept if not is_append(item))
    return gone, others
