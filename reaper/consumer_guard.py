"""
The consumer guard: what registered consumers still need, which are at risk, and which may be cut off.

A consumer is named in the log, and in a durable record, well before it is cut off. `max-hold` bounds how long it may
hold snapshots back, because a table that never expires anything fails for every reader.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from pyiceberg.table import Table

from bookkeeper.config.settings import Table as TableSettings
from bookkeeper.config.units import format_duration
from bookkeeper.errors import Missing, Unfit
from bookkeeper.history.consumer_state import (
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
from bookkeeper.history.main_history import MainHistory
from bookkeeper.history.registry import Registry
from bookkeeper.stores.store import Store
from reaper.files.storage import OpenStore

log = logging.getLogger(__name__)

KEY = "reaper/warned.json"
MOST_BYTES = 2**24
#: states in which the oldest snapshot that a consumer needs is unknown
NEED_UNKNOWN = (NEW, UNREADABLE, ASIDE)
CONSUMER = "needed by a consumer"


@dataclass(frozen=True, slots=True)
class Hold:
    """A reason to keep main from `snapshot` on; all of main where `snapshot` is None or not on main."""

    reason: str
    snapshot: int | None = None


#: the oldest snapshot that consumers outside the registry still need, None when there is none
Floor = Callable[[Table], int | None]


def no_floor(table: Table) -> int | None:
    """
    There are no consumers but the registered ones.
    """
    return None


@dataclass
class Guard:
    """The consumers of one table during one run; `warned`: since when the log has named each one at risk."""

    folder: Store
    settings: TableSettings
    now: datetime
    open_store: OpenStore
    floor: Floor = no_floor
    warned: dict[str, datetime] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Store, settings: TableSettings, now: datetime, open_store: OpenStore, floor: Floor) -> "Guard":
        """The guard of a run; raises StorageUnavailable."""
        return cls(folder, settings, now, open_store, floor, _read_warned(folder))

    def read(self) -> list[CheckpointRead]:
        """
        Reads every consumer's checkpoint; load the table after this. Raises StorageUnavailable, ConfigInvalid.
        """
        return read_all(Registry(self.folder, self.settings.consumers), self.open_store)

    def states(self, table: Table, checkpoints: Iterable[CheckpointRead]) -> list[ConsumerState]:
        """Every consumer against this load of the table."""
        return evaluate(checkpoints, table.metadata, self.settings.reaper, self.now)

    def holds(self, table: Table, checkpoints: Iterable[CheckpointRead]) -> tuple[Hold, ...]:
        """What each consumer keeps of main."""
        history = MainHistory(table.metadata)
        holds = (self._hold(consumer, history) for consumer in self.states(table, checkpoints))
        found = tuple(hold for hold in holds if hold)
        floor = self.floor(table)
        return found if floor is None else (*found, Hold(CONSUMER, floor))

    def _hold(self, consumer: ConsumerState, history: MainHistory) -> Hold | None:
        if consumer.first is None or not history.snapshots:
            return None
        warned = self.warned.get(consumer.name)
        may_be_cut_off = warned is not None and warned <= self.now - notice_period(self.settings.reaper)
        first = consumer.first
        if may_be_cut_off:
            since = consumer.checkpoint_read.consumer.renewed
            first = max(first, hold_limit(history, self.settings.reaper, self.now, since))
        reason = f"consumer {consumer.name}" + ("" if consumer.state == LIVE else f" ({consumer.state})")
        needs_everything = consumer.state in NEED_UNKNOWN and not first
        return Hold(reason, None if needs_everything else history.snapshots[first].snapshot_id)

    def warn(self, table: Table, checkpoints: Iterable[CheckpointRead]) -> None:
        """
        Names the consumers at risk in the log, and stores since when: each is named for the whole notice period
        before it may be cut off.
        """
        states = self.states(table, checkpoints)
        for consumer in states:
            self._log(consumer)
        # A notice of the future is of a clock that was ahead: until then no limit would hold.
        at_risk = {item.name: min(self.warned.get(item.name, self.now), self.now) for item in states if item.at_risk}
        if at_risk != self.warned:
            since = {name: moment.isoformat() for name, moment in sorted(at_risk.items())}
            self.folder.replace(KEY, json.dumps({"version": 1, "since": since}).encode() + b"\n")
            self.warned = at_risk

    def _log(self, consumer: ConsumerState) -> None:
        facts = {"table": self.settings.name, "consumer": consumer.name, "state": consumer.state}
        if consumer.why:
            facts["cause"] = consumer.why
        if consumer.at_risk:
            used, notice = f"{consumer.used:.0%}", format_duration(notice_period(self.settings.reaper))
            extra = {"action": "consumer-at-risk", **facts, "max_hold_used": used, "notice": notice}
            log.warning("consumer will be cut off soon", extra=extra)
        elif consumer.state in (TO_MEND, CUT_OFF, STALLED):
            log.warning("consumer cannot go on", extra={"action": "consumer-stuck", **facts})

    def log_cut_off(self, table: Table, checkpoints: Iterable[CheckpointRead], expire: Collection[int]) -> None:
        """Logs each consumer that this expiry cuts off: it needs a snapshot in `expire`."""
        snapshots = MainHistory(table.metadata).snapshots
        for consumer in self.states(table, checkpoints):
            if consumer.first is not None and snapshots and snapshots[consumer.first].snapshot_id in expire:
                extra = {"action": "consumer-cut-off", "table": self.settings.name, "consumer": consumer.name}
                log.error("consumer cut off", extra={**extra, "max_hold_used": f"{consumer.used:.0%}"})


def _read_warned(folder: Store) -> dict[str, datetime]:
    try:
        since = json.loads(folder.read(KEY, MOST_BYTES))["since"]
        moments = {name: datetime.fromisoformat(text) for name, text in since.items()}
    except (Missing, Unfit, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # Without the record each consumer at risk is named again, and has the whole notice period once more.
        return {}
    return {name: moment for name, moment in moments.items() if moment.tzinfo is not None}
