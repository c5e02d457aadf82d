"""
What is wrong with a table now and what to do about it, worst first; each problem names the alert it belongs to.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from bookkeeper.config.settings import Daemon
from bookkeeper.config.units import format_rough
from bookkeeper.folds.budget import OVER_BUDGET
from bookkeeper.history.consumer_state import AT_RISK, CUT_OFF, STALLED, TO_MEND, UNREADABLE
from bookkeeper.observe.http.probes import readiness
from bookkeeper.observe.metrics.history import STEP_SECONDS
from bookkeeper.observe.metrics.inspection import ConsumerReport
from bookkeeper.observe.metrics.table_metrics import TableMetrics
from bookkeeper.serve.health import FAILING, HALTED, READY
from bookkeeper.serve.loop import TableLoop
from bookkeeper.tick.prune import LARGE_MARKS_BYTES

#: no row gets in or data is about to be lost; a person should look soon; good to know
BAD, WARNING, NOTE = "bad", "warning", "note"
SEVERITIES = (BAD, WARNING, NOTE)

SNAPSHOTS = 10_000
METADATA_BYTES = 2**22
DISK_FREE = 0.1
BEHIND = timedelta(minutes=15)
#: rewrites are listed once a minute at least
REWRITE_WAITS = timedelta(minutes=15)
#: rewriting cannot keep up when so many more files are live than this long ago, small ones on average (bytes)
REWRITES_SEEN, MORE_FILES, SMALL_FILE = timedelta(minutes=30), 1000, 2**25
#: how long a missing txlog is reported
NEWS = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    severity: str
    table: str
    what: str
    do: str
    alert: str


def problems(loop: TableLoop, metrics: TableMetrics, settings: Daemon, now: datetime) -> list[Problem]:
    """
    Everything wrong with this table, worst first.
    """
    found = [*_loop(loop, metrics, settings, now)]
    if not loop.standby:
        consumers = (_consumer(loop.table, item) for item in metrics.inspection.consumers)
        found += [*_txlogs(loop, metrics, now), *_growth(loop.table, metrics), *_rewrites(loop.table, metrics, now)]
        found += _folds(loop.table, metrics, now)
        found += filter(None, consumers)
    return sorted(found, key=lambda item: SEVERITIES.index(item.severity))


def _loop(loop: TableLoop, metrics: TableMetrics, settings: Daemon, now: datetime) -> Iterator[Problem]:
    found, table = readiness(loop, metrics, settings, now), loop.table
    if found.state == HALTED:
        yield Problem(BAD, table, f"halted: {found.why}", found.hint, "BookkeeperTableHalted")
    elif not found.ready and found.state in (READY, FAILING):
        yield Problem(BAD, table, found.why, found.hint, "BookkeeperBehind")
    elif not found.ready:
        yield Problem(BAD, table, f"nothing gets in: {found.why}", found.hint, "BookkeeperNoSuccess")
    elif found.state == FAILING:
        yield Problem(WARNING, table, f"the last tick failed: {found.why}", found.hint, "BookkeeperNoSuccess")
    elif loop.postponed:
        yield Problem(
            WARNING, table, f"some txlogs wait: {loop.postponed}", "They are tried again.", "BookkeeperBehind"
        )


def _txlogs(loop: TableLoop, metrics: TableMetrics, now: datetime) -> Iterator[Problem]:
    table, inspection = loop.table, metrics.inspection
    if inspection.rejected:
        newest = inspection.newest[0] if inspection.newest else None
        why = f"; the newest: {newest.reason}" if newest else ""
        do = f"{newest.hint} " if newest and newest.hint else ""
        do += f"`bookkeeper rejected --table {table}` lists them, `bookkeeper replay TXLOG` gives one back."
        what = f"{_of(inspection.rejected, 'txlog')} rejected, the rows are not in the table{why}"
        yield Problem(WARNING, table, what, do, "BookkeeperTxlogRejected")
    last = metrics.files_last
    if last is not None and metrics.waiting_age(now) > last / 2:
        age = format_rough(metrics.waiting_age(now))
        what = f"a txlog waits for {age}; after {format_rough(last)} the catalog's service deletes the files it names"
        do = f"Commit, replay or discard it: `bookkeeper verify --table {table}` names each. Copy the files away first."
        yield Problem(BAD, table, what, do, "BookkeeperFilesAtRisk")
    if metrics.held:
        do = f"The log says why; `bookkeeper pending --table {table}` shows them. A newer bookkeeper may be needed."
        yield Problem(WARNING, table, f"{_of(metrics.held, 'txlog')} held", do, "BookkeeperTxlogHeld")
    if metrics.last_hole is not None and now - metrics.last_hole < NEWS:
        do = "Find what deletes files in pending/; the writer's own log says which rows the txlog held."
        what = f"{_of(metrics.holes, 'published txlog')} missing: deleted from pending/ before it was committed"
        yield Problem(BAD, table, what, do, "BookkeeperTxlogGone")
    if metrics.pending_limit is not None and (metrics.pending or 0) >= metrics.pending_limit:
        do = "If it lasts, raise window, target-file-size or roll-after, so that there are fewer and larger txlogs."
        yield Problem(WARNING, table, "writers wait: the table is at its pending limit", do, "BookkeeperWritersWait")


def _growth(table: str, metrics: TableMetrics) -> Iterator[Problem]:
    stats, inspection = metrics.stats, metrics.inspection
    if inspection.free is not None and inspection.size and inspection.free / inspection.size < DISK_FREE:
        do = "Make room, or lower retention; until then nothing may get in."
        what = f"the disk is nearly full: {inspection.free / 2**30:.1f} GiB left"
        yield Problem(BAD, table, what, do, "BookkeeperDiskLow")
    if metrics.brake:
        do = f"`bookkeeper retain --table {table} --dry-run` says more; the log does, too (action=brake, retain)."
        if "retention.brake" in metrics.brake:
            do = f"If that is meant: raise retention.brake of {table} for one step."
        yield Problem(WARNING, table, f"retention is held back: {metrics.brake}", do, "BookkeeperRetentionHeldBack")
    if stats is not None and stats.snapshots > SNAPSHOTS:
        do = f"Is the reaper running? `reaper plan --table {table}` says what keeps them."
        yield Problem(WARNING, table, f"{stats.snapshots:,} snapshots are kept", do, "BookkeeperManySnapshots")
    if inspection.metadata_bytes is not None and inspection.metadata_bytes > METADATA_BYTES:
        do = f"Snapshots, most of the time: `reaper plan --table {table}` says what keeps them (docs/operate.md)."
        what = f"metadata.json has {inspection.metadata_bytes / 2**20:.1f} MiB: some catalogs and readers refuse 5 MB"
        yield Problem(WARNING, table, what, do, "BookkeeperMetadataLarge")
    if stats is not None and stats.marks_bytes > LARGE_MARKS_BYTES:
        do = "Give writers names that stay the same when they start anew (docs/operate.md)."
        what = f"the marks take {stats.marks_bytes // 1024} KiB in every metadata.json"
        yield Problem(WARNING, table, what, do, "BookkeeperMarksLarge")
    if inspection.problem:
        do = "What is shown of consumers, rejected/ and disk may be old."
        yield Problem(NOTE, table, f"not everything can be looked at: {inspection.problem}", do, "BookkeeperNotLooked")


def _rewrites(table: str, metrics: TableMetrics, now: datetime) -> Iterator[Problem]:
    if metrics.rewrite_age(now) > REWRITE_WAITS.total_seconds():
        age = format_rough(timedelta(seconds=metrics.rewrite_age(now)))
        what = f"{_of(metrics.rewrites_pending, 'rewrite')} pending, the oldest for {age}"
        do = f"`bookkeeper verify --table {table}` says whether the table takes it; a newer version needs an upgrade."
        yield Problem(WARNING, table, what, do, "BookkeeperRewritesWait")
    stats, last = metrics.stats, metrics.last_rewrite
    if stats is None or last is None or now - last > REWRITES_SEEN:
        return
    grown = metrics.history.growth("files", now, int(REWRITES_SEEN.total_seconds()) // STEP_SECONDS)
    if grown > MORE_FILES and stats.bytes < SMALL_FILE * stats.files:
        what = f"rewriting cannot keep up: {stats.files:,} live files, {grown:,.0f} more than half an hour ago"
        do = 'Fewer, larger files (roll-after); a larger bytes-per-second, or none; else `engine = "spark"`.'
        yield Problem(WARNING, table, what, do, "BookkeeperRewritesBehind")


def _folds(table: str, metrics: TableMetrics, now: datetime) -> Iterator[Problem]:
    folds = metrics.folds
    if folds.unfolded is None or folds.unfolded.age(now) <= folds.limit:
        return
    why = max(folds.left, key=folds.left.__getitem__, default="")
    age, reason = format_rough(folds.unfolded.age(now)), f": {why}" if why else ""
    what = f"{_of(folds.unfolded.files, 'equality delete file')} not folded, the oldest for {age}{reason}"
    if why == OVER_BUDGET:
        do = f"Run spark_jobs.maintain for {table}; if it comes back, upsert fewer distinct keys at once."
    elif why:
        do = (
            f"`bookkeeper verify --table {table}` says whether its files are whole; spark_jobs.maintain takes the rest."
        )
    else:
        do = f"`bookkeeper fold --table {table}` folds now; the log says what kept it (action=fold)."
    yield Problem(WARNING, table, what, f"{do} No row is wrong, but readers are slow.", "BookkeeperFoldsBehind")


def _consumer(table: str, item: ConsumerReport) -> Problem | None:
    mend = f"`bookkeeper consumers --table {table} --mend` says how."
    behind = item.lag.behind if item.lag else timedelta(0)
    if item.state == CUT_OFF:
        do = (
            "A Spark query: start it with a new checkpoint and a new output, which get all rows. In Python: "
            "catch_up(), skip_lost() or restart(). Or unregister it: `bookkeeper consumers remove`."
        )
        return Problem(BAD, table, f"consumer {item.name} is cut off: {item.why}", do, "BookkeeperConsumerCutOff")
    if item.used >= AT_RISK:
        what = (
            f"consumer {item.name} is {format_rough(behind)} behind and uses {item.used:.0%} of max-hold: "
            "then it is cut off"
        )
        do = "Start it, or raise max-hold in [reaper], before its snapshots are expired."
        return Problem(BAD, table, what, do, "BookkeeperConsumerAtRisk")
    if item.state in (TO_MEND, STALLED):
        return Problem(WARNING, table, f"consumer {item.name}: {item.why}", mend, "BookkeeperConsumerCutOff")
    if behind > BEHIND:
        do = f"Is it running? `bookkeeper lag --table {table} --watch 5s` shows whether it catches up."
        rows = f", {item.lag.rows:,} rows unread" if item.lag and item.lag.rows else ""
        what = f"consumer {item.name} is {format_rough(behind)} behind{rows}"
        return Problem(WARNING, table, what, do, "BookkeeperConsumerBehind")
    if item.state == UNREADABLE:
        do = "Check the checkpoint's location and the rights to read it."
        return Problem(
            WARNING, table, f"consumer {item.name} cannot be read: {item.why}", do, "BookkeeperConsumerCutOff"
        )
    return None


def _of(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
