"""
`bookkeeper retain` and `fold`: what the bookkeeper does by itself, done now.

Each changes marks only together with a snapshot. The daemon may run meanwhile: one of both commits wins, and the other
loads the table again.
"""

import os
from dataclasses import asdict, replace
from functools import partial

import click

from bookkeeper.cli.context import opened, utc_now
from bookkeeper.console.errors import Command
from bookkeeper.console.options import common, config_option, json_option, table_option
from bookkeeper.console.output import show_record

_AGAIN = "pending again"


@click.command(cls=Command, short_help="Drop files past retention now.")
@config_option
@table_option
@json_option
@click.option("--dry-run", is_flag=True, help="Only show how many files would be dropped.")
@click.option("--force", is_flag=True, help="Release the brake: drop even more than retention.brake allows.")
def retain(config: str | None, table: str | None, as_json: bool, dry_run: bool, force: bool) -> None:
    """
    Drop files past retention now, also when the brake stops the daemon.

    `without bounds` counts live files without bounds for the age of their rows: only max-age or keep-bytes drops them.

    \b
    Example:
      bookkeeper retain --table events --dry-run
      bookkeeper retain --table events --force
    """
    from bookkeeper.ledger.commit_clock import CLOCK_SKEW
    from bookkeeper.retention.apply import past_retention, without_bounds

    there = opened(config, table)
    view, now = there.view(), utc_now()
    limits = replace(there.table.retention, brake=1.0) if force else there.table.retention
    found = past_retention(there.ledger, view, limits, now)
    held_back = found.held_back
    if found.drops and not dry_run:
        if abs(there.folder.clock_skew(now)) <= CLOCK_SKEW:
            there.publisher.drop(view, found.drops)
        else:  # --force allows a larger share to go; it does not let a wrong clock choose the files
            held_back = "this clock and the storage's differ by more than 5 minutes"
    outcome = held_back or ("dry run" if dry_run else "dropped" if found.files else "nothing to drop")
    record = {"table": there.table.name, "files": found.files, "live_files": found.live}
    record |= {"without_bounds": without_bounds(there.ledger, view, limits, now), "outcome": outcome}
    show_record(record, as_json)


@click.command(cls=Command, short_help="Fold equality deletes into position deletes now.")
@common
@click.option("--dry-run", is_flag=True, help="Only show what would be folded; nothing is written.")
def fold(config: str | None, table: str | None, as_json: bool, dry_run: bool) -> None:
    """
    Fold equality deletes into position deletes now; the daemon does it for keyed tables by itself.

    No row changes: readers find deleted rows by their place in the file instead of by their keys, which is much
    faster, and pyiceberg reads the table at all. Any table of format v2 can be folded. `left` counts equality delete
    files that stay, with the reason; what is too much for one fold is folded by spark_jobs.maintain.

    \b
    Example:
      bookkeeper fold --table events --dry-run
      bookkeeper fold --table events
    """
    from bookkeeper.commands.fold import fold as fold_now
    from bookkeeper.folds.budget import Budget
    from bookkeeper.folds.process import PlanProcess

    there = opened(config, table)
    budget = Budget.of(there.table.fold)
    process = PlanProcess()
    try:
        plan_by = partial(process.plan, there.settings.catalog)
        done = fold_now(there.ledger, there.folder, there.publisher, utc_now(), os.urandom, dry_run, budget, plan_by)
    finally:
        process.close()
    show_record({"table": there.table.name, **asdict(done)}, as_json)


COMMANDS = (retain, fold)
