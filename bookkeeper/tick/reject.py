"""
The one way out of pending/ for a bad txlog: into rejected/, with the reason, in the log and in the tick's result.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from bookkeeper.config.settings import Table
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.table_log import TableLog
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.discover.find_pending import PendingIndex
from bookkeeper.errors import BookkeeperError, Missing, NameMismatch, NotMoved, TxlogTooLarge
from bookkeeper.tick.state import Tick

#: after this long a tick leaves txlogs that are rejected for their size to the next one
MOVING = timedelta(seconds=2)


class Rejects:
    """Rejects txlogs of one folder; storage trouble with one of them leaves it pending, and the others go on."""

    def __init__(self, settings: Table, folder: Folder, pending: PendingIndex, clock: Callable[[], datetime]) -> None:
        self.settings, self.folder, self.pending, self.clock = settings, folder, pending, clock
        self.log = TableLog(logging.getLogger("bookkeeper"), settings.name, "reject")
        #: to be rejected, but too large to be moved: not tried again at every tick
        self.unmoved: set[str] = set()

    def misnamed(self, tick: Tick, keys: Iterable[str]) -> None:
        """Rejects what ends like a txlog and is not named like one."""
        why = NameMismatch("it is not named <writer>.<incarnation>.<sequence>.txlog.avro")
        self.reject(tick, dict.fromkeys(keys, why))

    def oversize(self, tick: Tick) -> None:
        """
        Rejects, unread, what is larger than a txlog may be.

        After the commit, and for two seconds only: an object store takes seconds to move one, and no good txlog waits
        for that.
        """
        most, began = self.settings.max_txlog_bytes, self.clock()
        for item in tick.found:
            if item.size > most and item.name in tick.result.left and self.clock() - began < MOVING:
                self._reject(tick, item.name, TxlogTooLarge(f"{item.size} bytes, at most {most} are allowed"))

    def reject(self, tick: Tick, refused: Mapping[Any, BookkeeperError]) -> BookkeeperError | None:
        """Rejects each of these, once in a tick; returns why some of them stayed in pending/, if they did."""
        troubles = [self._reject(tick, name, why) for name, why in refused.items()]
        return next((trouble for trouble in troubles if trouble is not None), None)

    def _reject(self, tick: Tick, name: TxlogName | str, why: BookkeeperError) -> BookkeeperError | None:
        result, text = tick.result, str(name)
        if text in result.rejected or self._is_left_alone(tick, name):
            return None
        try:
            self.folder.reject(name, why, tick.now, self.settings.max_txlog_bytes)
        except Missing:
            return None  # another bookkeeper was quicker
        except NotMoved as error:
            self.unmoved.add(text)
            self._is_left_alone(tick, name)
            self.log.error("txlog not moved", action="hold", txlog=text, cause=str(why), hint=error.hint)
            return None
        except BookkeeperError as error:
            result.trouble = error  # it stays where it is
            return error
        result.rejected.append(text)
        result.reasons[text] = why
        if isinstance(name, TxlogName):
            result.settle([name])
            self.pending.forget([name])
            result.waiting -= 1
        self.log.warning("txlog rejected", txlog=text, cause=str(why))
        return None

    def _is_left_alone(self, tick: Tick, name: TxlogName | str) -> bool:
        """Whether it is too large to be moved to rejected/: it is held, and makes nothing late."""
        if str(name) in self.unmoved and isinstance(name, TxlogName):
            tick.result.settle([name])
            tick.result.held.append(name)
        return str(name) in self.unmoved
