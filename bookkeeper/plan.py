"""
Which of the pending txlogs the next commit holds: pure, from names, marks and what was read.

An incarnation's share is always a prefix of what it published: if n cannot go in now, everything later of that
incarnation waits, so a mark never passes over a txlog that may still get in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bookkeeper.core.errors import (
    DuplicatePath,
    Hold,
    IncarnationPruned,
    PositionTaken,
    Reject,
    TooManyHoles,
)
from bookkeeper.core.folder import Found
from bookkeeper.core.locations import normal
from bookkeeper.core.marks import MOST_HOLES, Mark, Marks
from bookkeeper.core.names import TxlogName
from bookkeeper.core.txlog import Txlog


@dataclass(frozen=True, slots=True)
class Limits:
    """At most this much per commit; one txlog is always let in, however large."""

    files: int
    bytes: int
    txlogs: int


@dataclass(frozen=True, slots=True)
class Known:
    """
    What was found out about pending txlogs.

    `good` were read and checked; `bad` were refused for what they hold; `absent` are sequences that are definitely
    in neither pending/ nor on their way (holes). A name in none of them is unknown: it stops its incarnation.
    """

    good: Mapping[TxlogName, Txlog]
    bad: Mapping[TxlogName, Reject] = field(default_factory=dict)
    absent: frozenset[TxlogName] = frozenset()


@dataclass
class Batch:
    """The next commit, and what has to be said of the others."""

    txlogs: list[Txlog] = field(default_factory=list)
    positions: dict[str, bytes] = field(default_factory=dict)
    #: refused because of what is in the table: only true for marks read after the listing
    refused: dict[TxlogName, Reject] = field(default_factory=dict)
    held: dict[TxlogName, Hold] = field(default_factory=dict)
    holes: list[TxlogName] = field(default_factory=list)

    @property
    def doubtful(self) -> bool:
        """Whether it says something that only marks read after the listing can say."""
        return bool(self.refused or self.holes)

    @property
    def names(self) -> list[TxlogName]:
        """The txlogs of this commit."""
        return [txlog.name for txlog in self.txlogs]


def in_turn(found: Sequence[Found]) -> list[Found]:
    """
    Pending txlogs, oldest first, and each incarnation in its own order whatever the storage's clock says.
    """
    latest: dict[tuple[str, str], Found] = {}
    keyed = []
    for item in sorted(found):
        run = (item.name.writer, item.name.incarnation)
        before = latest.get(run)
        seen = item if before is None or item.modified >= before.modified else before
        latest[run] = seen
        keyed.append((seen.modified, item.name, item))
    return [item for _, _, item in sorted(keyed, key=lambda entry: entry[:2])]


def gaps(names: Sequence[TxlogName], marks: Marks) -> list[TxlogName]:
    """
    Sequences that are neither in nor listed though later ones are: look for them by name, a listing is no snapshot.
    """
    listed, missing = set(names), []
    for name in names:
        last = (marks.mark(name) or Mark()).last
        first = max(last + 1, name.sequence - MOST_HOLES - 1)
        missing += [name.at(number) for number in range(first, name.sequence) if name.at(number) not in listed]
    return sorted(set(missing))


def plan(
    order: Sequence[TxlogName], known: Known, marks: Marks, limits: Limits, recent: Mapping[str, TxlogName]
) -> Batch:
    """
    The batch for txlogs in `order` (see `in_turn`) that are not in yet; `recent` maps committed paths to their txlog.
    """
    planner = _Planner(known, marks, limits, recent)
    for name in order:
        planner.consider(name)
    return planner.batch


class _Planner:
    def __init__(self, known: Known, marks: Marks, limits: Limits, recent: Mapping[str, TxlogName]) -> None:
        self.known, self.marks, self.limits, self.recent = known, marks, limits, recent
        self.batch = Batch()
        self.stopped: set[tuple[str, str]] = set()
        self.last: dict[tuple[str, str], Mark] = {}
        self.paths: dict[str, TxlogName] = {}
        self.files = self.bytes = 0

    def consider(self, name: TxlogName) -> None:
        run = (name.writer, name.incarnation)
        if run in self.stopped or name in self.known.bad:
            return
        txlog = self.known.good.get(name)
        if txlog is None or not self._contiguous(name) or not self._fits(txlog):
            self.stopped.add(run)
            return
        try:
            self._accept(txlog)
        except Reject as error:
            self.batch.refused[name] = error
        except Hold as error:
            self.batch.held[name] = error
            self.stopped.add(run)

    def _contiguous(self, name: TxlogName) -> bool:
        gone = {**self.known.bad, **self.batch.refused}
        return all(
            earlier in self.known.absent or earlier in gone
            for earlier in (name.at(number) for number in self._between(name))
        )

    def _between(self, name: TxlogName) -> range:
        last = self._mark(name).last
        # A longer gap is refused as TooManyHoles whatever is in it.
        return range(last + 1, name.sequence) if name.sequence - last - 1 <= MOST_HOLES else range(0)

    def _mark(self, name: TxlogName) -> Mark:
        return self.last.get((name.writer, name.incarnation)) or self.marks.mark(name) or Mark()

    def _fits(self, txlog: Txlog) -> bool:
        batch = self.batch.txlogs
        return not batch or (
            len(batch) < self.limits.txlogs
            and self.files + len(txlog.entries) <= self.limits.files
            and self.bytes + txlog.data_bytes <= self.limits.bytes
        )

    def _accept(self, txlog: Txlog) -> None:
        name = txlog.name
        if self.marks.is_pruned(name, txlog.created_ms) and (name.writer, name.incarnation) not in self.last:
            raise IncarnationPruned(f"{name} was created before marks were pruned, and its incarnation is unknown")
        self._check_position(txlog)
        paths = self._new_paths(txlog)
        passed = [name.at(number) for number in self._between(name)]
        self.last[name.writer, name.incarnation] = self._advanced(name)
        self.paths.update(paths)
        self.files += len(txlog.entries)
        self.bytes += txlog.data_bytes
        self.batch.holes += passed
        self.batch.txlogs.append(txlog)
        if txlog.position is not None:
            self.batch.positions[name.writer] = txlog.position

    def _advanced(self, name: TxlogName) -> Mark:
        mark = self._mark(name)
        if name.sequence - mark.last - 1 > MOST_HOLES:
            raise TooManyHoles(f"{name} comes {name.sequence - mark.last - 1} sequences after the last one that is in")
        holes = {*mark.holes, *range(mark.last + 1, name.sequence)} - {name.sequence}
        if len(holes) > MOST_HOLES:
            raise TooManyHoles(f"{name.writer}.{name.incarnation} would have {len(holes)} holes")
        return Mark(max(mark.last, name.sequence), tuple(sorted(holes)), mark.seen_ms)

    def _check_position(self, txlog: Txlog) -> None:
        if txlog.position is None:
            return
        writer = txlog.name.writer
        committed = self.batch.positions.get(writer, self.marks.writer(writer).position)
        if txlog.previous_position != committed:
            raise PositionTaken(
                f"{txlog.name} continues from {_shown(txlog.previous_position)}, "
                f"but {writer} is committed up to {_shown(committed)}"
            )

    def _new_paths(self, txlog: Txlog) -> dict[str, TxlogName]:
        paths: dict[str, TxlogName] = {}
        for file in txlog.files:
            path = normal(file.path)
            earlier = paths.get(path) or self.paths.get(path) or self.recent.get(path, txlog.name)
            if earlier != txlog.name or path in paths:
                raise DuplicatePath(f"{file.path[:300]} is already named by {earlier}")
            paths[path] = txlog.name
        return paths


def _shown(position: bytes | None) -> str:
    return "the start" if position is None else repr(position[:80])
