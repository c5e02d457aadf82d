"""
The usual tick behind latency: its round trips in a row and its requests, and the bounds of both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.support.behind import ALONE, EVENTS, REST, SQLITE, Kind
from benchmarks.support.harness import number
from benchmarks.support.round_trips import Tick, links, shown

#: of one commit
TXLOGS = 5
COLUMNS = (
    "storage, catalog",
    "latency, ms",
    "in a row: visible / end",
    "visible / end after, ms",
    "requests: five txlogs",
    "an idle tick",
    "a reload adds: its tick / the next commit",
)
NOTE = (
    "a tick begins with its listing, by events with the read of the txlogs; visible is when the last request has ended "
    "that the commit waits for. The bound is 4 round trips in a row to visible (5 with the catalog on storage alone, 3 "
    "by events) and 6 to the end; 17 requests for a commit of five txlogs (Azurite takes no batches: 4 more), 2 for an "
    "idle tick, 2 more for a reload. The lease, renewed every 5 s, is not counted"
)
#: bounds, as NOTE says them
_MOST = {SQLITE: 4, REST: 4, ALONE: 5}
_MOST_BY_EVENTS, _MOST_IN_ALL, _MOST_REQUESTS, _MOST_IDLE, _MOST_MORE = 3, 6, 17, 2, 2


@dataclass(frozen=True)
class Measured:
    """The usual tick of each kind: `again` is the first commit after an idle tick with a reload."""

    commit: Tick | None
    again: Tick | None
    idle: Tick | None
    reload: Tick | None

    @classmethod
    def of(cls, ticks: Sequence[Tick]) -> "Measured":
        """By the number of links and requests."""
        kinds: dict[str, list[Tick]] = {"commit": [], "again": [], "idle": [], "reload": []}
        reloaded = False
        for tick in ticks:
            if not tick.txlogs:
                kinds["reload" if tick.reloaded else "idle"].append(tick)
                reloaded = reloaded or tick.reloaded
            elif tick.committed:
                if tick.txlogs == TXLOGS and not tick.reloaded:
                    kinds["again" if reloaded else "commit"].append(tick)
                reloaded = False
        return cls(**{name: _usual(found) for name, found in kinds.items()})

    def cells(self) -> list[Any]:
        """What the table says, from the third column on."""
        row: list[Any] = [None] * 3
        if made := self.commit:
            ends = (made.seconds(made.before), made.seconds(made.records))
            row = [f"{len(links(made.before))} / {len(links(made.records))}"]
            row += [" / ".join(number(item * 1000) for item in ends), len(made.records)]
        row.append(len(self.idle.records) if self.idle else None)
        more = (_more(self.reload, self.idle), _more(self.again, self.commit))
        return [*row, " / ".join("?" if item is None else str(item) for item in more)]

    def beyond(self, kind: Kind) -> list[str]:
        """What is over the bounds."""
        row = _MOST_BY_EVENTS + (kind.catalog == ALONE) if kind.mode == EVENTS else _MOST[kind.catalog]
        more = (_more(self.reload, self.idle) or 0) + (_more(self.again, self.commit) or 0)
        found = [("requests more with a reload", more, _MOST_MORE)]
        if self.idle:
            found.append(("requests of an idle tick", len(self.idle.records), _MOST_IDLE))
        if self.commit:
            batches = TXLOGS - 1 if kind.storage == "azurite" else 0
            found.append(("in a row to visible", len(links(self.commit.before)), row))
            found.append(("in a row to the end", len(links(self.commit.records)), _MOST_IN_ALL))
            found.append(("requests of five txlogs", len(self.commit.records), _MOST_REQUESTS + batches))
        return [f"{what} {there} > {most}" for what, there, most in found if there > most]


def _more(one: Tick | None, other: Tick | None) -> int | None:
    return len(one.records) - len(other.records) if one and other else None


def _usual(ticks: Sequence[Tick]) -> Tick | None:
    """The median of them: one with trouble, or with what goes by time, is not it."""
    ordered = sorted(ticks, key=lambda tick: (len(links(tick.records)), len(tick.records)))
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def chain(tick: Tick | None) -> list[str]:
    """
    What is in flight in each link of a tick; the one after which its rows can be seen is marked.
    """
    found = [shown(link) for link in links(tick.records)] if tick else []
    if tick and tick.committed:
        found[len(links(tick.before)) - 1] += " (visible)"
    return found
