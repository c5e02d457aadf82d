"""
`bookkeeper lag`: how far each consumer is behind.
"""

import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.cli.consumers import standings_of
from bookkeeper.cli.context import Opened, opened, utc_now
from bookkeeper.console.colour import BOLD, FAINT, as_wanted, painted
from bookkeeper.console.errors import Command
from bookkeeper.console.options import DURATION, common
from bookkeeper.console.output import show_rows
from bookkeeper.console.output import table as rule

if TYPE_CHECKING:
    from bookkeeper.console.signals import StopSignal


@click.command(cls=Command, short_help="How far each consumer is behind.")
@common
@click.option("--watch", type=DURATION, metavar="PAUSE", help="Show it again after each pause, until stopped.")
def lag(config: str | None, table: str | None, as_json: bool, watch: timedelta | None) -> None:
    """
    How far each consumer is behind: snapshots, files, rows and bytes unread, and the age of the oldest of them.

    \b
    Example:
      bookkeeper lag --table events --json
      bookkeeper lag --watch 5s
    """
    from bookkeeper.console.signals import StopSignal

    there = opened(config, table)
    if watch is None:
        show_lag(there, as_json, utc_now)
    elif sys.stdout.isatty() and sys.stdin.isatty() and not as_json:
        live(there, watch, StopSignal.on_signals())
    else:
        repeat(lambda: show_lag(there, as_json, utc_now), watch, StopSignal.on_signals().wait)


def repeat(show: Callable[[], None], pause: timedelta, wait: Callable[[float], bool]) -> None:
    """
    Show, wait, and show again until `wait` says stop.
    """
    show()
    while not wait(pause.total_seconds()):
        click.echo("")
        show()


def live(there: Opened, pause: timedelta, stop: "StopSignal") -> None:
    """
    Draw it again and again on a terminal, until q or ^C; trouble that passes is shown, and waited out.
    """
    from bookkeeper.console.screen import QUIT, Screen
    from bookkeeper.errors import Retry

    keys = [""]
    with Screen() as screen:

        def woken() -> bool:
            keys[0] = screen.key()
            return bool(keys[0]) or screen.resized()

        while not set(keys[0]) & QUIT:
            try:
                rows = lag_rows(there, utc_now())
                drawn = rule(rows, paint=True) if rows else ["no consumer is registered"]
            except Retry as error:
                drawn = [f"waiting: {error}"]
            head = (
                f"{painted(f'lag of {there.table.name}', BOLD)}  {utc_now():%H:%M:%S} UTC  {painted('q ends', FAINT)}"
            )
            screen.draw(as_wanted([head, "", *drawn]))
            if stop.wait(pause.total_seconds(), screen.wakes, woken):
                return


def show_lag(there: Opened, as_json: bool, clock: Callable[[], datetime]) -> None:
    """
    One row per consumer.
    """
    show_rows(lag_rows(there, clock()), as_json, nothing="no consumer is registered")


def lag_rows(there: Opened, now: datetime) -> list[dict[str, Any]]:
    """
    The lag of every consumer; None where nobody can tell.
    """
    from dataclasses import asdict

    from bookkeeper.streams.lag import added_files
    from bookkeeper.streams.lag import lag as lag_of

    found, table = standings_of(there)
    added, rows = added_files(table.io), []
    for standing in found:
        behind = lag_of(standing, table.metadata, added, now)
        counts = asdict(behind) if behind else dict.fromkeys(("snapshots", "files", "rows", "bytes", "behind"))
        rows.append({"consumer": standing.name, "state": standing.state, **counts})
    return rows


COMMANDS = (lag,)
