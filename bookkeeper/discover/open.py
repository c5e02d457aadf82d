"""
The discovery that a table's settings ask for, on the storage its folder lies on.
"""

import logging
import sys

from bookkeeper.config.settings import Table
from bookkeeper.discover.discovery import Discovery, Listing
from bookkeeper.discover.events import txlogs
from bookkeeper.discover.probe import Probe
from bookkeeper.errors import NotPossible
from bookkeeper.stores.local import LocalStore
from bookkeeper.stores.store import Store

log = logging.getLogger("bookkeeper")

PROBE, NOTIFY = "probe", "notify"


def open_discovery(settings: Table, store: Store, platform: str = sys.platform) -> Discovery:
    """
    Falls back to listing, and logs why, where nothing can notify.
    """
    if settings.discover == PROBE:
        return Probe()
    if settings.discover != NOTIFY:
        return Listing()
    return _inotify(settings, store, platform) if isinstance(store, LocalStore) else _queue(settings, store)


def _inotify(settings: Table, store: LocalStore, platform: str) -> Discovery:
    if not platform.startswith("linux"):
        return _fallen_back(settings, f"inotify is Linux's, this is {platform}")
    try:
        from bookkeeper.discover.inotify import Inotify

        return Inotify(f"{store.root}/pending")
    except ImportError:
        return _fallen_back(settings, "inotify_simple is missing: pip install 'iceberg-bookkeeper[daemon]'")
    except OSError as exc:
        return _fallen_back(settings, f"no watch on {store.root}/pending: {exc.strerror or exc}")


def _queue(settings: Table, store: Store) -> Discovery:
    from bookkeeper.discover.queue import QueueDiscovery
    from bookkeeper.stores.queues import queue_of

    try:
        source, bucket, root = queue_of(store, settings.queue)
    except NotPossible as error:
        return _fallen_back(settings, str(error))
    return QueueDiscovery(source, lambda text: txlogs(text, bucket, f"{root}pending"), settings.queue or "")


def _fallen_back(settings: Table, why: str) -> Discovery:
    log.warning("txlogs are found by listing", extra={"action": "discover", "table": settings.name, "cause": why})
    return Listing()
