"""
`bookkeeper init`.
"""

import click

from bookkeeper.cli.context import settings_of, several_tables, tables_option
from bookkeeper.console.errors import Command
from bookkeeper.console.options import config_option, json_option
from bookkeeper.console.output import show_rows


@click.command(cls=Command, short_help="Make table and txlog folder, or adopt a table.")
@config_option
@tables_option
@click.option("--schema", metavar="FILE", help="Columns of a new table: JSON list, Iceberg schema JSON, or TOML.")
@click.option("--like", metavar="FILE", help="Take the columns of a new table from this Parquet file.")
@json_option
def init(config: str | None, tables: tuple[str, ...], schema: str | None, like: str | None, as_json: bool) -> None:
    """
    Make namespace, table, folder and card, or adopt an existing v2 table.

    Safe to run again: it makes what is missing. Without --schema or --like a new table has the columns of the
    config, or timestamp, key and value.

    \b
    Example:
      bookkeeper init --config bookkeeper.toml
      bookkeeper init --table events --like sample.parquet
    """
    from bookkeeper.core.catalog import open_catalog
    from bookkeeper.initialise import initialise, schema_for

    settings = settings_of(config)
    catalog = open_catalog(settings.catalog, create=True)
    rows = []
    for table in several_tables(settings, tables):
        made = initialise(catalog, table, schema_for(table, schema, like))
        rows.append(
            {
                "table": table.name,
                "identifier": made.table,
                "made": ", ".join(made.made) or "nothing, all was there",
                "folder": made.folder,
            }
        )
    show_rows(rows, as_json)


COMMANDS = (init,)
