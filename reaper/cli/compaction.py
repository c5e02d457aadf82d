"""
`reaper compaction`, and the compactions of `reaper run`.
"""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from bookkeeper.console import logs, output
from bookkeeper.console.errors import Commands
from bookkeeper.console.options import config_option, json_option, log_options, tables_option
from reaper.cli.tables import LazyCatalog, Row, chosen_tables, each, utc_now
from reaper.report import compaction_record, round_record, show_compaction

if TYPE_CHECKING:
    from bookkeeper.config.settings import Settings, Table
    from reaper.compactor.compactor import Compactor
    from reaper.metrics import Metrics
    from reaper.schedule import Round

#: of the thread that compacts; 19 would hardly get a turn beside a busy writer
NICE = 10


@click.group(cls=Commands, short_help="Few files of many small ones: what would be rewritten, and one round of it.")
def compaction() -> None:
    """
    Few files of many small ones. `reaper run` does that all the time; the bookkeeper commits it.

    \b
    Example:
      reaper compaction plan --config bookkeeper.toml
    """


@compaction.command("plan", short_help="What would be rewritten now, and why.")
@config_option
@tables_option
@json_option
@click.pass_context
def compaction_plan(context: click.Context, config: str | None, tables: tuple[str, ...], as_json: bool) -> None:
    """
    Which files would become few now, with sizes and why; and how many small files are left alone, by reason.

    Also of a table that is not compacted, or on Spark: what a round would do if it were.

    \b
    Example:
      reaper compaction plan --config bookkeeper.toml --table events
      reaper compaction plan --json
    """
    settings, chosen = chosen_tables(config, tables)
    catalog = LazyCatalog(settings)

    def act(table: "Table") -> Row:
        return compaction_record(*_compactor(table).plan(catalog.get(), utc_now()))

    found, worst = each(chosen, act)
    if as_json:
        click.echo(output.to_json(found))
    else:
        for record in found:
            show_compaction(record)
    context.exit(worst)


@compaction.command("once", short_help="One round over each table, for cron.")
@config_option
@tables_option
@json_option
@log_options
@click.pass_context
def compaction_once(
    context: click.Context,
    config: str | None,
    tables: tuple[str, ...],
    as_json: bool,
    log_format: str,
    log_level: str,
) -> None:
    """
    One round over each table: about 30 s of rewriting, which the bookkeeper commits afterwards.

    A table that is compacted on Spark, or not at all, is left as it is.

    \b
    Example:
      reaper compaction once --config bookkeeper.toml --table events
      reaper compaction once --json
    """
    settings, chosen = chosen_tables(config, tables)
    logs.set_up(log_format, log_level)
    catalog = LazyCatalog(settings)

    def act(table: "Table") -> Row:
        with closing(_compactor(table)) as compactor:
            return round_record(compactor.round(catalog.get(), utc_now()))

    found, worst = each(chosen, act)
    output.show_rows(found, as_json)
    context.exit(worst)


def _compactor(table: "Table") -> "Compactor":
    from reaper.compactor.compactor import Compactor
    from reaper.compactor.worker import rewrite
    from reaper.files.storage import Pace

    holder = f"{socket.gethostname()} {os.getpid()}"
    return Compactor(table, rewrite, utc_now, holder, Pace(wait=time.sleep))


def compactions(
    settings: "Settings",
    tables: "Sequence[Table]",
    figures: "Metrics | None",
    stopped: Callable[[], bool],
    leases: ExitStack,
) -> "list[Round]":
    """
    The rounds of tables that may want compaction; `leases` gives their leases back.
    """
    from bookkeeper.config.compaction import OWN, SPARK
    from reaper.schedule import COMPACT, ON_SPARK, PACED, Round

    rounds = []
    for table in tables:
        if table.compaction.engine == SPARK:
            act = partial(_compact_on_spark, settings, table, stopped)
            rounds.append(Round(table.name, table.compaction.quiet, act, ON_SPARK))
        elif table.compaction.engine in (None, OWN):
            compactor = leases.enter_context(closing(_compactor(table)))
            act = partial(_compact, LazyCatalog(settings), compactor, figures, stopped)
            thread = PACED if table.compaction.bytes_per_second else COMPACT
            rounds.append(Round(table.name, table.compaction.every, act, thread))
    return rounds


def _compact(
    catalog: LazyCatalog,
    compactor: "Compactor",
    figures: "Metrics | None",
    stopped: Callable[[], bool],
    now: datetime,
) -> None:
    done = compactor.round(catalog.get(), now, stopped)
    if figures:
        figures.note_compacted(compactor.settings.name, done, utc_now())


def _compact_on_spark(settings: "Settings", table: "Table", stopped: Callable[[], bool], now: datetime) -> None:
    from reaper.spark_command import job_runner

    size = table.compaction.target_file_size
    # A job that is ended leaves orphans, or a published rewrite, as one that crashes does.
    job_runner(table.reaper.spark_command, settings.source, table.name, stopped)(
        "rewrite-data-files",
        *("--min-input-files", str(table.compaction.fan_in)),
        *(("--target-file-size", str(size)) if size else ()),
        *("--wait", "1m"),
    )


def be_nice() -> None:
    """
    Whatever else wants the CPU goes before the thread that calls this; of other threads nothing changes.
    """
    if sys.platform == "linux":  # elsewhere a thread has no priority of its own
        from fsspec.asyn import get_loop  # type: ignore[import-untyped]

        # The thread of all requests to object stores: one that this thread began later would be as nice.
        get_loop()
        thread = threading.get_native_id()
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, max(NICE, os.getpriority(os.PRIO_PROCESS, thread)))
