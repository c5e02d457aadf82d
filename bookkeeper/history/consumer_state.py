"""
The state of every consumer: which of main's snapshots it still needs, and how long it may hold them.

A consumer whose checkpoint is unreadable, or has no offset yet, needs everything; `max-hold` bounds that too.
Checkpoints first, table last: a snapshot of a checkpoint that is not in the table has expired, it is not a new one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from pyiceberg.table.metadata import TableMetadata

from bookkeeper.config.settings import Reaper
from bookkeeper.config.units import epoch_ms, from_epoch_ms
from bookkeeper.errors import BookkeeperError, ConfigInvalid
from bookkeeper.history.checkpoint import Checkpoint, Offset, read
from bookkeeper.history.checkpoint_store import CheckpointReading, OpenStore, open_checkpoint
from bookkeeper.history.looks import Looks
from bookkeeper.history.main_history import MainHistory, counted, is_append
from bookkeeper.history.registry import ALL_FILES, BEFORE_ALL, CONFIG, ITSELF, Consumer, Registry

LIVE, NEW, UNREADABLE, ASIDE, LAPSED = "live", "not started", "unreadable", "aside", "lapsed"
#: it has no offset yet, and reads the rows of a snapshot in a batch first
BEGINNING = "beginning"
#: the snapshot of its newest offset has expired, or only that of its first offset, which can be mended
CUT_OFF, TO_MEND = "cut off", "to mend"
#: Spark's trigger available-now reads no further, and ends as if it had read everything
STALLED = "stalled"
#: rows since its first offset after which that trigger plans nothing more: Java's largest int
MOST_ROWS = 2**31 - 1
#: filesystems of the cluster on which Spark runs
_CLUSTER = ("hdfs:", "viewfs:")
#: of max-hold: from here on a consumer is said to be at risk
AT_RISK = 0.8
#: of this process: what hangs is known to all that look
_LOOKS = Looks()


@dataclass(frozen=True, slots=True)
class CheckpointRead:
    """A consumer and its checkpoint as it is now, or why that cannot be read."""

    consumer: Consumer
    checkpoint: Checkpoint | None = None
    trouble: str = ""

    @property
    def offsets(self) -> tuple[Offset, ...]:
        """The offsets that its next start may go back to; none when they are unknown."""
        if self.consumer.snapshot is not None:
            snapshot = None if self.consumer.snapshot == BEFORE_ALL else self.consumer.snapshot
            return (Offset(snapshot, self.consumer.position, self.consumer.whole),)
        if self.is_beginning:
            return (Offset(self.consumer.begins_with, 0, whole=True),)
        return self.checkpoint.needed if self.checkpoint else ()

    @property
    def is_beginning(self) -> bool:
        """Whether it has no offset yet and reads the rows of a snapshot in a batch."""
        return self.consumer.begins_with is not None and self.checkpoint == Checkpoint()

    @property
    def first(self) -> Offset | None:
        """The first offset, if its next start begins there."""
        found = self.checkpoint.initial if self.checkpoint and self.consumer.available_now else None
        return found if found and found.snapshot is not None else None


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """
    The state of a consumer, by one load of the table.

    `first` is the index on main of the oldest snapshot that it needs, None when it needs none; `used` is the share of
    max-hold that it uses, more than 1 when it is held beyond that. `unread` is whether it has rows to read, and
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


def read_all(registry: Registry, open_store: OpenStore, looks: Looks = _LOOKS) -> list[CheckpointRead]:
    """
    Reads the checkpoint of every registered consumer; one that is unreadable, or whose storage does not answer, hides
    no other. Raises StorageUnavailable when the registry cannot be read.
    """
    consumers = registry.all()
    found = looks.at_all(
        (_Place.of(consumer) for consumer in consumers if consumer.checkpoint is not None and not consumer.broken),
        lambda place: _read(place, open_store),
    )
    return [_answered(consumer, found) for consumer in consumers]


class _Place(NamedTuple):
    """What is looked at for a consumer, the same for two of the same checkpoint."""

    url: str
    source: int | None
    is_configured: bool

    def __str__(self) -> str:
        return self.url

    @classmethod
    def of(cls, consumer: Consumer) -> "_Place":
        return cls(consumer.checkpoint or "", consumer.source, consumer.by == CONFIG)


def _answered(consumer: Consumer, found: Mapping[_Place, Checkpoint | BookkeeperError]) -> CheckpointRead:
    answer = None if consumer.broken else found.get(_Place.of(consumer))
    if answer is None:
        return CheckpointRead(consumer, trouble=consumer.broken)
    if isinstance(answer, Checkpoint):
        return CheckpointRead(consumer, answer)
    return CheckpointRead(consumer, trouble=str(answer))


def _read(place: _Place, open_store: OpenStore) -> Checkpoint | BookkeeperError:
    try:
        # All that may write to the folder may name any host: it gets no request by http or ftp.
        opened = open_checkpoint if place.is_configured else _own
        store: CheckpointReading = opened(place.url, open_store)
        return read(store, place.source)
    except BookkeeperError as exc:
        return exc


def _own(location: str, open_store: OpenStore) -> CheckpointReading:
    """The store of a registered checkpoint; raises ConfigInvalid for a filesystem that is no storage of tables."""
    try:
        return open_checkpoint(location, open_store) if location.startswith(_CLUSTER) else open_store(location)
    except ConfigInvalid as exc:
        cause = f"{location[:300]}: only the configuration may name a checkpoint on this filesystem"
        raise ConfigInvalid(cause, hint="Add it to [[tables.NAME.consumers]].") from exc


