"""
Tables that a service of the catalog maintains: it expires snapshots, and deletes the files that no snapshot names.

A txlog's files are named by no snapshot until it is committed. So they must be committed well before the service
deletes them, the txlog folder must lie where it deletes nothing, and the reaper deletes no file.
"""

from dataclasses import replace
from datetime import timedelta

from bookkeeper.config.settings import Table
from bookkeeper.errors import ConfigInvalid, TableUnusable

CATALOG = "catalog"
_COMPACTS = (
    "Switch the service's compaction of this table off, and say so: `compacts = false` in [tables.NAME.service]. Or "
)


def is_by_catalog(settings: Table) -> bool:
    """
    Whether a service of the catalog deletes the table's files, and the reaper none.
    """
    return settings.maintained_by == CATALOG


def maintained(table: Table) -> Table:
    """
    The settings of a table within what its catalog's service leaves; as they are where there is none.

    Raises ConfigInvalid for what cannot be combined with such a service.
    """
    if not is_by_catalog(table):
        return table
    where, service = f"tables.{table.name}", table.service
    if table.folder is None:
        raise ConfigInvalid(
            f'{where}: maintained-by = "catalog" needs `folder`: below the table the service deletes what no snapshot '
            "names, txlogs included",
            hint="Give the table a folder outside of its location, best in a bucket of its own.",
        )
    if table.reaper.engine != "own":
        raise ConfigInvalid(
            f"{where}: reaper.engine = {table.reaper.engine!r} deletes files, which the catalog's service does",
            hint='Set engine = "own": it expires snapshots and deletes nothing.',
        )
    if service.compacts and table.compaction.engine not in (None, "off"):
        raise ConfigInvalid(
            f"{where}: compaction.engine = {table.compaction.engine!r} beside the compaction of the catalog's service",
            hint=_COMPACTS + 'set engine = "off".',
        )
    if service.compacts and table.key:
        raise ConfigInvalid(f"{where}: {_KEYED}", hint=_COMPACTS + _NO_KEYS)
    return replace(
        table,
        # A writer publishes no file older than half of it; the rest is for txlogs that wait.
        orphan_age=min(table.orphan_age, service.orphan_age / 2),
        # Once the service has committed, the snapshot of the marks expires as any other.
        marks_renew=min(table.marks_renew, timedelta(minutes=1)),
        reaper=replace(table.reaper, max_hold=min(table.reaper.max_hold, service.snapshot_age)),
        compaction=replace(table.compaction, engine=table.compaction.engine or "off"),
    )


_KEYED = "keys beside the compaction of the catalog's service, which was not shown to keep deletes and folds right"
_NO_KEYS = "leave the table append-only."


def refuse_keys(settings: Table) -> None:
    """
    Raises TableUnusable where the catalog's service compacts this table, which has keys.
    """
    if is_by_catalog(settings) and settings.service.compacts:
        raise TableUnusable(f"{settings.identifier}: {_KEYED}", hint=_COMPACTS + _NO_KEYS)
