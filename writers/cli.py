"""
`writer`: rows into a table without a program of one's own.
"""

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.console.errors import Commands
from bookkeeper.console.logs import as_json, set_up
from bookkeeper.console.options import (
    DURATION,
    SIZE,
    config_option,
    delimiter,
    json_option,
    listen_option,
    log_options_from,
    table_option,
)
from bookkeeper.console.progress import Progress
from bookkeeper.console.signals import StopSignal

if TYPE_CHECKING:
    from writers.writer import Writer

Command = Any

_folder = click.option(
    "--folder", metavar="URL", help="The table's txlog folder: a URL or path, as `bookkeeper init` prints it."
)


_letters = click.option(
    "--dead-letters",
    metavar="URL",
    help="Txlog folder of the table for messages that are no rows; default: of TABLE__rejected, if there is one.",
)


def _where(command: Command) -> Command:
    """Add --folder, --config, --table, --name, --patience, --quiet and the log options."""
    quiet = click.option("--quiet", is_flag=True, help="No progress on stderr.")
    text = "How long to wait while the bookkeeper is behind."
    patience = click.option("--patience", type=DURATION, default="10m", show_default=True, help=text)
    text = "Write figures there after each txlog, for Prometheus."
    metrics = click.option("--metrics", metavar="FILE", help=text)
    listen = listen_option("WRITER", "Serve /metrics there, for Prometheus.")
    shared = (quiet, patience, metrics, listen, table_option, config_option, _folder)
    # At info there is a line per txlog, which would only disturb the progress.
    for option in (log_options_from("warning", "human"), *shared):
        command = option(command)
    return command


def _reading(*kinds: str) -> Callable[[Command], Command]:
    """Add --format, --registry, --schema, --column, --ignore-unknown, --base64 and --client."""
    text = "How values are read; raw: not at all, columns named value, key, topic ... take the parts."
    kind = click.option("--format", "kind", type=click.Choice(kinds), default="json", show_default=True, help=text)
    text = "A column for key, headers, timestamp, topic, partition, offset or value; repeatable."
    columns = click.option("--column", "columns", multiple=True, metavar="PART=COLUMN", help=text)
    text = "Pass over fields that the table does not have."
    unknown = click.option("--ignore-unknown", is_flag=True, help=text)
    text = "Values of binary columns are base64, not text."
    in_base64 = click.option("--base64", "base64_bytes", is_flag=True, help=text)
    text = "Registry with the schemas of Avro; messages begin with a schema id."
    registry = click.option("--registry", metavar="URL", help=text)
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    schema = click.option("--schema", type=file, help="File with the schema of Avro (.avsc); messages are bare values.")
    text = "File of librdkafka's settings, key=value, for TLS and SASL; and schema.registry.*."
    client = click.option("--client", type=file, help=text)
    return lambda command: kind(registry(schema(columns(unknown(in_base64(client(command)))))))


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


@main.command(short_help="Generate rows of timestamp, key and value.")
@_where
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
    from writers.commands import Schedule, run_generate
    from writers.generate import Load

    stop = _begin(more)
    with _open_writer(name, stop, more) as writer:
        load = Load(name, run or writer.incarnation, records, value_bytes, seed)
        schedule = Schedule(more["files"], more["seconds"], more["pause"], more["close_log"])
        run_generate(writer, load, schedule, stop, _progress("generate", quiet, _json_logs(more)), _now)


@main.command(short_help="Load NDJSON, CSV, Parquet or Arrow files, each row once.")
@_where
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
    from bookkeeper.format.input_files import delimiter_of
    from writers.commands import run_lines
    from writers.loader.formats import Format, format_of

    stop = _begin(more)
    retry = more["retry_bad"]
    if retry and (files or (bad or Path(f"{name}.bad.ndjson")).resolve() == Path(retry).resolve()):
        raise click.UsageError(
            "--retry-bad is read alone, and what is bad again goes to another file: give another --bad"
        )
    if "-" in files and len(files) > 1:
        raise click.UsageError("- is stdin, and is read alone")
    sources, files = files, (retry,) if retry else files
    kind = format_of(sources, more["kind"])
    if more["at"] is not None and (files != ("-",) or kind == "csv"):
        raise click.UsageError("--at is for NDJSON from stdin, as the file -")
    if more["nulls"] and kind != "csv":
        raise click.UsageError("--null is for CSV; JSON has a null of its own")
    _check_changes(more["op_field"], more["preset"], kind, retry)
    form = Format(
        kind,
        more["delimiter"] or delimiter_of(sources),
        more["base64_bytes"],
        more["nulls"],
        more["ignore_unknown"],
        retry=bool(retry),
        op_field=more["op_field"],
        debezium=more["preset"] == "debezium",
    )
    progress = _progress("lines", quiet, _json_logs(more))
    with _open_writer(name, stop, more) as writer:
        run_lines(writer, files, form, bad, more["max_bad"], stop, progress, _now, more["at"])


