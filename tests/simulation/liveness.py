"""
Liveness: each duty that is due is done within a bound of simulated time. Nothing else demands that maintenance ever
does anything: a table stays right when retention, folds or sweeps have stopped, until it is too large to be read.

`debts` finds what is to be done, by the oracle's own reading; here stands how long it may take, and why.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from tests.simulation.decoder import Wrong

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
#: what is due at the end of a round of programs may be done in the next one at the earliest, and is seen after that
ROUNDS = 2


class Bound(NamedTuple):
    """How long a debt may stay, beside ROUNDS rounds of programs, and why so long."""

    most: timedelta
    why: str


BOUNDS = {
    "a txlog is committed or rejected": Bound(
        30 * SECOND,
        "a tick a second; a table that is loaded anew each 10 s, a second listing, and a third tick's listing",
    ),
    "a consumed txlog is deleted": Bound(30 * SECOND, "the tick that commits it, or the next one"),
    "marks.json says what the table says": Bound(30 * SECOND, "each tick that finds nothing compares them"),
    "the card shows the table's schema": Bound(30 * SECOND, "each load, every 10 s"),
    "rows past retention are dropped": Bound(
        90 * SECOND, "retention.every is 60 s; what the brake holds back is no debt"
    ),
    "equality deletes are folded": Bound(
        11 * MINUTE, "fold.after is 60 s; what could not be read is tried again after 10 m"
    ),
    "a rewrite is committed or rejected": Bound(2 * MINUTE, "rewrites/ is listed each minute at least"),
    "small files become few": Bound(9 * MINUTE, "a lot is quiet after 5 m; then a round, a commit and two looks"),
    "snapshots expire": Bound(2 * MINUTE, "reaper.every is 2 m"),
    "the reaper's journal is carried out": Bound(2 * MINUTE, "the next run, 2 m later"),
    "old metadata.json files are deleted": Bound(2 * MINUTE, "reaper.every is 2 m, after metadata-keep"),
    "orphans are swept": Bound(
        4 * HOUR, "orphan-age is 2 h; two sweeps find it, an hour apart, the first within an hour"
    ),
    "a rejected txlog that is in is swept": Bound(2 * MINUTE, "rejected/ is swept each minute"),
    "a txlog that lost its position is swept": Bound(2 * HOUR + 2 * MINUTE, "orphan-age is 2 h, then as above"),
    "a rejected rewrite is swept": Bound(3 * HOUR + 2 * MINUTE, "orphan-age is 2 h, a sweep each hour"),
    "an answer to a request for columns is swept": Bound(21 * MINUTE, "it stands for 10 m, a sweep each 10 m"),
    "marks of idle runs are pruned": Bound(
        12 * MINUTE, "the first commit 10 m after the last pruning, past marks-keep"
    ),
    "a request for a column is answered": Bound(30 * SECOND, "columns/ is listed each 5 s"),
    "a program ends what it does": Bound(0 * SECOND, "who waits for room, or for a column, gets it within a round"),
    "a writer gets room": Bound(0 * SECOND, "a publish that waits for room succeeds once txlogs are committed"),
    "a replay gets in": Bound(MINUTE, "a replayed txlog is pending, so it is committed or rejected"),
    "a lease is taken over": Bound(46 * SECOND, "it lasts 15 s; a borrower waits 15 s more, and tries each second"),
    "rows reach the consumer": Bound(MINUTE, "a run reads all; a member's share is borrowed after 15 s and 3 s"),
    "a consumer's record follows its place": Bound(MINUTE, "every 10 s while it reads"),
}
Finder = Callable[[], Iterable[Hashable]]


@dataclass
class Liveness:
    """The debts of one world, and since when each is there."""

    clock: Callable[[], datetime]
    finders: dict[str, Finder]
    since: dict[tuple[str, Hashable], datetime] = field(default_factory=dict)

    def begin(self) -> None:
        """From now on programs run in rounds, and nothing fails."""
        self.since.clear()

    def look(self, round_of: timedelta, names: Iterable[str] = ()) -> None:
        """
        After a round of programs, which took so long: raises Wrong for a debt that is there for too long. `names`:
        those of BOUNDS that are looked for, all without it.
        """
        now = self.clock()
        for name in names or self.finders:
            found = {(name, item) for item in self.finders[name]()}
            for known in [known for known in self.since if known[0] == name and known not in found]:
                del self.since[known]
            for item in sorted(found, key=str):
                since = self.since.setdefault(item, now)
                if now - since > BOUNDS[name].most + ROUNDS * round_of:
                    late = now - since - BOUNDS[name].most
                    raise Wrong(f"{name}: not so for {item[1]}, {late} later than it may take")
