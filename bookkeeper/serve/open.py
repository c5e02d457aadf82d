"""
From settings to a table's folder, ledger and bookkeeper: the one place where they are put together.
"""

import os
import socket
from collections.abc import Callable
from datetime import datetime
from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadata

from bookkeeper.catalogs.commit import load_table
from bookkeeper.catalogs.handed_out import stores_of
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Daemon, Settings, Table
from bookkeeper.config.share import TRIES, parse, share_of
from bookkeeper.contract.known_table import advising
from bookkeeper.contract.steady_clock import Steady
from bookkeeper.contract.txlog_folder import Folder, folder_url
from bookkeeper.discover.open import open_discovery
from bookkeeper.folds.duty import FoldThreads
from bookkeeper.leases.beside import RenewedBeside
from bookkeeper.leases.failover import FailoverLease
from bookkeeper.leases.lease import Lease, lease_on
from bookkeeper.ledger.commit_clock import CommitClock
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.tick.inbox import Inbox
from bookkeeper.tick.read_budget import ReadBudget
from bookkeeper.tick.tick import Bookkeeper


def open_folder(catalog: Catalog, table: Table) -> Folder:
    """
    The txlog folder of a table; asks the catalog for its location unless the config names the folder.
    """
    return _folder(catalog, table, load_table(catalog, table.identifier).metadata)


def _folder(catalog: Catalog, table: Table, metadata: TableMetadata) -> Folder:
    return Folder(stores_of(catalog, table.identifier)(folder_url(table, metadata.location)))


def open_lease(settings: Daemon, table: Table, folder: Folder) -> Lease:
    """
    The lease of a table: its own, or borrowed when it belongs to another share. Raises StorageUnavailable.
    """
    lease = lease_on(folder.store, "lease", f"{socket.gethostname()} {os.getpid()}")
    if lease.lasting is not None:
        lease = RenewedBeside(lease, lease.lasting)
    number, shares = parse(settings.share)
    if share_of(table.identifier, shares) == number:
        return lease
    # Its own bookkeeper tries at least that often, so twice that has room for one whole pause of it.
    return FailoverLease(lease, settings.failover_after, settings.offer_every, 2 * min(settings.every, TRIES))


def open_bookkeeper(
    settings: Settings,
    table: Table,
    clock: Callable[[], datetime],
    read_budget: ReadBudget | None = None,
    folds: FoldThreads | None = None,
) -> Bookkeeper:
    """
    The bookkeeper of one table, which shares `read_budget` and the threads of `folds` with others.

    Raises Retry, TableUnusable, WrongFolder.
    """
    with advising(settings.catalog, table):
        catalog = open_catalog(settings.catalog, scans=False, shared=True)
        metadata = load_table(catalog, table.identifier).metadata
        folder = _folder(catalog, table, metadata)
        ledger = Ledger(catalog, table.identifier, CommitClock(clock, table.name, folder))
    # Before the lease: it would be written where no folder is any more, and in the folder of another table this one
    # would stand by for ever, or keep out the other's bookkeeper.
    folder.check(str(metadata.table_uuid))
    lease = open_lease(settings.bookkeeper, table, folder) if settings.bookkeeper.lease else None
    reload = settings.bookkeeper.reload
    return Bookkeeper(
        table,
        folder,
        ledger,
        reload,
        lease=lease,
        inbox=Inbox(table, folder, ledger, open_discovery(table, folder.store), read_budget),
        folds=None if folds is None else folds.of(settings.catalog),
    )


def opener(
    settings: Daemon,
    clock: Callable[[], datetime],
    elapsed: Callable[[], float] | None = None,
    folds: FoldThreads | None = None,
) -> Callable[[Settings, Table], Bookkeeper]:
    """
    Opens the bookkeepers of one process, which share the read budget and what is known of this machine's clock.

    `elapsed` is the monotonic clock, in seconds: it shows when the wall clock jumps ahead. Without `folds` they fold
    nothing.
    """
    budget = ReadBudget(settings.read_bytes)
    return partial(open_bookkeeper, clock=Steady(clock, elapsed), read_budget=budget, folds=folds)
