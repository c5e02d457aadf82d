"""
Which txlogs of a batch make our own code fail: found by trying, so that the others can be committed.
"""

from collections.abc import Callable, Sequence

from bookkeeper.core.names import TxlogName
from bookkeeper.core.txlog import Txlog
from bookkeeper.errors import without_frames

#: does with txlogs what may fail, and changes nothing
Rehearsal = Callable[[Sequence[Txlog]], object]


def culprits(batch: Sequence[Txlog], rehearse: Rehearsal) -> dict[TxlogName, Exception]:
    """
    The txlogs without which the rest of the batch passes, each with what was raised; empty when all of it passes, and
    when not even no txlog does: then none is to blame.

    Each is tried alone, which costs about as much as the whole batch; what fails only beside others is found by
    bisection. Raises MemoryError, which no txlog is to blame for.
    """
    if _failure([], rehearse):
        return {}
    found = {txlog.name: error for txlog in batch if (error := _failure([txlog], rehearse))}
    rest = [txlog for txlog in batch if txlog.name not in found]
    while error := _failure(rest, rehearse):
        last = _shortest(rest, rehearse)
        found[rest[last].name] = error
        del rest[last]
    return found


def _shortest(rest: Sequence[Txlog], rehearse: Rehearsal) -> int:
    """Where the shortest beginning of `rest` that fails ends; all of it fails."""
    passes, fails = 0, len(rest)
    while fails - passes > 1:
        middle = (passes + fails) // 2
        if _failure(rest[:middle], rehearse):
            fails = middle
        else:
            passes = middle
    return fails - 1


def _failure(txlogs: Sequence[Txlog], rehearse: Rehearsal) -> Exception | None:
    try:
        rehearse(txlogs)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the engine raises, the txlog must be found
        return without_frames(error)
    return None
