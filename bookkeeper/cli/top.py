"""
`bookkeeper top`: all tables at a glance, again and again.

It reads folders and the catalog itself, so it needs no running bookkeeper. If a bookkeeper answers at `listen`, its
status adds how long commits take, how soon rows are visible, and why it does not commit.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.cli.consumers import consumer_states
from bookkeeper.cli.context import Opened, settings_of, several_tables, tables_option, utc_now
from bookkeeper.cli.status import deletes
from bookkeeper.config.units import format_rough, from_epoch_ms
from bookkeeper.console.colour import BOLD, FAINT, GREEN, RED, YELLOW, as_wanted, painted
from bookkeeper.console.errors import Command
from bookkeeper.console.options import DURATION, config_option, json_option
from bookkeeper.console.output import show_rows
from bookkeeper.console.output import table as rule

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pyiceberg.table.metadata import TableMetadata

    from bookkeeper.config.settings import Settings, Table
    from bookkeeper.console.screen import Screen
    from bookkeeper.console.signals import StopSignal
    from bookkeeper.contract.txlog_folder import Found
    from bookkeeper.folds.stats import EqualityDeletes
    from bookkeeper.ledger.view import View

Row = dict[str, Any]
Daemon = Mapping[str, Mapping[str, Any]]
#: rates are of the last minute
WINDOW = timedelta(minutes=1)
#: a txlog that is pending for longer means that no bookkeeper commits
LATE = timedelta(minutes=1)
#: two clocks that date one commit differ by less
_SAME = timedelta(seconds=3)
_ANSWER_SECONDS = 1.0
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
@click.option("--every", type=DURATION, default="2s", show_default=True, help="Pause between two refreshes.")
@click.option("--once", is_flag=True, help="Show it once and end, as without a terminal.")
@json_option
def top(
    config: str | None, tables: tuple[str, ...], listen: str | None, every: timedelta, once: bool, as_json: bool
) -> None:
    """
    Watch all tables: what is pending and how old, rates, last commit, slowest consumer, and what is wrong.

    It reads folders and the catalog itself, so it works without a bookkeeper. A bookkeeper that serves its page adds
    how long commits take and how soon rows are visible. q ends it, the space bar refreshes at once.

    \b
    Example:
      bookkeeper top --once
      bookkeeper top --table events --every 1s
      bookkeeper top --json
    """
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
        watch(screen, Refresher(overview.rows), every, stop, lambda: datetime.now().astimezone())


class Refresher:
    """Reads the rows in a thread of its own, so that keys work while a catalog does not answer."""

    def __init__(self, read: "Callable[[], list[Row]]") -> None:
        self._read = read
        self._asked: Future[list[Row]] | None = None
        #: as they were read last
        self.rows: list[Row] | None = None

    def ask(self) -> None:
        """Reads the rows again, unless it is reading them now."""
        from bookkeeper.threads import begin

        if self._asked is None:
            self._asked = begin(self._read, "refresh")

    def take(self) -> bool:
        """Takes what was read; returns whether it is reading now. Raises what reading raised."""
        if self._asked is None or not self._asked.done():
            return self._asked is not None
        asked, self._asked = self._asked, None
        self.rows = asked.result()
        return False


def watch(
    screen: "Screen", refresher: Refresher, every: timedelta, stop: "StopSignal", clock: Callable[[], datetime]
) -> None:
    """
    Draw the refresher's rows until q, ^C or the end of the terminal; raises the refresher's error.
    """
    from bookkeeper.console.screen import QUIT

    refresher.ask()
    asked, keys = clock(), [""]

    def woken() -> bool:
        keys[0] = screen.key()
        return bool(keys[0]) or screen.resized()

    while True:
        # Read before the rows are drawn: rows that arrive after the drawing would only be drawn after a pause.
        busy = refresher.take()
        screen.draw(lines(refresher.rows, clock(), every, screen.size.lines))
        # Short waits while it reads, so that new rows are drawn at once.
        pause = 0.05 if busy else max((asked + every - clock()).total_seconds(), 0.0)
        if stop.wait(pause, screen.wakes, woken) or set(keys[0]) & QUIT:
            return
        if clock() >= asked + every or " " in keys[0]:
            asked = clock()
            refresher.ask()
        keys[0] = ""


def lines(rows: "Sequence[Row] | None", now: datetime, every: timedelta, height: int) -> list[str]:
    """
    The lines to draw; `rows` is None before the first refresh.
    """
    head = painted("bookkeeper top", BOLD) + f"  {now:%H:%M:%S}"
    if rows is None:
        return as_wanted([head, "", "reading ..."])
    bad = [row for row in rows if row["trouble"]]
    states = f"{len(rows)} table{'s' * (len(rows) != 1)}, "
    states += painted(f"{len(bad)} in trouble", RED) if bad else painted("all well", GREEN)
    head += f"  {states}  {painted(f'q ends, space refreshes at once, else every {every.total_seconds():g} s', FAINT)}"
    drawn = [head, "", *rule(_shown(rows), paint=True)]
    room = height - len(bad) - 2 if bad else height
    if len(drawn) > max(room, 5):
        left = len(drawn) - max(room, 5) + 1
        drawn = [*drawn[: max(room, 5) - 1], painted(f"... {left} more; --table shows some of them", FAINT)]
    hints = [f"{painted(row['table'], YELLOW)}: {row['trouble']}. {row['hint'] or ''}" for row in bad]
    return as_wanted([*drawn, *([""] if hints else []), *hints])


def _shown(rows: "Sequence[Row]") -> "list[dict[str, Any]]":
    """The columns for a person: only those with a value in some row."""
    wanted = [key for key in rows[0] if key not in ("hint", "rejected")] if rows else []
    filled = [key for key in wanted if key in ("table", "pending") or any(row[key] is not None for row in rows)]
    return [{_UNITS.get(key, key): row[key] for key in filled} for row in rows]


def ask(listen: str) -> Daemon:
    """
    The status of each table by the bookkeeper at `listen`; empty when none answers there.
    """
    from http.client import HTTPException
    from urllib.request import ProxyHandler, build_opener

    if not listen or listen.endswith(":0"):
        return {}
    where = listen.replace("0.0.0.0", "127.0.0.1")
    try:
        # On this machine or beside it: never through a proxy.
        with build_opener(ProxyHandler({})).open(f"http://{where}/status.json", timeout=_ANSWER_SECONDS) as answer:
            status = json.load(answer)
        return {item["table"]: item for item in status["tables"]}
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return {}


@dataclass
class Overview:
    """The tables of one catalog; `rows` reads each of them."""

    settings: "Settings"
    tables: "Sequence[Table]"
    clock: Callable[[], datetime]
    asked: Callable[[], Daemon] = dict
    _catalog: Any = None
    _opened: dict[str, Opened] = field(default_factory=dict)
    #: of keyed tables: what was read of their manifests
    _deletes: "dict[str, EqualityDeletes]" = field(default_factory=dict)

    def rows(self) -> list[Row]:
        """
        One row per table, those in trouble first; an error of a table is in its row.
        """
        daemon = self.asked()
        found = [self._row(table, daemon.get(table.name, {})) for table in self.tables]
        return sorted(found, key=lambda row: (row["trouble"] is None, -(row["pending"] or 0), row["table"]))

    def _row(self, table: "Table", daemon: Mapping[str, Any]) -> Row:
        from bookkeeper.contract.known_table import pending_of
        from bookkeeper.errors import BookkeeperError, ConfigInvalid

        row: Row = {"table": table.name, **dict.fromkeys(_COLUMNS)}
        try:
            there = self._open(table)
            return _fill(row, there, self._deletes, self.clock(), daemon)
        except ConfigInvalid:
            raise
        except BookkeeperError as error:
            self._opened.pop(table.name, None)  # a person may repair its folder or its location
            if row["pending"] is None and (waiting := pending_of(self.settings.catalog.properties, table)) is not None:
                row |= _pending(waiting, self.clock())
            return row | {"trouble": f"{type(error).__name__}: {error}", "hint": error.hint or None}

    def _open(self, table: "Table") -> Opened:
        from bookkeeper.catalogs.open import open_catalog
        from bookkeeper.contract.known_table import advising
        from bookkeeper.ledger.ledger import Ledger
        from bookkeeper.serve.open import open_folder

        with advising(self.settings.catalog, table):
            self._catalog = self._catalog or open_catalog(self.settings.catalog)
            if table.name not in self._opened:
                ledger = Ledger(self._catalog, table.identifier, self.clock)
                self._opened[table.name] = Opened(self.settings, table, open_folder(self._catalog, table), ledger)
        return self._opened[table.name]


_COLUMNS = (
    *("pending", "oldest", "rows_per_s", "files_per_s", "last_commit", "commit", "visible"),
    *("snapshots", "rejected", "unfolded", "lag", "consumer", "trouble", "hint"),
)


def _fill(
    row: Row, there: Opened, known: "dict[str, EqualityDeletes]", now: datetime, daemon: Mapping[str, Any]
) -> Row:
    from bookkeeper.errors import BookkeeperError

    # First what needs no marks: it is shown for a halted table too.
    listed = there.folder.pending()
    row["rejected"] = len(there.folder.rejected())
    row |= _pending(listed, now)
    view = there.view()
    row |= _pending([item for item in listed if not view.marks.is_in(item.name)], now)
    row |= _pace(view.metadata, now)
    row |= _from_daemon(daemon, view.metadata)
    row |= _unfolded(known, there, view, now, row)
    try:
        row |= _slowest(there, now)
    except BookkeeperError as error:
        row["trouble"] = row["trouble"] or f"consumers: {error}"
    if row["trouble"] is None and row["oldest"] is not None and row["oldest"] > max(LATE, 2 * there.table.window):
        row |= {"trouble": "no bookkeeper commits", "hint": "Is a bookkeeper running? Its log says what stops it."}
    if row["trouble"] is None and row["rejected"]:
        row |= {"trouble": f"{row['rejected']} rejected", "hint": "`bookkeeper rejected` says why."}
    return row


def _pending(waiting: "Sequence[Found]", now: datetime) -> Row:
    return {"pending": len(waiting), "oldest": max((now - item.modified for item in waiting), default=None)}


def _pace(metadata: "TableMetadata", now: datetime) -> Row:
    """Rates of the last minute, from the snapshots' summaries."""
    from bookkeeper.history.main_history import counted, is_append
    from bookkeeper.ledger.view import TXLOGS

    files = rows = 0
    last: datetime | None = None
    for snapshot in reversed(metadata.snapshots):
        at = from_epoch_ms(snapshot.timestamp_ms)
        # A commit of deletes alone is no append.
        if is_append(snapshot) or (snapshot.summary and TXLOGS in snapshot.summary.additional_properties):
            last = last or at
        if is_append(snapshot) and now - at < WINDOW:
            files += counted(snapshot, "added-data-files")
            rows += counted(snapshot, "added-records")
        if last and now - at >= WINDOW:
            break
    seconds = WINDOW.total_seconds()
    ago = None if last is None else max(now - last, timedelta(0))
    rates = {"rows_per_s": round(rows / seconds, 1), "files_per_s": round(files / seconds, 1)}
    return {**rates, "last_commit": ago, "snapshots": len(metadata.snapshots)}


