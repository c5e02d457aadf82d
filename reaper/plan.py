"""
Which snapshots to expire, and why the rest stays: pure, from metadata, settings and `now`.

Only ever a contiguous prefix of main's history (a stream dies at a hole), and what no ref leads to. Refuses
to plan over a history the bookkeeper would not accept, or by a clock that cannot be right.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from bookkeeper.config.expiry import Rules, rules
from bookkeeper.config.settings import Reaper
from bookkeeper.config.units import format_duration, millis
from bookkeeper.errors import ClockBehind, HistoryChanged
from reaper.marks import marked_snapshot

MAIN = "main"
BEHIND = timedelta(seconds=30)
#: a table without a commit for this long is quiet, or our clock runs ahead: the brake cannot tell
QUIET = timedelta(days=1)
APPEND = "newest append, or after it"
MARKS = "the marks' snapshot, or after it"
CONSUMER = "needed by a consumer"


@dataclass(frozen=True, slots=True)
class Hold:
    """Main stays from `snapshot` on for this reason; everything does where it is None or nobody can place it."""

    reason: str
    snapshot: int | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """Snapshots that stay for the same reasons, oldest first."""

    reasons: tuple[str, ...]
    snapshots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Snapshots to expire, oldest first; the others, by reason; and why a person should look first, if so."""

    expire: tuple[int, ...]
    kept: tuple[Kept, ...]
    brake: str | None = None


def make_plan(
    metadata: TableMetadata,
    settings: Reaper,
    now: datetime,
    holds: Sequence[Hold] = (),
    descends: Callable[[int], bool] = lambda snapshot: False,
) -> Plan:
    """
    What to expire of this table; `holds` are what its consumers still need, and `descends` tells whether main descends
    from a snapshot that somebody else has expired.

    Raises HistoryChanged, MarksLost or TableUnusable: then nothing may be expired. `check_clock` comes before.
    """
    found = rules(settings, metadata.properties)
    history = History(metadata)
    if not found.gc:
        everything = tuple(snapshot.snapshot_id for snapshot in metadata.snapshots)
        return Plan((), (Kept(("gc.enabled=false",), everything),) if everything else ())
    reasons = {
        **_on_main(history, found, now, _onwards(history, holds, descends)),
        **_off_main(history, found, now, holds),
    }
    expire = tuple(snapshot for snapshot, why in reasons.items() if not why)
    return Plan(expire, _grouped(reasons), _brake(metadata, len(expire), now))


def check_clock(metadata: TableMetadata, now: datetime) -> None:
    """
    Raises ClockBehind when `now` is more than 30 s before the table's last update.
    """
    behind = metadata.last_updated_ms - _ms(now)
    if behind > millis(BEHIND):
        late = format_duration(timedelta(milliseconds=behind))
        raise ClockBehind(f"this clock is {late} behind the table's last update; nothing is expired")


class History:
    """The snapshots of a table: main's line, oldest first, and those beside it."""

    def __init__(self, metadata: TableMetadata) -> None:
        self.metadata = metadata
        self._by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        main = metadata.refs.get(MAIN)
        self.main = list(self.line(main.snapshot_id))[::-1] if main else []
        self.position = {snapshot.snapshot_id: index for index, snapshot in enumerate(self.main)}

    @property
    def linear(self) -> bool:
        """Whether main's line is all there is: no other ref, no snapshot beside it."""
        return self.metadata.refs.keys() == {MAIN} and len(self.main) == len(self.metadata.snapshots)

    def line(self, head: int) -> Iterator[Snapshot]:
        """A snapshot and its ancestors that are still there, newest first."""
        snapshot = self._by_id.get(head)
        while snapshot is not None:
            yield snapshot
            snapshot = self._by_id.get(snapshot.parent_snapshot_id or -1)

    def beside(self) -> list[Snapshot]:
        """Snapshots that are not on main's line, oldest first."""
        others = [item for item in self.metadata.snapshots if item.snapshot_id not in self.position]
        return sorted(others, key=lambda item: (item.timestamp_ms, item.sequence_number or 0))

    def staying(self, expire: Collection[int]) -> list[Snapshot]:
        """Main's line without these."""
        return [item for item in self.main if item.snapshot_id not in expire]

    def other_refs(self) -> Iterator[tuple[str, SnapshotRef]]:
        """Every ref but main."""
        return ((name, ref) for name, ref in self.metadata.refs.items() if name != MAIN)

    def newest_append(self) -> int | None:
        """The snapshot that a stream which has read everything stands on."""
        for snapshot in [*reversed(self.main), *reversed(self.beside())]:
            if snapshot.summary is None or snapshot.summary.operation == Operation.APPEND:
                return snapshot.snapshot_id
        return None


