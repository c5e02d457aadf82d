"""
`writer position`.
"""

import os
from typing import TYPE_CHECKING

import click

from bookkeeper.console.errors import Command
from bookkeeper.console.options import config_option, json_option, table_option
from bookkeeper.contract.names import check_writer
from bookkeeper.errors import Missing, NotPossible
from writers.cli.options import folder_option

if TYPE_CHECKING:
    from bookkeeper.contract.txlog_folder import Folder


@click.command(cls=Command, short_help="How far a writer has read its source.")
@config_option
@table_option
@folder_option
@click.option("--name", required=True, help="The writer's name.")
@click.option("--bytes", "only_bytes", is_flag=True, help="Print the number of bytes alone, for --at.")
@json_option
def position(
    config: str | None, table: str | None, folder: str | None, name: str, only_bytes: bool, as_json: bool
) -> None:
    """
    Print how far `writer lines` of this name has read its source: where its next run continues.

    What is published counts, committed or not. Of Parquet and Arrow files bytes and lines are rows. End the writer
    first: while it runs, it moves on.

    \b
    Examples:
      writer position --folder /lake/events/_bookkeeper --name app
    """
    from bookkeeper.console.output import show_record
    from bookkeeper.contract.txlog_folder import Folder
    from writers.sources.stdin import shown
    from writers.txlog_folders import folder_url, reach

    url = folder_url(folder, config, table, os.environ)
    stores = reach(folder, config, os.environ)
    record = shown(_position(Folder(stores(url)), name))
    if only_bytes:
        click.echo(record.get("bytes", 0))
    else:
        show_record(record, as_json)


def _position(folder: "Folder", name: str) -> bytes | None:
    """Where a run of the writer `name` would continue; raises NotPossible where there is no table."""
    from writers.publish.publisher import resume

    check_writer(name)
    try:
        return resume(folder, folder.card(), name, 0).position
    except Missing as exc:
        hint = "Give the folder that `bookkeeper init` printed."
        raise NotPossible(f"there is no card.json in {folder.store.url}", hint=hint) from exc


COMMANDS = [position]
