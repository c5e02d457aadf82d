"""
`bookkeeper tail`: rows as they become visible.
"""

import base64
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.cli.context import settings_of, utc_now
from bookkeeper.config.units import duration
from bookkeeper.console import completing
from bookkeeper.console.errors import Command
from bookkeeper.console.options import DURATION, config_option, instant, pick_table, similar
from bookkeeper.console.output import plain, printable, say
from bookkeeper.console.pipe import Pipe

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from bookkeeper.config.settings import Settings
    from bookkeeper.consumers.consumer import Consumer
    from bookkeeper.consumers.tail import Follower, Position

#: of a batch with --consumer
ROWS = 500
CATCH_UP, SKIP, RESTART = LOST = ("catch-up", "skip", "restart")
Shape = Callable[[dict[str, Any]], str]
_LOST = (
    "--from beginning shows all that is still in the table; `bookkeeper consumers add NAME --snapshot current "
    "--ttl 2h` makes the reaper wait for you."
)
_SUCH_AS = "Such as --from 2026-01-31T12:00:00Z or --from 10m."


@click.command(cls=Command, short_help="Print rows as they become visible.")
@click.argument("table", required=False, shell_complete=completing.tables)
@config_option
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    help="beginning (all rows), oldest (what the kept snapshots added), end, a time with its zone, an age (10m), a "
    "SNAPSHOT (after it), or a position that an earlier tail printed. Default: end; with --exit or --consumer: "
    "beginning.",
)
@click.option("-n", "--count", type=click.IntRange(min=1), metavar="N", help="End after N rows.")
@click.option("-e", "--exit", "leave", is_flag=True, help="End when all rows are shown, instead of waiting for more.")
@click.option(
    "--consumer",
    metavar="NAME",
    help="Go on where the last tail of this NAME ended; the reaper keeps what it has not shown. At least once: a kill "
    "shows up to 500 rows again. --from is where a new one begins.",
)
@click.option(
    "--lost",
    type=click.Choice(LOST),
    help="With --consumer: what to do where snapshots are expired that it has not read. catch-up shows what of them is "
    "live, if no rewrite mixed it with other rows; skip goes on with the oldest that is kept; restart shows all rows "
    "of the table again. Without it tail ends with exit code 1.",
)
@click.option("--columns", metavar="A,B", help="Only these columns, in this order.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line instead of text for people.")
@click.option("--base64", "in_base64", is_flag=True, help="Binary values as base64, not as text.")
@click.option(
    "--every", type=DURATION, default="1s", show_default=True, help="Pause between two reads of the table's metadata."
)
def tail(table: str | None, config: str | None, as_json: bool, in_base64: bool, **how: Any) -> None:
    """
    Print the rows of TABLE as they become visible, each once, in the order they were committed.

    At the end its position is on stderr: with that as --from it continues with the next row. Only appended rows are
    shown, also those that retention drops meanwhile. The reaper waits for it only with --consumer: when snapshots were
    expired before they were read, it reports that and ends with exit code 1.

    \b
    Example:
      bookkeeper tail events --from beginning --count 5
      bookkeeper tail events --from 10m --json --exit
      bookkeeper tail events --columns key,value --exit --from 2026-01-31T12:00:00Z
      bookkeeper tail events --consumer nightly --exit --json
      bookkeeper tail events --consumer nightly --lost catch-up
    """
    from bookkeeper.catalogs.commit import load_table
    from bookkeeper.catalogs.open import open_catalog
    from bookkeeper.console.signals import StopSignal
    from bookkeeper.consumers.selection import ALL, Selection
    from bookkeeper.consumers.tail import Follower
    from bookkeeper.contract.known_table import advising

    settings = settings_of(config)
    about = pick_table(settings, table)
    shape = _json_line(in_base64) if as_json else _text_line(in_base64)
    if how["lost"] and not how["consumer"]:
        raise click.UsageError("--lost needs --consumer")
    if how["consumer"]:
        return _tail_as_consumer(settings, about.name, shape, how)
    with advising(settings.catalog, about):
        catalog, stop = open_catalog(settings.catalog), StopSignal.on_signals()
        first = load_table(catalog, about.identifier)
    columns = _columns(first, how["columns"])
    with _advising_on_loss():
        place = start_of(first, how["start"] or ("beginning" if how["leave"] else "end"), utc_now())
    if not as_json and sys.stdout.isatty():
        say("\t".join(columns))
    # A line of JSON names its columns: later ones are shown, too, and a dropped one ends nothing.
    selection = ALL if as_json and not how["columns"] else Selection.of(first, columns)
    follower = Follower(lambda: load_table(catalog, about.identifier), selection, place, str(first.metadata.table_uuid))
    pump = Pump(follower, shape, Pipe(), stop.wait, how["every"], how["count"], how["leave"])
    try:
        with _advising_on_loss(), closing(follower):
            pump.run()
    finally:
        say(f"position: {pump.seen}")


