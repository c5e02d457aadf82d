"""
All tables at a glance, from their folders and the catalog themselves: it needs no running bookkeeper.

Where one answers at `listen`, it adds what only it knows: how long its commits take, how soon rows are visible, and
what keeps it from committing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from bookkeeper.cli.consumers import standings_of
from bookkeeper.cli.context import Opened

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from bookkeeper.config.settings import Settings, Table
    from bookkeeper.core.folder import Found

Row = dict[str, Any]
Daemon = Mapping[str, Mapping[str, Any]]
#: rates are of the last minute
WINDOW = timedelta(minutes=1)
#: after so long a pending txlog says that nobody is at work
LATE = timedelta(minutes=1)
#: two clocks that tell of one commit
_SAME = timedelta(seconds=3)
_ANSWER_SECONDS = 1.0


def ask(listen: str) -> Daemon:
    """
    What a bookkeeper at `listen` says of each table; nothing when none answers there.
    """
    from http.client import HTTPException
    from urllib.request import ProxyHandler, build_opener

    if not listen or listen.endswith(":0"):
        return {}
    where = listen.replace("0.0.0.0", "127.0.0.1")
    try:
        # It is this machine's or a neighbour's: no proxy knows it.
        with build_opener(ProxyHandler({})).open(f"http://{where}/status.json", timeout=_ANSWER_SECONDS) as answer:
            said = json.load(answer)
        return {item["table"]: item for item in said["tables"]}
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return {}


@dataclass
class Overview:
    """The tables of one catalog; `rows` looks at each of them."""

    settings: "Settings"
    tables: "Sequence[Table]"
    clock: Callable[[], datetime]
    asked: Callable[[], Daemon] = dict
    _catalog: Any = None
    _opened: dict[str, Opened] = field(default_factory=dict)

    def rows(self) -> list[Row]:
        """
        One row per table, those in trouble first; trouble with a table is in its row.
        """
        daemon = self.asked()
        found = [self._row(table, daemon.get(table.name, {})) for table in self.tables]
        return sorted(found, key=lambda row: (row["trouble"] is None, -(row["pending"] or 0), row["table"]))

    def _row(self, table: "Table", daemon: Mapping[str, Any]) -> Row:
        from bookkeeper.core.known_table import pending_of
        from bookkeeper.errors import BookkeeperError, ConfigInvalid

        row: Row = {"table": table.name, **dict.fromkeys(_COLUMNS)}
        try:
            there = self._open(table)
            return _fill(row, there, self.clock(), daemon)
        except ConfigInvalid:
            raise
        except BookkeeperError as error:
            self._opened.pop(table.name, None)  # a person may mend its folder or its place
            if row["pending"] is None and (waiting := pending_of(self.settings.catalog.properties, table)) is not None:
                row |= _pending(waiting, self.clock())
            return row | {"trouble": f"{type(error).__name__}: {error}", "hint": error.hint or None}

    def _open(self, table: "Table") -> Opened:
        from bookkeeper.catalogs.open import open_catalog
        from bookkeeper.core.known_table import advising
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
    *("snapshots", "rejected", "lag", "consumer", "trouble", "hint"),
)


def _fill(row: Row, there: Opened, now: datetime, daemon: Mapping[str, Any]) -> Row:
    from bookkeeper.errors import BookkeeperError

    # What can be told of a halted table too comes first.
    listed = there.folder.pending()
    row["rejected"] = len(there.folder.rejected())
    row |= _pending(listed, now)
    view = there.view()
    row |= _pending([item for item in listed if not view.marks.is_in(item.name)], now)
    row |= _pace(view.metadata, now)
    row |= _said(daemon, view.metadata)
    try:
        row |= _slowest(there, now)
    except BookkeeperError as error:
        row["trouble"] = row["trouble"] or f"consumers: {error}"
    if row["trouble"] is None and row["oldest"] is not None and row["oldest"] > max(LATE, 2 * there.table.window):
        row |= {"trouble": "nobody commits", "hint": "Is a bookkeeper running? Its log says what keeps it."}
    if row["trouble"] is None and row["rejected"]:
        row |= {"trouble": f"{row['rejected']} rejected", "hint": "`bookkeeper rejected` says why."}
    return row


def _pending(waiting: "Sequence[Found]", now: datetime) -> Row:
    return {"pending": len(waiting), "oldest": max((now - item.modified for item in waiting), default=None)}


def _pace(metadata: "TableMetadata", now: datetime) -> Row:
    """Rates of the last minute, from what the snapshots' summaries say."""
    from bookkeeper.streams.main_history import counted, is_append

    files = rows = 0
    last: datetime | None = None
    for snapshot in reversed(metadata.snapshots):
        at = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
        if is_append(snapshot):
            last = last or at
            if now - at < WINDOW:
                files += counted(snapshot, "added-data-files")
                rows += counted(snapshot, "added-records")
        if last and now - at >= WINDOW:
            break
    seconds = WINDOW.total_seconds()
    ago = None if last is None else max(now - last, timedelta(0))
    rates = {"rows_per_s": round(rows / seconds, 1), "files_per_s": round(files / seconds, 1)}
    return {**rates, "last_commit": ago, "snapshots": len(metadata.snapshots)}


def _said(daemon: Mapping[str, Any], metadata: "TableMetadata") -> Row:
    """What a bookkeeper knows of this table, if it is this table that it commits to."""
    if not _is_same(daemon.get("last_commit"), metadata):
        return {}
    plots = daemon.get("plots") or {}
    found: Row = {name: _newest(plots.get(theirs)) for name, theirs in (("commit", "commit"), ("visible", "visible"))}
    if daemon.get("why"):
        found |= {"trouble": daemon["why"], "hint": daemon.get("hint") or None}
    return found


def _is_same(last_commit: str | None, metadata: "TableMetadata") -> bool:
    if not last_commit:
        return False
    at_ms, most_ms = datetime.fromisoformat(last_commit).timestamp() * 1000, _SAME.total_seconds() * 1000
    return any(abs(item.timestamp_ms - at_ms) < most_ms for item in reversed(metadata.snapshots))


def _newest(plot: Sequence[float | None] | None) -> timedelta | None:
    value = next((item for item in reversed(plot or ()) if item is not None), None)
    return None if value is None else timedelta(seconds=value)


def _slowest(there: Opened, now: datetime) -> Row:
    """Of the consumers the one that is furthest behind, and what is wrong with any."""
    from bookkeeper.streams.consumer_state import AT_RISK, CUT_OFF, STALLED, TO_MEND, UNREADABLE
    from bookkeeper.streams.lag import added_files, lag

    found, table = standings_of(there)
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
