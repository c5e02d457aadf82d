"""
The commands `writer kafka` and `writer kafka-group`, with their options parsed.
"""

import ctypes
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.config.share import parse as parse_share
from bookkeeper.console.exposition import replace_file, text
from bookkeeper.console.families import exposed
from bookkeeper.console.output import say, show_rows
from bookkeeper.console.progress import Progress
from bookkeeper.console.signals import StopSignal
from bookkeeper.contract.names import check_writer
from bookkeeper.contract.offsets import slot_name
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import ConfigInvalid, NotPossible
from bookkeeper.stores.store import Store
from bookkeeper.threads import repeating
from writers.kafka import start_option
from writers.kafka.avro import AvroForm, ById, OneSchema
from writers.kafka.avro_schema import SCHEMA_BYTES, AvroRefused, AvroSchema
from writers.kafka.client import Cluster, properties_in
from writers.kafka.messages import PARTS, Form
from writers.kafka.schema_registry import Registry, access_to
from writers.kafka.set_group import set_group
from writers.kafka.slot_loop import read_slot
from writers.kafka.source import Memory, Shared, Wanted
from writers.kafka.tables import Target, run_tables
from writers.loader.formats import Format
from writers.metrics import FAMILIES, WriterMetrics
from writers.opener import Opener
from writers.timing import Clock

log = logging.getLogger(__name__)

_FIGURES_SECONDS = 5.0
#: malloc.h
_M_TRIM_THRESHOLD, _M_ARENA_MAX = -1, -8


def wanted_of(name: str, topics: Sequence[str], options: Mapping[str, Any], client: Mapping[str, str]) -> Wanted:
    """
    What the options of the command say, with the settings of the client; raises ConfigInvalid.
    """
    slots = options["slots"]
    check_writer(slot_name(name, slots - 1))
    form, filled = reading_of(options, client)
    try:
        share = parse_share(options["share"])
    except ValueError as exc:
        raise ConfigInvalid(f"--share {options['share']}: {exc} is expected") from exc
    return Wanted(
        name,
        topics,
        start_option.parsed(options["begin"]),
        form,
        filled,
        slots,
        share,
        [*map(start_option.go_on, options["go_on"])],
        options["max_bad"],
        options["until_end"],
    )


def reading_of(options: Mapping[str, Any], client: Mapping[str, str]) -> tuple[Form | None, dict[str, str]]:
    """
    How values are read, None: not at all, and which part of a message which column holds; raises ConfigInvalid.
    """
    return form_of(options, client), dict(map(_filled, options["columns"]))


def form_of(options: Mapping[str, Any], client: Mapping[str, str]) -> Form | None:
    """
    How values are read; None: not at all. Raises ConfigInvalid.
    """
    kind, registry, schema = options["kind"], options["registry"], options["schema"]
    is_avro = kind in ("avro", "debezium-avro")
    for option, is_given in (("--registry", registry), ("--schema", schema)):
        if is_given and not is_avro:
            raise ConfigInvalid(f"{option} is for --format avro and debezium-avro, not for {kind}")
    if options["base64_bytes"] and kind not in ("json", "debezium"):
        raise ConfigInvalid(f"--base64 is for --format json and debezium, not for {kind}")
    if options["ignore_unknown"] and kind == "raw":
        raise ConfigInvalid("--ignore-unknown is not for --format raw, which reads no fields")
    if is_avro:
        if (registry is None) == (schema is None):
            raise ConfigInvalid(f"--format {kind}: either --registry or --schema says which schema a message has")
        schemas = OneSchema(_schema_in(schema)) if registry is None else ById(_registry(registry, client).schema)
        return AvroForm(schemas, kind == "debezium-avro", options["ignore_unknown"])
    if kind == "raw":
        return None
    return Format(
        "ndjson",
        base64_bytes=options["base64_bytes"],
        ignore_unknown=options["ignore_unknown"],
        debezium=kind == "debezium",
    )


def _registry(url: str, client: Mapping[str, str]) -> Registry:
    return Registry(access_to(url, client))


