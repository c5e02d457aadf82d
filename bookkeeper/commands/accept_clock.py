"""
Accept-clock: a clock that was far ahead stamped the table, so it takes no commit until that time has come.

No Iceberg commit turns time back. So the metadata is written anew, with the same snapshots, ids, files and history, and
without times in the future. Like a commit it takes the place of the old metadata whole, or not at all.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import _update_table_metadata_log

from bookkeeper.catalogs import commit as catalogs
from bookkeeper.config.units import format_duration, millis
from bookkeeper.contract import marks as marks_format
from bookkeeper.contract import marks_json
from bookkeeper.contract.marks import Marks
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import MarksLost, NotPossible
from bookkeeper.history.main_history import older
from bookkeeper.ledger.commit_clock import CLOCK_BEHIND
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.load import load
from bookkeeper.ledger.marks_publisher import MarksPublisher
from bookkeeper.ledger.view import View

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_OTHERS = (
    "Its catalog writes the metadata itself, and takes no time back: register a corrected metadata file by the "
    "catalog's own means, or wait."
)


@dataclass(frozen=True, slots=True)
class Dated:
    """A table with times in the future: how far ahead its last update is, and how many snapshots are in the future."""

    view: View
    ahead: timedelta
    snapshots: int


def dated_ahead(ledger: Ledger, folder: Folder) -> Dated:
    """
    How far the table is ahead of this clock; reads only.

    Raises NotPossible when it is not ahead, or when its catalog cannot replace metadata; ClockAhead; Halt; Retry.
    """
    view, now = load(ledger, folder)[0], ledger.clock()
    ledger.clock.check_ahead(now)
    ahead = timedelta(milliseconds=view.metadata.last_updated_ms) - (now - _EPOCH)
    if ahead <= CLOCK_BEHIND:
        raise NotPossible(f"{ledger.identifier} was not updated in the future of this clock, {now:%Y-%m-%d %H:%M:%S}Z")
    if getattr(ledger.catalog, "replace_metadata", None) is None:
        raise NotPossible(f"{ledger.identifier} is {format_duration(ahead)} ahead of this clock", hint=_OTHERS)
    late = [snapshot for snapshot in view.metadata.snapshots if snapshot.timestamp_ms > millis(now - _EPOCH)]
    return Dated(view, ahead, len(late))


def date_back(ledger: Ledger, folder: Folder, found: Dated) -> View:
    """
    Moves every time in the table's metadata and marks that is in the future back to now. Raises Retry after another
    commit.
    """
    view, now_ms = found.view, millis(ledger.clock.stamp(ledger.clock()) - _EPOCH)
    marks = _with_pruned(view, now_ms).dated_back(now_ms)
    base, location = view.metadata, view.table.metadata_location
    logged = _update_table_metadata_log(base, location, base.last_updated_ms)
    properties = {**base.properties, marks_format.PROPERTY: marks_json.dumps(marks)}
    metadata = dated(logged.model_copy(update={"properties": properties}), now_ms)
    catalogs.replace_metadata(view.table, metadata)
    after = load(ledger, folder)[0]
    MarksPublisher(ledger, folder).publish(after)
    return after


def _with_pruned(view: View, now_ms: int) -> Marks:
    """
    The marks, with those that the wrong clock pruned; unchanged where the metadata files from before it are deleted.

    By that clock every run had been idle for years. Without its mark, a run's txlogs are rejected for an hour.
    """
    found = view.marks
    for metadata in older(view.table):
        try:
            before = marks_json.loads(metadata.properties[marks_format.PROPERTY])
        except (KeyError, MarksLost):
            break
        found = found.joined(before)
        if metadata.last_updated_ms <= now_ms:
            return replace(found, pruned_before_ms=before.pruned_before_ms)
    return view.marks


def dated(metadata: TableMetadata, now_ms: int) -> TableMetadata:
    """
    `metadata` with every time after `now_ms` moved to it or a little before, in the same order.
    """
    snapshots, log, files = metadata.snapshots, metadata.snapshot_log, metadata.metadata_log
    times = {item.timestamp_ms for item in snapshots} | {item.timestamp_ms for item in log}
    times |= {item.timestamp_ms for item in files} | {metadata.last_updated_ms}
    late = sorted(time for time in times if time > now_ms)
    newest = max((time for time in times if time <= now_ms), default=0)
    first = now_ms - len(late) + 1
    new = {time: max(newest, first + number) for number, time in enumerate(late)}

    def moved(item: object) -> object:
        at = new.get(item.timestamp_ms)  # type: ignore[attr-defined]
        return item if at is None else item.model_copy(update={"timestamp_ms": at})  # type: ignore[attr-defined]

    return metadata.model_copy(
        update={
            "snapshots": [moved(item) for item in snapshots],
            "snapshot_log": [moved(item) for item in log],
            "metadata_log": [moved(item) for item in files],
            "last_updated_ms": new.get(metadata.last_updated_ms, metadata.last_updated_ms),
        }
    )
