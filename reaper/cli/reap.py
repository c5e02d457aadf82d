"""
`reaper run | once | plan | orphans`. Heavy modules are imported by the command that needs them: `--help` is instant.
"""

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.console import logs, output
from bookkeeper.console.errors import Command
from bookkeeper.console.options import (
    DURATION,
    config_option,
    json_option,
    listen_option,
    log_options,
    tables_option,
)
from bookkeeper.console.progress import Progress
from reaper.cli.compaction import be_nice, compactions
from reaper.cli.tables import LazyCatalog, Row, chosen_tables, each, utc_now
from reaper.report import orphan_rows, plan_record, show_plan

if TYPE_CHECKING:
    from bookkeeper.config.settings import Table
    from reaper.files.storage import Pace


@click.command(cls=Command, short_help="Reap every table by its interval, until SIGTERM.")
@config_option
@tables_option
@log_options
@click.option("--metrics", metavar="FILE", help="Write metrics there, for Prometheus.")
@listen_option("REAPER", "Serve /metrics there, for Prometheus.")
def run(
    config: str | None,
    tables: tuple[str, ...],
    log_format: str,
    log_level: str,
    metrics: str | None,
    listen: str | None,
    allowed_hosts: tuple[str, ...],
) -> None:
    """
    Reap every table by its interval, until SIGTERM; ends after the current step.

    Beside that, small files become few, in tables that `bookkeeper init` made or whose configuration says so
    (`reaper compaction plan` shows what would be rewritten).

    When a catalog or storage is down, the table is tried again at the next interval, at the start too.

    \b
    Example:
      reaper run --config bookkeeper.toml --log-format json
    """
    from bookkeeper.console.elapsed import elapsed
    from bookkeeper.console.signals import StopSignal
    from bookkeeper.console.web import serve_metrics
    from bookkeeper.contract.steady_clock import Steady
    from reaper.metrics import Metrics
    from reaper.schedule import Round
    from reaper.schedule import run as run_rounds

    settings, chosen = chosen_tables(config, tables)
    logs.set_up(log_format, log_level)
    stop = StopSignal.on_signals()
    log = logging.getLogger("reaper")
    log.info("reaper started", extra={"action": "start", "tables": len(chosen), "config": settings.source})
    # Each table runs in a thread of its own, so each has a catalog of its own.
    shared: dict[str, Any] = {"stopped": lambda: stop.requested, "steady": Steady(utc_now, elapsed)}
    figures = Metrics(metrics) if metrics or listen else None
    rounds = []
    for table in chosen:
        act: Callable[[datetime], Any] = partial(_reap, LazyCatalog(settings), table, **shared)
        if figures:
            figures.begin(table.name)
            act = partial(figures.run, table.name, act, clock=utc_now)
        rounds.append(Round(table.name, table.reaper.every, act))
    if figures and listen:
        serve_metrics(listen, figures.text, (*settings.bookkeeper.allowed_hosts, *allowed_hosts))
    with ExitStack() as leases:
        rounds += compactions(settings, chosen, figures, lambda: stop.requested, leases)
        run_rounds(rounds, utc_now, stop, be_nice)
    log.info("reaper stopped", extra={"action": "stop"})


@click.command(cls=Command, short_help="One run over each table, for cron and functions.")
@config_option
@tables_option
@json_option
@log_options
@click.option("--dry-run", is_flag=True, help="Only show what would go, like `reaper plan`.")
@click.option("--release-brake", is_flag=True, help="Go on although most snapshots of a quiet table would expire.")
@click.pass_context
def once(
    context: click.Context,
    config: str | None,
    tables: tuple[str, ...],
    as_json: bool,
    log_format: str,
    log_level: str,
    dry_run: bool,
    release_brake: bool,
) -> None:
    """
    One run over each table, for cron and functions; exit code 3 or 4 when one could not.

    \b
    Example:
      reaper once --config bookkeeper.toml --dry-run
      reaper once --config bookkeeper.toml --table events --json
    """
    settings, chosen = chosen_tables(config, tables)
    logs.set_up(log_format, log_level)
    catalog = LazyCatalog(settings)
    if dry_run:
        context.exit(_show_plans(catalog, chosen, as_json))
    act = partial(_reap, catalog, release_brake=release_brake)
    found, worst = each(chosen, lambda table: asdict(act(table, utc_now(), pace=_pace(table))))
    output.show_rows(found, as_json)
    context.exit(worst)


