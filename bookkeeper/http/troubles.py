"""
What is wrong with a table now and what to do about it, worst first; each trouble names the alert it belongs to.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from bookkeeper.config.settings import Daemon
from bookkeeper.config.units import format_rough
from bookkeeper.http.probes import readiness
from bookkeeper.metrics.inspection import Reads
from bookkeeper.metrics.table_metrics import TableMetrics
from bookkeeper.serve.health import FAILING, HALTED, READY
from bookkeeper.serve.loop import TableLoop
from bookkeeper.streams.consumer_state import AT_RISK, CUT_OFF, STALLED, TO_MEND, UNREADABLE
from bookkeeper.tick.prune import LARGE_MARKS_BYTES

#: nothing gets in or something is about to be lost; somebody should look soon; good to know
BAD, WARNING, NOTE = "bad", "warning", "note"
SEVERITIES = (BAD, WARNING, NOTE)

SNAPSHOTS = 10_000
METADATA_BYTES = 2**22
DISK_FREE = 0.1
BEHIND = timedelta(minutes=15)
#: a txlog that was gone is news for so long
NEWS = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong."""

    severity: str
    table: str
    what: str
    do: str
    alert: str


def troubles(slot: TableLoop, figures: TableMetrics, settings: Daemon, now: datetime) -> list[Trouble]:
    """
    Everything wrong with this table, worst first.
    """
    found = [*_loop(slot, figures, settings, now)]
    if not slot.standby:
        found += [*_txlogs(slot, figures, now), *_growth(slot.table, figures), *_consumers(slot.table, figures)]
    return sorted(found, key=lambda item: SEVERITIES.index(item.severity))


def _loop(slot: TableLoop, figures: TableMetrics, settings: Daemon, now: datetime) -> Iterator[Trouble]:
    found, table = readiness(slot, figures, settings, now), slot.table
    if found.state == HALTED:
        yield Trouble(BAD, table, f"halted: {found.why}", found.hint, "BookkeeperTableHalted")
    elif not found.ready and found.state in (READY, FAILING):
        yield Trouble(BAD, table, found.why, found.hint, "BookkeeperBehind")
    elif not found.ready:
        yield Trouble(BAD, table, f"nothing gets in: {found.why}", found.hint, "BookkeeperNoSuccess")
    elif found.state == FAILING:
        yield Trouble(WARNING, table, f"the last tick failed: {found.why}", found.hint, "BookkeeperNoSuccess")
    elif slot.postponed:
        yield Trouble(
            WARNING, table, f"some txlogs wait: {slot.postponed}", "They are tried again.", "BookkeeperBehind"
        )


def _txlogs(slot: TableLoop, figures: TableMetrics, now: datetime) -> Iterator[Trouble]:
    table, looked = slot.table, figures.looked
    if looked.rejected:
        newest = looked.newest[0] if looked.newest else None
        why = f"; the newest: {newest.reason}" if newest else ""
        do = f"{newest.hint} " if newest and newest.hint else ""
        do += f"`bookkeeper rejected --table {table}` lists them, `bookkeeper replay TXLOG` gives one back."
        what = f"{_of(looked.rejected, 'txlog')} rejected, the rows are not in the table{why}"
        yield Trouble(WARNING, table, what, do, "BookkeeperTxlogRejected")
    if figures.held:
        do = f"The log says why; `bookkeeper pending --table {table}` shows them. A newer bookkeeper may be needed."
        yield Trouble(WARNING, table, f"{_of(figures.held, 'txlog')} held", do, "BookkeeperTxlogHeld")
    if figures.last_hole is not None and now - figures.last_hole < NEWS:
        do = "Ask who deletes in pending/; the writer's own log says which rows it held."
        what = f"{_of(figures.holes, 'published txlog')} gone before it was committed"
        yield Trouble(BAD, table, what, do, "BookkeeperTxlogGone")
    if figures.pending_limit is not None and (figures.pending or 0) >= figures.pending_limit:
        do = "If it lasts, raise window, target-file-size or roll-after, so that there are fewer and larger txlogs."
        yield Trouble(WARNING, table, "writers wait: as many txlogs are pending as may be", do, "BookkeeperWritersWait")


