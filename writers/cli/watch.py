"""
`writer watch`.
"""

import os
from functools import partial
from typing import Any

import click

from bookkeeper.console.errors import Command
from bookkeeper.console.options import DURATION, SIZE, delimiter
from writers.cli.context import begin, json_logs, progress_of, serve_figures, utc_now
from writers.cli.options import where


@click.command(cls=Command, short_help="Load what is dropped below a prefix, each object once.")
@where
@click.option("--from", "source", required=True, metavar="URL", help="The prefix: a path, or a URL of the storage.")
@click.option("--name", required=True, help="This writer's name; the position is kept under it, so keep it.")
@click.option(
    "--done",
    type=click.Choice(["delete", "move", "leave"]),
    default="delete",
    show_default=True,
    help="With objects whose rows are in the table; move: to _done/; leave: not possible yet.",
)
@click.option("--once", is_flag=True, help="End when all that lies there is in the table.")
@click.option("--every", type=DURATION, default="10s", show_default=True, help="Between two listings.")
@click.option(
    "--queue", metavar="URL", help="SQS or Azure Storage Queue of the prefix's events: lists within a second."
)
@click.option("--settle", type=DURATION, default="2s", show_default=True, help="Take no object that is younger.")
@click.option("--backfill", is_flag=True, help="At the first start: take what lies there already, too.")
@click.option("--max-object", type=SIZE, default="256MiB", show_default=True, help="Of one object, also unpacked.")
@click.option(
    "--format", "kind", type=click.Choice(["ndjson", "csv"]), help="Of lines; default: by the ending, else ndjson."
)
@click.option("--delimiter", callback=delimiter, help="Between two CSV fields; default: a tab in *.tsv, else a comma.")
@click.option("--null", "nulls", metavar="TEXT", multiple=True, help="A CSV field of this text is null; repeatable.")
@click.option("--ignore-unknown", is_flag=True, help="Pass over fields that the table does not have.")
@click.option("--base64", "base64_bytes", is_flag=True, help="Values of binary columns are base64, not text.")
@click.option("--go-on", metavar="POSITION", help="Go on behind it, though the prefix is not as it was then.")
def watch(source: str, name: str, quiet: bool, **more: Any) -> None:
    """
    Load objects that others drop below a prefix (Parquet, Arrow, NDJSON, CSV), each version of each object once.

    An object is deleted, or moved, when its rows are in the table, and only while it is the version that was read. What
    replaced it is loaded next. Stop or kill it at any time and start it again with the same --name. Drop a file on a
    disk by rename: under another name, or one that begins with _ or a dot, at first.

    An object that is no rows of the table goes to _rejected/ with its reason. Names that begin with _ or a dot are
    passed over, also of folders.

    \b
    Examples:
      writer watch --folder /lake/events/_bookkeeper --name drops --from /drops/events
      writer watch --folder /lake/events/_bookkeeper --name drops --from /drops/events --backfill --once
      writer watch --config lake.toml --table events --name drops --from s3://drops/events --done move
    """
    from writers.txlog_folders import folder_url, reach
    from writers.watch.command import run_watch

    stop = begin(more)
    folder = folder_url(more["folder"], more["config"], more["table"], os.environ)
    stores = reach(more["folder"], more["config"], os.environ)
    serve = partial(serve_figures, more["listen"], more["allowed_hosts"])
    run_watch(source, folder, stores, name, more, stop, progress_of("watch", quiet, json_logs(more)), serve, utc_now)


COMMANDS = [watch]
