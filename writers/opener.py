"""
How programs with many writers open the txlog folder of a table, and a writer of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.stores.store import Store
from writers.retries import retry
from writers.runtime import Runtime
from writers.timing import Clock, Wait
from writers.writer import Writer


@dataclass(frozen=True)
class Opener:
    """
    Of the txlog folder at `url`; `patience` is how long its writers wait for a bookkeeper that is behind, `alone` how
    long their offsets wait for rows, if not for an hour.
    """

    url: str
    stores: Callable[[str], Store]
    clock: Clock
    wait: Wait
    patience: timedelta
    alone: timedelta | None = None

    def folder(self) -> Folder:
        """The folder; raises what its store raises."""
        return Folder(retry(lambda: self.stores(self.url), self.wait))

    def writer(self, name: str, folder: Folder | None = None) -> Writer:
        """A new run of the writer; raises like Writer.open."""
        runtime = Runtime(self.stores, self.clock, self.wait, self.patience, alone=self.alone)
        return Writer(folder or self.folder(), name, runtime)
