"""
`bookkeeper run` and `bookkeeper once`.
"""

import logging
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.cli.context import settings_of, several_tables, tables_option, utc_now
from bookkeeper.console import logs
from bookkeeper.console.errors import HALTED, REFUSED, UNAVAILABLE, Command
from bookkeeper.console.options import config_option, json_option, log_options
from bookkeeper.console.output import show_rows

if TYPE_CHECKING:
    from bookkeeper.core.settings import Settings
    from bookkeeper.runner import Slot


def _slots(settings: "Settings", tables: tuple[str, ...]) -> "list[Slot]":
    from bookkeeper.opening import open_bookkeeper
    from bookkeeper.runner import Slot

    return [
        Slot(table.name, partial(open_bookkeeper, settings, table, utc_now))
        for table in several_tables(settings, tables)
    ]


@click.command(cls=Command)
@config_option
@tables_option
@log_options
def run(config: str | None, tables: tuple[str, ...], log_format: str, log_level: str) -> None:
    """
    Commit what is published, every tick, until SIGTERM; ends after the current commit.

    A catalog or storage that is down is tried again, at start too; bad txlogs go to rejected/.

    \b
    Example:
      bookkeeper run --config bookkeeper.toml --log-format json
    """
    from bookkeeper.console.stopping import Stop
    from bookkeeper.runner import close
    from bookkeeper.runner import run as run_loop

    settings = settings_of(config)
    logs.set_up(log_format, log_level)
    slots = _slots(settings, tables)
    stop = Stop.on_signals()
    log = logging.getLogger("bookkeeper")
    log.info("started", extra={"action": "start", "tables": len(slots), "config": settings.source})
    run_loop(slots, settings.bookkeeper, utc_now, stop.wait)
    for slot in slots:
        close(slot)  # so that who stands by need not wait for the lease to end
    log.info("stopped", extra={"action": "stop"})


@click.command(cls=Command)
@config_option
@tables_option
@json_option
@log_options
@click.pass_context
def once(
    context: click.Context, config: str | None, tables: tuple[str, ...], as_json: bool, log_format: str, log_level: str
) -> None:
    """
    One tick of each table, for cron and functions; exit code 3 or 4 when one could not.

    \b
    Example:
      bookkeeper once --config bookkeeper.toml --json
    """
    from bookkeeper.runner import close, turn

    settings = settings_of(config)
    logs.set_up(log_format, log_level)
    slots = _slots(settings, tables)
    turns = [(slot, turn(slot, settings.bookkeeper, utc_now())) for slot in slots]
    for slot in slots:
        close(slot)
    show_rows([_row(slot, done) for slot, done in turns], as_json)
    worst = max((_code(slot) for slot in slots), default=0)
    context.exit(worst)


def _row(slot: "Slot", done: Any) -> dict[str, Any]:
    if done is None:
        return {"table": slot.table, "outcome": slot.trouble or "another bookkeeper is at work"}
    committed = asdict(done.commit) if done.commit else {}
    return {
        "table": slot.table,
        "outcome": "committed" if done.commit else "nothing to do",
        "txlogs": committed.get("txlogs", 0),
        "files": committed.get("files", 0),
        "rows": committed.get("rows", 0),
        "rejected": len(done.rejected),
        "waiting": done.waiting,
        "dropped files": done.dropped_files,
        "snapshot": committed.get("snapshot_id"),
    }


def _code(slot: "Slot") -> int:
    from bookkeeper.core import errors

    kind = getattr(errors, slot.trouble, None)
    if not slot.trouble:
        return 0
    if kind is None:
        return REFUSED
    return HALTED if issubclass(kind, errors.Halt) else UNAVAILABLE


COMMANDS = (run, once)
