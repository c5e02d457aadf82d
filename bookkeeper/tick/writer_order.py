"""
One writer is one order on a keyed table: incarnation, then sequence. Pure, from names, marks and one listing.

Of two versions of a row the later commit wins. So a txlog that was late, or rejected and replayed, must not get in
behind a later one of its writer: the old version would be back. Between writers only the order of commits counts.

1. A txlog is rejected once a later one of its writer is in, also where it would fill a hole.
2. It waits while an earlier one of its writer is pending, whatever keeps that one.
3. It is held while an earlier one of its writer lies in rejected/, until that is replayed or given up. Where it says
   the position that it continues from, nothing of its source is missing, and it is not held.
4. It is rejected when it goes on with a run of a writer of which no mark is left: the writer was forgotten.

Marks of a writer's newest incarnation are never pruned on a keyed table (`prune`), so rule 1 can always be
applied, except to a writer that was forgotten: a paused run of that writer may be older than a run whose rows are in.
Rule 4 is for that case.
"""

from collections import deque
from collections.abc import Container, Iterable

from bookkeeper.contract.marks import Marks
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import Txlog
from bookkeeper.errors import Hold, IncarnationPruned, OutOfOrder


class WaitsForEarlier(Exception):
    """An earlier txlog of its writer is pending, or may be."""


class WriterOrder:
    """
    The order of the writers of one batch, which asks in the order in which it takes txlogs.

    `pending` and `rejected` are the names that listings showed. Where an incarnation begins, they must be
    complete. They are if its first txlog is in `before`, the names of an earlier listing: a later listing shows all
    that was there before those.
    """

    def __init__(
        self,
        marks: Marks,
        pending: Iterable[TxlogName],
        rejected: Iterable[TxlogName] = (),
        before: Container[TxlogName] | None = None,
    ) -> None:
        self.marks, self.before = marks, before
        #: by writer: pending txlogs that are not known to be in the batch or rejected, in order
        self.pending: dict[str, deque[TxlogName]] = {}
        for name in sorted(pending):
            self.pending.setdefault(name.writer, deque()).append(name)
        #: by writer: rejected txlogs that may still be replayed
        self.rejected: dict[str, set[TxlogName]] = {}
        for name in rejected:
            self._add_rejected(name)

    def check(self, txlog: Txlog, accepted: Container[TxlogName], refused: Container[TxlogName]) -> None:
        """
        Raises unless it may come next: OutOfOrder, WaitsForEarlier, IncarnationPruned, or Hold.

        `accepted` are in the batch before it, `refused` are rejected in this tick.
        """
        name = txlog.name
        check_not_overtaken(self.marks, name)
        if self.before is not None and name not in self.before and self.begins(name):
            raise WaitsForEarlier
        pending = self.pending.get(name.writer, deque())
        while pending and pending[0] < name:
            if pending[0] in refused:
                self._add_rejected(pending[0])
            elif pending[0] not in accepted:
                raise WaitsForEarlier
            pending.popleft()
        # A replayed one lies in both places until its commit.
        rejected = self.rejected.get(name.writer, ())
        earlier = [item for item in rejected if item < name and item not in accepted]
        if earlier and txlog.position is None:
            raise Hold(
                f"{min(earlier)} of its writer was rejected, and comes before it",
                hint="Correct what it was rejected for and replay it, or give it up: `bookkeeper discard`.",
            )

        before = name.at(name.sequence - 1)
        forgotten = self.marks.may_go_on(name, txlog.created_ms) and not self.marks.writer(name.writer).incarnations
        if forgotten and before not in accepted and before not in refused:
            cause = f"{name} goes on with a run that began before its writer was forgotten"
            raise IncarnationPruned(cause, hint=IncarnationPruned.keyed_hint)

    def _add_rejected(self, name: TxlogName) -> None:
        if not self.marks.is_in(name) and not is_overtaken(self.marks, name):
            self.rejected.setdefault(name.writer, set()).add(name)

    def begins(self, name: TxlogName) -> bool:
        """Whether it is of an incarnation that is not in the marks: only a complete listing shows what is earlier."""
        return self.marks.mark(name) is None


def is_overtaken(marks: Marks, name: TxlogName) -> bool:
    """
    Whether a later txlog of its writer is in: of its incarnation, or of one that began later.
    """
    for incarnation, mark in marks.writer(name.writer).incarnations.items():
        if incarnation > name.incarnation:
            return True
        if incarnation == name.incarnation and mark.last > name.sequence:
            holes = sum(hole > name.sequence for hole in mark.holes)
            if holes < mark.last - name.sequence:
                return True
    return False


def check_not_overtaken(marks: Marks, name: TxlogName) -> None:
    """
    Raises OutOfOrder when a later txlog of its writer is in.
    """
    if is_overtaken(marks, name):
        raise OutOfOrder(f"a later txlog of {name.writer} is in the table, {name} would take back its rows")
