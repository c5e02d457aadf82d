"""
Discard: gives up missing sequences on a person's word, so that an incarnation held for too many of them goes on.

It gives up nothing that exists: a txlog in pending/ stops it, one in rejected/ stays a hole and can be replayed. On a
keyed table one in rejected/ holds its writer, so there it is given up too; the tick's sweep deletes it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from bookkeeper.config.units import epoch_ms
from bookkeeper.contract.marks import MOST_HOLES, NO_MARK, Mark
from bookkeeper.contract.names import TxlogName, started_ms
from bookkeeper.contract.txlog_folder import REJECTED, Folder
from bookkeeper.errors import NotPossible
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.load import load
from bookkeeper.ledger.marks_publisher import MarksPublisher
from bookkeeper.ledger.view import View
from bookkeeper.tick.check_txlog import check_started

#: each is looked for by name
MOST_SEQUENCES = 100_000


@dataclass(frozen=True, slots=True)
class Discard:
    """What would be given up: `lost` are missing, `holes` lie in rejected/ and stay holes."""

    run: TxlogName
    mark: int
    lost: tuple[int, ...]
    holes: tuple[int, ...]


def outlook(folder: Folder, ledger: Ledger, run: TxlogName) -> tuple[View, Discard]:
    """
    What giving up every missing sequence of this incarnation up to that of `run` would mean.

    Raises NotPossible when something that exists would be lost, or when there is nothing to give up; FromTheFuture
    for a run that would come after all others; Retry.
    """
    view, _, _ = load(ledger, folder)
    mark = _mark(view, run, epoch_ms(ledger.clock()))
    wanted = list(_open(mark, run.sequence))
    if not wanted:
        raise NotPossible(f"{_shown(run)} misses nothing up to {run.sequence}", hint="`bookkeeper writers` shows gaps.")
    listed = {item.name for item in folder.pending()}
    waiting = [number for number in wanted if run.at(number) in listed or folder.exists(run.at(number))]
    if waiting:
        raise NotPossible(
            f"txlog {waiting[0]} of {_shown(run)} is pending, it would be lost",
            hint=f"Discard up to {waiting[0] - 1} at most.",
        )
    holes = [number for number in wanted if folder.exists(run.at(number), REJECTED)]
    if len(holes) > MOST_HOLES:
        raise NotPossible(f"{len(holes)} txlogs of {_shown(run)} lie in rejected/", hint="Replay them first.")
    if view.is_keyed:
        holes = []
    lost = [number for number in wanted if number not in holes]
    if not lost:
        raise NotPossible(f"all that {_shown(run)} misses up to {run.sequence} lies in rejected/", hint="Replay it.")
    return view, Discard(run, mark.last, tuple(lost), tuple(holes))


def discard(folder: Folder, ledger: Ledger, view: View, given: Discard, now: datetime) -> View:
    """
    Gives the missing sequences up in one guarded commit; a crash after it leaves marks.json to the next tick.

    Raises Retry after another commit since `view`: call `outlook` again.
    """
    marks = view.marks.discarded(given.run, given.holes, epoch_ms(now))
    why = f"discard {_shown(given.run)} up to {given.run.sequence}"
    return MarksPublisher(ledger, folder).record(view, marks, why)


def _mark(view: View, run: TxlogName, now_ms: int) -> Mark:
    mark = view.marks.mark(run)
    is_pruned = mark is None and started_ms(run.incarnation) < view.marks.pruned_before_ms
    # Of a keyed table nothing else frees a writer from it: what is rejected of such a run cannot be replayed there.
    if is_pruned and not view.is_keyed:
        raise NotPossible(
            f"the mark of {_shown(run)} was pruned, so it is unknown which of its txlogs are in the table",
            hint="Its pending txlogs are rejected one by one; bookkeeper replay --force lets one in.",
        )
    if mark is None and not is_pruned:
        check_started(run, view.marks, now_ms)  # a mark of it would come after every other run of its writer
    if run.sequence - (mark or NO_MARK).last > MOST_SEQUENCES:
        raise NotPossible(f"more than {MOST_SEQUENCES} sequences at once", hint="Give a smaller --up-to.")
    return mark or NO_MARK


def _open(mark: Mark, up_to: int) -> Iterator[int]:
    yield from (hole for hole in mark.holes if hole <= up_to)
    yield from range(mark.last + 1, up_to + 1)


def _shown(run: TxlogName) -> str:
    return f"{run.writer}.{run.incarnation}"
