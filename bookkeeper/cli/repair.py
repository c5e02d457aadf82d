"""
`bookkeeper accept-rollback`, `accept-clock`, `drop-delete-file`, `restore-marks`: what a person decides about a table.

Each changes marks only together with a snapshot. The daemon may run meanwhile: one of both commits wins, and the other
loads the table again.
"""

from typing import Any

import click

from bookkeeper.cli.context import opened, utc_now
from bookkeeper.console.errors import Command
from bookkeeper.console.options import common
from bookkeeper.console.output import say, show_record

_AGAIN = "pending again"


@click.command("accept-rollback", cls=Command, short_help="Continue after a rollback of the table.")
@common
@click.option("--yes", is_flag=True, help="Do not ask.")
def accept_rollback(config: str | None, table: str | None, as_json: bool, yes: bool) -> None:
    """
    Continue after a rollback of the table: the rows of the abandoned snapshots stay out.

    Their txlogs were consumed and stay consumed: if the rows are wanted, write them again. Pending rewrites are
    rejected, and made anew from the table. Refused when a file of the table is not there any more: what was compacted
    may have been deleted since.

    \b
    Example:
      bookkeeper accept-rollback --table events
    """
    from bookkeeper.commands.check_live_files import check_files
    from bookkeeper.contract.pending_rewrites import withdraw
    from bookkeeper.errors import NotPossible, RewriteUnfit
    from bookkeeper.history.main_history import descends
    from bookkeeper.ledger.load import is_older, load
    from bookkeeper.ledger.summary import append_of
    from bookkeeper.ledger.view import abandoned

    there = opened(config, table)
    view, _, copy = load(there.ledger, there.folder, accept_rollback=True)
    older = is_older(view, copy)
    if view.marks.snapshot is None or descends(view.table, view.marks.snapshot):
        if not older:
            raise NotPossible(f"{there.table.identifier} was not rolled back behind its marks")
        say("abandoned: all commits that marks.json knows and this table does not")
    check_files(there.ledger, view)
    if view.head is not None and append_of(view.head) is not None:
        say(
            f"main stands on snapshot {view.head.snapshot_id}, the delete half of a commit: old versions of its rows "
            f"are gone, new ones are not there. Its parent, {view.head.parent_snapshot_id}, has the old ones."
        )
    for snapshot_id, txlogs in abandoned(view):
        say(f"abandoned: snapshot {snapshot_id}, txlogs {txlogs or 'none'}")
    if not yes:
        click.confirm("Continue without the rows of these snapshots?", abort=True, err=True)
    withdraw(there.folder, RewriteUnfit("the table was rolled back after it was made"), utc_now())
    after = there.publisher.record(view, view.marks, "accept-rollback", even_older=True)
    show_record({"table": there.table.name, "snapshot": after.marks.snapshot}, as_json)


@click.command("accept-clock", cls=Command, short_help="Continue after a clock that was ahead dated the table.")
@common
@click.option("--yes", is_flag=True, help="Do not ask.")
def accept_clock(config: str | None, table: str | None, as_json: bool, yes: bool) -> None:
    """
    Continue after a clock that was ahead dated the table: until that time no commit would be possible.

    The table's metadata is written again with the same snapshots and rows, and no time in the future. Correct the
    clocks first, this machine's too.

    \b
    Example:
      bookkeeper accept-clock --table events
    """
    from bookkeeper.commands.accept_clock import date_back, dated_ahead
    from bookkeeper.config.units import format_duration

    there = opened(config, table)
    found = dated_ahead(there.ledger, there.folder)
    say(
        f"{there.table.identifier} is {format_duration(found.ahead)} ahead of this clock, "
        f"with {found.snapshots} snapshots"
    )
    if not yes:
        click.confirm(f"It is {utc_now():%Y-%m-%d %H:%M:%S} UTC by this clock. Is it right?", abort=True, err=True)
    after = date_back(there.ledger, there.folder, found)
    record = {"table": there.table.name, "dated_back": found.snapshots, "snapshot": after.marks.snapshot}
    show_record(record, as_json)


@click.command("drop-delete-file", cls=Command, short_help="Take an unreadable delete file out of the table.")
@click.argument("path")
@common
@click.option("--yes", is_flag=True, help="Do it; without, only show what it may apply to.")
def drop_delete_file(path: str, config: str | None, table: str | None, as_json: bool, yes: bool) -> None:
    """
    Take a delete file that cannot be read out of the table: PATH is its location, or its path below the data path.

    Rows that it deleted, and that no other delete file deletes, are in the table again for readers that could read it,
    such as Spark; on a table with an op-column also its tombstones, rows with the op D. Its txlog is not taken back:
    what it inserted stays, and streams get nothing again. To delete these rows, let their writer delete the keys again.

    `data_files` and `rows` are those that it may apply to. A delete file that can be read is refused: a fold applies
    it. `bookkeeper verify` names odd ones.

    \b
    Example:
      bookkeeper drop-delete-file --table events odd-deletes.parquet
      bookkeeper drop-delete-file --table events odd-deletes.parquet --yes
    """
    from bookkeeper.commands.odd_deletes import drop, odd_delete

    there = opened(config, table)
    found = odd_delete(there.ledger, there.view(), path)
    record: dict[str, Any] = {
        "table": there.table.name,
        "file": found.live.entry.data_file.path,
        "why": found.why,
        "says_rows": found.live.entry.data_file.record_count,
        "data_files": found.data_files,
        "rows": found.rows,
        "outcome": "dry run",
    }
    if yes:
        after = drop(there.folder, there.publisher, found)
        record |= {"outcome": "dropped", "snapshot": after.marks.snapshot}
    else:
        say("with --yes: rows that only this file deletes are in the table again")
    show_record(record, as_json)


@click.command("restore-marks", cls=Command, short_help="Restore lost or damaged marks.")
@common
@click.option("--yes", is_flag=True, help="Do it; without, only show what would be restored.")
def restore_marks(config: str | None, table: str | None, as_json: bool, yes: bool) -> None:
    """
    Restore the table's lost or damaged marks from marks.json, or from an older metadata file.

    Only a copy as new as the last commit is accepted: with an older one txlogs would be committed twice.

    \b
    Example:
      bookkeeper restore-marks --table events
      bookkeeper restore-marks --table events --yes
    """
    from bookkeeper.commands.restore_marks import restorable, restore

    there = opened(config, table)
    view, where = restorable(there.ledger, there.folder)
    record: dict[str, Any] = {"table": there.table.name, "from": where, "writers": len(view.marks.writers)}
    if yes:
        after = restore(there.ledger, there.folder, view)
        record |= {"outcome": "put back", "snapshot": after.marks.snapshot}
    show_record(record if yes else record | {"outcome": "dry run"}, as_json)


COMMANDS = (accept_rollback, accept_clock, drop_delete_file, restore_marks)
