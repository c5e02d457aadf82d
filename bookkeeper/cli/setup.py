"""
`bookkeeper init`, `bookkeeper drop`, and `bookkeeper recover-catalog` for a catalog that was lost.
"""

import os
import shlex
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.cli.columns import Plan, load_words, plan_columns, review, say_inferred
from bookkeeper.cli.context import settings_of, several_tables, tables_option, utc_now
from bookkeeper.config.dead_letters import names_of_letters
from bookkeeper.config.units import from_epoch_ms
from bookkeeper.console import completing
from bookkeeper.console.errors import Command, exit_code, say_error
from bookkeeper.console.options import config_option, delimiter, json_option
from bookkeeper.console.output import say, show_record, show_rows
from bookkeeper.stores.locations import local_path

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from bookkeeper.commands.init import Initialised
    from bookkeeper.commands.recover_catalog import Recovery
    from bookkeeper.config.settings import Settings, Table


@click.command(cls=Command, short_help="Create table and txlog folder, or adopt a table.")
@config_option
@tables_option
@click.option("--schema", metavar="FILE", help="Columns of a new table: JSON list, Iceberg schema JSON, or TOML.")
@click.option("--like", metavar="FILE", help="Columns of a new table from data: CSV, NDJSON, Parquet, Arrow.")
@click.option(
    "--null", "nulls", metavar="TEXT", multiple=True, help="With --like, a CSV field that is null; repeatable."
)
@click.option(
    "--delimiter", callback=delimiter, help="With --like, between two CSV fields; default: as `writer lines`."
)
@click.option(
    "--preset", type=click.Choice(["debezium"]), help="With --like, lines are changes in this envelope; needs a key."
)
@click.option("--dry-run", is_flag=True, help="Only show the columns and partitions of a new table; change nothing.")
@click.option("--write-schema", metavar="FILE", help="Write the columns there, for --schema; change nothing.")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="FIELD",
    help="What a new table is partitioned by: day(ts), bucket(16, key), a column; may be repeated. none: by nothing.",
)
@click.option("--key", "keys", multiple=True, metavar="COLUMN", help="Make the table keyed by it; may be repeated.")
@click.option("--op-column", metavar="COLUMN", help="Text column that tells streams of deletes, with --key.")
@click.option("--order-column", metavar="COLUMN", help="Column (long) that orders a key's versions, with --key.")
@json_option
def init(
    config: str | None,
    tables: tuple[str, ...],
    schema: str | None,
    like: str | None,
    partitions: tuple[str, ...],
    as_json: bool,
    **more: Any,
) -> None:
    """
    Create namespace, table, folder and card, or adopt an existing v2 table.

    Safe to run again: it creates what is missing. Without --schema or --like a new table has the columns of the
    config, or timestamp, key and value. Without --partition it is partitioned as the config says, else by the day of
    its first column with a time. An existing table is not changed, but for --key.

    --like infers the columns from a file as `writer lines` loads it, compressed or not: types that hold every value of
    its first rows, all optional but what Parquet requires and the --key. It says what it chose, and why. --dry-run
    shows it and changes nothing; --write-schema FILE writes it, to be corrected and given as --schema FILE.

    --preset debezium takes the columns of the rows in a change stream. A new table gets the --op-column and the
    --order-column that its columns lack; writers fill them.

    --key, or `key` in the config, makes a new or an existing table keyed: its rows are upserted and deleted by key. Its
    identifier fields are set, and a partition spec for deletes is added where it needs one, never made the default.

    \b
    Example:
      bookkeeper init --config bookkeeper.toml
      bookkeeper init --table events --like sample.parquet --partition "day(timestamp)"
      bookkeeper init --table events --like prices.csv --delimiter ';' --null NA --dry-run
      bookkeeper init --table events --key key
      bookkeeper init --table events --like orders.json --preset debezium --key id --dry-run
    """
    _check_columns(schema, like, more)
    settings = settings_of(config)
    wanted = None if not partitions else () if partitions == ("none",) else partitions
    letters = names_of_letters(settings.tables.values())
    plans = _plans(settings, tables, schema, like, letters, more)
    if more["dry_run"] or more["write_schema"]:
        review(plans, wanted, more["write_schema"], as_json)
        return
    from bookkeeper.catalogs.open import open_catalog

    check_not_lost(settings)
    catalog = open_catalog(settings.catalog, create=True)
    rows = []
    for plan in plans:
        source, partition = (None, None) if plan.table.name in letters else (schema or like, wanted)
        made = make(catalog, plan, source, partition)
        if plan.inferred is not None and like and "table" in made.made:
            say(f"{plan.table.name}: load it: {shlex.join(load_words(plan, like, made.folder, config))}")
        rows.append(_row(plan.table.name, made))
    show_rows(rows, as_json)


