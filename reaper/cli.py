"""
`reaper run | once | plan | orphans`. Heavy modules are imported by the command that needs them: `--help` is instant.
"""

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.console import logs, output
from bookkeeper.console.errors import Commands, exit_code
from bookkeeper.console.options import (
    DURATION,
    config_option,
    json_option,
    listen_option,
    load_settings,
    log_options,
    pick_table,
    tables_option,
)
from bookkeeper.console.progress import Progress
from bookkeeper.errors import BookkeeperError, ConfigInvalid
from reaper.report import orphan_rows, plan_record, show_plan

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from bookkeeper.config.settings import Settings, Table
    from reaper.files.storage import Pace

Row = dict[str, Any]


@click.group(cls=Commands)
@click.version_option(package_name="iceberg-bookkeeper")
def main() -> None:
    """
    Expires old snapshots and deletes the files that nothing references any more.

    \b
    Example:
      reaper plan --config bookkeeper.toml
      reaper run --config bookkeeper.toml
    """


@main.command(short_help="Reap every table by its interval, until SIGTERM.")
@config_option
@tables_option
@log_options
@click.option("--metrics", metavar="FILE", help="Write figures and consumers at risk there, for Prometheus.")
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

    When a catalog or storage is down, the table is tried again at the next interval, at the start too.

    \b
    Example:
      reaper run --config bookkeeper.toml --log-format json
    """
    from bookkeeper.console.elapsed import elapsed
    from bookkeeper.console.signals import StopSignal
    from bookkeeper.console.web import serve_metrics
    from bookkeeper.core.steady_clock import Steady
    from reaper.metrics import Metrics
    from reaper.schedule import Round
    from reaper.schedule import run as run_rounds

    settings, chosen = _chosen(config, tables)
    logs.set_up(log_format, log_level)
    stop = StopSignal.on_signals()
    log = logging.getLogger("reaper")
    log.info("reaper started", extra={"action": "start", "tables": len(chosen), "config": settings.source})
    # Each table runs in a thread of its own, so each has a catalog of its own.
    shared: dict[str, Any] = {"stopped": lambda: stop.requested, "steady": Steady(_utc_now, elapsed)}
    figures = Metrics(metrics) if metrics or listen else None
    rounds = []
    for table in chosen:
        act: Callable[[datetime], Any] = partial(_reap, _Catalog(settings), table, **shared)
        if figures:
            figures.begin(table.name)
            act = partial(figures.run, table.name, act, clock=_utc_now)
        rounds.append(Round(table.name, table.reaper.every, act))
    if figures and listen:
        serve_metrics(listen, figures.text, (*settings.bookkeeper.allowed_hosts, *allowed_hosts))
    run_rounds(rounds, _utc_now, stop)
    log.info("reaper stopped", extra={"action": "stop"})


@main.command(short_help="One run over each table, for cron and functions.")
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
    settings, chosen = _chosen(config, tables)
    logs.set_up(log_format, log_level)
    catalog = _Catalog(settings)
    if dry_run:
        context.exit(_show_plans(catalog, chosen, as_json))
    act = partial(_reap, catalog, release_brake=release_brake)
    found, worst = _each(chosen, lambda table: asdict(act(table, _utc_now(), pace=_pace(table))))
    output.show_rows(found, as_json)
    context.exit(worst)


@main.command(short_help="What would be expired and deleted now, and why.")
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
    settings, chosen = _chosen(config, tables)
    context.exit(_show_plans(_Catalog(settings), chosen, as_json))


@main.command(short_help="Old files that nothing names.")
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

    settings, chosen = _chosen(config, tables)
    catalog, now = _Catalog(settings), _utc_now()

    def act(table: "Table") -> Row:
        if delete:
            gone = sweep_orphans(catalog.get(), table, now, older_than=older_than, release_brake=release_brake)
            return {"deleted": len(gone), "bytes": sum(gone.values())}
        return {"orphans": orphan_rows(orphans_of(catalog.get(), table, now, older_than=older_than), now)}

    found, worst = _each(chosen, act)
    if as_json or delete:
        output.show_rows(found, as_json)
    else:
        rows = [{"table": record["table"], **row} for record in found for row in record.get("orphans", [])]
        output.show_rows(rows, False, nothing="no orphans")
    context.exit(worst)


class _Catalog:
    """A catalog that is opened at its first use: when it is down at start, the next use tries again."""

    def __init__(self, settings: "Settings") -> None:
        self._settings, self.source = settings, settings.source
        self._catalog: Catalog | None = None

    def get(self) -> "Catalog":
        from bookkeeper.catalogs.open import open_catalog

        self._catalog = self._catalog or open_catalog(self._settings.catalog)
        return self._catalog


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _chosen(config: str | None, names: Sequence[str]) -> "tuple[Settings, list[Table]]":
    settings: Settings = load_settings(config, os.environ)
    if not settings.tables:
        raise ConfigInvalid(f"{settings.source} has no [tables.NAME] section")
    return settings, [pick_table(settings, name) for name in names] or list(settings.tables.values())


def _reap(catalog: _Catalog, table: "Table", now: datetime, **how: Any) -> Any:
    from reaper.expiry.spark_engine import by_command
    from reaper.files.storage import Pace
    from reaper.run import reap

    options = {
        "holder": f"{socket.gethostname()} {os.getpid()}",
        "expire_on_spark": by_command(table.reaper.spark_command, catalog.source, table.name),
        "pace": Pace(wait=time.sleep),
        **how,
    }
    return reap(catalog.get(), table, now, **options)


def _pace(table: "Table") -> "Pace":
    from reaper.files.storage import Pace

    shown = Progress(f"reaper {table.name}", _utc_now, sys.stderr, quiet=not sys.stderr.isatty())
    return Pace(wait=time.sleep, on_deleted=lambda deleted: shown.tell({"files deleted": deleted}))


def _each(tables: "Sequence[Table]", act: "Callable[[Table], Row]") -> tuple[list[Row], int]:
    rows, worst = [], 0
    for table in tables:
        try:
            rows.append({"table": table.name, "outcome": "done", **act(table)})
        except BookkeeperError as exc:
            # The other tables are reaped all the same; the error is written beside their rows.
            rows.append({"table": table.name, "outcome": type(exc).__name__})
            output.say(f"error: {table.name}: {exc}" + (f"\nhint: {exc.hint}" if exc.hint else ""))
            worst = max(worst, exit_code(exc))
    return rows, worst


def _show_plans(catalog: _Catalog, tables: "Sequence[Table]", as_json: bool) -> int:
    from reaper.run import outlook

    now = _utc_now()
    found, worst = _each(tables, lambda table: plan_record(outlook(catalog.get(), table, now), now))
    if as_json:
        click.echo(output.to_json(found))
        return worst
    for record in found:
        show_plan(record)
    return worst
