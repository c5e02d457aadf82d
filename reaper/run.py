"""
One run over one table: finish what a crash left, expire in steps, delete old metadata files.

plan -> journal -> guarded commit -> load again and verify -> delete -> drop the journal. A crash anywhere
leaves a journal that the next run finishes, or nothing.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from bookkeeper.config.settings import Table as TableSettings
from bookkeeper.core.clock import Steady
from bookkeeper.core.folder import Folder
from bookkeeper.core.history import descends
from bookkeeper.errors import Halt, Retry
from bookkeeper.leases.lease import lease_on
from bookkeeper.stores.open import stores_with
from bookkeeper.streams.consumer_state import CheckpointRead
from reaper import clock, orphans
from reaper.consumer_guard import Floor, no_floor
from reaper.context import ReaperContext
from reaper.expiry import journal as journals
from reaper.expiry.expire import MOST_SNAPSHOTS, expire
from reaper.expiry.journal import Journal
from reaper.expiry.restore_refs import restore
from reaper.expiry.spark_engine import OWN, SPARK, Hand, hand_over, nobody
from reaper.expiry.verify_journal import verify_journal
from reaper.files import txlogs
from reaper.files.expired import Files, Reaped, deletable, reaped
from reaper.files.old_metadata import old_metadata, still_old
from reaper.files.storage import OpenStore, Pace
from reaper.marks import check_not_older, marks_are_expired
from reaper.orphans import Orphan
from reaper.plan import Plan, check_clock, last_sequence, make_plan, rules

log = logging.getLogger(__name__)
#: of a reaper that died; one run rarely takes longer, and two at once are safe
LEASE = timedelta(seconds=60)


class Braked(Halt):
    """So much would expire at once that a person should look first."""

    hint = "Look at `reaper plan`; if it is right: reaper once --release-brake."


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the next run would do: snapshots and files to go, and why the rest stays."""

    plan: Plan
    files: Files
    refused: tuple[str, ...] = ()
    orphans: tuple[Orphan, ...] = ()


def reap(  # noqa: PLR0913  (a run reads no clock and opens nothing itself)
    catalog: Catalog,
    settings: TableSettings,
    now: datetime,
    *,
    floor: Floor = no_floor,
    open_store: OpenStore | None = None,
    stopped: Callable[[], bool] = lambda: False,
    release_brake: bool = False,
    holder: str = "reaper",
    pace: Pace | None = None,
    hand: Hand = nobody,
    steady: Steady | None = None,
) -> Reaped:
    """
    Expires what the settings say and deletes what nothing needs then; ends between two steps once `stopped`.

    `pace` keeps deletes below deletes-per-second and tells how far they are; `hand` expires where engine = spark.
    `steady` is this machine's clock, held against its monotonic one since the process began.

    Raises Retry (the next run goes on), Hold or Halt (a person has to act); nothing is lost by either.
    """
    pace = replace(pace or Pace(), per_second=settings.reaper.deletes_per_second)
    site = ReaperContext.of(settings, catalog, open_store or stores_with(catalog.properties), now, floor, pace)
    lease = lease_on(site.folder, "reaper/lease", holder, LEASE)
    if not lease.hold(now):
        raise Retry(f"another reaper is at work on {site.name}", hint="One is enough; this one waits.")
    done = Reaped()
    try:
        for part in _parts(site, now, release_brake, hand, steady):
            done += part
            if stopped():
                break
    finally:
        lease.release()
        if done:
            requests = site.reader.reads + site.storage.asked.total()
            extra = {"action": "reap", "table": site.name, **asdict(done.without_consumers()), "requests": requests}
            log.info("snapshots expired and files deleted", extra=extra)
    return replace(done, consumers=site.guard.seen)


def _parts(
    site: ReaperContext, now: datetime, release_brake: bool, hand: Hand, steady: Steady | None
) -> Iterator[Reaped]:
    left = journals.read(site.folder)
    if left:
        yield _finish(site, left)
    old = _begin(site, now, release_brake, steady)
    if site.settings.reaper.engine == SPARK:
        yield _handed(site, now, hand)
    while site.settings.reaper.engine == OWN and (step := _step(site, now)) is not None:
        yield step
    yield _delete_old(site, old)
    if orphans.is_due(site, now):
        yield _sweep(site, now, release_brake)


def _sweep(site: ReaperContext, now: datetime, release_brake: bool) -> Reaped:
    gone = orphans.sweep(site, now, release_brake=release_brake)
    return Reaped(orphans=len(gone), bytes=sum(gone.values()))


def outlook(
    catalog: Catalog,
    settings: TableSettings,
    now: datetime,
    *,
    floor: Floor = no_floor,
    open_store: OpenStore | None = None,
) -> Outlook:
    """
    What `reap` would do now, without doing any of it; raises what it would raise, save for brakes.
    """
    site = ReaperContext.of(settings, catalog, open_store or stores_with(catalog.properties), now, floor)
    left = journals.read(site.folder)
    files = verify_journal(site, left)[0].files if left else Files()
    there = site.storage.sizes(files.sizes())
    readings = site.guard.read()
    table = site.load()
    check_clock(table.metadata, now)
    plan = _plan(site, table, now, readings)
    expiring, refused = _files(site, table, plan.expire)
    gone = files.without(files.sizes().keys() - there.keys())
    swept = orphans.look(site, now).orphans if orphans.is_due(site, now) else ()
    return Outlook(plan, gone.plus(expiring).plus(Files(metadata=_old(site, table, now))), refused, swept)


