"""
One run over one table: finish what a crash left, delete old metadata files, expire in steps, delete orphans.

`expire_step` is the protocol: plan -> journal -> guarded commit -> load again and verify -> delete -> drop the journal.
A crash at any point leaves a journal, which the next run finishes, or nothing.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from datetime import datetime, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from bookkeeper.config.expiry import rules
from bookkeeper.config.settings import Table as TableSettings
from bookkeeper.contract.steady_clock import Steady
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import Halt, Retry
from bookkeeper.history.consumer_state import CheckpointRead
from bookkeeper.history.main_history import descends
from bookkeeper.leases.lease import lease_on
from reaper import orphans
from reaper.clock import check_storage_clock, check_table_clock
from reaper.consumer_guard import Floor, no_floor
from reaper.context import ReaperContext
from reaper.expiry import journal as journals
from reaper.expiry.expire import MOST_SNAPSHOTS, expire
from reaper.expiry.expiry_plan import Plan, check_not_older, make_plan, marks_are_expired
from reaper.expiry.journal import Journal
from reaper.expiry.old_refs import take_off_old_refs, without_old_refs
from reaper.expiry.restore_refs import restore_refs
from reaper.expiry.spark_engine import OWN, SPARK, ExpireOnSpark, expire_with_spark, no_spark
from reaper.expiry.verify_journal import verify_journal
from reaper.files import txlogs
from reaper.files.expired import Files, deletable
from reaper.files.old_metadata import old_metadata, still_old
from reaper.files.storage import OpenStore, Pace
from reaper.orphans import Orphan
from reaper.result import Outlook, Reaped

log = logging.getLogger(__name__)
#: after this the lease of a reaper that died is free; a run rarely takes longer, and two at once are safe
LEASE = timedelta(seconds=60)


class Braked(Halt):
    """So much would expire at once that a person should look first."""

    hint = "Look at `reaper plan`; if it is right: reaper once --release-brake."


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
    expire_on_spark: ExpireOnSpark = no_spark,
    steady: Steady | None = None,
    clock: Callable[[], datetime] | None = None,
) -> Reaped:
    """
    Expires by the settings, and deletes the files that nothing needs then; ends between two steps once `stopped`.

    `pace` keeps deletes below deletes-per-second and reports them; `expire_on_spark` expires where engine = spark.
    `steady` is this machine's clock, compared with its monotonic one since the process began. `clock` says the time
    when clocks are compared, which may be minutes after `now`; without one that is `now`.

    Raises Retry (the next run goes on), Hold or Halt (a person has to act); nothing is lost by either.
    """
    pace = replace(pace or Pace(), per_second=settings.reaper.deletes_per_second)
    context = ReaperContext.of(settings, catalog, open_store, now, floor, pace)
    lease = lease_on(context.folder, "reaper/lease", holder, LEASE)
    if not lease.hold(now):
        raise Retry(f"another reaper is at work on {context.name}", hint="One is enough; this one waits.")
    done = Reaped()
    try:
        for part in _parts(context, now, release_brake, expire_on_spark, steady, clock or (lambda: now)):
            done += part
            if stopped():
                break
    finally:
        lease.release()
        if context.storage.stuck:
            first = min(context.storage.stuck)
            about = {"files": len(context.storage.stuck), "first": first, "cause": context.storage.stuck[first]}
            _warn(context, "files do not go: they are locked, or another's", "stuck", **about)
        if done:
            requests = context.reader.reads + context.storage.requests.total()
            extra = {"action": "reap", "table": context.name, **asdict(done), "requests": requests}
            log.info("snapshots expired and files deleted", extra=extra)
    return done


def _parts(
    context: ReaperContext,
    now: datetime,
    release_brake: bool,
    expire_on_spark: ExpireOnSpark,
    steady: Steady | None,
    clock: Callable[[], datetime],
) -> Iterator[Reaped]:
    """What a run does, part by part; it may end after each."""
    left = journals.read(context.folder)
    if left:
        yield finish(context, left)
    old = _begin(context, now, release_brake, steady, clock)
    # First, for it writes nothing: on a full disk the journal and the commit need that room.
    if cleared := _delete_old_metadata(context, old):
        yield cleared
    if context.settings.reaper.engine == SPARK:
        checkpoints, table, plan = _plan_now(context, now)
        context.guard.log_cut_off(table, checkpoints, plan.expire)
        yield Reaped(snapshots=expire_with_spark(context, plan, now, expire_on_spark))
    while context.settings.reaper.engine == OWN and (step := expire_step(context, now)) is not None:
        yield step
    if context.deletes and orphans.is_due(context, now):
        swept = orphans.sweep(context, now, release_brake=release_brake)
        yield Reaped(orphans=len(swept), bytes=sum(swept.values()))


def expire_step(context: ReaperContext, now: datetime) -> Reaped | None:
    """
    Expires up to 100 snapshots and deletes the files that nothing needs then; None when there are none to expire.
    """
    # 1. Plan: the consumers' checkpoints are read first, the table is loaded last.
    checkpoints, table, plan = _plan_now(context, now)
    expiring = plan.expire[:MOST_SNAPSHOTS]
    if not expiring:
        return None
    context.guard.log_cut_off(table, checkpoints, expiring)
    files, refused = _own_files(context, table.metadata, expiring)
    if refused:
        _warn(context, "files outside of the table are left alone", "refuse", files=len(refused), first=refused[0])
    # 2. Journal: durable before the commit, so that a crash from here on leaves no file unaccounted for.
    journal = journals.write(context.folder, Journal.of(table.metadata, now, expiring, files))
    # 3. Commit: guarded by the table's uuid and every ref, and the consumers are read again just before.
    expire(context, table, journal)
    return finish(context, journal)


def finish(context: ReaperContext, journal: Journal) -> Reaped:
    """
    The rest of a step, also of one that a crash interrupted; raises Retry or NewerVersion, and the journal stays.
    """
    # 4. Verify: the folder is read first, the table loaded last. A ref that the commit removed unseen is restored.
    verdict, table = verify_journal(context, journal)
    if verdict.lost_refs:
        restore_refs(context, table, verdict.lost_refs)
    if not context.deletes:
        # Also of a journal from before the catalog's service did it: what is left of it has no name, and goes by age.
        journals.drop(context.folder, journal)
        return Reaped(snapshots=0 if verdict.refusal else len(journal.expire))
    if verdict.refusal:
        _warn(context, "a planned deletion is given up", "drop-journal", cause=verdict.refusal)
        journals.drop(context.folder, journal)
        return Reaped()
    files = verdict.files.sizes()
    spared = journal.files.sizes().keys() - files.keys()
    if spared:
        _warn(context, "planned files are named again and stay", "spare", files=len(spared), first=min(spared))
    if verdict.readable:
        count, first = len(verdict.readable), min(verdict.readable)
        _warn(
            context, "deleted data files stay: snapshots read them, by another entry", "keep", files=count, first=first
        )
    # 5. Delete, then drop the journal: a crash in between deletes again what is still there.
    left = context.storage.delete(files)
    if left:
        _warn(context, "files behind a symbolic link are left alone", "refuse", files=left)
    journals.drop(context.folder, journal)
    context.live_paths.keep()
    return Reaped.of(len(journal.expire), verdict.files, len(verdict.readable))


def _plan_now(context: ReaperContext, now: datetime) -> tuple[list[CheckpointRead], Table, Plan]:
    """The plan, and what it was made of: the consumers' checkpoints, read first, and the table, loaded last."""
    checkpoints = context.guard.read()
    table = context.load()
    return checkpoints, table, _plan(context, table, table.metadata, now, checkpoints)


