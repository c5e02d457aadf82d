"""
Repeats the ticks of one table, with backoff after failures, until it is stopped. No error of a table ends its loop.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from bookkeeper.config.settings import Daemon
from bookkeeper.config.share import TRIES
from bookkeeper.contract.txlog_folder import Found
from bookkeeper.discover.discovery import Discovery
from bookkeeper.errors import BookkeeperError, Halt, Retry
from bookkeeper.tick.result import TickResult
from bookkeeper.tick.tick import Bookkeeper

log = logging.getLogger("bookkeeper")

#: the table, what its tick did (None: it failed, see `error`, or stands by), when it began, and the seconds it took
Observer = Callable[["TableLoop", TickResult | None, datetime, float | None], None]
#: commits that a hint brings at once after a quiet time, before `hint-pause` holds the next one back
BURST = 3
#: one that gave its lease up is ready again once another has held it for so long: one that fails too gives it up sooner
STEADY = timedelta(minutes=10)


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
    #: since when another has held the lease, as far as each try showed
    held_elsewhere_since: datetime | None = None
    #: whether the lease was given up after too many failures, until the next tick asks for it
    gave_up: bool = False
    #: the state that was logged last; a lease released for a moment is not logged
    logged_standby: bool = False
    next_at: datetime | None = None
    last_success: datetime | None = None
    ticks: int = 0
    #: the error of the last failed tick, while ticks fail, and when the first of them did
    error: Exception | None = None
    failing_since: datetime | None = None
    #: when the current run of successful ticks (or of standing by) began
    fine_since: datetime | None = None
    #: when the tick began that is going on
    ticking_since: datetime | None = None
    #: what the last tick did, also when it ended by an error; None when the table could not be opened
    last_result: TickResult | None = None
    #: how far commits at the pace of `hint-pause` would have come: see `_paced`
    paced_to: datetime | None = None
    #: called after each tick, by the thread that ticked
    on_result: Observer | None = None
    #: lists what is pending while the table cannot be opened; None when that cannot be listed either
    waiting: Callable[[], list[Found] | None] | None = None

    def left(self) -> TickResult | None:
        """The result of a tick that did nothing and left what is pending; None when that cannot be listed."""
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

    With a `clock` the log names how long a tick with a commit took, and `on_result` is given how long each took.
    """
    if slot.next_at is not None and now < slot.next_at <= now + settings.backoff_most:
        return None
    slot.ticking_since = now
    try:
        done = _tried(slot, settings, now, clock)
    finally:
        slot.ticking_since = None
    _report(slot, done, now, clock)
    return done


def backoff(failures: int, settings: Daemon) -> timedelta:
    """
    `every`, doubled with each failure in a row, at most `backoff-most`.
    """
    doublings = min(failures - 1, 30)
    pause: timedelta = min(settings.every * 2**doublings, settings.backoff_most)
    return pause


def _report(slot: TableLoop, done: TickResult | None, now: datetime, clock: Callable[[], datetime] | None) -> None:
    if slot.on_result is None:
        return
    try:
        slot.on_result(slot, done, now, (clock() - now).total_seconds() if clock else None)
    except Exception:
        # An observer that raises must not stop the table it observes; it is called no more, so this is logged once.
        slot.on_result = None
        log.exception("observer failed", extra={"action": "defect", "table": slot.table})


def _tried(slot: TableLoop, settings: Daemon, now: datetime, clock: Callable[[], datetime] | None) -> TickResult | None:
    slot.last_result = None
    try:
        slot.book = slot.book or _opened(slot)
        if _stands_by(slot, settings, slot.book, now):
            return None
        try:
            done = slot.book.tick(now)
        finally:
            slot.last_result = slot.book.result
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
        slot.last_result = slot.left()  # writers go on, so the metrics must show what waits
        raise


def _stands_by(slot: TableLoop, settings: Daemon, book: Bookkeeper, now: datetime) -> bool:
    """Whether another bookkeeper has the lease of this table: then this one stands by."""
    slot.gave_up = False
    held = book.lease.hold(now)
    since = slot.held_elsewhere_since = None if held else slot.held_elsewhere_since or now
    # Two that fail take turns: they would say that all is well, each while the other has the lease.
    if since is not None and (slot.ready(settings) or abs(now - since) >= STEADY):
        _fine(slot, now)
    slot.standby = not held
    if slot.logged_standby != slot.standby and not book.lease.offering:
        slot.logged_standby = slot.standby
        message = "taking over" if held else "standing by"
        log.info(message, extra={"action": message.replace(" ", "-"), "table": slot.table})
    return not held


