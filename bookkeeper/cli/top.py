"""
`bookkeeper top`: all tables at a glance, again and again.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.cli.context import settings_of, several_tables, tables_option, utc_now
from bookkeeper.console.colour import BOLD, FAINT, GREEN, RED, YELLOW, as_wanted, painted
from bookkeeper.console.errors import Command
from bookkeeper.console.options import DURATION, config_option, json_option
from bookkeeper.console.output import show_rows, table

if TYPE_CHECKING:
    from bookkeeper.cli.overview import Row
    from bookkeeper.console.screen import Screen
    from bookkeeper.console.signals import StopSignal

_UNITS = {"rows_per_s": "rows/s", "files_per_s": "files/s"}


@click.command(cls=Command, short_help="Watch all tables.")
@config_option
@tables_option
@click.option(
    "--listen",
    envvar="BOOKKEEPER_LISTEN",
    show_envvar=True,
    metavar="HOST:PORT",
    help="Where a bookkeeper serves its page; default: `listen` in the configuration.",
)
@click.option("--every", type=DURATION, default="2s", show_default=True, help="Pause between two looks.")
@click.option("--once", is_flag=True, help="Show it once and end, as it does where no terminal is.")
@json_option
def top(
    config: str | None, tables: tuple[str, ...], listen: str | None, every: timedelta, once: bool, as_json: bool
) -> None:
    """
    Watch all tables: what is pending and how old, rates, last commit, slowest consumer, and what is wrong.

    It looks at folders and catalog itself, so it works without a bookkeeper; from one that serves its page it takes
    how long commits take and how soon rows are visible. q ends it, the space bar looks at once.

    \b
    Example:
      bookkeeper top --once
      bookkeeper top --table events --every 1s
      bookkeeper top --json
    """
    from bookkeeper.cli.overview import Overview, ask
    from bookkeeper.console.screen import Screen
    from bookkeeper.console.signals import StopSignal

    settings = settings_of(config)
    where = settings.bookkeeper.listen if listen is None else listen
    overview = Overview(settings, several_tables(settings, tables), utc_now, partial(ask, where))
    if once or as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        rows = overview.rows()
        show_rows(rows if as_json else _shown(rows), as_json)
        return
    stop = StopSignal.on_signals()
    with Screen() as screen:
        watch(screen, Looker(overview.rows), every, stop, lambda: datetime.now().astimezone())


class Looker:
    """Looks in a thread of its own, so that keys are heard while a catalog does not answer."""

    def __init__(self, rows: "Callable[[], list[Row]]") -> None:
        self._rows = rows
        self._wanted = threading.Event()
        self.rows: list[Row] = []
        self.looked = 0
        self.error: Exception | None = None
        self.busy = False

    def begin(self) -> "Looker":
        """Starts the thread, which ends with the process."""
        threading.Thread(target=self._work, name="look", daemon=True).start()
        return self

    def ask(self) -> None:
        """Looks once more, if it is not looking now."""
        if not self.busy:
            self.busy = True
            self._wanted.set()

    def _work(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            try:
                self.rows = self._rows()
            except Exception as error:  # noqa: BLE001 -- raised again where it is drawn
                self.error = error
            self.looked += 1
            self.busy = False


def watch(
    screen: "Screen", looker: Looker, every: timedelta, stop: "StopSignal", clock: Callable[[], datetime]
) -> None:
    """
    Draw what the looker sees, until q, ^C or the end of the terminal; raises what it raised.
    """
    from bookkeeper.console.screen import QUIT

    looker.begin().ask()
    asked, keys = clock(), [""]

    def woken() -> bool:
        keys[0] = screen.key()
        return bool(keys[0]) or screen.resized()

    while True:
        # Asked before what it saw is drawn: what it sees meanwhile is not drawn yet, and would be only after a pause.
        busy = looker.busy
        if looker.error is not None:
            raise looker.error
        screen.draw(lines(looker.rows if looker.looked else None, clock(), every, screen.size.lines))
        # Short waits while it looks, so that what it saw is shown at once.
        pause = 0.05 if busy else max((asked + every - clock()).total_seconds(), 0.0)
        if stop.wait(pause, screen.wakes, woken) or set(keys[0]) & QUIT:
            return
        if clock() >= asked + every or " " in keys[0]:
            asked = clock()
            looker.ask()
        keys[0] = ""


def lines(rows: "Sequence[Row] | None", now: datetime, every: timedelta, height: int) -> list[str]:
    """
    What is drawn; None for the rows while nothing was seen yet.
    """
    head = painted("bookkeeper top", BOLD) + f"  {now:%H:%M:%S}"
    if rows is None:
        return as_wanted([head, "", "looking ..."])
    bad = [row for row in rows if row["trouble"]]
    states = f"{len(rows)} table{'s' * (len(rows) != 1)}, "
    states += painted(f"{len(bad)} in trouble", RED) if bad else painted("all well", GREEN)
    head += f"  {states}  {painted(f'q ends, space looks at once, else every {every.total_seconds():g} s', FAINT)}"
    drawn = [head, "", *table(_shown(rows), paint=True)]
    room = height - len(bad) - 2 if bad else height
    if len(drawn) > max(room, 5):
        left = len(drawn) - max(room, 5) + 1
        drawn = [*drawn[: max(room, 5) - 1], painted(f"... {left} more; --table shows some of them", FAINT)]
    hints = [f"{painted(row['table'], YELLOW)}: {row['trouble']}. {row['hint'] or ''}" for row in bad]
    return as_wanted([*drawn, *([""] if hints else []), *hints])


def _shown(rows: "Sequence[Row]") -> "list[dict[str, Any]]":
    """The columns that a person needs, and only those that say something."""
    wanted = [key for key in rows[0] if key not in ("hint", "rejected")] if rows else []
    filled = [key for key in wanted if key in ("table", "pending") or any(row[key] is not None for row in rows)]
    return [{_UNITS.get(key, key): row[key] for key in filled} for row in rows]


COMMANDS = (top,)
