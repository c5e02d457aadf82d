"""
Mends a drained available-now query whose first offset is expired: it then starts from the oldest snapshot there is.

It touches one file of the checkpoint and its checksum, never the batches; the query must be stopped meanwhile.
"""

import json
from dataclasses import dataclass

from bookkeeper.core.errors import Missing, NotPossible
from bookkeeper.streams.checkpoint import BEGINNING, Checkpoint, initial_key, read
from bookkeeper.streams.places import Place
from bookkeeper.streams.registry import Consumer
from bookkeeper.streams.standing import CUT_OFF, Standing

_AFTER = json.dumps(BEGINNING, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Mend:
    """What will be done to a checkpoint: `key` says `before` and will say `after`; `checksum` goes."""

    consumer: str
    key: str
    before: str
    after: str
    checksum: str


def plan(standing: Standing, place: Place) -> Mend | None:
    """
    The mend of this consumer's checkpoint, None when it needs none; raises NotPossible when none can help.
    """
    consumer, checkpoint = standing.reading.consumer, standing.reading.checkpoint
    if checkpoint is None or not consumer.available_now or checkpoint.initial is None:
        return None
    _check(consumer, checkpoint, standing.state)
    if checkpoint.initial.snapshot is None:
        return None
    key = initial_key(consumer.source)
    folder, _, name = key.rpartition("/")
    return Mend(consumer.name, key, place.read(key).decode().strip(), _AFTER, f"{folder}/.{name}.crc")


def _check(consumer: Consumer, checkpoint: Checkpoint, state: str) -> None:
    anew = "Start it with a new checkpoint and --from the last time seen, and register that."
    if checkpoint.committed is None:
        raise NotPossible(
            f"{consumer.name} has no committed batch: its first offset is where it will begin", hint="Start it first."
        )
    if state == CUT_OFF:
        raise NotPossible(f"the newest offset of {consumer.name} is expired too: no mend helps", hint=anew)


def mend(place: Place, planned: Mend, source: int | None) -> Checkpoint:
    """
    Does it, and returns what the checkpoint says then; raises NotPossible when somebody else changed it meanwhile.
    """
    try:
        if place.read(planned.key).decode().strip() != planned.before:
            raise NotPossible(f"{place.url}/{planned.key} has changed meanwhile", hint="Is the query running? Stop it.")
    except Missing:
        pass  # a mend that was cut off in the middle
    # The checksum first: a file without one is read as it is, one with a wrong one never. The file itself may
    # be absent for a moment: Spark would then begin at the oldest snapshot, which is what we write.
    place.delete_many([planned.checksum])
    place.delete_many([planned.key])
    place.create(planned.key, planned.after.encode())
    return read(place, source)