def _plan(
    context: ReaperContext, table: Table, metadata: TableMetadata, now: datetime, checkpoints: Iterable[CheckpointRead]
) -> Plan:
    holds = context.guard.holds(table, checkpoints)
    return make_plan(metadata, context.settings.reaper, now, holds, lambda marked: descends(table, marked))


def _own_files(
    context: ReaperContext, metadata: TableMetadata, expire: tuple[int, ...]
) -> tuple[Files, tuple[str, ...]]:
    """The files that go with these snapshots, and those that are left alone because they are not the table's own."""
    if not context.deletes:
        return Files(), ()
    files = deletable(metadata, context.reader, expire)
    if files.data:
        files = files.without(txlogs.named(context.folder))
    refused = tuple(context.storage.foreign(files.sizes()))
    return files.without(refused), refused


def _begin(
    context: ReaperContext, now: datetime, release_brake: bool, steady: Steady | None, clock: Callable[[], datetime]
) -> dict[str, int]:
    """
    Checks clocks, history and brake, names consumers at risk, takes off old branches and tags; returns the old metadata
    files that may go.
    """
    check_storage_clock(context.folder, clock(), steady)
    # The folder first, the table last: marks.json is written after the commit that it tells of.
    checkpoints = context.guard.read()
    copy = Folder(context.folder).marks()
    table = context.load()
    check_not_older(table.metadata, copy)
    # By the time after the load: what was committed while a journal was finished is not ahead of this clock.
    check_table_clock(table.metadata, clock())
    context.guard.warn(table, checkpoints)
    plan = _plan(context, table, without_old_refs(table.metadata, context.settings.reaper, now), now, checkpoints)
    if plan.brake and not release_brake:
        raise Braked(f"{context.name}: {plan.brake}")
    take_off_old_refs(context, table, now)
    return _old_metadata(context, table, now)


