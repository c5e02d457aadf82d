"""
The group of all commands.
"""

import click

from bookkeeper.cli import completion, consumers, load, rejected_rows, repair, run, setup, status, tail, top
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


for part in (load, setup, run, status, rejected_rows, top, tail, repair, consumers, completion):
    for command in part.COMMANDS:
        main.add_command(command)