def orphans_of(
    catalog: Catalog,
    settings: TableSettings,
    now: datetime,
    *,
    older_than: timedelta | None = None,
    open_store: OpenStore | None = None,
) -> tuple[Orphan, ...]:
    """
    Old files that nothing names, without touching one; raises NotPossible for an age below an hour.
    """
    return orphans.look(
        ReaperContext.of(settings, catalog, open_store or stores_with(catalog.properties), now), now, older_than
    ).orphans


def sweep_orphans(
    catalog: Catalog,
    settings: TableSettings,
    now: datetime,
    *,
    older_than: timedelta | None = None,
    release_brake: bool = False,
    open_store: OpenStore | None = None,
) -> dict[str, int]:
    """
    Deletes the orphans that a sweep an hour ago found too; raises Retry, Hold or Halt, and nothing is lost.
    """
    site = ReaperContext.of(settings, catalog, open_store or stores_with(catalog.properties), now)
    clock.compare(site.folder, now)
    return orphans.sweep(site, now, older_than, release_brake)


def _begin(site: ReaperContext, now: datetime, release_brake: bool, steady: Steady | None) -> dict[str, int]:
    clock.compare(site.folder, now, steady)
    readings = site.guard.read()
    copy = Folder(site.folder).marks()
    table = site.load()
    check_not_older(table.metadata, copy)
    # Once, at the start: others go on committing by their clocks while a long run works by the time it began.
    check_clock(table.metadata, now)
    site.guard.warn(table, readings)
    plan = _plan(site, table, now, readings)
    if plan.brake and not release_brake:
        raise Braked(f"{site.name}: {plan.brake}")
    return _old(site, table, now)


def _plan(site: ReaperContext, table: Table, now: datetime, readings: Iterable[CheckpointRead]) -> Plan:
    holds = site.guard.holds(table, readings)
    return make_plan(table.metadata, site.settings.reaper, now, holds, lambda marked: descends(table, marked))


def _old(site: ReaperContext, table: Table, now: datetime) -> dict[str, int]:
    if not rules(site.settings.reaper, table.metadata.properties).gc or marks_are_expired(table.metadata):
        return {}
    return old_metadata(table, site.storage, now, site.settings.reaper.metadata_keep)


def _step(site: ReaperContext, now: datetime) -> Reaped | None:
    readings = site.guard.read()
    table = site.load()
    plan = _plan(site, table, now, readings)
    going = plan.expire[:MOST_SNAPSHOTS]
    if not going:
        return None
    site.guard.tell_cut_off(table, readings, going)
    files, refused = _files(site, table, going)
    if refused:
        _warn(site, "files outside of the table are left alone", "refuse", files=len(refused), first=refused[0])
    journal = Journal(
        table_uuid=str(table.metadata.table_uuid),
        planned_at=now.isoformat(),
        sequence_number=last_sequence(table.metadata),
        refs={name: ref.snapshot_id for name, ref in table.metadata.refs.items()},
        known=tuple(snapshot.snapshot_id for snapshot in table.metadata.snapshots),
        expire=going,
        files=files,
    )
    journals.write(site.folder, journal)
    expire(site, table, journal)
    return _finish(site, journal)


def _handed(site: ReaperContext, now: datetime, hand: Hand) -> Reaped:
    readings = site.guard.read()
    table = site.load()
    plan = _plan(site, table, now, readings)
    site.guard.tell_cut_off(table, readings, plan.expire)
    return hand_over(site, plan, hand)


def _files(site: ReaperContext, table: Table, expire: tuple[int, ...]) -> tuple[Files, tuple[str, ...]]:
    files = deletable(table.metadata, site.reader, expire)
    if files.data:
        files = files.without(txlogs.named(site.folder))
    refused = tuple(location for location in files.sizes() if not site.storage.owns(location))
    files = files.without(refused)
    lists = {**files.manifest_lists, **site.storage.sizes(files.manifest_lists)}
    return replace(files, manifest_lists=lists), refused


def _finish(site: ReaperContext, journal: Journal) -> Reaped:
    verdict, table = verify_journal(site, journal)
    if verdict.lost:
        restore(site, table, verdict.lost)
    if verdict.void:
        _warn(site, "a planned deletion is given up", "drop-journal", cause=verdict.void)
        journals.drop(site.folder, journal)
        return Reaped()
    spared = journal.files.sizes().keys() - verdict.files.sizes().keys()
    if spared:
        _warn(site, "planned files are named again and stay", "spare", files=len(spared), first=min(spared))
    _delete_files(site, verdict.files)
    journals.drop(site.folder, journal)
    return reaped(len(journal.expire), verdict.files)


def _delete_files(site: ReaperContext, files: Files) -> None:
    for _, sizes in files.kinds():
        site.storage.delete(sizes)


def _warn(site: ReaperContext, sentence: str, action: str, **facts: object) -> None:
    log.warning(sentence, extra={"action": action, "table": site.name, **facts})


def _delete_old(site: ReaperContext, old: dict[str, int]) -> Reaped:
    table = site.load()
    if marks_are_expired(table.metadata):
        return Reaped()
    sizes = {location: old[location] for location in still_old(table, old)}
    site.storage.delete(sizes)
    return reaped(0, Files(metadata=sizes))