@contextmanager
def _advising_on_loss() -> Iterator[None]:
    """What a reader without a name can do when rows after its position are unknown."""
    from bookkeeper.errors import PlaceExpired, RolledBack

    try:
        yield
    except (PlaceExpired, RolledBack) as exc:
        raise type(exc)(f"{exc}", hint=_LOST) from exc


def _tail_as_consumer(settings: "Settings", table: str, shape: Shape, how: dict[str, Any]) -> None:
    from bookkeeper.console.signals import StopSignal
    from bookkeeper.consumers.consumer import Consumer, Limits
    from bookkeeper.errors import Retry
    from bookkeeper.format.python_rows import python_rows

    stop, pipe = StopSignal.on_signals(), Pipe()

    def wait(seconds: float) -> bool:
        return pipe.gone() or stop.wait(seconds)

    columns = [name.strip() for name in how["columns"].split(",")] if how["columns"] else []
    start = _consumer_start(how["start"], utc_now())
    with Consumer.open(settings, table, name=how["consumer"], start=start, columns=columns, wait=wait) as consumer:
        _go_on(consumer, how["lost"])
        consumer.limits, left, waiting_for, done = Limits(min(ROWS, how["count"] or ROWS)), how["count"], "", False
        while not done:
            try:
                for batch in consumer.batches(follow=not how["leave"], every=how["every"]):
                    for row in python_rows(batch.table.select(columns or batch.table.column_names)):
                        pipe.write(shape(row))
                    # Only what the reader has taken: the rest is shown again.
                    if not pipe.flush():
                        return
                    consumer.commit(batch)
                    left = left and left - batch.table.num_rows
                    if left == 0 or wait(0):
                        return
                    consumer.limits = Limits(min(ROWS, left or ROWS))
                done = True
            except Retry as error:
                waiting_for = _waiting(error, waiting_for, how["leave"])
                done = wait(how["every"].total_seconds())


def _go_on(consumer: "Consumer", lost: str | None) -> None:
    """What the option says where the consumer cannot go on from its place."""
    if lost is None or (error := consumer.lost()) is None:
        return
    say(f"{error}")
    if lost == SKIP:
        say(f"skipped: {consumer.skip_lost()}")
    elif lost == CATCH_UP:
        say(f"caught up: it goes on at {consumer.catch_up().brief}")
    else:
        say(f"restarted: it goes on at {consumer.restart().brief}")


def _waiting(error: Exception, before: str, leave: bool) -> str:
    """Shows an error once; raises it when the command is to end."""
    if leave:
        raise error
    if str(error) != before:
        say(f"waiting: {error}")
    return str(error)


def _consumer_start(text: str | None, now: datetime) -> str | datetime:
    from bookkeeper.errors import NotPossible

    if text in (None, "beginning", "oldest", "end"):
        return text or "beginning"
    assert text is not None
    try:
        return _moment(text, now)
    except ValueError as exc:
        what = "beginning, oldest, end, a time or an age is expected with --consumer"
        raise NotPossible(f"--from {text}: {what}", hint=_SUCH_AS) from exc


def _moment(text: str, now: datetime) -> datetime:
    """The time that an age or a time says; raises ValueError, and ConfigInvalid for one to come or without a zone."""
    from bookkeeper.consumers.source import checked_time

    if text[-1:].isalpha() and "T" not in text:
        return now - duration(text)
    instant(text)
    return checked_time(datetime.fromisoformat(text), now)


