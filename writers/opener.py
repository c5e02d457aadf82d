"""
How programs with many writers open the txlog folder of a table, and a writer of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.stores.store import Store
from writers.timing import Clock, Wait, retry
from writers.writer import Writer


@dataclass(frozen=True)
class Opener:
    """Of the txlog folder at `url`; `patience` is how long its writers wait for a bookkeeper that is behind."""

    url: str
    stores: Callable[[str], Store]
    clock: Clock
    wait: Wait
    patience: timedelta

    def folder(self) -> Folder:
        """The folder; raises what its store raises."""
        return Folder(retry(lambda: self.stores(self.url), self.wait))

    def writer(self, name: str, folder: Folder | None = None) -> Writer:
        """A new run of the writer; raises like Writer.open."""
        return Writer.open(
            folder or self.folder(),
            name,
            clock=self.clock,
            wait=self.wait,
            patience=self.patience,
            stores=self.stores,
        )