def _old_metadata(context: ReaperContext, table: Table, now: datetime) -> dict[str, int]:
    gc = context.deletes and rules(context.settings.reaper, table.metadata.properties).gc
    if not gc or marks_are_expired(table.metadata):
        return {}
    return old_metadata(table, context.storage, now, context.settings.reaper.metadata_keep)


def _delete_old_metadata(context: ReaperContext, old: dict[str, int]) -> Reaped:
    table = context.load()
    if marks_are_expired(table.metadata):
        return Reaped()
    sizes = {location: old[location] for location in still_old(table, old)}
    context.storage.delete(sizes)
    return Reaped.of(0, Files(metadata=sizes))


def _warn(context: ReaperContext, sentence: str, action: str, **facts: object) -> None:
    log.warning(sentence, extra={"action": action, "table": context.name, **facts})


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
    context = ReaperContext.of(settings, catalog, open_store, now, floor)
    left = journals.read(context.folder)
    files = verify_journal(context, left)[0].files if left and context.deletes else Files()
    there = context.storage.sizes(files.sizes())
    checkpoints = context.guard.read()
    table = context.load()
    check_table_clock(table.metadata, now)
    metadata = without_old_refs(table.metadata, context.settings.reaper, now)
    plan = _plan(context, table, metadata, now, checkpoints)
    expiring, refused = _own_files(context, metadata, plan.expire)
    gone = files.without(files.sizes().keys() - there.keys())
    sweeps = context.deletes and orphans.is_due(context, now)
    found = orphans.find_orphans(context, now).orphans if sweeps else ()
    return Outlook(plan, gone.plus(expiring).plus(Files(metadata=_old_metadata(context, table, now))), refused, found)


def orphans_of(
    catalog: Catalog,
    settings: TableSettings,
    now: datetime,
    *,
    older_than: timedelta | None = None,
    open_store: OpenStore | None = None,
) -> tuple[Orphan, ...]:
    """
    Old files that nothing names, without deleting one; raises NotPossible for an age below an hour.
    """
    context = ReaperContext.of(settings, catalog, open_store, now)
    return orphans.find_orphans(context, now, older_than).orphans


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
    context = ReaperContext.of(settings, catalog, open_store, now)
    check_storage_clock(context.folder, now)
    return orphans.sweep(context, now, older_than, release_brake)