def _columns(table: "Table", wanted: str | None) -> list[str]:
    from bookkeeper.errors import NotPossible

    known = [field.name for field in table.schema().fields]
    chosen = [name.strip() for name in wanted.split(",")] if wanted else known
    for name in chosen:
        if name not in known:
            raise NotPossible(
                f"--columns {name}: no such column in {'.'.join(table.name())}", hint=similar(name, known)
            )
    return chosen


def start_of(table: "Table", text: str, now: datetime) -> "Position":
    """
    The position that --from names; raises NotPossible: PlaceExpired, RolledBack.
    """
    from bookkeeper.consumers.place_on_main import ahead, since
    from bookkeeper.consumers.source import STARTS
    from bookkeeper.consumers.tail import Position
    from bookkeeper.errors import NotPossible
    from bookkeeper.history.main_history import MainHistory

    history = MainHistory(table.metadata)
    if text in STARTS:
        return Position.of(STARTS[text](history))
    if (position := Position.parse(text)) is not None:
        ahead(history, position.before(history.table))  # refuses what is not there
        return position
    try:
        return Position.of(since(history, _moment(text, now)))
    except ValueError as exc:
        what = "beginning, oldest, end, a time, an age, a snapshot's id or a position"
        raise NotPossible(f"--from {text}: {what} is expected", hint=_SUCH_AS) from exc


@dataclass
class Pump:
    """Rows from the table to stdout; `wait` sleeps and returns whether to stop, `seen` is the position on stdout."""

    follower: "Follower"
    shape: Shape
    pipe: Pipe
    wait: Callable[[float], bool]
    every: timedelta = timedelta(seconds=1)
    count: int | None = None
    leave: bool = False
    seen: "Position | None" = None
    shown: int = 0
    #: the last error that was shown
    waiting_for: str = ""
    #: of the last row that was written, if not yet handed over
    last: "Position | None" = None

    def run(self) -> None:
        """
        Until all is shown, the reader is gone, or a stop is requested.
        """
        self.seen = self.last = self.follower.position
        while not (self._round() or self.leave or self.pipe.gone()):
            if self.wait(self.every.total_seconds()):
                return

    def _round(self) -> bool:
        """Shows what is new; returns whether that was all."""
        from bookkeeper.errors import Retry

        try:
            done = self._news()
        except Retry as error:
            if self.leave:
                raise
            if str(error) != self.waiting_for:
                say(f"waiting: {error}")
            self.waiting_for = str(error)
            return False
        self.waiting_for = ""
        return done

    def _news(self) -> bool:
        try:
            for row, position in self.follower.news():
                if row is not None and self._last(row, position):
                    return True
                self.last = position
            return False
        finally:
            if self.pipe.flush():
                self.seen = self.last
            for snapshot in self.follower.overwrites:
                say(f"snapshot {snapshot} is an overwrite: the rows it put in place of others are not shown")
            self.follower.overwrites.clear()

    def _last(self, row: dict[str, Any], position: "Position") -> bool:
        """Writes a row; returns whether it was the last one."""
        self.shown += 1
        if self.pipe.write(self.shape(row)):
            self.seen = position
        self.last = position
        return self.shown == self.count or self.pipe.closed or self.wait(0)


def _text_line(in_base64: bool) -> Shape:
    return lambda row: "\t".join(_cell(value, in_base64) for value in row.values())


def _cell(value: Any, in_base64: bool) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict | list | tuple):
        return _dumped(value, in_base64)
    return printable(str(_plain(value, in_base64)))


def _json_line(in_base64: bool) -> Shape:
    return lambda row: _dumped(row, in_base64)


def _dumped(value: Any, in_base64: bool) -> str:
    try:
        return json.dumps(value, default=lambda item: _plain(item, in_base64), ensure_ascii=False, allow_nan=False)
    except ValueError:  # JSON has no NaN and no infinity
        return json.dumps(_finite(value), default=lambda item: _plain(item, in_base64), ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any, in_base64: bool) -> Any:
    if isinstance(value, bytes) and in_base64:
        return base64.b64encode(value).decode()
    return plain(value)


COMMANDS = (tail,)
