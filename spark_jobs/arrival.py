"""
Waits until the txlogs of a writer are in the table; no Spark in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from bookkeeper.errors import Backpressure, Fenced
from writers.retries import backoff, retry
from writers.timing import Waited

if TYPE_CHECKING:
    from bookkeeper.contract.marks import Marks
    from bookkeeper.contract.names import TxlogName
    from bookkeeper.contract.txlog_folder import Folder
    from writers.runtime import Runtime
    from writers.writer import Writer

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0


class Arrival:
    """
    Of one run of a writer: what its table says has arrived.

    Each wait ends with the patience of `runtime`, or when its `wait` returns True. `behind` and `again` are hints: what
    to do where the bookkeeper is behind, and where a txlog was rejected.
    """

    def __init__(self, folder: Folder, writer: Writer, runtime: Runtime, *, behind: str, again: str) -> None:
        self._folder, self._writer = folder, writer
        self._patience, self._clock, self._wait = runtime.patience, runtime.clock, runtime.wait
        self._behind, self._again = behind, again

    def until_chain_is_in(self) -> None:
        """Of earlier runs, up to the writer's position: raises like `until_in`."""
        name, position = self._writer.name, self._writer.position
        found = retry(self._folder.pending, self._wait)
        names = [item.name for item in found if item.name.writer == name]
        self._until(names, lambda marks: marks.writer(name).position == position)

    def until_in(self, name: TxlogName) -> None:
        """
        Return once the txlog is in the table. Raises Fenced where it was rejected, Backpressure after the patience, and
        StorageUnavailable.
        """
        self._until([name], lambda marks: marks.is_in(name))

    def _until(self, names: Sequence[TxlogName], arrived: Callable[[Marks], bool]) -> None:
        waited, pauses = Waited(self._clock), backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while not retry(partial(self._is_in, names, arrived), self._wait):
            if waited() >= self._patience or self._wait(next(pauses)) is True:
                why = f"{names[-1]} is published, and not in the table yet: {self._writer.card.table} is behind"
                raise Backpressure(why, hint=self._behind)

    def _is_in(self, names: Sequence[TxlogName], arrived: Callable[[Marks], bool]) -> bool:
        """False while one of the txlogs is pending; raises Fenced where they are gone."""
        # First pending/, then the marks: a txlog leaves pending/ once the marks have it, or it is in rejected/.
        waiting = [name for name in names if self._folder.exists(name)]
        copy = self._folder.marks()
        if copy is not None and copy.table_uuid == self._writer.card.table_uuid and arrived(copy.marks):
            return True
        if waiting:
            return False
        reasons = [str(self._folder.reason(name).get("reason", "no reason is recorded")) for name in names]
        why = ", ".join(f"{name}: {reason}" for name, reason in zip(names, reasons, strict=True))
        why = f"the writer {self._writer.name}: txlogs before this point are not in the table ({why[:500]})"
        raise Fenced(why, hint=self._again)
