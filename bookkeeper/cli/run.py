"""
`bookkeeper run` and `bookkeeper once`.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.cli.context import settings_of, several_tables, tables_option, utc_now
from bookkeeper.console import garbage, logs
from bookkeeper.console.elapsed import elapsed
from bookkeeper.console.errors import REFUSED, UNAVAILABLE, Command, exit_code
from bookkeeper.console.limits import set_limits
from bookkeeper.console.options import config_option, json_option, listen_option, log_options
from bookkeeper.console.output import show_rows

if TYPE_CHECKING:
    from bookkeeper.config.settings import Daemon, Settings
    from bookkeeper.console.signals import StopSignal
    from bookkeeper.serve.loop import Observer, TableLoop
    from bookkeeper.serve.tables import Tables

log = logging.getLogger("bookkeeper")
_LATE_SECONDS = 3.0
_BEGIN_SECONDS, _LONGEST_BEGIN_SECONDS, _LONG_SECONDS = 0.2, 30.0, 3600.0


@click.command(cls=Command, short_help="Commit published txlogs, until SIGTERM.")
@config_option
@tables_option
@log_options
@listen_option("BOOKKEEPER", "Serve page, metrics and probes here instead of at `listen` in the configuration.")
@garbage.paused()
def run(
    config: str | None,
    tables: tuple[str, ...],
    log_format: str,
    log_level: str,
    listen: str | None,
    allowed_hosts: tuple[str, ...],
) -> None:
    """
    Commit published txlogs, every tick, until SIGTERM; ends after the current commit.

    A catalog or storage that is down is tried again, also at the start; bad txlogs go to rejected/. On SIGHUP the
    configuration is read again: only tables whose settings changed are touched. A status page is served at
    http://127.0.0.1:9464/, unless `listen` or --listen gives another address.

    \b
    Example:
      bookkeeper run --config bookkeeper.toml --log-format json
      bookkeeper run --listen 0.0.0.0:9464
    """
    from bookkeeper.console.signals import ReloadSignal, StopSignal

    # Before the slow imports: by default SIGHUP would end the process.
    stop, again = StopSignal.on_signals(), ReloadSignal.on_signal(signal.SIGHUP)
    from bookkeeper.config.load import apart
    from bookkeeper.folds.duty import MOST_AT_ONCE, FoldThreads
    from bookkeeper.folds.process import PlanProcess
    from bookkeeper.serve.open import opener
    from bookkeeper.serve.tables import Tables

    settings = settings_of(config)
    chosen = apart(several_tables(settings, tables))
    logs.set_up(log_format, log_level)
    set_limits()
    with _ended(stop, lambda: settings.bookkeeper.stop_patience):
        log.info("bookkeeper started", extra={"action": "start", "tables": len(chosen), "config": settings.source})
        folds = FoldThreads([PlanProcess().plan for _ in range(MOST_AT_ONCE)])
        at_work = Tables(opener(settings.bookkeeper, utc_now, elapsed, folds), utc_now)
        where = settings.bookkeeper.listen if listen is None else listen
        names = (*settings.bookkeeper.allowed_hosts, *allowed_hosts)
        with _serving(lambda: at_work.slots, lambda: settings.bookkeeper, where, names) as at_work.on_result:
            at_work.change(settings, chosen)
            looks, frozen = count(1), False
            while not stop.wait(_LONG_SECONDS if frozen else _BEGIN_SECONDS, again.wakes, again.asked):
                if again.take():
                    settings = _read_again(at_work, settings, config, tables)
                frozen = frozen or _freeze_once_opened(at_work, next(looks))
            _end(at_work, settings.bookkeeper.stop_patience)


@contextmanager
def _ended(stop: "StopSignal", patience: Callable[[], timedelta]) -> Iterator[None]:
    """
    Ends the process a little after its patience, even when a full pipe on stderr blocks every thread that logs, the
    ending one included.
    """
    from bookkeeper.console.signals import StopSignal
    from bookkeeper.threads import start

    over = StopSignal()

    def watch() -> None:
        while not (stop.wait(_LONG_SECONDS, over.wakes, over.asked) or over.requested):
            pass
        if not over.wait(patience().total_seconds() + _LATE_SECONDS):
            os._exit(0)

    start(watch, "end")
    try:
        yield
    finally:
        over.request()


def _freeze_once_opened(at_work: "Tables", look: int) -> bool:
    """Freezes the garbage collector once every table was opened, or one of them takes too long."""
    if not at_work.begun and look * _BEGIN_SECONDS < _LONGEST_BEGIN_SECONDS:
        return False
    garbage.freeze()
    return True


def _read_again(at_work: "Tables", settings: "Settings", config: str | None, names: tuple[str, ...]) -> "Settings":
    """The new settings; the old ones when the new ones are not valid."""
    from bookkeeper.config.load import apart
    from bookkeeper.errors import BookkeeperError

    try:
        new = settings_of(config)
        chosen = apart(several_tables(new, names))
    except BookkeeperError as error:
        hint = error.hint or "Correct the file and send SIGHUP again; until then nothing has changed."
        said = {"action": "reload", "config": settings.source, "cause": str(error), "hint": hint}
        log.error("settings kept as they were", extra=said)
        return settings
    change = at_work.change(new, chosen)
    log.info("settings read again", extra={"action": "reload", "config": new.source, **asdict(change)})
    _say_late(settings, new)
    return new


def _say_late(settings: "Settings", new: "Settings") -> None:
    """Warns of changed settings that need a restart."""
    from dataclasses import fields

    late = [item.name for item in fields(new.bookkeeper) if item.metadata.get("restart")]
    changed = [name for name in late if getattr(settings.bookkeeper, name) != getattr(new.bookkeeper, name)]
    if changed:
        keys = ", ".join(f"bookkeeper.{name.replace('_', '-')}" for name in changed)
        log.warning("settings that need a restart", extra={"action": "reload", "keys": keys})


def _end(at_work: "Tables", patience: timedelta) -> None:
    left = at_work.end(patience)
    if left:
        hint = "Does the catalog or the storage hang? A commit under way is found again at the next start."
        log.error("tables left in the middle of a tick", extra={"action": "stop", "tables": left, "hint": hint})
    log.info("bookkeeper stopped", extra={"action": "stop"})
    if left:
        # The interpreter's own end would wait for locks that such a thread may hold.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


@click.command(cls=Command, short_help="One tick of each table, for cron and functions.")
@config_option
@tables_option
@json_option
@log_options
@click.pass_context
def once(
    context: click.Context, config: str | None, tables: tuple[str, ...], as_json: bool, log_format: str, log_level: str
) -> None:
    """
    One tick of each table, for cron and functions; exit code 3 or 4 when a table's tick failed.

    \b
    Example:
      bookkeeper once --config bookkeeper.toml --json
    """
    from bookkeeper.config.load import apart
    from bookkeeper.serve.open import opener
    from bookkeeper.serve.tables import once as tick_each
    from bookkeeper.serve.tables import slots_of

    settings = settings_of(config)
    logs.set_up(log_format, log_level)
    chosen = apart(several_tables(settings, tables))
    slots = slots_of(settings, chosen, opener(settings.bookkeeper, utc_now))
    results = tick_each(slots, settings.bookkeeper, utc_now)
    show_rows([_row(slot, done) for slot, done in zip(slots, results, strict=True)], as_json)
    context.exit(max((code_of(slot) for slot in slots), default=0))


def _row(slot: "TableLoop", done: Any) -> dict[str, Any]:
    if done is None:
        return {"table": slot.table, "outcome": slot.trouble or "another bookkeeper is at work"}
    commit = done.commit
    return {
        "table": slot.table,
        "outcome": "committed" if commit else "nothing to do",
        **{what: getattr(commit, what, 0) for what in ("txlogs", "files", "rows")},
        "rejected": len(done.rejected),
        "waiting": done.waiting,
        "dropped files": done.dropped_files,
        "snapshot": commit.snapshot_id if commit else None,
    }


def code_of(slot: "TableLoop") -> int:
    """
    The exit code after a tick of this table.
    """
    from bookkeeper.errors import BookkeeperError
    from bookkeeper.serve.tables import HANGING

    if not slot.trouble:
        return 0
    if slot.trouble == HANGING:
        return UNAVAILABLE
    return exit_code(slot.error) if isinstance(slot.error, BookkeeperError) else REFUSED


@contextmanager
def _serving(
    loops: "Callable[[], Collection[TableLoop]]",
    settings: "Callable[[], Daemon]",
    listen: str,
    allowed_hosts: Collection[str] = (),
) -> "Iterator[Observer | None]":
    """
    Serves page, metrics and probes while the block runs; yields the observer of every loop, None without `listen`.

    Raises ConfigInvalid, and NotPossible when the port is taken.
    """
    if not listen:
        yield None
        return
    from bookkeeper.observe.http.site import Site, serving
    from bookkeeper.observe.metrics.table_metrics import AllMetrics

    metrics = AllMetrics(loops, utc_now, time.monotonic)
    with serving(Site(metrics, settings, utc_now, time.monotonic), listen, allowed_hosts) as web:
        log.info("serving", extra={"action": "serve", "url": web.url})
        yield metrics.on_tick


COMMANDS = (run, once)
