"""
Branches and tags that have reached the age that they were made for (CREATE TAG ... RETAIN 7 DAYS) are taken off, as by
Iceberg's own expiry. One that stayed would keep all later snapshots of main for ever.

It is a commit of its own, before the plan: what a ref named expires by the rules of all others. A crash behind it
leaves nothing to do.
"""

import logging
from datetime import datetime

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotRefUpdate

from bookkeeper.catalogs.commit import commit
from bookkeeper.config.expiry import rules
from bookkeeper.config.settings import Reaper
from bookkeeper.config.units import epoch_ms
from bookkeeper.errors import CommitConflict
from bookkeeper.history.main_history import MAIN
from reaper.context import ReaperContext
from reaper.expiry.expire import MOST_ATTEMPTS

log = logging.getLogger(__name__)


def old_refs(metadata: TableMetadata, settings: Reaper, now: datetime) -> dict[str, int]:
    """
    The snapshots of branches and tags whose age is over, by name; it counts from the snapshot. Never main.
    """
    limits = rules(settings, metadata.properties)
    times = {item.snapshot_id: item.timestamp_ms for item in metadata.snapshots}
    old = dict[str, int]()
    for name, ref in metadata.refs.items():
        most = limits.ref_age_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
        age = epoch_ms(now) - times.get(ref.snapshot_id, epoch_ms(now))
        if limits.gc and name != MAIN and most is not None and age > most:
            old[name] = ref.snapshot_id
    return old


def without_old_refs(metadata: TableMetadata, settings: Reaper, now: datetime) -> TableMetadata:
    """
    The metadata as it is once they are taken off.
    """
    old = old_refs(metadata, settings, now)
    refs = {name: ref for name, ref in metadata.refs.items() if name not in old}
    return metadata.model_copy(update={"refs": refs}) if old else metadata


def take_off_old_refs(context: ReaperContext, table: Table, now: datetime) -> None:
    """
    Takes them off, where they still name the snapshots that are too old; raises CommitConflict, CommitUnknown.
    """
    for _ in range(MOST_ATTEMPTS):
        old = old_refs(table.metadata, context.settings.reaper, now)
        if not old:
            return
        guards = [AssertRefSnapshotId(ref=name, snapshot_id=snapshot) for name, snapshot in old.items()]
        updates = tuple(RemoveSnapshotRefUpdate(ref_name=name) for name in old)
        try:
            commit(table, (AssertTableUUID(uuid=table.metadata.table_uuid), *guards), updates)
        except CommitConflict:
            table = context.load()  # others commit all the time
            continue
        extra = {"action": "old-refs", "table": context.name, "refs": sorted(old)}
        log.info("branches and tags of an age that is over are taken off", extra=extra)
        return
    raise CommitConflict(f"{MOST_ATTEMPTS} attempts to take off old branches and tags all met another commit")
