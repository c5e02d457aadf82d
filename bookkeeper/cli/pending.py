"""
`bookkeeper pending` and `bookkeeper rejected`: what waits, and what was refused. They only read.
"""

from typing import TYPE_CHECKING, Any

import click

from bookkeeper.cli.context import Opened, opened, utc_now
from bookkeeper.console.errors import Command
from bookkeeper.console.options import common
from bookkeeper.console.output import say, show_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from bookkeeper.contract.names import TxlogName
    from bookkeeper.contract.txlog_folder import Folder, Found
    from bookkeeper.errors import BookkeeperError
    from bookkeeper.ledger.view import View


@click.command(cls=Command, short_help="List txlogs and rewrites that are not committed yet.")
@common
def pending(config: str | None, table: str | None, as_json: bool) -> None:
    """
    List published txlogs that are not committed yet, oldest first; then pending rewrites, if there are any.

    Of a txlog that is held, and of those behind it, `held` says why: they stay pending until a person acts. The oldest
    1,000 are looked at.

    \b
    Example:
      bookkeeper pending --table events --json
    """
    from bookkeeper.tick.select import in_order

    there, now = opened(config, table), utc_now()
    found = there.folder.pending()
    held = _held(there, found)
    txlogs: list[dict[str, Any]] = [
        {
            "writer": item.name.writer,
            "sequence": item.name.sequence,
            "age": now - item.modified,
            "bytes": item.size,
            "txlog": str(item.name),
            "held": _why_held(item.name, held),
        }
        for item in in_order(found)
    ]
    _show(txlogs, _pending_rewrites(there, now), as_json, "no txlog is pending")


def _held(there: Opened, found: "Sequence[Found]") -> "Mapping[TxlogName, BookkeeperError]":
    """The held txlogs among the pending ones; none while the table is halted, or where they cannot be looked at."""
    from bookkeeper.errors import BookkeeperError

    if not found:
        return {}
    try:
        return held_in(there, there.view(), found)
    except BookkeeperError as error:
        say(f"what is held is unknown: {error}")
        return {}


def held_in(there: Opened, view: "View", found: "Sequence[Found]") -> "Mapping[TxlogName, BookkeeperError]":
    """
    The held txlogs among the pending ones of a table that was loaded. Raises StorageUnavailable.
    """
    from bookkeeper.commands.held import held_txlogs
    from bookkeeper.config.units import epoch_ms

    waiting = [item for item in found if not view.marks.is_in(item.name)]
    return held_txlogs(there.folder, there.ledger, view, there.table, waiting, epoch_ms(utc_now()))


def _why_held(name: "TxlogName", held: "Mapping[TxlogName, BookkeeperError]") -> str | None:
    if (error := held.get(name)) is not None:
        return f"{error} {error.hint}" if error.hint else str(error)
    before = [other for other in held if other.incarnation_key == name.incarnation_key and other < name]
    return f"waits for {min(before)}" if before else None


def _pending_rewrites(there: Opened, now: Any) -> list[dict[str, Any]]:
    """Each with the snapshot that it read and its numbers of files, None where it cannot be read."""
    from bookkeeper.commands.rewrites import read_pending
    from bookkeeper.contract.rewrite import Rewrite

    rows = []
    for item, found in read_pending(there.folder, there.table.max_txlog_bytes):
        read = found if isinstance(found, Rewrite) else None
        rows.append(
            {
                "rewrite": item.name,
                "age": now - item.modified,
                "bytes": item.size,
                "base": read and read.base.snapshot_id,
                "replaces": read and len(read.replaced),
                "adds": read and len(read.added),
                "trouble": None if read else f"{type(found).__name__}: {found}",
            }
        )
    return rows


@click.command(cls=Command, short_help="List rejected txlogs, rewrites and requests.")
@common
def rejected(config: str | None, table: str | None, as_json: bool) -> None:
    """
    List rejected txlogs, rewrites and requests for columns with their reasons.

    A rejected rewrite needs nothing: its compactor plans anew, and it is deleted when it is orphan-age old. A request
    for a column is deleted after ten minutes; then writers may ask again.

    \b
    Example:
      bookkeeper rejected --table events
    """
    from bookkeeper.contract.pending_rewrites import rejected_rewrites
    from bookkeeper.contract.tray import FoundObject
    from bookkeeper.contract.txlog_folder import Found

    folder, now = opened(config, table).folder, utc_now()
    found: list[Found | FoundObject] = [*folder.rejected(), *rejected_rewrites(folder)]
    rows = [{"txlog": str(item.name), "age": now - item.modified, **_why(folder, item.name)} for item in found]
    _show(rows, _refused_requests(folder, now), as_json, "no txlog is rejected")


def _show(rows: list[dict[str, Any]], others: list[dict[str, Any]], as_json: bool, nothing: str) -> None:
    """The others, which have columns of their own, are a second table."""
    if as_json:
        show_rows([*rows, *others], as_json)
        return
    show_rows(rows, as_json, nothing=nothing)
    if others:
        say("")
        show_rows(others, as_json)


def _refused_requests(folder: "Folder", now: "datetime") -> list[dict[str, Any]]:
    """Each with what it asks for, None where that cannot be read."""
    from bookkeeper.contract.column_requests import TRAY, read_refused

    found = TRAY.rejected(folder)
    asked = read_refused(folder, [item.name for item in found])
    rows = []
    for item in found:
        change, column, kind = asked.get(item.name) or (None, None, None)
        about = {"change": change, "column": column, "type": kind, "age": now - item.modified}
        rows.append({"request": item.name, **about, **_why(folder, item.name)})
    return rows


def _why(folder: "Folder", name: object) -> dict[str, Any]:
    reason = folder.reason(str(name))
    return {"error": reason.get("error"), "reason": reason.get("reason"), "hint": reason.get("hint") or None}


COMMANDS = (pending, rejected)