def _unfolded(known: "dict[str, EqualityDeletes]", there: Opened, view: "View", now: datetime, row: Row) -> Row:
    """Of a keyed table, how many equality delete files wait to be folded; trouble when one waits for too long."""
    from bookkeeper.contract import keyed
    from bookkeeper.folds.stats import behind_after

    if keyed.PROPERTY not in view.metadata.properties:
        return {}
    found = deletes(known, there, view, now)
    oldest, late = found["oldest_unfolded"], behind_after(there.table)
    if row["trouble"] is None and oldest is not None and oldest > late:
        trouble = f"deletes not folded for {format_rough(oldest)}"
        return {"unfolded": found["unfolded"], "trouble": trouble, "hint": "`bookkeeper fold --dry-run` says why."}
    return {"unfolded": found["unfolded"]}


def _from_daemon(daemon: Mapping[str, Any], metadata: "TableMetadata") -> Row:
    """What the bookkeeper's status adds, if it commits to this very table."""
    if not _is_same(daemon.get("last_commit"), metadata):
        return {}
    found: Row = {}
    for name in ("commit", "visible"):
        seconds = [item for item in (daemon.get("plots") or {}).get(name) or () if item is not None]
        found[name] = timedelta(seconds=seconds[-1]) if seconds else None
    if daemon.get("why"):
        found |= {"trouble": daemon["why"], "hint": daemon.get("hint") or None}
    return found


