"""
`bookkeeper status`, `writers` and `verify`: the state of a table. They only read; `verify --repair` writes.
"""

from typing import TYPE_CHECKING, Any

import click

from bookkeeper.cli.context import Opened, moment, opened, utc_now
from bookkeeper.cli.pending import held_in
from bookkeeper.console.errors import Command, exit_code
from bookkeeper.console.options import common
from bookkeeper.console.output import say, show_record, show_rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from bookkeeper.contract.names import TxlogName
    from bookkeeper.errors import BookkeeperError
    from bookkeeper.folds.stats import EqualityDeletes
    from bookkeeper.ledger.view import View


@click.command(cls=Command, short_help="Show the state of a table.")
@common
@click.pass_context
def status(context: click.Context, config: str | None, table: str | None, as_json: bool) -> None:
    """
    Show the state of a table: what is pending, held, rejected and committed. Exit code 3 when the table is halted.

    Consumers whose record or checkpoint cannot be read are named: expiry keeps snapshots for them, up to `max-hold`.

    Held txlogs stay pending until a person acts; the others go on. `bookkeeper pending` says which, and why.

    \b
    Example:
      bookkeeper status --table events --json
    """
    from bookkeeper.errors import Halt

    there = opened(config, table)
    halted = None
    try:
        record = _status(there)
    except Halt as error:
        halted = error
        waiting = there.folder.pending()  # some may be committed: the marks, which would say so, cannot be trusted
        record = {
            "table": there.table.name,
            "state": f"halted: {error}",
            "hint": error.hint,
            "pending": len(waiting),
            "oldest_pending": max((utc_now() - item.modified for item in waiting), default=None),
        }
    show_record(record, as_json)
    if halted is not None:
        context.exit(exit_code(halted))


def _status(there: Opened) -> dict[str, Any]:
    from bookkeeper.cli.consumers import stopped_members, unreadable_consumers
    from bookkeeper.contract import keyed, marks_json
    from bookkeeper.contract.pending_rewrites import pending_rewrites, rejected_rewrites

    unread, stopped = unreadable_consumers(there), stopped_members(there)
    now, view = utc_now(), there.view()
    waiting = [item for item in there.folder.pending() if not view.marks.is_in(item.name)]
    held = held_in(there, view, waiting) if waiting else {}
    last_ms = view.head.timestamp_ms if view.head else None
    return {
        "table": there.table.name,
        "identifier": there.table.identifier,
        "maintained_by": there.table.maintained_by,
        **_state(held),
        "pending": len(waiting),
        "held": len(held),
        "oldest_pending": max((now - item.modified for item in waiting), default=None),
        "pending_rewrites": len(pending_rewrites(there.folder)),
        "rejected": len(there.folder.rejected()),
        "rejected_rewrites": len(rejected_rewrites(there.folder)),
        **({"unreadable_consumers": unread} if unread else {}),
        **({"stopped_consumers": stopped} if stopped else {}),
        "last_commit": None if last_ms is None else moment(last_ms),
        "snapshot": view.head.snapshot_id if view.head else None,
        "snapshots": len(view.metadata.snapshots),
        "data_files": view.total("total-data-files"),
        "rows": view.total("total-records"),
        "table_bytes": view.total("total-files-size"),
        **(deletes({}, there, view, now) if keyed.PROPERTY in view.metadata.properties else {}),
        "writers": len(view.marks.writers),
        "marks_bytes": len(marks_json.dumps(view.marks)),
        "location": view.metadata.location,
        "folder": there.folder.store.url,
    }


def _state(held: "Mapping[TxlogName, BookkeeperError]") -> dict[str, Any]:
    if not held:
        return {"state": "ok"}
    name, error = min(held.items())
    return {"state": f"held: {name}: {error}", "hint": error.hint or None}


def deletes(known: "dict[str, EqualityDeletes]", there: Opened, view: "View", now: "datetime") -> dict[str, Any]:
    """
    Of a keyed table: rows that position deletes hide, delete files, and those of them that wait to be folded.

    The latter is read from manifests; None where these cannot be read. `known`: what was read of them before, by table.
    """
    from bookkeeper.errors import BookkeeperError
    from bookkeeper.folds.stats import EqualityDeletes

    name = there.table.name
    try:
        known[name] = known.get(name, EqualityDeletes()).refreshed(there.ledger, view)
        found = known[name].unfolded(view)
    except BookkeeperError:
        found = None
    return {
        "hidden_rows": view.total("total-position-deletes"),
        "delete_files": view.total("total-delete-files"),
        "unfolded": None if found is None else found.files,
        "oldest_unfolded": found.age(now) if found is not None and found.files else None,
    }


