"""
Registers with the reaper what reads the table, so that expiry waits for it: a query that is about to start, or a job
that needs the snapshot it began with.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from bookkeeper.errors import BookkeeperError, PathRefused, Retry
from bookkeeper.stores.locations import normal
from bookkeeper.threads import repeating
from spark_jobs.hadoop import HadoopCheckpointStore
from spark_jobs.table import load, location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bookkeeper.config.settings import Settings, Table
    from bookkeeper.history.registry import Consumer, Registry
    from bookkeeper.stores.store import Store

HOLD_PREFIX = "maintain-"
#: a hold ends by itself after this when its job was killed; a running job renews it ten times as often
HOLD_LASTS = timedelta(minutes=20)
#: records of killed jobs are removed from so long after their end on: this clock and that of their jobs may differ
_LEFT_FOR = timedelta(hours=1)
_TRIES = 20


def register(
    spark: SparkSession,
    settings: Settings,
    table: Table,
    name: str,
    checkpoint: str,
    now: datetime,
    *,
    available_now: bool,
    consumer: str | None = None,
) -> Consumer:
    """
    Registers the query that is about to start with `checkpoint`, under `consumer` or a name made from that.

    Raises StorageUnavailable when the txlog folder cannot be written, NotPossible when the configuration names it, and
    WrongFolder where the folder is not the table's: no reaper would see what is registered there.
    """
    from bookkeeper.history import registry

    folder = folder_of(spark, settings, table, name)
    check_folder(spark, folder, name)
    where = HadoopCheckpointStore(spark, checkpoint).url
    with suppress(PathRefused):  # of a scheme that only Spark reads: registered as Spark writes it
        where = normal(where)
    known = {item.checkpoint: item for item in registry.configured(table.consumers)}
    if where in known and consumer in (None, known[where].name):
        return known[where]
    found = registry.spark(
        consumer or registry.name_for(where), where, now, available_now=available_now, by=registry.JOB
    )
    kept = registry.Registry(folder, table.consumers)
    earlier = kept.find(found.name)
    if earlier is not None and earlier.checkpoint == where:
        # What the stream has still to read is held from the end of its first batch on, however often it is started.
        found = replace(found, begins_with=earlier.begins_with, renewed=earlier.renewed)
    kept.add(found)
    return found


def registry_of(spark: SparkSession, settings: Settings, table: Table, name: str) -> Registry:
    """
    The consumers of the table `name` (catalog.namespace.table).

    Raises StorageUnavailable.
    """
    from bookkeeper.history.registry import Registry

    return Registry(folder_of(spark, settings, table, name), table.consumers)


def check_folder(spark: SparkSession, folder: Store, name: str) -> None:
    """
    Raises WrongFolder where this is not the txlog folder of the table `name`, which has marks, and StorageUnavailable.
    """
    from bookkeeper.contract.marks import PROPERTY
    from bookkeeper.contract.txlog_folder import CONFIGURED, Folder

    table = load(spark, name)
    if table.properties().get(PROPERTY) is not None:
        Folder(folder).check(str(table.uuid()), CONFIGURED)


def folder_of(spark: SparkSession, settings: Settings, table: Table, name: str) -> Store:
    """
    The txlog folder of the table `name` (catalog.namespace.table); raises StorageUnavailable.
    """
    from bookkeeper.contract.txlog_folder import folder_url
    from bookkeeper.stores.local_roots import kept
    from bookkeeper.stores.open import stores_with

    return kept(stores_with(settings.catalog.properties)(folder_url(table, location(spark, name))))


@contextmanager
def hold(
    registry: Registry,
    head: Callable[[], int],
    exists: Callable[[int], bool],
    clock: Callable[[], datetime],
    lasts: timedelta = HOLD_LASTS,
) -> Iterator[str]:
    """
    Registers a reader of main's snapshot for the block and renews it meanwhile; gives its name.

    `head` returns main's snapshot, `exists` whether the table has a snapshot. Records of jobs that were killed are
    removed. Raises StorageUnavailable when nothing can be registered, Retry when each snapshot was expired before it
    was held.
    """
    from bookkeeper.history.registry import reader

    for old in registry.all():
        if old.name.startswith(HOLD_PREFIX) and old.lapsed(clock() - _LEFT_FOR):
            registry.remove(old.name)
    name = f"{HOLD_PREFIX}{uuid.uuid4().hex[:12]}"
    for _ in range(_TRIES):
        snapshot = head()
        registry.add(reader(name, snapshot, clock(), lasts))
        # Registered first, checked second: main may have moved, and an expiry that began before may have taken it.
        if exists(snapshot):
            break
    else:
        _release(registry, name)
        raise Retry(f"snapshots are expired so fast that none of {_TRIES} could be held", hint="Run it again later.")

    def renew() -> None:
        try:
            registry.add(reader(name, snapshot, clock(), lasts))
        except BookkeeperError as exc:
            click.echo(f"-- the hold on snapshot {snapshot} was not renewed: {exc}", err=True)

    try:
        with repeating(renew, lasts.total_seconds() / 10, "hold"):
            yield name
    finally:
        _release(registry, name)


def _release(registry: Registry, name: str) -> None:
    try:
        registry.remove(name)
    except BookkeeperError as exc:
        # The work is done: the record lapses by itself, and the next run removes it.
        click.echo(f"-- {name} stays registered for up to {HOLD_LASTS}: {exc}", err=True)
