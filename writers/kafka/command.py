"""
The command `writer kafka`, with its options parsed.
"""

import ctypes
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.config.share import parse as parse_share
from bookkeeper.console.exposition import replace_file, text
from bookkeeper.console.families import exposed
from bookkeeper.console.output import say
from bookkeeper.console.progress import Progress
from bookkeeper.console.signals import StopSignal
from bookkeeper.contract.names import check_writer
from bookkeeper.contract.offsets import slot_name
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import ConfigInvalid, NotPossible
from bookkeeper.stores.store import Store
from bookkeeper.threads import repeating
from writers.kafka import start
from writers.kafka.client import Cluster, properties_in
from writers.kafka.messages import PARTS
from writers.kafka.slot_loop import read_slot
from writers.kafka.source import Shared, Wanted, run
from writers.loader.formats import Format
from writers.metrics import FAMILIES
from writers.timing import Clock
from writers.writer import Writer

log = logging.getLogger(__name__)

_FIGURES_SECONDS = 5.0
#: malloc.h
_M_ARENA_MAX = -8


def wanted_of(name: str, options: Mapping[str, Any]) -> Wanted:
    """
    What the options of the command say; raises ConfigInvalid.
    """
    slots = options["slots"]
    check_writer(slot_name(name, slots - 1))
    form, filled = reading_of(options)
    try:
        share = parse_share(options["share"])
    except ValueError as exc:
        raise ConfigInvalid(f"--share {options['share']}: {exc} is expected") from exc
    return Wanted(
        name,
        [*dict.fromkeys(options["topics"])],
        start.parsed(options["begin"]),
        form,
        filled,
        slots,
        share,
        [*map(start.go_on, options["go_on"])],
        options["max_bad"],
        options["until_end"],
        options["memory"],
    )


def reading_of(options: Mapping[str, Any]) -> tuple[Format | None, dict[str, str]]:
    """
    How values are read, None: not at all, and which part of a message which column holds; raises ConfigInvalid.
    """
    filled = dict(map(_filled, options["columns"]))
    if options["kind"] == "raw":
        return None, filled
    form = Format(
        "ndjson",
        base64_bytes=options["base64_bytes"],
        ignore_unknown=options["ignore_unknown"],
        debezium=options["kind"] == "debezium",
    )
    return form, filled


def _filled(text: str) -> tuple[str, str]:
    part, _, column = text.partition("=")
    if part not in PARTS or not column:
        raise ConfigInvalid(f"--column {text}: PART=COLUMN is expected, with PART one of {', '.join(PARTS)}")
    return part, column


def run_kafka(
    folders: tuple[str, str | None],
    stores: Callable[[str], Store],
    name: str,
    options: Mapping[str, Any],
    stop: StopSignal,
    progress: Progress,
    serve: Callable[[Callable[[], str]], None],
    clock: Clock,
) -> None:
    """
    Reads topics into the table until a stop is requested or, with `until_end`, all is read. `folders` are the txlog
    folders of the table and of its dead letters. `serve` is given what makes the text of the metrics. Raises
    NotPossible where partitions have stopped and nothing else is left.
    """
    _save_memory()
    wanted = wanted_of(name, options)
    cluster = Cluster(options["brokers"], properties_in(options["client"]), options["group"] or name)
    folder, letters = folders

    def opened(where: Folder, slot: str) -> Writer:
        return Writer.open(where, slot, clock=clock, wait=stop.wait, patience=options["patience"], stores=stores)

    shared = Shared(
        wanted,
        cluster,
        lambda: Folder(stores(folder)),
        opened,
        clock,
        stop.wait,
        stop.asked,
        None if letters is None else lambda slot: opened(Folder(stores(letters)), slot),
    )
    serve(lambda: metrics(shared))
    began = clock()

    def tell() -> None:
        progress.tell(_counts(shared, clock() - began))
        if options["metrics"]:
            try:
                replace_file(options["metrics"], metrics(shared))
            except NotPossible as error:
                log.warning("metrics not written", extra={"action": "metrics", "cause": str(error)})

    with repeating(tell, _FIGURES_SECONDS, "figures of kafka"):
        run(shared, read_slot)
    tell()
    progress.close(_counts(shared, clock() - began))
    if stop.requested:
        say("stopped; start it again with the same --name to continue")


def _save_memory() -> None:
    """Of many threads each keeps what it has freed, in Arrow's own pool and in glibc's arenas: as much memory again."""
    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(OSError, AttributeError):  # another libc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def metrics(shared: Shared) -> str:
    """
    The metrics of all slots of this instance, in Prometheus' text format.
    """
    return text(exposed(FAMILIES, [*shared.figures.values()]))


def _counts(shared: Shared, elapsed: timedelta) -> dict[str, Any]:
    figures = [*shared.figures.values()]
    rows = sum(item.rows for item in figures)
    return {
        "rows": rows,
        "bad": sum(shared.skipped.values()),
        "lag": sum(sum(item.lag.values()) for item in figures),
        "stopped": len(shared.stopped),
        "rows/s": round(rows / max(elapsed.total_seconds(), 0.001)),
    }
