"""
`writer serve`.
"""

import os
from pathlib import Path
from typing import Any

import click

from bookkeeper.console.errors import Command
from bookkeeper.console.options import DURATION, SIZE, config_option, listen_option, log_options_from
from writers.cli.context import begin, utc_now


@click.command(cls=Command, short_help="Take rows over HTTP, acknowledged exactly.")
@config_option
@click.option("--table", "tables", multiple=True, metavar="NAME", help="A table of the configuration; default: all.")
@click.option("--folder", "folders", multiple=True, metavar="URL", help="A table's txlog folder; repeatable.")
@click.option("--name", required=True, help="Name of this door; sequences are kept under it, so keep it.")
@click.option("--http", default="127.0.0.1:8080", show_default=True, metavar="HOST:PORT", help="Take rows there.")
@click.option("--advertise", metavar="URL", help="http://HOST:PORT at which other instances reach it; default: --http.")
@click.option(
    "--tokens",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of `TABLE TOKEN [requests=N] [bytes=SIZE]` lines (per second), * for all tables; read again on changes.",
)
@click.option("--no-tokens", is_flag=True, help="Any client that reaches it may write.")
@click.option(
    "--slots",
    type=click.IntRange(1, 100),
    default=4,
    show_default=True,
    help="Writers of a table; never changed later.",
)
@click.option(
    "--producer-keep",
    type=DURATION,
    metavar="AGE",
    help="Forget a producer that sent nothing for so long, such as 90d; default: never.",
)
@click.option("--max-body", type=SIZE, default="8MiB", show_default=True, help="Of one request, unpacked.")
@click.option("--memory", type=SIZE, default="128MiB", show_default=True, help="For requests that wait.")
@click.option("--grace", type=DURATION, default="25s", show_default=True, help="For answers after SIGTERM.")
@listen_option("WRITER", "Serve /metrics and /healthz there.")
@log_options_from("warning", "human")
def serve(config: str | None, tables: tuple[str, ...], folders: tuple[str, ...], name: str, **more: Any) -> None:
    """
    Take rows over HTTP: POST /v1/tables/NAME/rows, with NDJSON or a JSON array of objects.

    With the headers Producer and Sequence (it rises by one with each request) a request is answered once its rows are
    in the table, and counts once, however often it is sent. Without them it is answered once its rows are published.

    TLS is the work of a proxy before it. SIGTERM: it takes no more requests, answers those it has, and ends.

    \b
    Examples:
      writer serve --name door --table events --tokens=tokens.txt --http 0.0.0.0:8080
      writer serve --name door --folder /lake/events/_bookkeeper --no-tokens
    """
    from writers.http.command import run_serve
    from writers.txlog_folders import reach, served_folders

    stop = begin(more)
    stores = reach(folders[0] if folders else None, config, os.environ)
    run_serve(served_folders(folders, config, tables, os.environ), stores, name, more, stop, utc_now)


COMMANDS = [serve]