def _check_columns(schema: str | None, like: str | None, options: Mapping[str, Any]) -> None:
    if schema and like:
        raise click.UsageError("--schema and --like both say the columns: give one of them")
    if (options["nulls"] or options["delimiter"] or options["preset"]) and not like:
        raise click.UsageError("--null, --delimiter and --preset are for --like")


def _plans(
    settings: "Settings",
    tables: tuple[str, ...],
    schema: str | None,
    like: str | None,
    letters: Set[str],
    options: Mapping[str, Any],
) -> list[Plan]:
    """The columns of the tables that are named, then those of their tables of dead letters."""
    chosen = [
        replace(
            configured,
            key=options["keys"] or configured.key,
            op_column=options["op_column"] or configured.op_column,
            order_column=options["order_column"] or configured.order_column,
        )
        for configured in several_tables(settings, tables)
    ]
    reads = (options["nulls"], options["delimiter"], options["preset"] == "debezium")
    plans = [plan_columns(table, schema, like, *reads) for table in chosen if table.name not in letters]
    added = names_of_letters(chosen) | {table.name for table in chosen}
    return plans + [plan_columns(settings.tables[name], None, None) for name in sorted(letters & added)]


def _row(name: str, made: "Initialised") -> dict[str, Any]:
    return {
        "table": name,
        "identifier": made.table,
        "partition": made.partition,
        "made": ", ".join(made.made) or "nothing, all was there",
        "folder": made.folder,
    }


def make(catalog: "Catalog", plan: Plan, source: str | None, partition: Sequence[str] | None = None) -> "Initialised":
    """
    Make the table of a plan, or adopt it, and say what was chosen; `source` is the file that its columns are from.
    """
    from bookkeeper.commands.init import initialise

    name = plan.table.name
    made = initialise(catalog, plan.table, plan.schema, partition=partition, fitting=plan.fitting)
    if source and "table" not in made.made:
        say(f"{name}: the table is there: it keeps its columns, whatever {source} has.")
    elif plan.inferred is not None:
        say_inferred(plan.inferred, name)
    for note in (*(plan.notes if "table" in made.made else ()), *made.notes):
        say(f"{name}: {note}")
    return made


def check_not_lost(settings: "Settings") -> None:
    """Raises NotPossible before an empty catalog is created where folders still know a lost one."""
    from bookkeeper.catalogs.sqlite_file import is_lost
    from bookkeeper.contract.known_table import check_unknown

    if is_lost(settings.catalog):
        for table in settings.tables.values():
            check_unknown(settings.catalog.properties, table)


@click.command("recover-catalog", cls=Command, short_help="Register tables again after the catalog was lost.")
@config_option
@tables_option
@click.option("--metadata", metavar="FILE", help="Take this metadata file, by its name or URL; with one --table.")
@json_option
@click.option("--yes", is_flag=True, help="Do it; without, only show what would be registered.")
@click.pass_context
def recover_catalog(
    context: click.Context, config: str | None, tables: tuple[str, ...], metadata: str | None, as_json: bool, yes: bool
) -> None:
    """
    Register tables again after the catalog, or its entry of a table, was lost or is an old copy.

    For each table it takes the newest metadata file in the table's own metadata directory that knows the last commit
    of marks.json, and refuses when none does. It writes only the catalog and its entry; pending txlogs are committed
    by the next tick. If the old catalog turns up later, it must not be used any more.

    \b
    Example:
      bookkeeper recover-catalog
      bookkeeper recover-catalog --table events --yes
    """
    settings = settings_of(config)
    chosen = several_tables(settings, tables)
    if metadata is not None and len(chosen) != 1:
        raise click.UsageError("--metadata goes with one --table")
    rows, worst = [], 0
    from bookkeeper.errors import BookkeeperError

    for table in chosen:
        try:
            rows.append({"table": table.name, **_recover(settings, table, metadata, yes)})
        except BookkeeperError as error:
            say_error(f"{table.identifier}: {error}", error.hint)
            rows.append({"table": table.name, "outcome": type(error).__name__})
            worst = max(worst, exit_code(error))
    show_rows(rows, as_json)
    context.exit(worst)


