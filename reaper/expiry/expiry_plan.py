"""
Which snapshots to expire, and why the others stay: pure, from metadata, settings and `now`.

1. Of main only a contiguous prefix expires, because a stream stops at a missing snapshot. With snapshots 1 to 9, a tag
   on 3 and everything after 6 kept: 1 and 2 expire, 4 and 5 stay "after a kept one".
2. Beside main a snapshot expires when no branch leads to it, no tag names it and it is old enough. One that is staged
   (write-audit-publish) waits for a person or a job to publish it: it has as long as by Iceberg's own default.
3. Main stays from the newest append, the marks' snapshot and the oldest snapshot that a consumer needs; and, as long as
   for a consumer, from the newest commit of another engine's stream, which tells it what it has committed.

Nothing is planned over a history that the bookkeeper would not accept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.config.expiry import Rules, rules
from bookkeeper.config.settings import Reaper
from bookkeeper.config.units import format_duration, millis
from bookkeeper.contract import marks, marks_json
from bookkeeper.contract.marks_json import MarksCopy
from bookkeeper.errors import HistoryChanged, MarksLost, WrongFolder
from bookkeeper.history.main_history import MAIN, MainHistory, is_append, is_older, is_ours, walk
from bookkeeper.history.others import STAGED_FOR, newest_of_streams, waiting
from reaper.clock import EPOCH
from reaper.consumer_guard import Hold

#: a table without a commit for this long is quiet, or our clock runs ahead: the brake cannot tell
QUIET = timedelta(days=1)
STREAM = "newest commit of a stream, or after it"
APPEND = "newest append, or after it"
YOUNG, LAST = "younger than", "retain-last"
MARKS = "the marks' snapshot, or after it"


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
    from a snapshot that another program has expired.

    Raises HistoryChanged, MarksLost or TableUnusable: then nothing may be expired. The clock was checked before.
    """
    limits = rules(settings, metadata.properties, metadata.refs.get(MAIN))
    if not limits.gc:
        everything = tuple(snapshot.snapshot_id for snapshot in metadata.snapshots)
        return Plan((), (Kept(("gc.enabled=false",), everything),) if everything else ())
    history = MainHistory(metadata)
    append = _newest_append(history)
    refs = _reasons_of_refs(metadata, history)
    streams = ((STREAM, index) for index in newest_of_streams(history, settings, now))
    starts = [*_starts(metadata, history, append, holds, descends), *streams]
    reasons = {
        **_on_main(history, limits, now, refs, starts),
        **_beside_main(history, limits, now, refs, append, holds),
    }
    expire = tuple(snapshot for snapshot, why in reasons.items() if not why)
    return Plan(expire, _grouped(reasons), _brake(metadata, len(expire), now))


def _newest_append(history: MainHistory) -> int | None:
    """The newest append: the offset of a stream that has read everything names it."""
    newest_first = (*reversed(history.snapshots), *reversed(history.beside()))
    return next((item.snapshot_id for item in newest_first if is_append(item)), None)


def _reasons_of_refs(metadata: TableMetadata, history: MainHistory) -> dict[int, list[str]]:
    """The refs that need each snapshot; of the snapshots that a branch shares with main, only the newest counts."""
    reasons: dict[int, list[str]] = {}
    for name, ref in metadata.refs.items():
        if name == MAIN:
            continue
        for snapshot in walk(history.by_id, ref.snapshot_id):
            reasons.setdefault(snapshot.snapshot_id, []).append(f"{ref.snapshot_ref_type.value} {name}")
            if ref.snapshot_ref_type == SnapshotRefType.TAG or snapshot.snapshot_id in history.index:
                break
    if history.snapshots:
        reasons.setdefault(history.snapshots[-1].snapshot_id, []).append(MAIN)
    return reasons


def _starts(
    metadata: TableMetadata,
    history: MainHistory,
    append: int | None,
    holds: Sequence[Hold],
    descends: Callable[[int], bool],
) -> Iterator[tuple[str, int]]:
    """Pairs of a reason and an index: because of it, main stays from this index on."""
    if append in history.index:
        yield APPEND, history.index[append]
    marked = marked_snapshot(metadata)
    if marked is not None:
        if marked not in history.index and not descends(marked):
            raise HistoryChanged(f"the marks came with snapshot {marked}, which main does not descend from")
        # If another program expired the marks' snapshot, all of main stays (index 0) until our next commit.
        yield MARKS, history.index.get(marked, 0)
    for hold in holds:
        # A consumer whose snapshot is not on main may need any of it: all of main stays (index 0).
        yield hold.reason, history.index.get(hold.snapshot or 0, 0)