def _on_main(
    history: History, found: Rules, now: datetime, onwards: Sequence[tuple[str, int]]
) -> dict[int, tuple[str, ...]]:
    pinned = _pinned(history)
    recent = _ms(now - found.older_than)
    first_retained = len(history.main) - found.retain_last
    result: dict[int, tuple[str, ...]] = {}
    held = False
    for index, snapshot in enumerate(history.main):
        why = list(pinned.get(snapshot.snapshot_id, ()))
        why += [f"retain-last {found.retain_last}"] if index >= first_retained else []
        why += [f"younger than {format_duration(found.older_than)}"] if snapshot.timestamp_ms >= recent else []
        why += [reason for reason, start in onwards if index >= start]
        result[snapshot.snapshot_id] = tuple(why) or (("after a kept one",) if held else ())
        held = held or bool(why)
    return result


def _pinned(history: History) -> dict[int, list[str]]:
    pinned: dict[int, list[str]] = {}
    for name, ref in history.other_refs():
        line = (item.snapshot_id for item in history.line(ref.snapshot_id))
        shared = (snapshot for snapshot in line if snapshot in history.position)
        # What a branch shares with main ends where it forks off; a tag beside main shares nothing.
        is_tag = ref.snapshot_ref_type == SnapshotRefType.TAG
        snapshot = ref.snapshot_id if is_tag else next(shared, None)
        if snapshot in history.position:
            pinned.setdefault(snapshot, []).append(f"{ref.snapshot_ref_type.value} {name}")
    if history.main:
        pinned.setdefault(history.main[-1].snapshot_id, []).append("main")
    return pinned


def _onwards(history: History, holds: Sequence[Hold], descends: Callable[[int], bool]) -> list[tuple[str, int]]:
    starts: list[tuple[str, int]] = []
    append, marked = history.newest_append(), marked_snapshot(history.metadata)
    if append in history.position:
        starts.append((APPEND, history.position[append]))
    if marked is not None:
        if marked not in history.position and not descends(marked):
            raise HistoryChanged(f"the marks came with snapshot {marked}, which main does not descend from")
        # Expired by others, it may be followed by anything until our next commit.
        starts.append((MARKS, history.position.get(marked, 0)))
    # A consumer on a snapshot we cannot place may need anything.
    return starts + [(hold.reason, history.position.get(hold.snapshot or 0, 0)) for hold in holds]


def _off_main(history: History, found: Rules, now: datetime, holds: Sequence[Hold]) -> dict[int, tuple[str, ...]]:
    named, append = _named(history), history.newest_append()
    recent, result = _ms(now - found.older_than), {}
    for snapshot in history.beside():
        why = [named[snapshot.snapshot_id]] if snapshot.snapshot_id in named else []
        why += [hold.reason for hold in holds if hold.snapshot not in history.position]
        why += [f"younger than {format_duration(found.older_than)}"] if snapshot.timestamp_ms >= recent else []
        why += [APPEND] if snapshot.snapshot_id == append else []
        result[snapshot.snapshot_id] = tuple(why)
    return result


def _named(history: History) -> dict[int, str]:
    named: dict[int, str] = {}
    for name, ref in history.other_refs():
        is_branch = ref.snapshot_ref_type == SnapshotRefType.BRANCH
        needed = [item.snapshot_id for item in history.line(ref.snapshot_id)] if is_branch else [ref.snapshot_id]
        named |= dict.fromkeys(needed, f"{ref.snapshot_ref_type.value} {name}")
    return named


def _grouped(reasons: Mapping[int, Sequence[str]]) -> tuple[Kept, ...]:
    groups: dict[tuple[str, ...], list[int]] = {}
    for snapshot, why in reasons.items():
        if why:
            groups.setdefault(tuple(why), []).append(snapshot)
    return tuple(Kept(why, tuple(snapshots)) for why, snapshots in groups.items())


def _brake(metadata: TableMetadata, expiring: int, now: datetime) -> str | None:
    newest = max((snapshot.timestamp_ms for snapshot in metadata.snapshots), default=0)
    quiet = now - datetime.fromtimestamp(newest / 1000, UTC)
    if expiring * 2 <= len(metadata.snapshots) or quiet <= QUIET:
        return None
    share = f"{expiring} of {len(metadata.snapshots)}"
    return f"{share} snapshots would expire, the newest is {format_duration(quiet)} old: is this clock right?"


def last_sequence(metadata: TableMetadata) -> int:
    """
    The last sequence number that was given to a snapshot.
    """
    return getattr(metadata, "last_sequence_number", 0) or 0


def _ms(moment: datetime) -> int:
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