def _growth(table: str, figures: TableMetrics) -> Iterator[Trouble]:
    stand, looked = figures.stand, figures.looked
    if looked.free is not None and looked.size and looked.free / looked.size < DISK_FREE:
        do = "Make room, or lower retention; until then nothing may get in."
        what = f"the disk is nearly full: {looked.free / 2**30:.1f} GiB left"
        yield Trouble(BAD, table, what, do, "BookkeeperDiskLow")
    if figures.brake:
        do = f"If that is meant: raise retention.brake of {table} for one step."
        yield Trouble(WARNING, table, f"retention is held back: {figures.brake}", do, "BookkeeperRetentionHeldBack")
    if stand is not None and stand.snapshots > SNAPSHOTS:
        do = f"Is the reaper running? `reaper plan --table {table}` says what keeps them."
        yield Trouble(WARNING, table, f"{stand.snapshots:,} snapshots are kept", do, "BookkeeperManySnapshots")
    if looked.metadata_bytes is not None and looked.metadata_bytes > METADATA_BYTES:
        do = f"Snapshots, most of the time: `reaper plan --table {table}` says what keeps them (docs/operate.md)."
        what = f"metadata.json has {looked.metadata_bytes / 2**20:.1f} MiB: some catalogs and readers refuse 5 MB"
        yield Trouble(WARNING, table, what, do, "BookkeeperMetadataLarge")
    if stand is not None and stand.marks_bytes > LARGE_MARKS_BYTES:
        do = "Give writers names that stay the same when they start anew (docs/operate.md)."
        what = f"the marks take {stand.marks_bytes // 1024} KiB in every metadata.json"
        yield Trouble(WARNING, table, what, do, "BookkeeperMarksLarge")
    if looked.trouble:
        do = "The figures of consumers, rejected/ and disk may be old."
        yield Trouble(NOTE, table, f"not everything can be looked at: {looked.trouble}", do, "BookkeeperNotLooked")


def _consumers(table: str, figures: TableMetrics) -> Iterator[Trouble]:
    for item in figures.looked.consumers:
        trouble = _consumer(table, item)
        if trouble is not None:
            yield trouble


def _consumer(table: str, item: Reads) -> Trouble | None:
    mend = f"`bookkeeper consumers --table {table} --mend` says how."
    behind = item.lag.behind if item.lag else timedelta(0)
    if item.state == CUT_OFF:
        do = "Start it with a new checkpoint, or unregister it: `bookkeeper consumers remove`."
        return Trouble(BAD, table, f"consumer {item.name} is cut off: {item.why}", do, "BookkeeperConsumerCutOff")
    if item.used >= AT_RISK:
        what = (
            f"consumer {item.name} is {format_rough(behind)} behind and uses {item.used:.0%} of max-hold: "
            "then it is cut off"
        )
        do = "Start it, or raise max-hold in [reaper], before its snapshots are expired."
        return Trouble(BAD, table, what, do, "BookkeeperConsumerAtRisk")
    if item.state in (TO_MEND, STALLED):
        return Trouble(WARNING, table, f"consumer {item.name}: {item.why}", mend, "BookkeeperConsumerCutOff")
    if behind > BEHIND:
        do = f"Is it running? `bookkeeper lag --table {table} --watch 5s` shows whether it catches up."
        rows = f", {item.lag.rows:,} rows unread" if item.lag and item.lag.rows else ""
        what = f"consumer {item.name} is {format_rough(behind)} behind{rows}"
        return Trouble(WARNING, table, what, do, "BookkeeperConsumerBehind")
    if item.state == UNREADABLE:
        do = "Check the checkpoint's location and the rights to read it."
        return Trouble(
            WARNING, table, f"consumer {item.name} cannot be read: {item.why}", do, "BookkeeperConsumerCutOff"
        )
    return None


def _of(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
