"""
`bookkeeper lag`: how far each consumer is behind.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import click

from bookkeeper.cli.consumers import standings_of
from bookkeeper.cli.context import Opened, opened, utc_now
from bookkeeper.console.errors import Command
from bookkeeper.console.options import DURATION, common
from bookkeeper.console.output import show_rows


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
    from bookkeeper.console.stopping import Stop

    there = opened(config, table)
    if watch is None:
        show_lag(there, as_json, utc_now)
    else:
        repeat(lambda: show_lag(there, as_json, utc_now), watch, Stop.on_signals().wait)


def repeat(show: Callable[[], None], pause: timedelta, wait: Callable[[float], bool]) -> None:
    """
    Show, wait, and show again until `wait` says stop.
    """
    show()
    while not wait(pause.total_seconds()):
        click.echo("")
        show()


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