@main.command(short_help="Copy topics of Kafka, each message once.")
@_where
@click.option("--brokers", required=True, metavar="HOST:PORT[,...]", help="Brokers to begin with.")
@click.option(
    "--topic",
    "topics",
    required=True,
    multiple=True,
    metavar="TOPIC[=TABLE]",
    help="A topic, and its table if another than --table; repeatable.",
)
@click.option("--name", required=True, help="Name of this copy; offsets are kept under it, so keep it.")
@_reading("json", "debezium", "avro", "debezium-avro", "raw")
@click.option(
    "--from",
    "begin",
    default="earliest",
    show_default=True,
    metavar="WHERE",
    help="Where a new copy begins: earliest, latest, a time, or group:NAME for where a consumer group stands.",
)
@click.option(
    "--go-on",
    multiple=True,
    metavar="TOPIC[:PARTITION]=WHERE",
    help="Where to go on after a place was lost: earliest, latest or an offset; repeatable.",
)
@click.option(
    "--slots", type=click.IntRange(1, 100), default=16, show_default=True, help="Writers; never changed later."
)
@click.option("--share", default="1/1", show_default=True, metavar="K/N", help="This is instance K of N.")
@click.option("--group", metavar="NAME", help="Group whose offsets are set for Kafka's own tools; default: the name.")
@_letters
@click.option(
    "--max-bad",
    type=click.IntRange(0),
    help="Pass over so many bad messages; default: none, or all where they become dead letters.",
)
@click.option("--memory", type=SIZE, default="48MiB", show_default=True, help="For messages that are read ahead.")
@click.option("--until-end", is_flag=True, help="End once all partitions were read to their ends.")
def kafka(name: str, quiet: bool, **more: Any) -> None:
    """
    Copy topics of Kafka into tables, each message once: by its offset, which is committed with the rows.

    Stop or kill it at any time and start it again with the same --name. Several instances with --share 1/3, 2/3 and
    3/3 divide the work; one that is away is stood in for. On a keyed table each message is an upsert; --format
    debezium and debezium-avro bring deletes too.

    A message that is no row stops its partition, or is passed over with --max-bad. Where the table has `dead-letters =
    true`, or with --dead-letters, it is put into TABLE__rejected. A topic that was made anew, and offsets that are
    expired or went back, stop it too, with the option that goes on.

    \b
    Examples:
      writer kafka --folder /lake/orders/_bookkeeper --name orders --brokers kafka:9092 --topic orders
      writer kafka --folder /lake/log/_bookkeeper --name log --brokers kafka:9092 --topic log --format raw --until-end
      writer kafka --config lake.toml --name shop --brokers kafka:9092 --topic orders=orders --topic shop.users=users
    """
    from bookkeeper.console.web import serve_metrics
    from writers.commands import reach
    from writers.kafka.command import run_kafka
    from writers.kafka.tables import targets

    stop = _begin(more)
    place = (more["dead_letters"], more["config"], more["table"])
    tables = targets(more["topics"], more["folder"], *place, os.environ)
    stores = reach(more["folder"], more["config"], os.environ)

    def serve(text: Callable[[], str]) -> None:
        if more["listen"]:
            serve_metrics(more["listen"], text, more["allowed_hosts"])

    run_kafka(tables, stores, name, more, stop, _progress("kafka", quiet, _json_logs(more)), serve, _now)


