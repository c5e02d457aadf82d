"""
Mends an available-now query that its first offset stops: expired, or 2^31 - 1 rows behind what it has read.

The first offset then says "the oldest snapshot there is". Where so many rows are kept that this would stop it too, it
says what the query has read, and only while something is unread: Spark fails at a query that begins at its end.

It touches one file of the checkpoint and its checksum, never the batches; the query must be stopped meanwhile.
"""

import json
from dataclasses import dataclass

from bookkeeper.errors import Missing, NotPossible
from bookkeeper.streams.checkpoint import BEGINNING, Checkpoint, Offset, initial_key, read
from bookkeeper.streams.checkpoint_store import CheckpointStore
from bookkeeper.streams.consumer_state import CUT_OFF, MOST_ROWS, STALLED, ConsumerState
from bookkeeper.streams.registry import Consumer


@dataclass(frozen=True, slots=True)
class Mend:
    """What will be done to a checkpoint: `key` says `before` and will say `after`; `checksum` goes."""

    consumer: str
    key: str
    before: str
    after: str
    checksum: str


def plan(standing: ConsumerState, place: CheckpointStore) -> Mend | None:
    """
    The mend of this consumer's checkpoint, None when it needs none; raises NotPossible when none can help.
    """
    consumer, checkpoint = standing.checkpoint_read.consumer, standing.checkpoint_read.checkpoint
    if checkpoint is None or not consumer.available_now:
        return None
    stalled = standing.state == STALLED
    if checkpoint.initial is None and not stalled:
        return None
    _check(consumer, checkpoint, standing.state)
    if checkpoint.initial is not None and checkpoint.initial.snapshot is None and not stalled:
        return None
    key = initial_key(consumer.source)
    folder, _, name = key.rpartition("/")
    before = place.read(key).decode().strip() if checkpoint.initial else ""
    after = _after(standing, checkpoint)
    return None if before == after else Mend(consumer.name, key, before, after, f"{folder}/.{name}.crc")


def _after(standing: ConsumerState, checkpoint: Checkpoint) -> str:
    if standing.kept_rows < MOST_ROWS:
        return json.dumps(BEGINNING, separators=(",", ":"))
    if not standing.unread:
        raise NotPossible(
            f"{standing.name} has read everything of {standing.kept_rows:,} rows that are kept: no first offset suits",
            hint="Mend it when something is unread (`bookkeeper lag`), before its next start.",
        )
    assert checkpoint.committed is not None, "without a committed batch no mend is planned"
    return _encoded(checkpoint.committed)


def _encoded(offset: Offset) -> str:
    said = {**BEGINNING, "snapshot_id": offset.snapshot, "position": offset.position, "scan_all_files": offset.whole}
    return json.dumps(said, separators=(",", ":"))


def _check(consumer: Consumer, checkpoint: Checkpoint, state: str) -> None:
    anew = "Start it with a new checkpoint and --from the last time seen, and register that."
    if checkpoint.committed is None:
        raise NotPossible(
            f"{consumer.name} has no committed batch: its first offset is where it will begin", hint="Start it first."
        )
    if state == CUT_OFF:
        raise NotPossible(f"the newest offset of {consumer.name} is expired too: no mend helps", hint=anew)


def mend(place: CheckpointStore, planned: Mend, source: int | None) -> Checkpoint:
    """
    Does it, and returns what the checkpoint says then; raises NotPossible when somebody else changed it meanwhile.
    """
    try:
        if place.read(planned.key).decode().strip() != planned.before:
            raise NotPossible(f"{place.url}/{planned.key} has changed meanwhile", hint="Is the query running? Stop it.")
    except Missing:
        pass  # a mend that was cut off in the middle
    # The checksum first: a file without one is read as it is, one with a wrong one never. The file itself may
    # be absent for a moment: Spark would then begin at the oldest snapshot, which is what we write, or what stalls
    # again and is mended again.
    place.delete_many([planned.checksum])
    place.delete_many([planned.key])
    place.create(planned.key, planned.after.encode())
    return read(place, source)
