"""
What an inspection of a table finds now and then: its consumers and their lag, rejected/, room on the disk.

It runs in a thread of its own, with the view that the bookkeeper has loaded anyway, so that no tick waits for it. A
part that cannot be read keeps its last known value.
"""

import shutil
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from pyiceberg.table.metadata import TableMetadata

from bookkeeper.catalogs.commit import load_table
from bookkeeper.consumers.lag import Added, Lag, added_files, lag
from bookkeeper.contract import keyed
from bookkeeper.contract.txlog_folder import REJECTED, SUFFIX
from bookkeeper.errors import BookkeeperError
from bookkeeper.folds.stats import EqualityDeletes
from bookkeeper.history.consumer_state import ASIDE, CUT_OFF, TO_MEND, CheckpointRead, ConsumerState, evaluate, read_all
from bookkeeper.history.registry import Registry
from bookkeeper.stores.locations import local_path
from bookkeeper.tick.tick import Bookkeeper

#: total, used and free bytes of the disk a path is on
Usage = Callable[[str], tuple[int, int, int]]
#: consumers of a table that are reported by name: more would make the page unreadable and the scrape large
MOST_CONSUMERS = 50
MOST_REJECTED = 20
#: characters of a reason
MOST_REASON = 1000
#: remembered, so that a txlog that was just rejected is not counted twice
MOST_NAMES = 1000


@dataclass(frozen=True, slots=True)
class RejectedTxlog:
    """A rejected txlog, why, and what to do."""

    name: str
    error: str
    reason: str
    hint: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ConsumerReport:
    """A consumer: its state, the share of max-hold it uses, and its lag if that is known."""

    name: str
    state: str
    used: float
    why: str = ""
    lag: Lag | None = None


@dataclass(frozen=True, slots=True)
class Inspection:
    """What the last inspection found, complete `at` that time; `problem` is why a part of it is older."""

    at: datetime | None = None
    consumers: tuple[ConsumerReport, ...] = ()
    omitted: int = 0
    rejected: int = 0
    oldest_rejected: datetime | None = None
    newest: tuple[RejectedTxlog, ...] = ()
    free: float | None = None
    size: float | None = None
    #: of metadata.json, as it is stored
    metadata_bytes: int | None = None
    problem: str = ""
    #: of txlogs in rejected/
    names: frozenset[str] = frozenset()
    #: of a keyed table: looked at by inspections alone
    deletes: EqualityDeletes = field(default_factory=EqualityDeletes)

    @property
    def behind(self) -> float | None:
        """Seconds that the slowest consumer is behind that still reads: one that is cut off may stay so for ever."""
        reading = (item.lag for item in self.consumers if item.lag and item.state != CUT_OFF)
        return max((lag.behind.total_seconds() for lag in reading), default=None)

    def plus(self, since: Iterable[RejectedTxlog]) -> "Inspection":
        """With txlogs that were rejected since, oldest first, unless it has found them."""
        added = {item.name: item for item in since if item.name not in self.names}
        newest = (*reversed(added.values()), *self.newest)[:MOST_REJECTED]
        count, names = self.rejected + len(added), self.names | added.keys()
        return replace(self, rejected=count, newest=newest, names=names) if added else self


class Inspected:
    """The last inspection, of its thread, and what the tick has rejected since that began, of the tick."""

    def __init__(self) -> None:
        self._since, self._count = deque[tuple[int, RejectedTxlog]](maxlen=MOST_NAMES), 0
        self._last = Inspection(), 0

    def add(self, item: RejectedTxlog) -> None:
        """Adds a txlog that was rejected: for the tick."""
        self._since.append((self._count, item))
        self._count += 1

    def replace(self, inspect: Callable[[Inspection], Inspection]) -> Inspection:
        """What is found now: for the thread of inspections. What was added before it begins is listed by it."""
        began = self._count
        found = inspect(self.now())
        self._last = found, began
        return found

    def now(self) -> Inspection:
        """The last inspection, with what it lacks."""
        last, began = self._last
        return last.plus(item for number, item in self._since.copy() if number >= began)


