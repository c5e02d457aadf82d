"""
Repeats the ticks of one table: failures with backoff, until told to stop. Nothing a table does ends its loop.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from bookkeeper.config.settings import Daemon
from bookkeeper.config.share import TRIES
from bookkeeper.core.folder import Found
from bookkeeper.discover.discovery import Discovery
from bookkeeper.errors import BookkeeperError, Halt, Retry
from bookkeeper.serve.backoff import backoff
from bookkeeper.tick.tick import Bookkeeper, TickResult

log = logging.getLogger("bookkeeper")

#: the table, what its turn did (None: it failed, see `error`, or stands by), when it began and how many seconds it took
Observer = Callable[["TableLoop", TickResult | None, datetime, float | None], None]


@dataclass
class TableLoop:
    """One table in the loop: how to open it, and how it has been doing."""

    table: str
    open: Callable[[], Bookkeeper]
    book: Bookkeeper | None = None
    failures: int = 0
    trouble: str = ""
    postponed: str = ""
    standby: bool = False
    #: what the log said last: a lease that is let go for a moment is no news
    said_standby: bool = False
    next_at: datetime | None = None
    last_success: datetime | None = None
    turns: int = 0
    #: the error of the last failed tick, while ticks fail, and when the first of them did
    error: Exception | None = None
    failing_since: datetime | None = None
    #: when the present row of good ticks (or of standing by) began
    fine_since: datetime | None = None
    #: when the tick began that is going on
    ticking_since: datetime | None = None
    #: what the last turn did, also when it ended by an error; None when the table could not even be opened
    begun: TickResult | None = None
    #: told after each turn, by the thread that turned
    told: Observer | None = None
    #: what is pending, asked while the table cannot be opened; None when nobody can tell
    waiting: Callable[[], list[Found] | None] | None = None

    def left(self) -> TickResult | None:
        """A turn that did nothing and left what is pending; None when nobody can tell."""
        found = self.waiting() if self.waiting is not None else None
        return None if found is None else TickResult.of(found)

    def ready(self, settings: Daemon) -> bool:
        """Whether its ticks succeed; a few failures in a row are nothing yet."""
        return self.failures < settings.not_ready_after


def tick_once(
    slot: TableLoop, settings: Daemon, now: datetime, clock: Callable[[], datetime] | None = None
) -> TickResult | None:
    """
    One tick of one table if it is due; never raises. None when it was not due or failed.

    With a `clock` the log says how long a tick with a commit took, and `told` how long each took.
    """
    if slot.next_at is not None and now < slot.next_at <= now + settings.backoff_most:
        return None
    slot.ticking_since = now
    try:
        done = _tried(slot, settings, now, clock)
    finally:
        slot.ticking_since = None
    _tell(slot, done, now, clock)
    return done


def _tell(slot: TableLoop, done: TickResult | None, now: datetime, clock: Callable[[], datetime] | None) -> None:
    if slot.told is None:
        return
    try:
        slot.told(slot, done, now, (clock() - now).total_seconds() if clock else None)
    except Exception:
        # Who only looks must not end what it looks at; once is enough to say so.
        slot.told = None
        log.exception("observer failed", extra={"action": "defect", "table": slot.table})


def _tried(slot: TableLoop, settings: Daemon, now: datetime, clock: Callable[[], datetime] | None) -> TickResult | None:
    slot.begun = None
    try:
        slot.book = slot.book or _opened(slot)
        if _waits(slot, slot.book, now):
            return None
        done = _ticked(slot, slot.book, now)
    except BookkeeperError as error:
        _failed(slot, settings, now, error)
        return None
    except Exception as error:
        # A defect of ours must not take the other tables down with it.
        log.exception("tick failed", extra={"action": "defect", "table": slot.table})
        _failed(slot, settings, now, error)
        return None
    _succeeded(slot, done, now, clock)
    return done


def _opened(slot: TableLoop) -> Bookkeeper:
    try:
        return slot.open()
    except BookkeeperError:
        slot.begun = slot.left()  # writers go on: who looks at the table must see what waits
        raise


def _ticked(slot: TableLoop, book: Bookkeeper, now: datetime) -> TickResult:
    try:
        return book.tick(now)
    finally:
        slot.begun = book.result


def _waits(slot: TableLoop, book: Bookkeeper, now: datetime) -> bool:
    """Whether another bookkeeper has the lease of this table: then this one stands by."""
    held = book.lease.hold(now)
    if not held:
        _fine(slot, now)
    slot.standby = not held
    if slot.said_standby != slot.standby and not book.lease.offering:
        slot.said_standby = slot.standby
        message = "taking over" if held else "standing by"
        log.info(message, extra={"action": message.replace(" ", "-"), "table": slot.table})
    return not held


def _failed(slot: TableLoop, settings: Daemon, now: datetime, error: Exception) -> None:
    slot.failures += 1
    slot.error, slot.failing_since, slot.fine_since = error, slot.failing_since or now, None
    pause = settings.backoff_most if isinstance(error, Halt) else backoff(slot.failures, settings)
    slot.next_at = now + pause
    if not isinstance(error, Retry):
        # A person may mend the table, its folder or its place: what was opened before says nothing then.
        close(slot)
    said = f"{type(error).__name__}: {error}"
    if type(error).__name__ != slot.trouble:
        slot.trouble = type(error).__name__
        action = "halt" if isinstance(error, Halt) else "postpone"
        hint = getattr(error, "hint", "")
        log.error("table halted" if action == "halt" else "tick postponed", extra=_about(slot, action, said, hint))
    if slot.failures == settings.not_ready_after:
        log.error("table not ready", extra=_about(slot, "not-ready", said, ""))


def close(slot: TableLoop) -> None:
    """Gives back the lease and what notices txlogs; the next turn opens the table anew."""
    book, slot.book = slot.book, None
    if book is not None:
        book.pending_index.discovery.close()
        with suppress(BookkeeperError):
            book.lease.release()


def _about(slot: TableLoop, action: str, cause: str, hint: str) -> dict[str, object]:
    said: dict[str, object] = {"action": action, "table": slot.table, "cause": cause}
    return said | ({"hint": hint} if hint else {})


def _succeeded(slot: TableLoop, done: TickResult, now: datetime, clock: Callable[[], datetime] | None) -> None:
    if slot.trouble:
        log.info("table works again", extra={"action": "recover", "table": slot.table, "failures": slot.failures})
    _fine(slot, now)
    slot.last_success = now
    slot.turns += 1
    if done.commit:
        took = {"seconds": round((clock() - now).total_seconds(), 3)} if clock else {}
        log.info("committed", extra={"action": "commit", "table": slot.table, **_shown(done), **took})
    cause = str(done.trouble or "")
    if cause and cause != slot.postponed:
        log.warning("txlogs postponed", extra={"action": "postpone", "table": slot.table, "cause": cause})
    slot.postponed = cause


def _fine(slot: TableLoop, now: datetime) -> None:
    slot.failures, slot.trouble, slot.next_at = 0, "", None
    slot.error, slot.failing_since, slot.fine_since = None, None, slot.fine_since or now


def _shown(done: TickResult) -> dict[str, object]:
    assert done.commit is not None
    made = done.commit
    counts = {"txlogs": made.txlogs, "files": made.files, "rows": made.rows, "bytes": made.bytes}
    return {"snapshot": made.snapshot_id, **counts, "waiting": done.waiting}


def repeat(slot: TableLoop, settings: Daemon, clock: Callable[[], datetime], wait: Callable[..., bool]) -> None:
    """
    Ticks one table until `wait` (sleep and stop in one) says so; ends after the current commit.

    `wait` is given seconds and, where txlogs are noticed, what else ends it: see `console.stopping.Stop.wait`.
    """
    while True:
        done = tick_once(slot, settings, clock(), clock)
        if _rest(slot, settings, clock, wait, committed=bool(done and done.commit)):
            return


def _rest(
    slot: TableLoop, settings: Daemon, clock: Callable[[], datetime], wait: Callable[..., bool], committed: bool
) -> bool:
    """The pause between two ticks, cut short by a hint; says whether to stop."""
    every, found = (min(settings.every, TRIES) if slot.standby else settings.every).total_seconds(), _discovery(slot)
    if found is None or not found.wakes():
        return _pause(slot, every, clock, wait)
    # Without it a busy table would get a snapshot for each txlog.
    busy = min(every, settings.hint_pause.total_seconds()) if committed else 0.0
    if busy and _pause(slot, busy, clock, wait):
        return True
    return _pause(slot, every - busy, clock, wait, found)


def _pause(
    slot: TableLoop,
    seconds: float,
    clock: Callable[[], datetime],
    wait: Callable[..., bool],
    found: Discovery | None = None,
) -> bool:
    """Sleeps so long, or until `found` is hinted; keeps a lease meanwhile that would not last."""
    hints = (found.wakes, found.hinted) if found else ()
    lasting = None if slot.book is None or slot.standby else slot.book.lease.lasting
    part = lasting.total_seconds() / 3 if lasting else seconds
    while seconds > part:
        if wait(part, *hints):
            return True
        if found and found.hinted():
            return False
        seconds -= part
        _keep(slot, clock())
    return wait(seconds, *hints)


def _keep(slot: TableLoop, now: datetime) -> None:
    if slot.book is None:
        return
    # Like a tick it may hang, and that is no reason to be killed.
    slot.ticking_since = now
    try:
        with suppress(BookkeeperError):  # the next tick asks again, and says so
            slot.book.lease.hold(now)
    finally:
        slot.ticking_since = None


def _discovery(slot: TableLoop) -> Discovery | None:
    """Of a table whose next tick would take its hints: a hint that nobody takes would end every pause."""
    return slot.book.pending_index.discovery if slot.book and slot.next_at is None and not slot.standby else None