@main.command("kafka-group", short_help="Set a consumer group of Kafka to what is in the table.")
@config_option
@table_option
@_folder
@click.option("--name", required=True, help="Name of the copy, as `writer kafka` was given it.")
@click.option("--brokers", required=True, metavar="HOST:PORT[,...]", help="Brokers to begin with.")
@click.option("--group", required=True, metavar="NAME", help="The consumer group whose offsets are set.")
@click.option("--client", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="As for `writer kafka`.")
@click.option("--dry-run", is_flag=True, help="Only show what would be set.")
@log_options_from("warning", "human")
@json_option
def kafka_group(config: str | None, table: str | None, folder: str | None, name: str, **more: Any) -> None:
    """
    Set the offsets of a consumer group to what a copy has committed in the table, so that its consumers go on there.

    Refused while an instance of the copy runs, while its txlogs are pending, and while the group has active members.
    A partition whose topic was made anew, or whose offset is expired, is named and not set; the exit code is 1 then.

    \b
    Examples:
      writer kafka-group --folder /lake/orders/_bookkeeper --name orders --brokers kafka:9092 --group shop --dry-run
      writer kafka-group --folder /lake/orders/_bookkeeper --name orders --brokers kafka:9092 --group shop
    """
    from bookkeeper.contract.txlog_folder import Folder
    from writers.commands import folder_url, reach
    from writers.kafka.command import run_group

    set_up(more["log_format"], more["log_level"])
    url = folder_url(folder, config, table, os.environ)
    stores = reach(folder, config, os.environ)
    run_group(Folder(stores(url)), name, more, _now)


@main.command("kafka-replay", short_help="Make rows of dead letters, each once.")
@_where
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--name", required=True, help="Name of the copy whose dead letters these are.")
@_reading("json", "avro", "raw")
@_letters
def kafka_replay(file: str, name: str, quiet: bool, **more: Any) -> None:
    """
    Make rows of the dead letters in FILE, which `bookkeeper rejected-rows --export` has written, each once.

    Mend the table first. Letters that are rows now are written to the table and leave TABLE__rejected; those that are
    still bad stay. Give the --format and --column of the copy, which may go on meanwhile.

    Stop or kill it at any time and start it again with the same FILE and --name: keep FILE until it has ended. A FILE
    that was exported before another replay is refused, and so are a keyed table and letters that the copy may still
    write again.

    \b
    Examples:
      writer kafka-replay orders.letters --table orders --name orders
    """
    from writers.commands import folder_url, letters_url, reach
    from writers.kafka.replay_command import run_replay

    stop = _begin(more)
    folder = folder_url(more["folder"], more["config"], more["table"], os.environ)
    stores = reach(more["folder"], more["config"], os.environ)
    letters = letters_url(more["dead_letters"], more["folder"], more["config"], more["table"], os.environ)

    def show(writer: "Writer") -> None:
        _show(writer, more["metrics"], more["listen"], more["allowed_hosts"])

    progress = _progress("kafka-replay", quiet, _json_logs(more))
    run_replay(file, (folder, letters), stores, name, more, stop, progress, show, _now)


