"""
Where every consumer stands: which of main's snapshots it still needs, and how long it may hold them.

A consumer that nobody can read, or that has not said where it is, needs everything; `max-hold` bounds that too.
Checkpoints are read before the table is loaded, so a snapshot that is not in the table is expired, not new.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.table.metadata import TableMetadata

from bookkeeper.config.settings import Reaper
from bookkeeper.errors import BookkeeperError
from bookkeeper.streams.checkpoint import Checkpoint, Offset, read
from bookkeeper.streams.checkpoint_store import OpenStore, open_checkpoint
from bookkeeper.streams.main_history import MainHistory, counted, is_append
from bookkeeper.streams.registry import Consumer, Registry

LIVE, NEW, UNREADABLE, ASIDE, LAPSED = "live", "not started", "unreadable", "aside", "lapsed"
#: its own snapshot is expired, or only the first one, which can be mended
CUT_OFF, TO_MEND = "cut off", "to mend"
#: Spark's trigger available-now reads no further, and ends as if it had read all
STALLED = "stalled"
#: rows since its first offset after which that trigger plans nothing more: Java's largest int
MOST_ROWS = 2**31 - 1
#: of max-hold: from here on a consumer is said to be at risk
AT_RISK = 0.8


@dataclass(frozen=True, slots=True)
class CheckpointRead:
    """A consumer and what its checkpoint says now, or why that cannot be told."""

    consumer: Consumer
    checkpoint: Checkpoint | None = None
    trouble: str = ""

    @property
    def offsets(self) -> tuple[Offset, ...]:
        """Where its next start may go back to; none when nobody knows."""
        if self.consumer.snapshot is not None:
            return (Offset(self.consumer.snapshot, 0),)
        return self.checkpoint.needed if self.checkpoint else ()

    @property
    def first(self) -> Offset | None:
        """The first offset, if its next start walks from there."""
        found = self.checkpoint.initial if self.checkpoint and self.consumer.available_now else None
        return found if found and found.snapshot is not None else None


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """
    A consumer against one load of the table.

    `first` is the place on main of the oldest snapshot it needs, None when it needs none of them; `used` is the share
    of max-hold that it takes up, more than 1 when it is held beyond that. `unread` is whether it has rows to read, and
    `kept_rows` how many rows main's snapshots added: both only for an available-now query.
    """

    checkpoint_read: CheckpointRead
    state: str
    first: int | None
    used: float
    why: str = ""
    unread: bool = False
    kept_rows: int = 0

    @property
    def name(self) -> str:
        """The consumer's name."""
        return self.checkpoint_read.consumer.name

    @property
    def at_risk(self) -> bool:
        """Whether it is about to be cut off."""
        return self.first is not None and self.used >= AT_RISK

    @property
    def bound_to_grow(self) -> bool:
        """Whether its first offset alone makes the table keep more than the query still has to read."""
        first, now = self.checkpoint_read.first, self.checkpoint_read.offsets
        return bool(first and self.state == LIVE and first.snapshot not in {offset.snapshot for offset in now})


def read_all(registry: Registry, open_store: OpenStore) -> list[CheckpointRead]:
    """
    What every registered consumer says now; one that cannot be read hides no other. Raises StorageUnavailable
    when the registry itself cannot be read.
    """
    return [_read(consumer, open_store) for consumer in registry.all()]


def _read(consumer: Consumer, open_store: OpenStore) -> CheckpointRead:
    if consumer.broken or consumer.checkpoint is None:
        return CheckpointRead(consumer, trouble=consumer.broken)
    try:
        return CheckpointRead(consumer, read(open_checkpoint(consumer.checkpoint, open_store), consumer.source))
    except BookkeeperError as exc:
        return CheckpointRead(consumer, trouble=str(exc))


def evaluate(
    readings: Iterable[CheckpointRead], metadata: TableMetadata, settings: Reaper, now: datetime
) -> list[ConsumerState]:
    """
    Every consumer against this load of the table, which must be younger than the readings.
    """
    line = MainHistory(metadata)
    return [_standing(reading, line, settings, now) for reading in readings]


