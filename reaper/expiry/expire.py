"""
The guarded commit that removes snapshots: the table's uuid and every ref must be what the plan saw.

So no commit can remove a snapshot that a ref names, a consumer needs or main was rolled back to.
"""

import logging

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    TableRequirement,
    TableUpdate,
)

from bookkeeper.catalogs.commit import commit
from bookkeeper.errors import CommitConflict, CommitUnknown
from bookkeeper.history.main_history import MAIN, MainHistory
from reaper.context import ReaperContext
from reaper.expiry.journal import Journal

log = logging.getLogger(__name__)

MOST_SNAPSHOTS = 100
MOST_ATTEMPTS = 100
NEXT = "The next run plans anew."


def expire(context: ReaperContext, table: Table, journal: Journal) -> None:
    """
    Removes the journal's snapshots in one commit; on a busy table it tries again.

    Raises CommitConflict when the table changed in a way that the plan does not cover, CommitUnknown when the outcome
    is unknown.
    """
    for _ in range(MOST_ATTEMPTS):
        check_consumers(context, table, journal)
        try:
            commit(table, guards(table.metadata), _updates(table.metadata, journal))
            return
        except CommitConflict as exc:
            # Appends all the time must not keep the table from expiring: guard the new head.
            table = context.load()
            check_covered(table.metadata, journal)
            log.debug("expiry tried again", extra={"action": "retry", "table": context.name, "cause": str(exc)})
        except CommitUnknown:
            table = context.load()
            if journal.table_uuid != str(table.metadata.table_uuid) or journal.remaining(table.metadata):
                raise
            return
    raise CommitConflict(f"{MOST_ATTEMPTS} attempts to expire all met another commit", hint=NEXT)


def guards(metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    """
    The table must be this one and every ref where it is now; main absent where it is.
    """
    refs = {MAIN: None} | {name: ref.snapshot_id for name, ref in metadata.refs.items()}
    at = (AssertRefSnapshotId(ref=name, snapshot_id=snapshot) for name, snapshot in refs.items())
    return (AssertTableUUID(uuid=metadata.table_uuid), *at)


def check_covered(metadata: TableMetadata, journal: Journal) -> None:
    """
    Raises CommitConflict unless the table differs from the planned one only by children of its main.
    """
    others = {name: ref.snapshot_id for name, ref in metadata.refs.items() if name != MAIN}
    planned = {name: snapshot for name, snapshot in journal.refs.items() if name != MAIN}
    if str(metadata.table_uuid) != journal.table_uuid:
        raise CommitConflict("the table was dropped and made anew since the expiry was planned", hint=NEXT)
    if others != planned:
        raise CommitConflict("branches or tags have changed since the expiry was planned", hint=NEXT)
    history = MainHistory(metadata)
    if MAIN in journal.refs and journal.refs[MAIN] not in history.index:
        raise CommitConflict("main was rolled back since the expiry was planned", hint=NEXT)
    # A staged snapshot that was published, or a rollback taken back: it was beside main, and is main now.
    later = history.snapshots[history.index.get(journal.refs.get(MAIN, 0), -1) + 1 :]
    if any(item.snapshot_id in journal.expire for item in later):
        raise CommitConflict("main went on to a snapshot that was to expire", hint=NEXT)
    if journal.remaining(metadata) != set(journal.expire):
        raise CommitConflict("another program expires snapshots of this table", hint=NEXT)


def check_consumers(context: ReaperContext, table: Table, journal: Journal) -> None:
    """
    Raises CommitConflict when a consumer now needs what the journal would expire.

    The consumers are read after the table here: one that has moved on to a snapshot which this load does not have holds
    nothing, and needs nothing of the journal.
    """
    index = MainHistory(table.metadata).index
    for hold in context.guard.holds(table, context.guard.read()):
        if hold.snapshot in journal.expire or hold.snapshot not in index:
            raise CommitConflict(f"{hold.reason}: needs an older snapshot than when the expiry was planned", hint=NEXT)


def _updates(metadata: TableMetadata, journal: Journal) -> tuple[TableUpdate, ...]:
    expiring = set(journal.expire)
    # Named one by one: pyiceberg leaves the partition statistics of a removed snapshot in the metadata.
    statistics = {item.snapshot_id for item in metadata.statistics} & expiring
    partitions = {item.snapshot_id for item in metadata.partition_statistics} & expiring
    return (
        *(RemoveStatisticsUpdate(snapshot_id=snapshot) for snapshot in sorted(statistics)),
        *(RemovePartitionStatisticsUpdate(snapshot_id=snapshot) for snapshot in sorted(partitions)),
        RemoveSnapshotsUpdate(snapshot_ids=list(journal.expire)),
    )
