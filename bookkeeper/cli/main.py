"""
The group of all commands.
"""

import click

from bookkeeper.cli import (
    completion,
    consumers,
    load,
    maintain_now,
    pending,
    rejected_rows,
    repair,
    run,
    setup,
    show,
    status,
    tail,
    top,
    waiting_txlogs,
)
from bookkeeper.console.errors import Commands


@click.group(cls=Commands)
@click.version_option(package_name="iceberg-bookkeeper")
def main() -> None:
    """
    Commits what independent writers publish to Apache Iceberg tables, exactly once.

    \b
    Example:
      bookkeeper --help
      bookkeeper load july.ndjson
      bookkeeper init --config bookkeeper.toml
      bookkeeper run --config bookkeeper.toml
    """


for part in (
    load,
    setup,
    run,
    pending,
    show,
    status,
    rejected_rows,
    top,
    tail,
    waiting_txlogs,
    maintain_now,
    repair,
    consumers,
    completion,
):
    for command in part.COMMANDS:
        main.add_command(command)