def _recover(settings: "Settings", table: "Table", metadata: str | None, yes: bool) -> dict[str, Any]:
    from bookkeeper.catalogs.open import open_catalog
    from bookkeeper.commands.recover_catalog import recover, recoverable
    from bookkeeper.contract.known_table import known_table
    from bookkeeper.contract.txlog_folder import Folder
    from bookkeeper.errors import NotPossible
    from bookkeeper.stores.open import open_store, stores_with

    known = known_table(settings.catalog.properties, table)
    if known is None:
        if table.folder is not None:
            Folder(open_store(table.folder, settings.catalog.properties)).check()
        raise NotPossible(
            "no txlog folder knows this table",
            hint="If the table is not in the catalog's default place, say `location` or `folder` in its section. A "
            "table that never was: `bookkeeper init`.",
        )
    catalog = _catalog_there(settings)
    found = recoverable(known, table, catalog, stores_with(settings.catalog.properties), metadata)
    record = _found(found)
    if not found.needed:
        return record | {"outcome": "nothing to recover"}
    if not yes:
        return record | {"outcome": "dry run"}
    catalog = catalog or open_catalog(settings.catalog, create=True)
    recover(catalog, table, found)
    return record | {"outcome": _state(catalog, table)}


def _catalog_there(settings: "Settings") -> "Catalog | None":
    """None where only its file is missing; a missing directory may be a disk that is not mounted."""
    from bookkeeper.catalogs.open import open_catalog
    from bookkeeper.catalogs.sqlite_file import is_lost, sqlite_path

    path = sqlite_path(settings.catalog.properties.get("uri", ""))
    lost = path is not None and os.path.isdir(os.path.dirname(path)) and is_lost(settings.catalog)
    return None if lost else open_catalog(settings.catalog)


def _found(found: "Recovery") -> dict[str, Any]:
    from bookkeeper.history.main_history import counted

    newest, copy, there = found.newest.metadata, found.copy, found.there
    last = copy.marks.snapshot if copy else None
    confirmed = "no marks.json" if copy is None else "the same" if last == found.newest.marks.snapshot else "older"
    return {
        "metadata": found.newest.location,
        "updated": from_epoch_ms(newest.last_updated_ms),
        "sequence": found.newest.age[0],
        "snapshots": len(newest.snapshots),
        "rows": counted(newest.current_snapshot(), "total-records"),
        "marks.json": confirmed,
        "catalog_now": "no such table" if there is None else there.metadata_location.rpartition("/")[2],
        "passed_over": len(found.passed),
    }


def _state(catalog: "Catalog", table: "Table") -> str:
    from bookkeeper.errors import Halt
    from bookkeeper.ledger.ledger import Ledger
    from bookkeeper.ledger.load import load
    from bookkeeper.serve.open import open_folder

    try:
        load(Ledger(catalog, table.identifier, utc_now), open_folder(catalog, table))
    except Halt as error:
        return f"registered, but halted: {error}"
    return "registered"


@click.command(cls=Command, short_help="Drop a table that was made by mistake.")
@click.argument("table", metavar="TABLE", shell_complete=completing.tables)
@config_option
@json_option
@click.option("--yes", is_flag=True, help="Do it; without, only show what would be dropped.")
@click.option("--force", is_flag=True, help="Drop it with its rows, txlogs and registered consumers.")
def drop(table: str, config: str | None, as_json: bool, yes: bool, force: bool) -> None:
    """
    Drop a table: its entry in the catalog and its txlog folder. TABLE is the name of its section.

    A table with live rows, pending or rejected txlogs, or registered consumers is kept, unless --force is given. Data
    and metadata files stay: it says where they are and how they are deleted. First end its writers, and take its
    section out of the configuration of a bookkeeper that runs; `drop` needs the section. After a crash run it again.

    \b
    Example:
      bookkeeper drop events
      bookkeeper drop events --yes --force
    """
    from bookkeeper.catalogs.open import open_catalog
    from bookkeeper.commands.drop import drop as drop_now
    from bookkeeper.commands.drop import droppable
    from bookkeeper.console.options import pick_table

    settings = settings_of(config)
    chosen = pick_table(settings, table)
    catalog = open_catalog(settings.catalog)
    found = droppable(catalog, chosen)
    left = found.entry.metadata.location if found.entry else chosen.location
    record: dict[str, Any] = {
        "table": chosen.name,
        "identifier": chosen.identifier,
        "entry": found.entry.metadata_location if found.entry else "is gone already",
        "folder": found.folder.store.url if found.folder else None,
        "objects": len(found.keys),
        "against": ", ".join(found.against) or "nothing",
        "files_stay_in": left,
        "outcome": "dry run",
    }
    if yes:
        drop_now(catalog, found, force)
        record["outcome"] = "dropped"
    show_record(record, as_json)
    if not yes:
        say(f"to drop it: bookkeeper drop {table} --yes{' --force' if found.against else ''}")
    elif left:
        say(f"its data and metadata files are left in {left}; to delete them: {_deletion(left)}")
        say("do that before a table is made there again")


def _deletion(location: str) -> str:
    path = local_path(location)
    return shlex.join(["rm", "-r", path]) if path else f"delete everything below {location}/ with your storage's tools"


COMMANDS = (init, recover_catalog, drop)
