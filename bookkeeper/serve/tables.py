"""
Every table in a thread of its own: one that fails, is slow or never answers holds up no other.

Tables come, change and go while the others work on. Nothing here waits for a table without a bound, and a table that
does not end is left to the end of the process, which is a crash like any other: the next start goes on from there.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from bookkeeper.config.settings import Daemon, Reaper, Settings, Table
from bookkeeper.console.signals import StopSignal
from bookkeeper.contract.known_table import pending_of
from bookkeeper.serve.loop import Observer, TableLoop, close, repeat, tick_once
from bookkeeper.threads import start
from bookkeeper.tick.result import TickResult
from bookkeeper.tick.tick import Bookkeeper

log = logging.getLogger("bookkeeper")

Spawn = Callable[[Callable[[], None], str], object]
Open = Callable[[Settings, Table], Bookkeeper]
#: the trouble of a table whose only tick did not end
HANGING = "Hanging"
#: a tick that takes longer is not waited for
PATIENCE = timedelta(minutes=5)
#: the first ticks are spread over so much time
SPREAD = timedelta(seconds=1)
#: how long a table that changed waits for the tick of its old thread
CHANGING = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Change:
    """The names of the tables that a change of the settings started, started anew and ended."""

    added: list[str]
    changed: list[str]
    removed: list[str]


class TableThread:
    """One table in a thread of its own, until its stop is requested; it then gives its lease back."""

    def __init__(self, slot: TableLoop, work: Any, stop: StopSignal, ended: StopSignal) -> None:
        self.slot, self.work, self.stop, self.ended = slot, work, stop, ended

    def begin(self, spawn: Spawn, act: Callable[["TableThread"], None]) -> "TableThread":
        """Starts the thread, which calls `act`."""
        spawn(partial(self._work, act), f"table {self.slot.table}")
        return self

    def _work(self, act: Callable[["TableThread"], None]) -> None:
        try:
            act(self)
            close(self.slot)
        except Exception:
            log.exception("table not ended as it should", extra={"action": "defect", "table": self.slot.table})
        finally:
            self.ended.request()


class Tables:
    """
    The tables at work; `change` sets which they are, `end` ends them all. To be called by one thread.

    `clock` is the time, `new_stop` makes a signal to stop by and to sleep on, `spawn` makes threads, `on_result` is
    called after every tick of every table.
    """

    def __init__(
        self,
        open: Open,
        clock: Callable[[], datetime],
        new_stop: Callable[[], StopSignal] = StopSignal,
        spawn: Spawn = start,
        on_result: Observer | None = None,
    ) -> None:
        self.open, self.clock, self.new_stop, self.spawn, self.on_result = open, clock, new_stop, spawn, on_result
        self._at_work: dict[str, TableThread] = {}
        self._leaving: list[TableThread] = []

    @property
    def slots(self) -> list[TableLoop]:
        """The slot of every table, in the order of the settings; any thread may call this."""
        return [one.slot for one in list(self._at_work.values())]

    @property
    def begun(self) -> bool:
        """Whether every table has had its first tick, or stands by."""
        return all(slot.ticks or slot.failures or slot.standby for slot in self.slots)

    def change(self, settings: Settings, tables: Sequence[Table]) -> Change:
        """
        Starts, restarts and ends tables so that these run; a table with the same settings is not touched. Does not
        wait.
        """
        self._leaving = [one for one in self._leaving if not one.ended.requested]
        wanted = {table.name: (table, _work(settings, table)) for table in tables}
        gone = [name for name in self._at_work if name not in wanted]
        new = [name for name in wanted if name not in self._at_work]
        changed = [name for name in self._at_work if name in wanted and wanted[name][1] != self._at_work[name].work]
        before = {name: self._leave(name) for name in gone + changed}
        begin = [name for name in wanted if name in new or name in changed]
        at_work = dict(self._at_work)
        for number, name in enumerate(begin):
            at_work[name] = self._begin(settings, *wanted[name], before.get(name), number / len(begin))
        self._at_work = {name: at_work[name] for name in wanted}
        return Change(new, changed, gone)

    def end(self, patience: timedelta) -> list[str]:
        """
        Ends every table after its current tick; the names of those that have not ended after `patience`.
        """
        threads, until = [*self._at_work.values(), *self._leaving], self.clock() + patience
        for one in threads:
            one.stop.request()
        for one in threads:
            left = min(until - self.clock(), patience)
            one.ended.wait(max(left.total_seconds(), 0.0))
        return [one.slot.table for one in threads if not one.ended.requested]

    def _leave(self, name: str) -> TableThread:
        one = self._at_work[name]
        one.stop.request()
        self._leaving.append(one)
        return one

    def _begin(
        self, settings: Settings, table: Table, work: Any, before: TableThread | None, phase: float
    ) -> TableThread:
        waiting = partial(pending_of, settings.catalog.properties, table)
        slot = TableLoop(table.name, partial(self.open, settings, table), on_result=self.on_result, waiting=waiting)
        one = TableThread(slot, work, self.new_stop(), self.new_stop())
        return one.begin(self.spawn, partial(self._repeat, settings.bookkeeper, before, phase))

    def _repeat(self, settings: Daemon, before: TableThread | None, phase: float, one: TableThread) -> None:
        if before is not None:
            one.stop.wait(CHANGING.total_seconds(), before.ended.wakes, before.ended.asked)
        # Not all at the same moment, every time: each would wait for what all need, such as the catalog's lock.
        stopped = one.stop.wait(min(settings.every, SPREAD).total_seconds() * phase)
        while not stopped:
            try:
                repeat(one.slot, settings, self.clock, one.stop.wait)
                break
            except Exception:
                # Outside of a tick: a defect of ours, which must not leave the table without a loop.
                log.exception("loop failed", extra={"action": "defect", "table": one.slot.table})
                stopped = one.stop.wait(settings.backoff_most.total_seconds())


def _work(settings: Settings, table: Table) -> Any:
    """The settings that a table is opened with: when they change, it is opened again."""
    late: dict[str, Any] = {item.name: None for item in fields(Daemon) if item.metadata.get("restart")}
    return settings.catalog, replace(settings.bookkeeper, **late), replace(table, reaper=Reaper())


def slots_of(settings: Settings, tables: Sequence[Table], open: Open) -> list[TableLoop]:
    """
    A slot for each of these tables, not opened yet.
    """
    return [TableLoop(table.name, partial(open, settings, table)) for table in tables]


def once(
    slots: Sequence[TableLoop], settings: Daemon, clock: Callable[[], datetime], patience: timedelta = PATIENCE
) -> list[TickResult | None]:
    """
    One tick of each table, all at once; one that takes longer than `patience` is left, and its trouble is HANGING.
    """
    done: dict[int, TickResult | None] = {}

    def act(number: int, one: TableThread) -> None:
        done[number] = tick_once(one.slot, settings, clock(), clock)

    threads, until = [TableThread(slot, None, StopSignal(), StopSignal()) for slot in slots], clock() + patience
    for number, one in enumerate(threads):
        one.begin(start, partial(act, number))
    for one in threads:
        one.ended.wait(max(min(until - clock(), patience).total_seconds(), 0.0))
    for one in threads:
        if not one.ended.requested:
            one.slot.trouble = one.slot.trouble or HANGING
    return [done.get(number) for number in range(len(slots))]
