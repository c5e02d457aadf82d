"""
What a writer works by: how it reaches storage, what tells it the time, and how it waits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.stores.locations import absolute
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from writers.retries import retry
from writers.timing import PATIENCE, AtOnce, Clock, Wait, at_once, pause, utc_now


@dataclass(frozen=True)
class Runtime:
    """
    `stores` opens the storage at a URL; `patience` bounds each wait for a bookkeeper that is behind; offsets that moved
    over nothing wait for rows for an hour, or as long as `alone`.

    It can be pickled where each of them can be, as those of this machine can.
    """

    stores: Callable[[str], Store] = open_store
    clock: Clock = utc_now
    wait: Wait = pause
    patience: timedelta = PATIENCE
    at_once: AtOnce = at_once
    alone: timedelta | None = None

    def folder(self, where: str | Folder) -> Folder:
        """The txlog folder at a URL or path."""
        if isinstance(where, Folder):
            return where
        # A catalog may be asked for keys.
        return Folder(retry(lambda: self.stores(absolute(where)), self.wait))
