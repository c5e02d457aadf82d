"""
The discovery that a table's settings ask for, on the storage its folder lies on.
"""

import logging
import sys

from bookkeeper.core.local_store import LocalStore
from bookkeeper.core.settings import Table
from bookkeeper.core.store import Store
from bookkeeper.discover.discovery import Discovery, Listing

log = logging.getLogger("bookkeeper")

NOTIFY = "notify"


def open_discovery(settings: Table, store: Store, platform: str = sys.platform) -> Discovery:
    """
    Falls back to listing, and says why, where there is nothing that could notify.
    """
    if settings.discover != NOTIFY:
        return Listing()
    if not isinstance(store, LocalStore):
        return _fallen_back(settings, f"nothing tells of new objects in {store.url}")
    if not platform.startswith("linux"):
        return _fallen_back(settings, f"inotify is Linux's, this is {platform}")
    try:
        from bookkeeper.discover.inotify import Inotify

        return Inotify(f"{store.root}/pending")
    except ImportError:
        return _fallen_back(settings, "inotify_simple is missing: pip install 'iceberg-bookkeeper[daemon]'")
    except OSError as exc:
        return _fallen_back(settings, f"no watch on {store.root}/pending: {exc.strerror or exc}")


def _fallen_back(settings: Table, why: str) -> Discovery:
    log.warning("txlogs are found by listing", extra={"action": "discover", "table": settings.name, "cause": why})
    return Listing()
