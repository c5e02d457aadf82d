"""
Options that several commands share.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bookkeeper.console.options import DURATION, config_option, listen_option, log_options_from, table_option

Decorated = Any

folder_option = click.option(
    "--folder", metavar="URL", help="The table's txlog folder: a URL or path, as `bookkeeper init` prints it."
)


letters_option = click.option(
    "--dead-letters",
    metavar="URL",
    help="Txlog folder of the table for messages that are no rows; default: of TABLE__rejected, if there is one.",
)


def where(command: Decorated) -> Decorated:
    """Add --folder, --config, --table, --name, --patience, --quiet and the log options."""
    quiet = click.option("--quiet", is_flag=True, help="No progress on stderr.")
    text = "How long to wait while the bookkeeper is behind."
    patience = click.option("--patience", type=DURATION, default="10m", show_default=True, help=text)
    text = "Write figures there after each txlog, for Prometheus."
    metrics = click.option("--metrics", metavar="FILE", help=text)
    listen = listen_option("WRITER", "Serve /metrics there, for Prometheus.")
    shared = (quiet, patience, metrics, listen, table_option, config_option, folder_option)
    # At info there is a line per txlog, which would only disturb the progress.
    for option in (log_options_from("warning", "human"), *shared):
        command = option(command)
    return command


def reading(*kinds: str) -> Callable[[Decorated], Decorated]:
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