def evaluate(
    checkpoints: Iterable[CheckpointRead], metadata: TableMetadata, settings: Reaper, now: datetime
) -> list[ConsumerState]:
    """
    Every consumer against this load of the table, which must be younger than the checkpoints.
    """
    history = MainHistory(metadata)
    return [_evaluate(checkpoint_read, history, settings, now) for checkpoint_read in checkpoints]


def _evaluate(checkpoint_read: CheckpointRead, history: MainHistory, settings: Reaper, now: datetime) -> ConsumerState:
    if checkpoint_read.consumer.lapsed(now):
        return ConsumerState(checkpoint_read, LAPSED, None, 0.0, "its time to live is over")
    state, first, why = _first_needed(checkpoint_read, history)
    since = checkpoint_read.consumer.renewed
    used = 0.0 if first is None else hold_used(history, first, settings, now, since)
    committed = checkpoint_read.checkpoint.committed if checkpoint_read.checkpoint else None
    if (
        not checkpoint_read.consumer.available_now
        or committed is None
        or not isinstance(_index_on_main(committed, history), int)
    ):
        return ConsumerState(checkpoint_read, state, first, used, why)
    unread = history.is_unread(committed.snapshot, committed.position)
    if state == LIVE and unread:
        began = checkpoint_read.first or Offset(None, 0)
        rows = history.rows_before(committed.snapshot, committed.position)
        if rows - history.rows_before(began.snapshot, began.position) >= MOST_ROWS:
            state = STALLED
            why = f"Spark's trigger available-now reads nothing past {MOST_ROWS:,} rows since its first offset"
    kept = sum(counted(item, "added-records") for item in history.snapshots if is_append(item))
    return ConsumerState(checkpoint_read, state, first, used, why, unread, kept)


#: the state, the index on main from which on the consumer needs everything, and why
_Needed = tuple[str, int | None, str]


def _first_needed(checkpoint_read: CheckpointRead, history: MainHistory) -> _Needed:
    if checkpoint_read.trouble:
        return UNREADABLE, 0, checkpoint_read.trouble
    if not checkpoint_read.offsets:
        return NEW, 0, "it has no offset yet"
    indexes = []
    for offset in checkpoint_read.offsets:
        index = _index_on_main(offset, history)
        if not isinstance(index, int):
            return _of_own_place(checkpoint_read.consumer, history) or index
        indexes.append(index)
    needed = min(indexes)
    first = _index_on_main(checkpoint_read.first, history) if checkpoint_read.first else needed
    if not isinstance(first, int):
        return TO_MEND, needed, f"its first offset, {first[2]}"
    if checkpoint_read.is_beginning:
        return BEGINNING, needed, "it has no offset yet: it reads the rows of its snapshot in a batch first"
    return LIVE, min(needed, first), ""


def _of_own_place(consumer: Consumer, history: MainHistory) -> _Needed | None:
    """
    What a Consumer of this package needs whose snapshot is expired, where it can go on all the same: a Spark query
    cannot.
    """
    if consumer.by != ITSELF or not history.snapshots or consumer.snapshot in history.by_id:
        return None
    # It has read all of that, and main begins right behind it.
    if consumer.position == ALL_FILES and history.begins_behind(consumer.snapshot):
        return LIVE, 0, ""
    if any(item in history.index for item in consumer.ancestors):
        return ASIDE, 0, f"main was rolled back behind snapshot {consumer.snapshot}, which is expired"
    return None


def _index_on_main(offset: Offset, history: MainHistory) -> int | _Needed:
    """The index of its snapshot on main; what that means for the consumer where it has none."""
    if offset.snapshot is None:
        return 0
    if offset.snapshot in history.index:
        return history.index[offset.snapshot]
    if offset.snapshot in history.by_id:
        return ASIDE, 0, f"snapshot {offset.snapshot} is not on main"
    return CUT_OFF, None, f"snapshot {offset.snapshot} is expired"


def hold_used(
    history: MainHistory, first: int, settings: Reaper, now: datetime, since: datetime | None = None
) -> float:
    """
    The share of max-hold, in time, bytes or snapshots, that a consumer uses which needs main from this index on.

    Time counts from `since`, where that is later than what it has not read: when the batch ended that it began with.
    """
    # The newest append stays in any case: a consumer that stands on it holds nothing.
    if first >= history.newest_append:
        return 0.0
    behind = len(history.snapshots) - 1 - first
    age = now - max(from_epoch_ms(history.snapshots[first + 1].timestamp_ms), _past(since, now))
    share = max(age / settings.max_hold, history.bytes_after[first] / settings.max_hold_bytes)
    return share if settings.max_hold_snapshots is None else max(share, behind / settings.max_hold_snapshots)


def hold_limit(history: MainHistory, settings: Reaper, now: datetime, since: datetime | None = None) -> int:
    """
    The index on main before which nothing is held for a consumer whose time counts from `since` (None: for any).
    """
    oldest_ms = epoch_ms(now - settings.max_hold)
    last = max(0, len(history.snapshots) - 1)
    by_count = 0 if settings.max_hold_snapshots is None else max(0, last - settings.max_hold_snapshots)
    by_bytes = next((index for index, held in enumerate(history.bytes_after) if held <= settings.max_hold_bytes), 0)
    later = enumerate(history.snapshots[1:])
    by_time = next((index for index, item in later if item.timestamp_ms >= oldest_ms), last)
    return max(by_count, by_bytes, 0 if now - _past(since, now) <= settings.max_hold else by_time)


def _past(since: datetime | None, now: datetime) -> datetime:
    """`since`, or the beginning of time where there is none or it has not come yet: no record buys time by that."""
    return from_epoch_ms(0) if since is None or since > now else since


def notice_period(settings: Reaper) -> timedelta:
    """
    How long before a cut-off a consumer is named at least, whatever max-hold says.
    """
    return min(settings.max_hold / 10, timedelta(hours=1))
