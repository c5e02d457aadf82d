"""
The guarded commit that removes snapshots: the table's uuid and every ref must be what the plan saw.

Nothing is ever sent that could remove a snapshot a ref names, a consumer needs or somebody rolled back to.
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

from bookkeeper.catalogs.open import commit
from bookkeeper.errors import CommitConflict, CommitUnknown
from reaper.context import ReaperContext
from reaper.expiry.journal import Journal
from reaper.plan import MAIN, History

log = logging.getLogger(__name__)

MOST_SNAPSHOTS = 100
MOST_ATTEMPTS = 100
NEXT = "The next run plans anew."


def expire(site: ReaperContext, table: Table, journal: Journal) -> None:
    """
    Removes the journal's snapshots in one commit, as often as it takes on a busy table.

    Raises CommitConflict when the table changed in a way that the plan does not cover, CommitUnknown when
    nobody can tell.
    """
    for _ in range(MOST_ATTEMPTS):
        check_consumers(site, table, journal)
        try:
            commit(table, guards(table.metadata), _updates(table.metadata, journal))
            return
        except CommitConflict as exc:
            # Whoever appends all the time must not keep us from expiring: guard the new head.
            table = site.load()
            check_covered(table.metadata, journal)
            log.debug("expiry tried again", extra={"action": "retry", "table": site.name, "cause": str(exc)})
        except CommitUnknown:
            table = site.load()
            if journal.table_uuid != str(table.metadata.table_uuid) or remaining(table.metadata, journal):
                raise
            return
    raise CommitConflict(f"{MOST_ATTEMPTS} attempts to expire all met another commit", hint=NEXT)


def guards(metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    """
    The table must be this one and every ref where it is now.
    """
    refs = (AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in metadata.refs.items())
    return (AssertTableUUID(uuid=metadata.table_uuid), *refs)


def remaining(metadata: TableMetadata, journal: Journal) -> set[int]:
    """
    The snapshots of the journal that are still in the table.
    """
    return {snapshot.snapshot_id for snapshot in metadata.snapshots} & set(journal.expire)


def check_covered(metadata: TableMetadata, journal: Journal) -> None:
    """
    Raises CommitConflict unless the table differs from the planned one only by children of its main.
    """
    refs = {name: ref.snapshot_id for name, ref in metadata.refs.items()}
    others = {name: snapshot for name, snapshot in journal.refs.items() if name != MAIN}
    if str(metadata.table_uuid) != journal.table_uuid:
        raise CommitConflict("the table was dropped and made anew since the expiry was planned", hint=NEXT)
    if {name: snapshot for name, snapshot in refs.items() if name != MAIN} != others:
        raise CommitConflict("branches or tags have changed since the expiry was planned", hint=NEXT)
    if MAIN in journal.refs and journal.refs[MAIN] not in History(metadata).position:
        raise CommitConflict("main was rolled back since the expiry was planned", hint=NEXT)
    if remaining(metadata, journal) != set(journal.expire):
        raise CommitConflict("somebody else expires snapshots of this table", hint=NEXT)


def check_consumers(site: ReaperContext, table: Table, journal: Journal) -> None:
    """
    Raises CommitConflict when a consumer now needs what the journal would expire.

    A consumer that has moved on to a snapshot which this load does not have needs nothing of the journal.
    """
    position = History(table.metadata).position
    for hold in site.guard.holds(table, site.guard.read()):
        if hold.snapshot in journal.expire or hold.snapshot not in position:
            raise CommitConflict(f"{hold.reason}: needs an older snapshot than when the expiry was planned", hint=NEXT)


def _updates(metadata: TableMetadata, journal: Journal) -> tuple[TableUpdate, ...]:
    going = set(journal.expire)
    # Named one by one: pyiceberg leaves the partition statistics of a removed snapshot in the metadata.
    statistics = {item.snapshot_id for item in metadata.statistics} & going
    partitions = {item.snapshot_id for item in metadata.partition_statistics} & going
    return (
        *(RemoveStatisticsUpdate(snapshot_id=snapshot) for snapshot in sorted(statistics)),
        *(RemovePartitionStatisticsUpdate(snapshot_id=snapshot) for snapshot in sorted(partitions)),
        RemoveSnapshotsUpdate(snapshot_ids=list(journal.expire)),
    )