def _is_same(last_commit: str | None, metadata: "TableMetadata") -> bool:
    if not last_commit:
        return False
    at_ms, most_ms = datetime.fromisoformat(last_commit).timestamp() * 1000, _SAME.total_seconds() * 1000
    return any(abs(item.timestamp_ms - at_ms) < most_ms for item in reversed(metadata.snapshots))


def _slowest(there: Opened, now: datetime) -> Row:
    """The consumer that is furthest behind, and the worst state of any."""
    from bookkeeper.consumers.lag import added_files, lag
    from bookkeeper.history.consumer_state import AT_RISK, CUT_OFF, STALLED, TO_MEND, UNREADABLE

    found, table = consumer_states(there)
    added = added_files(table.io)
    behind = [(known.behind, item.name) for item in found if (known := lag(item, table.metadata, added, now))]
    row: Row = {}
    if behind:
        row["lag"], row["consumer"] = max(behind)
    bad = next((item for item in found if item.state in (CUT_OFF, TO_MEND, STALLED, UNREADABLE)), None)
    bad = bad or next((item for item in found if item.first is not None and item.used >= AT_RISK), None)
    if bad is not None:
        state = "at risk" if bad.at_risk and bad.state not in (CUT_OFF, TO_MEND, STALLED, UNREADABLE) else bad.state
        row |= {"trouble": f"consumer {bad.name} {state}", "hint": "`bookkeeper consumers` says more."}
    return row


COMMANDS = (top,)
