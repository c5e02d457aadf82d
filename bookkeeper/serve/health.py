"""
The health of each table: ready or not, since when, why, and what to do.

Reads a slot of the loop and changes nothing, so another thread may ask at any moment, also while a tick hangs.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from bookkeeper.config.settings import Daemon
from bookkeeper.errors import Halt
from bookkeeper.serve.loop import TableLoop

STARTING, READY, STANDBY, FAILING, NOT_READY, HALTED, HANGING = (
    "starting",
    "ready",
    "standby",
    "failing",
    "not ready",
    "halted",
    "hanging",
)
#: a tick that takes longer counts as hanging
HANGS = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Health:
    """
    One table: `state` since `since`, `why` and what to do about it.

    `ready` is false when nothing gets in: halted, hanging, or `failures` ticks in a row were too many. `postponed`
    is why some txlogs wait though the ticks succeed.
    """

    table: str
    state: str
    ready: bool
    since: datetime | None = None
    why: str = ""
    hint: str = ""
    failures: int = 0
    next_try: datetime | None = None
    last_success: datetime | None = None
    postponed: str = ""


def health(slot: TableLoop, settings: Daemon, now: datetime) -> Health:
    """
    How this table is doing at `now`.
    """
    error, ticking = slot.error, slot.ticking_since
    state, since = _state(slot, settings), slot.failing_since or slot.fine_since
    why = f"{type(error).__name__}: {error}" if error is not None else ""
    if ticking is not None and now - ticking > HANGS:
        state, since, why = HANGING, ticking, f"a tick has not ended for {int((now - ticking).total_seconds())} s"
    return Health(
        table=slot.table,
        state=state,
        ready=state in (STARTING, READY, STANDBY, FAILING),
        since=since,
        why=why,
        hint="Is the catalog or the storage frozen?" if state == HANGING else getattr(error, "hint", ""),
        failures=slot.failures,
        next_try=slot.next_at,
        last_success=slot.last_success,
        postponed=slot.postponed,
    )


def _state(slot: TableLoop, settings: Daemon) -> str:
    if isinstance(slot.error, Halt):
        return HALTED
    if slot.failures:
        return FAILING if slot.ready(settings) else NOT_READY
    if slot.standby:
        return STANDBY
    return STARTING if slot.last_success is None else READY
