"""
Finds by trial which txlogs of a batch our own code fails on, so that the others can be committed.
"""

from collections.abc import Callable, Sequence

from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import Txlog
from bookkeeper.errors import without_frames

#: builds a commit of these txlogs and throws it away; raises what the real commit would raise
Rehearsal = Callable[[Sequence[Txlog]], object]


def culprits(batch: Sequence[Txlog], rehearse: Rehearsal) -> dict[TxlogName, Exception]:
    """
    The txlogs that the batch must do without to pass `rehearse`, each with its error; empty when the batch passes.

    1. A batch of no txlogs is tried. If that fails, no txlog is the cause, and the result is empty.
    2. Each txlog is tried alone. Together this costs about as much as the whole batch.
    3. The remaining txlogs are tried together. While they fail, bisection finds the shortest prefix that fails, and
       the last txlog of that prefix is left out.

    Raises MemoryError, because no txlog is the cause of that.
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
    """The index of the last txlog in the shortest prefix of `rest` that fails; the whole of `rest` fails."""
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
    except Exception as error:  # noqa: BLE001 - any error of the engine: the txlog must be found
        return without_frames(error)
    return None
