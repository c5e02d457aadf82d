"""
The command `writer watch`, with its options parsed.
"""

import logging
import os
import socket
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import chain
from typing import Any

from bookkeeper.console.exposition import replace_file, text
from bookkeeper.console.families import exposed
from bookkeeper.console.output import say
from bookkeeper.console.progress import Progress
from bookkeeper.console.signals import StopSignal
from bookkeeper.contract.names import check_writer
from bookkeeper.errors import ConfigInvalid, Missing, NotPossible, StorageUnavailable
from bookkeeper.leases.beside import RenewedBeside
from bookkeeper.leases.lease import Lease, lease_on
from bookkeeper.stores.locations import absolute, inside, local_path
from bookkeeper.stores.queues import queue_of
from bookkeeper.stores.store import Store
from bookkeeper.threads import repeating
from writers.metrics import FAMILIES
from writers.opener import Opener
from writers.timing import Clock
from writers.watch.metrics import EMPTY, LOADED, REJECTED
from writers.watch.metrics import FAMILIES as OBJECTS
from writers.watch.prefix import LEASE, Prefix
from writers.watch.rows import Reading
from writers.watch.waiting import Wanted
from writers.watch.watcher import Watcher

log = logging.getLogger(__name__)

DELETE, MOVE, LEAVE = "delete", "move", "leave"
_FIGURES_SECONDS = 1.0


def wanted_of(name: str, options: Mapping[str, Any]) -> Wanted:
    """
    What the options want; raises ConfigInvalid.
    """
    check_writer(name)
    if options["done"] == LEAVE:
        raise ConfigInvalid(
            "--done leave: objects that stay would have to be remembered for ever, and listed each time",
            hint="--done move keeps them below _done/; a rule of the storage may delete those by age.",
        )
    if options["nulls"] and options["kind"] == "ndjson":
        raise ConfigInvalid("--null is for CSV; JSON has a null of its own")
    reading = Reading(
        options["max_object"],
        options["kind"],
        options["delimiter"],
        tuple(options["nulls"]),
        options["base64_bytes"],
        options["ignore_unknown"],
    )
    every, settle = options["every"], options["settle"]
    once, go_on, queue = options["once"], options["go_on"] or "", options["queue"] or ""
    return Wanted(name, reading, every, settle, once, options["backfill"], go_on, "" if once else queue)


def check_apart(url: str, opener: Opener) -> None:
    """
    Raises ConfigInvalid where the watched prefix and the table lie in each other: its own files would be loaded, and
    deleted; NotPossible where there is no table.
    """
    try:
        card = opener.folder().card()
    except Missing as exc:
        hint = "Give the folder that `bookkeeper init` printed."
        raise NotPossible(f"there is no card.json in {opener.url}", hint=hint) from exc
    for place in (card.location, card.data_path, opener.url):
        if inside(f"{place}/_", url) or inside(f"{url}/_", place):
            raise ConfigInvalid(
                f"--from {url} and {place}, which is the table's, lie in each other",
                hint="Watch a prefix that has nothing but what is dropped there.",
            )


def lease_of(store: Store) -> Lease:
    """
    The right to work below the prefix; raises StorageUnavailable, and NotPossible where a directory is not there.
    """
    try:
        next(store.list(LEASE), None)
    except StorageUnavailable as exc:
        if local_path(store.url) is None:
            raise
        raise NotPossible(str(exc), hint="Make the directory that others drop into, or mount its disk.") from exc
    lease = lease_on(store, LEASE, f"{socket.gethostname()} {os.getpid()}")
    return lease if lease.lasting is None else RenewedBeside(lease, lease.lasting)


def run_watch(
    source: str,
    folder: str,
    stores: Callable[[str], Store],
    name: str,
    options: Mapping[str, Any],
    stop: StopSignal,
    progress: Progress,
    serve: Callable[[Callable[[], str]], None],
    clock: Clock,
) -> None:
    """
    Loads what is dropped below `source` until a stop is requested or, with `once`, all is in. `serve` is given what
    makes the text of the metrics. Raises ConfigInvalid, and NotPossible, with `once` also where objects were rejected.
    """
    wanted, url = wanted_of(name, options), absolute(source)
    opener = Opener(folder, stores, clock, stop.wait, options["patience"])
    check_apart(url, opener)
    store = stores(url)
    if wanted.queue:
        queue_of(store, wanted.queue)  # also where another instance works here
    watcher = Watcher(wanted, opener, Prefix(store, options["done"] == MOVE), lease_of(store))
    serve(lambda: metrics(watcher))
    began = clock()

    def tell() -> None:
        progress.tell(_counts(watcher, clock() - began))
        if options["metrics"]:
            try:
                replace_file(options["metrics"], metrics(watcher))
            except NotPossible as error:
                log.warning("metrics not written", extra={"action": "metrics", "cause": str(error)})

    with repeating(tell, _FIGURES_SECONDS, "figures of watch"):
        watcher.run()
    tell()
    progress.close(_counts(watcher, clock() - began))
    if stop.requested:
        say("stopped; start it again with the same --name to continue")
    elif rejected := watcher.figures.objects[REJECTED,]:
        raise NotPossible(
            f"objects that are no rows of the table: {rejected}",
            hint=f"They lie in {url}/_rejected/, each with its reason. Mend them or the table, and drop them again.",
        )
    elif left := watcher.left:
        raise NotPossible(f"objects that are not taken: {', '.join(left[:10])}", hint="The log says why.")


def metrics(watcher: Watcher) -> str:
    """
    The metrics of the watcher and its writer, in Prometheus' text format.
    """
    writers = [] if watcher.writer_figures is None else [watcher.writer_figures]
    return text(chain(exposed(FAMILIES, writers), exposed(OBJECTS, [watcher.figures] if writers else [])))


def _counts(watcher: Watcher, elapsed: timedelta) -> dict[str, Any]:
    figures, writer = watcher.figures, watcher.writer_figures
    return {
        "loaded": figures.objects[LOADED,],
        "rows": 0 if writer is None else writer.rows,
        "empty": figures.objects[EMPTY,],
        "rejected": figures.objects[REJECTED,],
        "waiting": figures.waiting,
        "objects/s": round(figures.objects[LOADED,] / max(elapsed.total_seconds(), 0.001)),
    }
