"""
Holds a table's snapshots while a job runs that needs the one it began with: the reaper takes it for a reader.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import click

from bookkeeper.errors import BookkeeperError, Retry
from bookkeeper.streams.registry import Registry, reader

PREFIX = "maintain-"
#: a job that was killed holds nothing after this; a living one renews it ten times as often
LASTS = timedelta(minutes=20)
_TRIES = 20


@contextmanager
def holding(
    registry: Registry,
    head: Callable[[], int],
    kept: Callable[[int], bool],
    clock: Callable[[], datetime],
    lasts: timedelta = LASTS,
) -> Iterator[str]:
    """
    Register a reader of main's snapshot, which `head` tells, for the block, and renew it meanwhile; gives its name.

    `kept` tells whether the table has a snapshot. Raises StorageUnavailable when it cannot be registered, Retry when
    each snapshot was expired before it was held. Records of jobs that were killed are removed.
    """
    for old in registry.all():
        if old.name.startswith(PREFIX) and old.lapsed(clock()):
            registry.remove(old.name)
    name, over = f"{PREFIX}{uuid.uuid4().hex[:12]}", threading.Event()
    for _ in range(_TRIES):
        snapshot = head()
        registry.add(reader(name, snapshot, clock(), lasts))
        # Registered first, looked at second: main may have gone on, and an expiry that began before may have taken it.
        if kept(snapshot):
            break
    else:
        _release(registry, name)
        raise Retry(f"snapshots are expired so fast that none of {_TRIES} could be held", hint="Run it again later.")

    def renew() -> None:
        while not over.wait(lasts.total_seconds() / 10):
            try:
                registry.add(reader(name, snapshot, clock(), lasts))
            except BookkeeperError as exc:
                click.echo(f"-- the hold on snapshot {snapshot} was not renewed: {exc}", err=True)

    renewing = threading.Thread(target=renew, name="hold", daemon=True)
    renewing.start()
    try:
        yield name
    finally:
        over.set()
        renewing.join()
        _release(registry, name)


def _release(registry: Registry, name: str) -> None:
    try:
        registry.remove(name)
    except BookkeeperError as exc:
        # The work is done: what stays is over by itself, and removed by the next run.
        click.echo(f"-- {name} stays registered for up to {LASTS}: {exc}", err=True)
