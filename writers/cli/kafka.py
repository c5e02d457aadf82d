"""
`writer kafka`, `writer kafka-group` and `writer kafka-replay`.
"""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.console.errors import Command
from bookkeeper.console.logs import set_up
from bookkeeper.console.options import SIZE, config_option, json_option, log_options_from, table_option
from writers.cli.context import begin, json_logs, progress_of, serve_figures, show_figures, utc_now
from writers.cli.options import folder_option, letters_option, reading, where

if TYPE_CHECKING:
    from writers.writer import Writer


@click.command(cls=Command, short_help="Copy topics of Kafka, each message once.")
@where
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
@reading("json", "debezium", "avro", "debezium-avro", "raw")
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
@letters_option
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
    from writers.kafka.command import run_kafka
    from writers.kafka.tables import targets
    from writers.txlog_folders import reach

    stop = begin(more)
    place = (more["dead_letters"], more["config"], more["table"])
    tables = targets(more["topics"], more["folder"], *place, os.environ)
    stores = reach(more["folder"], more["config"], os.environ)
    serve = partial(serve_figures, more["listen"], more["allowed_hosts"])
    run_kafka(tables, stores, name, more, stop, progress_of("kafka", quiet, json_logs(more)), serve, utc_now)


@click.command("kafka-group", cls=Command, short_help="Set a consumer group of Kafka to what is in the table.")
@config_option
@table_option
@folder_option
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
    from writers.kafka.command import run_group
    from writers.txlog_folders import folder_url, reach

    set_up(more["log_format"], more["log_level"])
    url = folder_url(folder, config, table, os.environ)
    stores = reach(folder, config, os.environ)
    run_group(Folder(stores(url)), name, more, utc_now)


@click.command("kafka-replay", cls=Command, short_help="Make rows of dead letters, each once.")
@where
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--name", required=True, help="Name of the copy whose dead letters these are.")
@reading("json", "avro", "raw")
@letters_option
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
    from writers.kafka.replay_command import run_replay
    from writers.txlog_folders import folder_url, letters_url, reach

    stop = begin(more)
    folder = folder_url(more["folder"], more["config"], more["table"], os.environ)
    stores = reach(more["folder"], more["config"], os.environ)
    letters = letters_url(more["dead_letters"], more["folder"], more["config"], more["table"], os.environ)

    def show(writer: "Writer") -> None:
        show_figures(writer, more["metrics"], more["listen"], more["allowed_hosts"])

    progress = progress_of("kafka-replay", quiet, json_logs(more))
    run_replay(file, (folder, letters), stores, name, more, stop, progress, show, utc_now)


COMMANDS = [kafka, kafka_group, kafka_replay]
