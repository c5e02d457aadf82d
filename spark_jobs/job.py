"""
What the jobs share: their options, their session, and the file of their progress.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.console.options import config_option, table_option
from bookkeeper.errors import ConfigInvalid
from spark_jobs import prepare, query, session, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bookkeeper.config.settings import Settings

Command = Callable[..., Any]


def options(command: Command) -> Command:
    """
    Add --config, --table and --conf to a command.
    """
    text = "A Spark conf; may be repeated."
    command = click.option("--conf", "conf", multiple=True, metavar="KEY=VALUE", help=text)(command)
    return config_option(table_option(command))


def begin(settings: Settings, app: str, conf: tuple[str, ...], more: Sequence[versions.Package] = ()) -> SparkSession:
    """
    A session for a job: on its own a local one, under spark-submit as its command line says.

    `conf` are `KEY=VALUE` pairs; `more` is what it needs beside what the catalog needs. Raises ConfigInvalid.
    """
    submitted, extra = "PYSPARK_GATEWAY_PORT" in os.environ, pairs("--conf", conf)
    if not submitted:
        needed = (*versions.packages(settings.catalog.properties), *more)
        prepare.prepare(os.environ, needed, say=lambda line: click.echo(line, err=True))
    return session.build(settings, app=app, tuned_for="cluster" if submitted else "local", extra=extra, more=more)


def pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """
    The values of an option that is given as `KEY=VALUE`, any number of times; raises ConfigInvalid.
    """
    for pair in given:
        if "=" not in pair:
            raise ConfigInvalid(f"{option} {pair}: KEY=VALUE is allowed")
    return dict(pair.split("=", 1) for pair in given)


def reports_to(path: str | None) -> query.Report:
    """
    Append each progress as one JSON line to `path`, complete lines only; None: nowhere.
    """
    if path is None:
        return lambda progress: None

    def report(progress: query.Progress) -> None:
        with open(path, "ab", buffering=0) as lines:
            lines.write(json.dumps(progress).encode() + b"\n")

    return report
