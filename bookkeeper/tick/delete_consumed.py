"""
Deletes consumed txlogs from pending/: on a disk at once, on an object store beside what follows.
"""

import logging
from collections.abc import Sequence
from functools import partial
from threading import Thread

from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import Folder, Found
from bookkeeper.errors import BookkeeperError
from bookkeeper.threads import start

log = logging.getLogger("bookkeeper")


class Consumed:
    """
    Only for txlogs that marks.json says are in. Best effort: what stays, also after a crash, is recognised by its mark.

    One deletion is under way at a time: the next one waits for it, or pending/ could grow without bound.
    """

    def __init__(self, folder: Folder, table: str) -> None:
        self.folder, self.table = folder, table
        #: a listing may still show these, though they are being deleted, or were until it began
        self.names: frozenset[TxlogName] = frozenset()
        self._thread: Thread | None = None

    def before_listing(self) -> None:
        """From the next listing on, what it shows of an ended deletion was not deleted."""
        if self._thread is None or not self._thread.is_alive():
            self.names = frozenset()

    def without(self, found: Sequence[Found]) -> Sequence[Found]:
        """What is pending of this listing."""
        return [item for item in found if item.name not in self.names] if self.names else found

    def delete(self, names: Sequence[TxlogName]) -> None:
        """Deletes these, each once; of storage trouble there is only a line in the log."""
        names = [name for name in names if name not in self.names] if self.names else names
        if not names:
            return
        self.wait()
        if self.folder.store.at_once < 2:
            self._delete(names)
            return
        self.names = frozenset(names)
        self._thread = start(partial(self._delete, names), f"delete {self.table}")

    def wait(self) -> None:
        """Until no deletion is under way: as long as the store takes, with its retries and deadlines."""
        if self._thread is not None:
            self._thread.join()

    def _delete(self, names: Sequence[TxlogName]) -> None:
        try:
            self.folder.delete(names)
        except BookkeeperError as error:
            about = {"action": "delete", "table": self.table, "cause": str(error)}
            log.warning("consumed txlogs not deleted", extra=about)
