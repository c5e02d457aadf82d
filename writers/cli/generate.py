"""
`writer generate`.
"""

from pathlib import Path
from typing import Any

import click

from bookkeeper.console.errors import Command
from bookkeeper.console.options import DURATION, SIZE
from writers.cli.context import begin, json_logs, open_writer, progress_of, utc_now
from writers.cli.options import where


@click.command(cls=Command, short_help="Generate rows of timestamp, key and value.")
@where
@click.option("--name", default="generate", show_default=True, help="This writer's name.")
@click.option("--records", type=click.IntRange(1), default=20_000, show_default=True, help="Rows per file.")
@click.option("--value-bytes", type=SIZE, default="1700", show_default=True, help="Size of each value.")
@click.option("--files", type=click.IntRange(1), help="Stop after so many files.")
@click.option("--seconds", type=click.FloatRange(0), help="Stop after so many seconds.")
@click.option("--pause", type=DURATION, default="0s", show_default=True, help="Pause between two files.")
@click.option("--seed", type=int, default=0, show_default=True, help="Equal seeds give equal values.")
@click.option("--run", help="Second part of every key; default: the incarnation.")
@click.option("--close-log", type=click.Path(dir_okay=False, path_type=Path), help="Append a JSON line per txlog.")
def generate(name: str, quiet: bool, records: int, value_bytes: int, seed: int, run: str | None, **more: Any) -> None:
    """
    Generate rows of timestamp, key and value, and publish each file as one txlog.

    Without --files or --seconds it goes on until it is stopped (SIGTERM or Ctrl-C: after the current file).
    The key is `<name>/<run>/<number>`, so that a reader can tell whether each row arrived, and once.

    \b
    Examples:
      writer generate --folder /lake/events/_bookkeeper --files 10
      writer generate --folder /lake/events/_bookkeeper --name load-1 --seconds 60 --pause 200ms
      writer generate --folder /lake/events/_bookkeeper --records 1 --value-bytes 1MiB --files 1
    """
    from writers.generate import Load, Schedule, run_generate

    stop = begin(more)
    with open_writer(name, stop, more) as writer:
        load = Load(name, run or writer.incarnation, records, value_bytes, seed)
        schedule = Schedule(more["files"], more["seconds"], more["pause"], more["close_log"])
        run_generate(writer, load, schedule, stop, progress_of("generate", quiet, json_logs(more)), utc_now)


COMMANDS = [generate]