@click.command(cls=Command, short_help="What would be expired and deleted now, and why.")
@config_option
@tables_option
@json_option
@click.pass_context
def plan(context: click.Context, config: str | None, tables: tuple[str, ...], as_json: bool) -> None:
    """
    What `reaper once` would expire and delete now, with sizes, and why the rest is kept.

    \b
    Example:
      reaper plan --config bookkeeper.toml --table events
      reaper plan --json
    """
    settings, chosen = chosen_tables(config, tables)
    context.exit(_show_plans(LazyCatalog(settings), chosen, as_json))


@click.command(cls=Command, short_help="Old files that nothing names.")
@config_option
@tables_option
@json_option
@click.option("--older-than", type=DURATION, help="Age of a file; default: orphan-age. Never below 1h.")
@click.option(
    "--delete", is_flag=True, help="Delete those that were found unnamed an hour ago too; remember the others."
)
@click.option("--release-brake", is_flag=True, help="Go on although very many files would go.")
@click.pass_context
def orphans(
    context: click.Context,
    config: str | None,
    tables: tuple[str, ...],
    as_json: bool,
    older_than: timedelta | None,
    delete: bool,
    release_brake: bool,
) -> None:
    """
    Old files of a table that nothing names: shows them, or deletes them with --delete. `reaper run` does that hourly.

    \b
    Example:
      reaper orphans --config bookkeeper.toml --table events
      reaper orphans --config bookkeeper.toml --delete
    """
    from reaper.run import orphans_of, sweep_orphans

    settings, chosen = chosen_tables(config, tables)
    catalog, now = LazyCatalog(settings), utc_now()

    def act(table: "Table") -> Row:
        if delete:
            gone = sweep_orphans(catalog.get(), table, now, older_than=older_than, release_brake=release_brake)
            return {"deleted": len(gone), "bytes": sum(gone.values())}
        return {"orphans": orphan_rows(orphans_of(catalog.get(), table, now, older_than=older_than), now)}

    found, worst = each(chosen, act)
    if as_json or delete:
        output.show_rows(found, as_json)
    else:
        rows = [{"table": record["table"], **row} for record in found for row in record.get("orphans", [])]
        output.show_rows(rows, False, nothing="no orphans")
    context.exit(worst)


def _reap(catalog: LazyCatalog, table: "Table", now: datetime, **how: Any) -> Any:
    from reaper.expiry.spark_engine import by_command
    from reaper.files.storage import Pace
    from reaper.run import reap

    options = {
        "holder": f"{socket.gethostname()} {os.getpid()}",
        "expire_on_spark": by_command(table.reaper.spark_command, catalog.source, table.name),
        "pace": Pace(wait=time.sleep),
        "clock": utc_now,
        **how,
    }
    return reap(catalog.get(), table, now, **options)


def _pace(table: "Table") -> "Pace":
    from reaper.files.storage import Pace

    shown = Progress(f"reaper {table.name}", utc_now, sys.stderr, quiet=not sys.stderr.isatty())
    return Pace(wait=time.sleep, on_deleted=lambda deleted: shown.tell({"files deleted": deleted}))


def _show_plans(catalog: LazyCatalog, tables: "Sequence[Table]", as_json: bool) -> int:
    from reaper.run import outlook

    def plan(table: "Table") -> dict[str, Any]:
        now = utc_now()  # an earlier table may have taken minutes
        return plan_record(outlook(catalog.get(), table, now), now)

    found, worst = each(tables, plan)
    if as_json:
        click.echo(output.to_json(found))
        return worst
    for record in found:
        show_plan(record)
    return worst