@dataclass
class TableInspector:
    """Inspects one table; `before` is the last inspection."""

    book: Bookkeeper
    now: datetime
    before: Inspection = field(default_factory=Inspection)
    usage: Usage = shutil.disk_usage

    def inspect(self) -> Inspection:
        """A new inspection of the table; never raises."""
        found, problems = replace(self.before, problem=""), list[str]()
        for part in (self._consumers, self._rejected, self._room, self._metadata, self._unfolded):
            try:
                found = part(found)
            except Exception as error:  # noqa: BLE001 - one part says nothing about the others
                problems.append(f"{type(error).__name__}: {error}")
        return replace(found, problem="; ".join(dict.fromkeys(problems))) if problems else replace(found, at=self.now)

    def _consumers(self, found: Inspection) -> Inspection:
        book = self.book
        readings = read_all(Registry(book.folder.store, book.settings.consumers), book.open_store)
        view = book.view
        if view is None:
            return found
        metadata, states = self._evaluate(view.metadata, readings)
        chosen = sorted(states, key=lambda item: -item.used)[:MOST_CONSUMERS]
        reads = [self._report(item, metadata, added_files(view.table.io)) for item in chosen]
        return replace(found, consumers=tuple(reads), omitted=len(states) - len(reads))

    def _report(self, item: ConsumerState, metadata: TableMetadata, added: Added) -> ConsumerReport:
        try:
            behind, why = lag(item, metadata, added, self.now), item.why
        except BookkeeperError as error:  # only this one's lag is unknown
            behind, why = None, str(error)
        return ConsumerReport(item.name, item.state, item.used, why, behind)

    def _evaluate(
        self, metadata: TableMetadata, readings: list[CheckpointRead]
    ) -> tuple[TableMetadata, list[ConsumerState]]:
        settings = self.book.settings.reaper
        states = evaluate(readings, metadata, settings, self.now)
        if any(item.state in (CUT_OFF, ASIDE, TO_MEND) for item in states):
            # Another committer may have added the consumer's snapshot since our load: only fresh metadata decides.
            metadata = load_table(self.book.ledger.catalog, self.book.settings.identifier).metadata
            states = evaluate(readings, metadata, settings, self.now)
        return metadata, states

    def _rejected(self, found: Inspection) -> Inspection:
        # Also files whose name is no txlog's: `folder.rejected` leaves them out.
        listed = [item for item in self.book.folder.store.list(REJECTED) if item.key.endswith(SUFFIX)]
        listed.sort(key=lambda item: item.modified, reverse=True)
        known = {item.name: item for item in found.newest}
        times = {item.key.removeprefix(REJECTED): item.modified for item in listed}
        newest = [known.get(name) or self._read_reason(name, times[name]) for name in list(times)[:MOST_REJECTED]]
        names, oldest = frozenset(list(times)[:MOST_NAMES]), min(times.values(), default=None)
        return replace(found, rejected=len(times), oldest_rejected=oldest, newest=tuple(newest), names=names)

    def _read_reason(self, name: str, at: datetime) -> RejectedTxlog:
        why = self.book.folder.reason(name)
        error, reason, hint = (str(why.get(key) or "")[:MOST_REASON] for key in ("error", "reason", "hint"))
        return RejectedTxlog(name, error, reason, hint, at)

    def _room(self, found: Inspection) -> Inspection:
        view = self.book.view  # once: a tick may take it away at any moment
        urls = [self.book.folder.store.url, *([view.metadata.location] if view else [])]
        rooms = [self.usage(path) for path in map(local_path, urls) if path is not None]
        if not rooms:
            return found
        size, _, free = min(rooms, key=lambda room: room[2])
        return replace(found, free=float(free), size=float(size))

    def _metadata(self, found: Inspection) -> Inspection:
        view = self.book.view
        if view is None:
            return found
        return replace(found, metadata_bytes=len(view.table.io.new_input(view.table.metadata_location)))

    def _unfolded(self, found: Inspection) -> Inspection:
        """What a fold looks at anyway is looked at here where nothing folds, or not now."""
        view = self.book.view
        if view is not None and keyed.PROPERTY in view.metadata.properties:
            deletes = found.deletes.refreshed(self.book.ledger, view, self.book.duties.folds.look)
            found = replace(found, deletes=deletes)
        return found