def _on_main(
    history: MainHistory,
    limits: Rules,
    now: datetime,
    refs: Mapping[int, Sequence[str]],
    starts: Sequence[tuple[str, int]],
) -> dict[int, tuple[str, ...]]:
    first_retained = len(history.snapshots) - limits.retain_last
    result: dict[int, tuple[str, ...]] = {}
    held = False
    for index, snapshot in enumerate(history.snapshots):
        why = list(refs.get(snapshot.snapshot_id, ()))
        why += [f"{LAST} {limits.retain_last}"] if index >= first_retained else []
        why += _too_young(snapshot, limits, now)
        why += [reason for reason, start in starts if index >= start]
        result[snapshot.snapshot_id] = tuple(why) or (("after a kept one",) if held else ())
        held = held or bool(why)
    return result


def _beside_main(
    history: MainHistory,
    limits: Rules,
    now: datetime,
    refs: Mapping[int, Sequence[str]],
    append: int | None,
    holds: Sequence[Hold],
) -> dict[int, tuple[str, ...]]:
    result: dict[int, tuple[str, ...]] = {}
    staged = replace(limits, older_than=max(limits.older_than, STAGED_FOR))
    unpublished = {snapshot.snapshot_id for snapshot in waiting(history)}
    for snapshot in history.beside():
        why = list(refs.get(snapshot.snapshot_id, ()))
        why += [hold.reason for hold in holds if hold.snapshot not in history.index]
        waits = snapshot.snapshot_id in unpublished
        why += [f"staged, {young}" for young in _too_young(snapshot, staged, now)] if waits else []
        why += _too_young(snapshot, limits, now)
        why += [APPEND] if snapshot.snapshot_id == append else []
        result[snapshot.snapshot_id] = tuple(why)
    return result


def _too_young(snapshot: Snapshot, limits: Rules, now: datetime) -> list[str]:
    oldest_ms = millis(now - limits.older_than - EPOCH)
    return [f"{YOUNG} {format_duration(limits.older_than)}"] if snapshot.timestamp_ms >= oldest_ms else []


def _grouped(reasons: Mapping[int, tuple[str, ...]]) -> tuple[Kept, ...]:
    groups: dict[tuple[str, ...], list[int]] = {}
    for snapshot, why in reasons.items():
        if why:
            groups.setdefault(why, []).append(snapshot)
    return tuple(Kept(why, tuple(snapshots)) for why, snapshots in groups.items())


def _brake(metadata: TableMetadata, expiring: int, now: datetime) -> str | None:
    newest = max((snapshot.timestamp_ms for snapshot in metadata.snapshots), default=0)
    quiet = now - datetime.fromtimestamp(newest / 1000, UTC)
    if expiring * 2 <= len(metadata.snapshots) or quiet <= QUIET:
        return None
    share = f"{expiring} of {len(metadata.snapshots)}"
    return f"{share} snapshots would expire, the newest is {format_duration(quiet)} old: is this clock right?"


def marked_snapshot(metadata: TableMetadata) -> int | None:
    """
    The snapshot the marks came with; raises MarksLost when summaries show marks and the property is gone.
    """
    text = metadata.properties.get(marks.PROPERTY)
    if text is not None:
        return marks_json.loads(text).snapshot
    if any(map(is_ours, metadata.snapshots)):
        # These snapshots are the evidence, and old metadata files may be the cure.
        raise MarksLost(f"snapshots show that marks were committed, but {marks.PROPERTY} is gone")
    return None


def marks_are_expired(metadata: TableMetadata) -> bool:
    """
    Whether another program expired the snapshot the marks came with: then only old metadata files prove descent.
    """
    marked = marked_snapshot(metadata)
    return marked is not None and metadata.snapshot_by_id(marked) is None


def check_not_older(metadata: TableMetadata, copy: MarksCopy | None) -> None:
    """
    Raises HistoryChanged when marks.json, read before the table, knows a later commit: the files of what came after
    would look like orphans, and the newer table may still be registered again. WrongFolder where it is another
    table's: what that one's txlogs and consumers need tells nothing of this one.
    """
    if copy is not None and copy.table_uuid != str(metadata.table_uuid):
        raise WrongFolder(f"the txlog folder belongs to table {copy.table_uuid}, this one is {metadata.table_uuid}")
    if is_older(metadata, marked_snapshot(metadata), copy):
        raise HistoryChanged(
            "marks.json knows a later commit than this table, so nothing is expired or deleted",
            hint="Was the catalog restored from a backup? Point it at the newest metadata file, or accept-rollback.",
        )
