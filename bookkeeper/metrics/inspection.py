"""
What is found by looking around a table now and then: who reads it and how far behind, what lies in rejected/, room.

Looks from a thread of its own, with a view that the bookkeeper has loaded anyway, so that no tick waits for it. What
cannot be read keeps its last known value.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from pyiceberg.table.metadata import TableMetadata

from bookkeeper.catalogs.open import load_table
from bookkeeper.core.folder import REJECTED, SUFFIX
from bookkeeper.errors import BookkeeperError
from bookkeeper.stores.locations import local_path
from bookkeeper.streams.consumer_state import ASIDE, CUT_OFF, TO_MEND, CheckpointRead, ConsumerState, evaluate, read_all
from bookkeeper.streams.lag import Added, Lag, added_files, lag
from bookkeeper.streams.registry import Registry
from bookkeeper.tick.tick import Bookkeeper

#: total, used and free bytes of the disk a path is on
Usage = Callable[[str], tuple[int, int, int]]
#: of a table, by name: more would make a page and a scrape that nobody can read
MOST_CONSUMERS = 50
MOST_REJECTED = 20
#: characters of a reason
MOST_SAID = 1000
#: remembered, so that one that was just rejected is not counted twice
MOST_NAMES = 1000


@dataclass(frozen=True, slots=True)
class Rejected:
    """A rejected txlog, why, and what to do."""

    name: str
    error: str
    reason: str
    hint: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Reads:
    """A consumer: its state, the share of max-hold it uses, and its lag when anybody can tell."""

    name: str
    state: str
    used: float
    why: str = ""
    lag: Lag | None = None


@dataclass
class Inspection:
    """What the last look found, complete `at` that time; `trouble` is why a part of it is older."""

    at: datetime | None = None
    consumers: tuple[Reads, ...] = ()
    omitted: int = 0
    rejected: int = 0
    newest: tuple[Rejected, ...] = ()
    free: float | None = None
    size: float | None = None
    #: of metadata.json, as it is stored
    metadata_bytes: int | None = None
    trouble: str = ""
    names: frozenset[str] = frozenset()

    @property
    def behind(self) -> float | None:
        """Seconds that the last consumer is behind."""
        return max((item.lag.behind.total_seconds() for item in self.consumers if item.lag), default=None)

    def add(self, item: Rejected) -> None:
        """One that was rejected since; the next look finds it by itself."""
        if item.name not in self.names:
            self.names |= {item.name}
            self.rejected += 1
            self.newest = (item, *self.newest)[:MOST_REJECTED]


@dataclass
class TableInspector:
    """Looks around one table; `before` is what is known already."""

    book: Bookkeeper
    now: datetime
    before: Inspection = field(default_factory=Inspection)
    usage: Usage = shutil.disk_usage

    def around(self) -> Inspection:
        """What is there now; never raises."""
        found, said = replace(self.before, trouble=""), list[str]()
        for part in (self._consumers, self._rejected, self._room, self._metadata):
            try:
                found = part(found)
            except Exception as error:  # noqa: BLE001 - one part says nothing about the others
                said.append(f"{type(error).__name__}: {error}")
        return replace(found, trouble="; ".join(said)) if said else replace(found, at=self.now)

    def _consumers(self, found: Inspection) -> Inspection:
        book = self.book
        readings = read_all(Registry(book.folder.store, book.settings.consumers), book.open_store)
        view = book.view
        if view is None:
            return found
        metadata, stands = self._stand(view.metadata, readings)
        chosen = sorted(stands, key=lambda item: -item.used)[:MOST_CONSUMERS]
        reads = [self._reads(item, metadata, added_files(view.table.io)) for item in chosen]
        return replace(found, consumers=tuple(reads), omitted=len(stands) - len(reads))

    def _reads(self, item: ConsumerState, metadata: TableMetadata, added: Added) -> Reads:
        try:
            behind, why = lag(item, metadata, added, self.now), item.why
        except BookkeeperError as error:  # of this one alone nobody can tell how far it is
            behind, why = None, str(error)
        return Reads(item.name, item.state, item.used, why, behind)

    def _stand(
        self, metadata: TableMetadata, readings: list[CheckpointRead]
    ) -> tuple[TableMetadata, list[ConsumerState]]:
        settings = self.book.settings.reaper
        stands = evaluate(readings, metadata, settings, self.now)
        if any(item.state in (CUT_OFF, ASIDE, TO_MEND) for item in stands):
            # Somebody else may have committed the snapshot it stands on since our load: only a new one condemns.
            metadata = load_table(self.book.ledger.catalog, self.book.settings.identifier).metadata
            stands = evaluate(readings, metadata, settings, self.now)
        return metadata, stands

    def _rejected(self, found: Inspection) -> Inspection:
        # Also those whose names are none: `folder.rejected` cannot name them.
        listed = [item for item in self.book.folder.store.list(REJECTED) if item.key.endswith(SUFFIX)]
        listed.sort(key=lambda item: item.modified, reverse=True)
        known = {item.name: item for item in found.newest}
        times = {item.key.removeprefix(REJECTED): item.modified for item in listed}
        newest = [known.get(name) or self._reasoned(name, times[name]) for name in list(times)[:MOST_REJECTED]]
        return replace(found, rejected=len(times), newest=tuple(newest), names=frozenset(list(times)[:MOST_NAMES]))

    def _reasoned(self, name: str, at: datetime) -> Rejected:
        why = self.book.folder.reason(name)
        error, reason, hint = (str(why.get(key) or "")[:MOST_SAID] for key in ("error", "reason", "hint"))
        return Rejected(name, error, reason, hint, at)

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