@click.command(cls=Command, short_help="List every known incarnation of every writer.")
@common
def writers(config: str | None, table: str | None, as_json: bool) -> None:
    """
    List every known incarnation of every writer: its mark, holes, gap, when it was last seen, its position.

    Of a writer of which only the position is left, `last_seen` is a time no earlier than its last commit.

    \b
    Example:
      bookkeeper writers --table events
    """
    there = opened(config, table)
    marks, waiting = there.view().marks, there.folder.pending()
    rows = list[dict[str, Any]]()
    for name, known in marks.writers.items():
        if not known.incarnations:
            nothing = dict.fromkeys(("incarnation", "mark", "holes", "gap", "pending"))
            seen = {"last_seen": moment(marks.seen_ms(name)), "position": known.position}
            rows.append({"writer": name, **nothing, **seen})
        for incarnation, mark in known.incarnations.items():
            run = (name, incarnation)
            sequences = [item.name.sequence for item in waiting if (item.name.writer, item.name.incarnation) == run]
            rows.append(
                {
                    "writer": name,
                    "incarnation": incarnation,
                    "mark": mark.last,
                    "holes": len(mark.holes),
                    "gap": _gap(mark.last, sequences),
                    "pending": sum(not mark.is_in(sequence) for sequence in sequences),
                    "last_seen": moment(mark.seen_ms),
                    "position": known.position,
                }
            )
    if marks.channels:
        for row in rows:
            row["channels"] = len(marks.writer(row["writer"]).offsets)
    show_rows(rows, as_json, nothing="no writer is known")


def _gap(last: int, sequences: list[int]) -> int:
    """The number of sequences after the mark that are missing below the highest pending one."""
    later = [sequence for sequence in sequences if sequence > last]
    return max(later) - last - len(later) if later else 0


@click.command(cls=Command, short_help="Check the table against its files; reads only.")
@common
@click.option("--repair", is_flag=True, help="Show what would be repaired; with --yes repair it.")
@click.option("--yes", is_flag=True, help="With --repair: do it.")
@click.option("--deep", is_flag=True, help="Of a keyed table, look for keys that are live twice; reads all keys.")
@click.pass_context
def verify(
    context: click.Context, config: str | None, table: str | None, as_json: bool, repair: bool, yes: bool, deep: bool
) -> None:
    """
    Check the table against its folder and its files; reads only. Exit code 1 when something is wrong.

    A table that is halted because its history was changed is checked too, and so are pending rewrites. --repair does
    only what is safe: it deletes txlogs that are in the table and writes marks.json again. --deep holds the keys of all
    live rows in memory.

    \b
    Example:
      bookkeeper verify --table events --json
      bookkeeper verify --table events --repair
    """
    from bookkeeper.commands.audit import ERROR, INFO, Audit, Finding
    from bookkeeper.commands.verify import repair as repair_all
    from bookkeeper.commands.verify import verify as audit_of
    from bookkeeper.errors import HistoryChanged

    there = opened(config, table)
    try:
        view, halted = there.view(), list[Finding]()
    except HistoryChanged as error:
        if repair:
            raise  # pending txlogs may be all that is left of rows that were rolled back
        view, halted = there.view(accept_rollback=True), [Finding(ERROR, f"halted: {error}", there.table.identifier)]
    audit = Audit(view, there.folder, there.ledger, there.table)
    findings = halted + audit_of(audit)
    if deep:
        from bookkeeper.commands.verify_keys import double_keys

        findings += double_keys(audit)
    rows = [{"severity": item.severity, "what": item.what, "where": item.where} for item in findings]
    if repair:
        rows = [{"repair": item.repair, **row} for item, row in zip(findings, rows, strict=True) if item.repair]
    show_rows(rows, as_json, nothing=f"nothing to repair in {there.table.name}" if repair else "no problem was found")
    if repair and yes:
        say(f"{repair_all(audit, findings)} repaired")
    context.exit(int(any(item.severity != INFO for item in findings)))


COMMANDS = (status, writers, verify)