def _schema_in(path: Path) -> AvroSchema:
    try:
        with path.open("rb") as file:
            return AvroSchema(file.read(SCHEMA_BYTES + 1))
    except OSError as exc:
        raise ConfigInvalid(f"--schema {path} cannot be read: {exc}") from exc
    except AvroRefused as exc:
        raise ConfigInvalid(f"--schema {path}: {exc}") from exc


def _filled(text: str) -> tuple[str, str]:
    part, _, column = text.partition("=")
    if part not in PARTS or not column:
        raise ConfigInvalid(f"--column {text}: PART=COLUMN is expected, with PART one of {', '.join(PARTS)}")
    return part, column


def run_kafka(
    targets: Sequence[Target],
    stores: Callable[[str], Store],
    name: str,
    options: Mapping[str, Any],
    stop: StopSignal,
    progress: Progress,
    serve: Callable[[Callable[[], str]], None],
    clock: Clock,
) -> None:
    """
    Reads topics into their tables until a stop is requested or, with `until_end`, all is read. `serve` is given what
    makes the text of the metrics. Raises NotPossible where partitions have stopped and nothing else is left.
    """
    _save_memory()
    client = properties_in(options["client"])
    cluster = Cluster(options["brokers"], client, options["group"] or name)
    memory = Memory(options["memory"])

    def opener(url: str) -> Opener:
        return Opener(url, stores, clock, stop.wait, options["patience"])

    tables = [
        Shared(
            wanted_of(name, target.topics, options, client),
            cluster,
            opener(target.folder),
            clock,
            stop.wait,
            stop.asked,
            None if target.letters is None else opener(target.letters),
            memory=memory,
        )
        for target in targets
    ]
    serve(lambda: metrics(tables))
    began = clock()

    def tell() -> None:
        progress.tell(_counts(tables, clock() - began))
        if options["metrics"]:
            _write_metrics(options["metrics"], tables)

    with repeating(tell, _FIGURES_SECONDS, "figures of kafka"):
        run_tables(tables, read_slot)
    tell()
    progress.close(_counts(tables, clock() - began))
    if stop.requested:
        say("stopped; start it again with the same --name to continue")


def _write_metrics(path: str, tables: Sequence[Shared]) -> None:
    try:
        replace_file(path, metrics(tables))
    except NotPossible as error:
        log.warning("metrics not written", extra={"action": "metrics", "cause": str(error)})


def run_group(folder: Folder, name: str, options: Mapping[str, Any], clock: Clock) -> None:
    """
    Sets a consumer group to what the copy `name` has committed, and prints it; raises NotPossible where it cannot all.
    """
    cluster = Cluster(options["brokers"], properties_in(options["client"]), name)
    steps = set_group(folder, cluster, name, options["group"], clock, options["dry_run"])
    outcome = "would be set" if options["dry_run"] else "set"
    show_rows(
        [
            {"partition": it.partition, "before": it.before, "offset": it.offset, "outcome": it.refused or outcome}
            for it in steps
        ],
        options["as_json"],
    )
    if refused := [it.partition for it in steps if it.refused]:
        hint = "Decide where the group goes on there: `kafka-consumer-groups --reset-offsets`."
        raise NotPossible(f"{len(refused)} partitions are not set: {', '.join(refused)}", hint=hint)


def _save_memory() -> None:
    """
    Of many threads each keeps what it has freed, in Arrow's own pool and in glibc's arenas: as much memory again. With
    a fixed threshold glibc does not raise the size from which a buffer is given back at once.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(OSError, AttributeError):  # another libc
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**20)


def metrics(tables: Sequence[Shared]) -> str:
    """
    The metrics of all slots of this instance, in Prometheus' text format.
    """
    return text(exposed(FAMILIES, _figures(tables)))


def _figures(tables: Sequence[Shared]) -> list[WriterMetrics]:
    return [figures for shared in tables for figures in shared.measured()]


def _counts(tables: Sequence[Shared], elapsed: timedelta) -> dict[str, Any]:
    figures = _figures(tables)
    rows = sum(item.rows for item in figures)
    return {
        "rows": rows,
        "bad": sum(sum(shared.skipped.values()) for shared in tables),
        "lag": sum(sum(item.lag.values()) for item in figures),
        "stopped": sum(len(shared.stopped) for shared in tables),
        "rows/s": round(rows / max(elapsed.total_seconds(), 0.001)),
    }
