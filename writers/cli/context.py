"""
What commands begin with: logs, signals, progress, figures and the writer.
"""

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bookkeeper.console.logs import as_json, set_up
from bookkeeper.console.progress import Progress
from bookkeeper.console.signals import StopSignal

if TYPE_CHECKING:
    from writers.writer import Writer


def begin(options: dict[str, Any]) -> StopSignal:
    """Sets up logs, and stops on SIGTERM and Ctrl-C from here on."""
    set_up(options["log_format"], options["log_level"])
    return StopSignal.on_signals()


def json_logs(options: dict[str, Any]) -> bool:
    """Whether log lines are JSON; then progress is too."""
    return as_json(options["log_format"], sys.stderr)


def open_writer(name: str, stop: StopSignal, options: dict[str, Any]) -> "Writer":
    """The writer of the options of `where`, with its figures served; raises like Writer.open."""
    from writers.txlog_folders import folder_url, reach
    from writers.writer import Writer

    folder = folder_url(options["folder"], options["config"], options["table"], os.environ)
    stores = reach(options["folder"], options["config"], os.environ)
    writer = Writer.open(folder, name, clock=utc_now, wait=stop.wait, patience=options["patience"], stores=stores)
    show_figures(writer, options["metrics"], options["listen"], options["allowed_hosts"])
    return writer


def show_figures(writer: "Writer", metrics: str | None, listen: str | None, allowed_hosts: tuple[str, ...]) -> None:
    """Writes a writer's figures to the file `metrics`, and serves them at `listen`, where these are given."""
    writer.figures.path = metrics
    writer.figures.write()
    serve_figures(listen, allowed_hosts, writer.figures.text)


def serve_figures(listen: str | None, allowed_hosts: tuple[str, ...], text: Callable[[], str]) -> None:
    """Serves /metrics at `listen`, if it is given; raises ConfigInvalid, NotPossible."""
    from bookkeeper.console.web import serve_metrics

    if listen:
        serve_metrics(listen, text, allowed_hosts)


def progress_of(label: str, quiet: bool, as_json: bool) -> Progress:
    """The progress of a command on stderr."""
    return Progress(label, utc_now, sys.stderr, quiet=quiet, as_json=as_json)


def utc_now() -> datetime:
    """The clock of the commands."""
    return datetime.now(UTC)