@main.command(short_help="Take rows over HTTP, acknowledged exactly.")
@config_option
@click.option("--table", "tables", multiple=True, metavar="NAME", help="A table of the configuration; default: all.")
@click.option("--folder", "folders", multiple=True, metavar="URL", help="A table's txlog folder; repeatable.")
@click.option("--name", required=True, help="Name of this door; sequences are kept under it, so keep it.")
@click.option("--http", default="127.0.0.1:8080", show_default=True, metavar="HOST:PORT", help="Take rows there.")
@click.option("--advertise", metavar="URL", help="http://HOST:PORT at which other instances reach it; default: --http.")
@click.option(
    "--tokens",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of `TABLE TOKEN [requests=N] [bytes=SIZE]` lines (per second), * for all tables; read again on changes.",
)
@click.option("--no-tokens", is_flag=True, help="Everyone who reaches it may write.")
@click.option(
    "--slots",
    type=click.IntRange(1, 100),
    default=4,
    show_default=True,
    help="Writers of a table; never changed later.",
)
@click.option(
    "--producer-keep",
    type=DURATION,
    metavar="AGE",
    help="Forget a producer that sent nothing for so long, such as 90d; default: never.",
)
@click.option("--max-body", type=SIZE, default="8MiB", show_default=True, help="Of one request, unpacked.")
@click.option("--memory", type=SIZE, default="128MiB", show_default=True, help="For requests that wait.")
@click.option("--grace", type=DURATION, default="25s", show_default=True, help="For answers after SIGTERM.")
@listen_option("WRITER", "Serve /metrics and /healthz there.")
@log_options_from("warning", "human")
def serve(config: str | None, tables: tuple[str, ...], folders: tuple[str, ...], name: str, **more: Any) -> None:
    """
    Take rows over HTTP: POST /v1/tables/NAME/rows, with NDJSON or a JSON array of objects.

    With the headers Producer and Sequence (it rises by one with each request) a request is answered once its rows are
    in the table, and counts once, however often it is sent. Without them it is answered once its rows are published.

    TLS is the work of a proxy before it. SIGTERM: it takes no more requests, answers those it has, and ends.

    \b
    Examples:
      writer serve --name door --table events --tokens=tokens.txt --http 0.0.0.0:8080
      writer serve --name door --folder /lake/events/_bookkeeper --no-tokens
    """
    from writers.commands import reach, served_folders
    from writers.http.command import run_serve

    stop = _begin(more)
    stores = reach(folders[0] if folders else None, config, os.environ)
    run_serve(served_folders(folders, config, tables, os.environ), stores, name, more, stop, _now)


@main.command(short_help="Load what is dropped below a prefix, each object once.")
@_where
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
    from bookkeeper.console.web import serve_metrics
    from writers.commands import folder_url, reach
    from writers.watch.command import run_watch

    stop = _begin(more)
    folder = folder_url(more["folder"], more["config"], more["table"], os.environ)
    stores = reach(more["folder"], more["config"], os.environ)

    def serve(text: Callable[[], str]) -> None:
        if more["listen"]:
            serve_metrics(more["listen"], text, more["allowed_hosts"])

    run_watch(source, folder, stores, name, more, stop, _progress("watch", quiet, _json_logs(more)), serve, _now)


@main.command(short_help="How far a writer has read its source.")
@config_option
@table_option
@_folder
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
    from writers.commands import folder_url, position_of, reach
    from writers.sources.stdin import shown

    url = folder_url(folder, config, table, os.environ)
    stores = reach(folder, config, os.environ)
    record = shown(position_of(Folder(stores(url)), name))
    if only_bytes:
        click.echo(record.get("bytes", 0))
    else:
        show_record(record, as_json)


def _check_changes(op_field: str | None, preset: str | None, kind: str, retry: str | None) -> None:
    if op_field is not None and preset:
        raise click.UsageError("--op-field is for flat rows, --preset for an envelope: give one of them")
    if preset and kind == "csv":
        raise click.UsageError(f"--preset {preset} is JSON; for CSV give --op-field")
    if retry and (op_field is not None or preset):
        raise click.UsageError("--retry-bad is not for changes: an old change of a key could replace a newer one")


def _begin(options: dict[str, Any]) -> StopSignal:
    set_up(options["log_format"], options["log_level"])
    return StopSignal.on_signals()


def _json_logs(options: dict[str, Any]) -> bool:
    return as_json(options["log_format"], sys.stderr)


def _open_writer(name: str, stop: StopSignal, options: dict[str, Any]) -> "Writer":
    from writers.commands import folder_url, reach
    from writers.writer import Writer

    folder = folder_url(options["folder"], options["config"], options["table"], os.environ)
    stores = reach(options["folder"], options["config"], os.environ)
    writer = Writer.open(folder, name, clock=_now, wait=stop.wait, patience=options["patience"], stores=stores)
    _show(writer, options["metrics"], options["listen"], options["allowed_hosts"])
    return writer


def _show(writer: "Writer", metrics: str | None, listen: str | None, allowed_hosts: tuple[str, ...]) -> None:
    from bookkeeper.console.web import serve_metrics

    writer.figures.path = metrics
    writer.figures.write()
    if listen:
        serve_metrics(listen, writer.figures.text, allowed_hosts)


def _progress(label: str, quiet: bool, as_json: bool) -> Progress:
    return Progress(label, _now, sys.stderr, quiet=quiet, as_json=as_json)


def _now() -> datetime:
    return datetime.now(UTC)