def _standing(reading: CheckpointRead, line: MainHistory, settings: Reaper, now: datetime) -> ConsumerState:
    if reading.consumer.lapsed(now):
        return ConsumerState(reading, LAPSED, None, 0.0, "its time to live is over")
    state, first, why = _state(reading, line)
    used = 0.0 if first is None else hold_used(line, first, settings, now)
    committed = reading.checkpoint.committed if reading.checkpoint else None
    if not reading.consumer.available_now or committed is None or not isinstance(_place(committed, line), int):
        return ConsumerState(reading, state, first, used, why)
    unread = line.is_unread(committed.snapshot, committed.position)
    began = reading.first or Offset(None, 0)
    if state == LIVE and unread:
        rows = line.rows_before(committed.snapshot, committed.position)
        rows -= line.rows_before(began.snapshot, began.position)
        if rows >= MOST_ROWS:
            state = STALLED
            why = f"Spark's trigger available-now reads nothing past {MOST_ROWS:,} rows since its first offset"
    kept = sum(counted(item, "added-records") for item in line.snapshots if is_append(item))
    return ConsumerState(reading, state, first, used, why, unread, kept)


def _state(reading: CheckpointRead, line: MainHistory) -> tuple[str, int | None, str]:
    if reading.trouble:
        return UNREADABLE, 0, reading.trouble
    offsets = reading.offsets
    if not offsets:
        return NEW, 0, "it has no offset yet"
    places = [_place(offset, line) for offset in offsets]
    troubled = next((place for place in places if not isinstance(place, int)), None)
    if troubled:
        return troubled
    needed = min(place for place in places if isinstance(place, int))
    first = _place(reading.first, line) if reading.first else needed
    if not isinstance(first, int):
        return TO_MEND, needed, f"its first offset, {first[2]}"
    return LIVE, min(needed, first), ""


def _place(offset: Offset, line: MainHistory) -> int | tuple[str, int | None, str]:
    """Where on main it stands; or the state, the place to hold and why, when it does not."""
    if offset.snapshot is None:
        return 0
    if offset.snapshot in line.index:
        return line.index[offset.snapshot]
    if offset.snapshot in line.by_id:
        return ASIDE, 0, f"snapshot {offset.snapshot} is not on main"
    return CUT_OFF, None, f"snapshot {offset.snapshot} is expired"


def hold_used(line: MainHistory, first: int, settings: Reaper, now: datetime) -> float:
    """
    The share of max-hold, in time, bytes or snapshots, that somebody uses who needs main from this place on.
    """
    # The newest append stays whatever anybody needs: who stands on it holds nothing.
    if first >= line.newest_append:
        return 0.0
    behind = len(line.snapshots) - 1 - first
    age = now - datetime.fromtimestamp(line.snapshots[first + 1].timestamp_ms / 1000, UTC)
    share = max(age / settings.max_hold, line.bytes_after[first] / settings.max_hold_bytes)
    return share if settings.max_hold_snapshots is None else max(share, behind / settings.max_hold_snapshots)


def hold_limit(line: MainHistory, settings: Reaper, now: datetime) -> int:
    """
    The place on main before which nothing is held for anybody.
    """
    oldest_ms = int((now - settings.max_hold).timestamp() * 1000)
    last = max(0, len(line.snapshots) - 1)
    by_count = 0 if settings.max_hold_snapshots is None else max(0, last - settings.max_hold_snapshots)
    by_bytes = next((index for index, held in enumerate(line.bytes_after) if held <= settings.max_hold_bytes), 0)
    by_time = next(
        (index for index, item in enumerate(line.snapshots[1:]) if item.timestamp_ms >= oldest_ms),
        last,
    )
    return max(by_count, by_bytes, by_time)


def notice_period(settings: Reaper) -> timedelta:
    """
    How long before a cut-off a consumer is named at least, whatever max-hold says.
    """
    return min(settings.max_hold / 10, timedelta(hours=1))
