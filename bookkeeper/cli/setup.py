"""
`bookkeeper init`.
"""

import click

from bookkeeper.cli.context import settings_of, several_tables, tables_option
from bookkeeper.console.errors import Command
from bookkeeper.console.options import config_option, json_option
from bookkeeper.console.output import say, show_rows


@click.command(cls=Command, short_help="Make table and txlog folder, or adopt a table.")
@config_option
@tables_option
@click.option("--schema", metavar="FILE", help="Columns of a new table: JSON list, Iceberg schema JSON, or TOML.")
@click.option("--like", metavar="FILE", help="Take the columns of a new table from this Parquet file.")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="FIELD",
    help="What a new table is partitioned by: day(ts), bucket(16, key), a column; may be repeated. none: by nothing.",
)
@json_option
def init(
    config: str | None,
    tables: tuple[str, ...],
    schema: str | None,
    like: str | None,
    partitions: tuple[str, ...],
    as_json: bool,
) -> None:
    """
    Make namespace, table, folder and card, or adopt an existing v2 table.

    Safe to run again: it makes what is missing. Without --schema or --like a new table has the columns of the
    config, or timestamp, key and value. Without --partition it is partitioned as the config says, else by the day of
    its first column with a time. Nothing of a table that is there is changed.

    \b
    Example:
      bookkeeper init --config bookkeeper.toml
      bookkeeper init --table events --like sample.parquet --partition "day(seen)"
    """
    from bookkeeper.core.catalog import open_catalog
    from bookkeeper.initialise import initialise, schema_for

    settings = settings_of(config)
    catalog = open_catalog(settings.catalog, create=True)
    rows = []
    wanted = None if not partitions else () if partitions == ("none",) else partitions
    for table in several_tables(settings, tables):
        made = initialise(catalog, table, schema_for(table, schema, like), partition=wanted)
        if (schema or like) and "table" not in made.made:
            say(f"{table.name}: the table is there: its columns stay, and {schema or like} is not used.")
        for note in made.notes:
            say(f"{table.name}: {note}")
        rows.append(
            {
                "table": table.name,
                "identifier": made.table,
                "partition": made.partition,
                "made": ", ".join(made.made) or "nothing, all was there",
                "folder": made.folder,
            }
        )
    show_rows(rows, as_json)


COMMANDS = (init,)
