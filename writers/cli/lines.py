"""
`writer lines`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.console.errors import Command
from bookkeeper.console.options import delimiter
from writers.cli.context import begin, json_logs, open_writer, progress_of, utc_now
from writers.cli.options import where

if TYPE_CHECKING:
    from writers.loader.formats import Format


@click.command(cls=Command, short_help="Load NDJSON, CSV, Parquet or Arrow files, each row once.")
@where
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--name", required=True, help="This writer's name; the position is kept under it, so keep it.")
@click.option(
    "--format", "kind", type=click.Choice(["ndjson", "csv"]), help="Default: by the file's ending, else ndjson."
)
@click.option("--delimiter", callback=delimiter, help="Between two CSV fields; default: a tab in *.tsv, else a comma.")
@click.option("--null", "nulls", metavar="TEXT", multiple=True, help="A CSV field of this text is null; repeatable.")
@click.option("--ignore-unknown", is_flag=True, help="Pass over fields that the table does not have.")
@click.option("--max-bad", type=click.IntRange(0), metavar="N", help="Stop with exit code 1 after more bad lines.")
@click.option("--base64", "base64_bytes", is_flag=True, help="Values of binary columns are base64, not text.")
@click.option("--bad", type=click.Path(dir_okay=False, path_type=Path), help="For bad lines; default: NAME.bad.ndjson.")
@click.option(
    "--retry-bad",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Load the lines in this file of bad lines again, under a --name of its own.",
)
@click.option("--at", type=click.IntRange(0), metavar="BYTE", help="With the file -: stdin begins there, in NDJSON.")
@click.option(
    "--op-field",
    metavar="NAME",
    help="For keyed tables: each line is an upsert or a delete, as this field says (i, c, r or u; d).",
)
@click.option(
    "--preset", type=click.Choice(["debezium"]), help="For keyed tables: each line is a change in this envelope."
)
def lines(name: str, quiet: bool, files: tuple[str, ...], bad: Path | None, **more: Any) -> None:
    """
    Load lines (NDJSON, or CSV with a header) from files or stdin into the table's columns, or Parquet and Arrow files.

    Files are loaded exactly once: stop or kill it at any time and start it again with the same --name and files,
    it continues where the last published txlog ends. More files may follow later, and the last one may grow.
    Stdin has no position: what was not published when it is killed is lost. With the file - it has one, for input that
    can be sent again: from its begin, of which the lines that are in are passed over, or from what `writer position`
    prints, with --at.

    A line that is no row of the table goes to the --bad file with its reason; when no line is one, the exit code is 1.
    One line is one record; times are written like 2026-01-31T12:00:00Z; an empty CSV field is null. Files may be
    compressed with gzip, zstd or bzip2.

    With --op-field or --preset the lines are changes, applied in their order. A change that cannot be applied, such as
    a truncate, ends the load with exit code 1.

    \b
    Examples:
      writer lines --folder /lake/events/_bookkeeper --name import-1 july.ndjson august.ndjson
      writer lines --folder /lake/orders/_bookkeeper --name orders --preset debezium orders.ndjson
      writer lines --folder /lake/users/_bookkeeper --name users --op-field __op users.ndjson
      writer lines --folder /lake/events/_bookkeeper --name prices --format csv --delimiter ';' --null NA prices.txt
      writer lines --folder /lake/events/_bookkeeper --name import-1-again --retry-bad=import-1.bad.ndjson
      tail -F app.log | writer lines --folder /lake/events/_bookkeeper --name app
      cat july.ndjson | writer lines --folder /lake/events/_bookkeeper --name july -
    """
    from writers.loader.run_lines import run_lines

    stop = begin(more)
    _check_files(files, more["retry_bad"], bad or Path(f"{name}.bad.ndjson"))
    form = _form(files, more)
    read = (more["retry_bad"],) if more["retry_bad"] else files
    progress = progress_of("lines", quiet, json_logs(more))
    with open_writer(name, stop, more) as writer:
        run_lines(writer, read, form, bad, more["max_bad"], stop, progress, utc_now, more["at"])


def _check_files(files: tuple[str, ...], retry: str | None, bad: Path) -> None:
    if retry and files:
        raise click.UsageError("--retry-bad is read alone")
    if any(bad.resolve() == Path(name).resolve() for name in (*files, *([retry] if retry else []))):
        raise click.UsageError(f"{bad} is read, and what is bad goes to another file: give another --bad, or --name")
    if "-" in files and len(files) > 1:
        raise click.UsageError("- is stdin, and is read alone")


def _form(files: tuple[str, ...], options: dict[str, Any]) -> "Format":
    """How the lines are written; raises UsageError for options that do not fit each other."""
    from bookkeeper.format.input_files import delimiter_of
    from writers.loader.formats import Format, format_of

    retry, kind = options["retry_bad"], format_of(files, options["kind"])
    if options["at"] is not None and (retry or files != ("-",) or kind == "csv"):
        raise click.UsageError("--at is for NDJSON from stdin, as the file -")
    if options["nulls"] and kind != "csv":
        raise click.UsageError("--null is for CSV; JSON has a null of its own")
    _check_changes(options["op_field"], options["preset"], kind, retry)
    return Format(
        kind,
        options["delimiter"] or delimiter_of(files),
        options["base64_bytes"],
        options["nulls"],
        options["ignore_unknown"],
        retry=bool(retry),
        op_field=options["op_field"],
        debezium=options["preset"] == "debezium",
    )


def _check_changes(op_field: str | None, preset: str | None, kind: str, retry: str | None) -> None:
    if op_field is not None and preset:
        raise click.UsageError("--op-field is for flat rows, --preset for an envelope: give one of them")
    if preset and kind == "csv":
        raise click.UsageError(f"--preset {preset} is JSON; for CSV give --op-field")
    if retry and (op_field is not None or preset):
        raise click.UsageError("--retry-bad is not for changes: an old change of a key could replace a newer one")


COMMANDS = [lines]