def _failed(slot: TableLoop, settings: Daemon, now: datetime, error: Exception) -> None:
    slot.failures += 1
    slot.error, slot.failing_since, slot.fine_since = error, slot.failing_since or now, None
    pause = settings.backoff_most if isinstance(error, Halt) else backoff(slot.failures, settings)
    if isinstance(error, Retry) and error.pause is not None:
        pause = max(pause, min(error.pause, settings.backoff_most))
    slot.next_at = now + pause
    if not isinstance(error, Retry):
        # A person may mend the table, its folder or its configuration: then it must be opened anew.
        close(slot)
    elif not slot.ready(settings) and slot.book is not None:
        # What fails here may work elsewhere, such as where the catalog can be reached.
        slot.gave_up = True
        with suppress(BookkeeperError):
            slot.book.lease.release()
    cause = f"{type(error).__name__}: {error}"
    if type(error).__name__ != slot.trouble:
        slot.trouble = type(error).__name__
        action = "halt" if isinstance(error, Halt) else "postpone"
        hint = getattr(error, "hint", "")
        log.error("table halted" if action == "halt" else "tick postponed", extra=_about(slot, action, cause, hint))
    if slot.failures == settings.not_ready_after:
        log.error("table not ready", extra=_about(slot, "not-ready", cause, ""))


def close(slot: TableLoop) -> None:
    """
    Releases the lease, closes the discovery, waits for the last deletion; the next tick opens the table anew.
    """
    book, slot.book = slot.book, None
    if book is not None:
        book.inbox.discovery.close()
        with suppress(BookkeeperError):
            book.lease.release()
        book.inbox.consumed.wait()


def _about(slot: TableLoop, action: str, cause: str, hint: str) -> dict[str, object]:
    about: dict[str, object] = {"action": action, "table": slot.table, "cause": cause}
    return about | ({"hint": hint} if hint else {})


def _succeeded(slot: TableLoop, done: TickResult, now: datetime, clock: Callable[[], datetime] | None) -> None:
    if slot.trouble:
        log.info("table works again", extra={"action": "recover", "table": slot.table, "failures": slot.failures})
    _fine(slot, now)
    slot.last_success = now
    slot.ticks += 1
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
    Ticks one table until `wait` (sleep and stop in one) returns True; ends after the current commit.

    `wait` is given seconds and, where a discovery gives hints, what else ends it: see `StopSignal.wait`.
    """
    while True:
        began = clock()
        done = tick_once(slot, settings, began, clock)
        if done and done.commit:
            slot.paced_to = _paced(slot.paced_to, began, settings)
        if _rest(slot, settings, clock, wait):
            return


def _paced(paced_to: datetime | None, began: datetime, settings: Daemon) -> datetime:
    """
    The time up to which commits at an even pace would reach, after one that began now (GCRA, the leaky bucket of ATM).

    A bound of the mean: a table with a few txlogs a second waits for none of them, and a busy one still gets no
    snapshot for each. Never further ahead of `began` than a burst: the clock may have been set back.
    """
    ahead = BURST * settings.hint_pause
    return min(max(paced_to or began, began) + settings.hint_pause, began + ahead)


def _rest(
    slot: TableLoop,
    settings: Daemon,
    clock: Callable[[], datetime],
    wait: Callable[..., bool],
) -> bool:
    """The pause between two ticks, cut short by a hint; returns whether to stop."""
    every, found = (min(settings.every, TRIES) if slot.standby else settings.every).total_seconds(), _discovery(slot)
    if found is None or not found.wakes():
        return _pause(slot, every, clock, wait)
    # Without it a busy table would get a snapshot for each txlog.
    early = (BURST - 1) * settings.hint_pause
    pause = slot.paced_to - early - clock() if slot.paced_to else timedelta(0)
    busy = min(every, settings.hint_pause.total_seconds(), max(pause.total_seconds(), 0.0))
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
    lasting = None if slot.book is None or slot.standby or slot.gave_up else slot.book.lease.lasting
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
    # Like a tick it may hang, which must not get the process killed.
    slot.ticking_since = now
    try:
        with suppress(BookkeeperError):  # the next tick asks again, and reports it
            slot.book.lease.hold(now)
    finally:
        slot.ticking_since = None


def _discovery(slot: TableLoop) -> Discovery | None:
    """The discovery, when the next tick takes its hints: a hint that no tick takes would end every pause."""
    return slot.book.inbox.discovery if slot.book and slot.next_at is None and not slot.standby else None
