"""
Mends an available-now query that its first offset stops: the offset is expired, or 2^31 - 1 rows behind what was read.

The first offset is set to "the oldest snapshot there is". Where so many rows are kept that this would stop the query
too, it is set to what the query has read, and only while something is unread: Spark fails when a query begins at the
table's end.

A mend changes one file of the checkpoint and its checksum, never the batches; the query must be stopped meanwhile.
"""

import json
from dataclasses import dataclass

from bookkeeper.errors import Missing, NotPossible
from bookkeeper.history.checkpoint import BEGINNING, Checkpoint, initial_key, read
from bookkeeper.history.checkpoint_store import CheckpointStore
from bookkeeper.history.consumer_state import CUT_OFF, MOST_ROWS, STALLED, ConsumerState


@dataclass(frozen=True, slots=True)
class Mend:
    """A change of a checkpoint: `key` holds `before` and will hold `after`; the file `checksum` is deleted."""

    consumer: str
    key: str
    before: str
    after: str
    checksum: str


def plan(consumer_state: ConsumerState, store: CheckpointStore) -> Mend | None:
    """
    The mend of this consumer's checkpoint, None when it needs none; raises NotPossible when none can help.
    """
    consumer, checkpoint = consumer_state.checkpoint_read.consumer, consumer_state.checkpoint_read.checkpoint
    if checkpoint is None or not consumer.available_now:
        return None
    stalled = consumer_state.state == STALLED
    if checkpoint.initial is None and not stalled:
        return None
    if checkpoint.committed is None:
        raise NotPossible(
            f"{consumer.name} has no committed batch: its first offset is where it will begin", hint="Start it first."
        )
    if consumer_state.state == CUT_OFF:
        raise NotPossible(
            f"the newest offset of {consumer.name} is expired too: no mend helps",
            hint="Start it with a new checkpoint and a new output, and register that.",
        )
    if checkpoint.initial is not None and checkpoint.initial.snapshot is None and not stalled:
        return None
    key = initial_key(consumer.source)
    folder, _, name = key.rpartition("/")
    before = store.read(key).decode().strip() if checkpoint.initial else ""
    after = _after(consumer_state, checkpoint)
    return None if before == after else Mend(consumer.name, key, before, after, f"{folder}/.{name}.crc")


def _after(consumer_state: ConsumerState, checkpoint: Checkpoint) -> str:
    if consumer_state.kept_rows < MOST_ROWS:
        return json.dumps(BEGINNING, separators=(",", ":"))
    if not consumer_state.unread:
        raise NotPossible(
            f"{consumer_state.name} has read all {consumer_state.kept_rows:,} rows that are kept: no offset suits",
            hint="Mend it when something is unread (`bookkeeper lag`), before its next start.",
        )
    read_up_to = checkpoint.committed
    assert read_up_to is not None, "without a committed batch no mend is planned"
    own = {"snapshot_id": read_up_to.snapshot, "position": read_up_to.position, "scan_all_files": read_up_to.whole}
    return json.dumps({**BEGINNING, **own}, separators=(",", ":"))


def mend(store: CheckpointStore, planned: Mend, source: int | None) -> Checkpoint:
    """
    Makes the change and returns the checkpoint read again; raises NotPossible when the file changed meanwhile.
    """
    try:
        if store.read(planned.key).decode().strip() != planned.before:
            raise NotPossible(f"{store.url}/{planned.key} has changed meanwhile", hint="Is the query running? Stop it.")
    except Missing:
        pass  # an earlier mend was interrupted
    # The checksum first: Spark reads a file without one as it is, and never a file with a wrong one. The file itself is
    # missing for a moment: a query that starts then begins at the oldest snapshot, which is what we write, or stalls
    # and is mended again.
    store.delete_many([planned.checksum])
    store.delete_many([planned.key])
    store.create(planned.key, planned.after.encode())
    return read(store, source)
