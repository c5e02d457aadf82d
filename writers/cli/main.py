"""
`writer`: rows into a table without a program of one's own; the group of all commands.
"""

import click

from bookkeeper.console.errors import Commands
from writers.cli import generate, http, kafka, lines, position, watch


@click.group(cls=Commands)
@click.version_option(package_name="iceberg-bookkeeper", prog_name="writer")
def main() -> None:
    """
    Write rows into an Iceberg table that a bookkeeper commits: data files and a txlog, no catalog needed.

    \b
    Examples:
      writer generate --folder /lake/events/_bookkeeper --files 10
      writer lines --folder /lake/events/_bookkeeper --name import-1 july.ndjson august.ndjson
    """


for part in (generate, lines, kafka, http, watch, position):
    for command in part.COMMANDS:
        main.add_command(command)
