"""
The consumer guard: what registered consumers still need, who is at risk, and who may be cut off.

Nobody is cut off in silence: a consumer is named in the log, and that is durable, well before; `max-hold` bounds
how long it may hold snapshots back, because a table that never expires anything fails for everybody.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from pyiceberg.table import Table

from bookkeeper.config.settings import Table as TableSettings
from bookkeeper.config.units import format_duration
from bookkeeper.errors import Missing, Unfit
from bookkeeper.stores.store import Store
from bookkeeper.streams.consumer_state import (
    ASIDE,
    CUT_OFF,
    LIVE,
    NEW,
    STALLED,
    TO_MEND,
    UNREADABLE,
    CheckpointRead,
    ConsumerState,
    evaluate,
    hold_limit,
    notice_period,
    read_all,
)
from bookkeeper.streams.main_history import MainHistory
from bookkeeper.streams.registry import Registry
from reaper.files.storage import OpenStore
from reaper.plan import CONSUMER, Hold

log = logging.getLogger(__name__)

KEY = "reaper/warned.json"
MOST_BYTES = 2**24
NOBODY_KNOWS = (NEW, UNREADABLE, ASIDE)

#: the oldest snapshot that a consumer nobody registered still needs, None when there is none
Floor = Callable[[Table], int | None]


def no_floor(table: Table) -> int | None:
    """
    No consumer but the registered ones.
    """
    return None


@dataclass
class Guard:
    """The consumers of one table during one run; `warned` since when each one at risk was named."""

    folder: Store
    settings: TableSettings
    now: datetime
    open_store: OpenStore
    floor: Floor = no_floor
    warned: dict[str, datetime] = field(default_factory=dict)
    #: as this run found them at its start: name, state, share of max-hold used
    seen: tuple[tuple[str, str, float], ...] = ()

    @classmethod
    def of(cls, folder: Store, settings: TableSettings, now: datetime, open_store: OpenStore, floor: Floor) -> "Guard":
        """The guard of a run; raises StorageUnavailable."""
        return cls(folder, settings, now, open_store, floor, _loads(folder))

    def read(self) -> list[CheckpointRead]:
        """
        What every consumer says now; the table is to be loaded after this. Raises StorageUnavailable, ConfigInvalid.
        """
        return read_all(Registry(self.folder, self.settings.consumers), self.open_store)

    def standings(self, table: Table, readings: Iterable[CheckpointRead]) -> list[ConsumerState]:
        """Every consumer against this load of the table."""
        return evaluate(readings, table.metadata, self.settings.reaper, self.now)

    def holds(self, table: Table, readings: Iterable[CheckpointRead]) -> tuple[Hold, ...]:
        """From where on main each consumer keeps everything."""
        line = MainHistory(table.metadata)
        bound = hold_limit(line, self.settings.reaper, self.now)
        found = (self._hold(standing, line, bound) for standing in self.standings(table, readings))
        asked = self.floor(table)
        return tuple(hold for hold in found if hold) + ((Hold(CONSUMER, asked),) if asked is not None else ())

    def _hold(self, standing: ConsumerState, line: MainHistory, bound: int) -> Hold | None:
        if standing.first is None or not line.snapshots:
            return None
        first = max(standing.first, bound) if self._may_be_cut_off(standing.name) else standing.first
        reason = f"consumer {standing.name}" + ("" if standing.state == LIVE else f" ({standing.state})")
        everything = standing.state in NOBODY_KNOWS and not first
        return Hold(reason, None if everything else line.snapshots[first].snapshot_id)

    def _may_be_cut_off(self, name: str) -> bool:
        since = self.warned.get(name)
        return since is not None and since <= self.now - notice_period(self.settings.reaper)

    def warn(self, table: Table, readings: Iterable[CheckpointRead]) -> None:
        """
        Names those at risk in the log and remembers since when, durably: nobody may be cut off before that.
        """
        standings = self.standings(table, readings)
        self.seen = tuple((standing.name, standing.state, standing.used) for standing in standings)
        for standing in standings:
            self._tell(standing)
        risky = {standing.name: self.warned.get(standing.name, self.now) for standing in standings if standing.at_risk}
        if risky != self.warned:
            self.folder.replace(KEY, _dumps(risky))
            self.warned = risky

    def _tell(self, standing: ConsumerState) -> None:
        facts = {"table": self.settings.name, "consumer": standing.name, "state": standing.state}
        if standing.why:
            facts["cause"] = standing.why
        if standing.at_risk:
            share, left = f"{standing.used:.0%}", notice_period(self.settings.reaper)
            extra = {"action": "consumer-at-risk", **facts, "max_hold_used": share, "notice": format_duration(left)}
            log.warning("consumer will be cut off soon", extra=extra)
        elif standing.state in (TO_MEND, CUT_OFF, STALLED):
            log.warning("consumer cannot go on", extra={"action": "consumer-stuck", **facts})

    def tell_cut_off(self, table: Table, readings: Iterable[CheckpointRead], expire: Collection[int]) -> None:
        """Names every consumer whose snapshots are about to expire."""
        snapshots = MainHistory(table.metadata).snapshots
        for standing in self.standings(table, readings):
            if standing.first is not None and snapshots and snapshots[standing.first].snapshot_id in expire:
                extra = {"action": "consumer-cut-off", "table": self.settings.name, "consumer": standing.name}
                log.error("consumer cut off", extra={**extra, "max_hold_used": f"{standing.used:.0%}"})


def _loads(folder: Store) -> dict[str, datetime]:
    try:
        raw = json.loads(folder.read(KEY, MOST_BYTES))
        return dict(_moments(raw["since"].items()))
    except Missing:
        return {}
    except (Unfit, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # Whoever was named is named again, and has the whole notice once more.
        return {}


def _moments(items: Iterable[tuple[str, str]]) -> Iterator[tuple[str, datetime]]:
    for name, text in items:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            yield name, moment


def _dumps(warned: dict[str, datetime]) -> bytes:
    since = {name: moment.isoformat() for name, moment in sorted(warned.items())}
    return json.dumps({"version": 1, "since": since}).encode() + b"\n"
