"""
What every job does around its work: a session, progress lines.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from spark_jobs import options, prepare, query, session, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bookkeeper.config.settings import Settings


def begin(settings: Settings, app: str, conf: tuple[str, ...]) -> SparkSession:
    """
    A session for a job: on its own as a local one, under spark-submit as its command line says.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        needed = versions.packages(settings.catalog.properties)
        prepare.prepare(os.environ, needed, say=lambda line: click.echo(line, err=True))
    return session.build(settings, app=app, tuned_for="cluster" if submitted else "local", extra=options.confs(conf))


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
