"""
Which of the pending txlogs the next commit holds: pure, from names, marks and what was read.

An incarnation's share is always a prefix of what it published: if n cannot go in now, everything later of that
incarnation waits, so a mark never passes over a txlog that may still get in.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bookkeeper.contract.marks import MOST_HOLES, NO_MARK, Mark, Marks
from bookkeeper.contract.names import IncarnationKey, TxlogName
from bookkeeper.contract.offsets import Offsets
from bookkeeper.contract.txlog import MOST_BYTES, Txlog
from bookkeeper.contract.txlog_folder import Found
from bookkeeper.errors import (
    EntryInvalid,
    Hold,
    IncarnationPruned,
    PositionTaken,
    Reject,
    without_frames,
)
from bookkeeper.format.records import LARGEST
from bookkeeper.format.skim.expressions import MOST_COUNT
from bookkeeper.tick.select import Limits
from bookkeeper.tick.writer_order import WaitsForEarlier, WriterOrder
from bookkeeper.tick.writer_room import WriterRoom


@dataclass(frozen=True, slots=True)
class CheckedTxlogs:
    """
    What reading and checking pending txlogs found out.

    `good` were read and checked; `bad` are rejected for what they hold; `not_pending` are sequences of gaps that are
    missing or in rejected/. A name in none of them is unknown: it blocks its incarnation. `rows` and `bytes` are the
    table's totals.
    """

    good: Mapping[TxlogName, Txlog]
    bad: Mapping[TxlogName, Reject] = field(default_factory=dict)
    not_pending: frozenset[TxlogName] = frozenset()
    rows: int = 0
    bytes: int = 0
    #: of a keyed table
    order: WriterOrder | None = None
    #: the specs of live data files, asked for where a delete file is bound to partitions
    live_specs: Callable[[], Set[int]] = frozenset
    #: the specs that have partitions
    partitioned: Set[int] = frozenset()
    #: by the marks that the table has: `resumed` makes others of writers that these do not know
    room: WriterRoom | None = None


@dataclass
class Batch:
    """The next commit, and why other txlogs are not in it; `before` are the marks it was planned against."""

    before: Marks
    txlogs: list[Txlog] = field(default_factory=list)
    positions: dict[str, bytes] = field(default_factory=dict)
    #: by slot, what its channels reach: merged, never compared
    offsets: dict[str, Offsets] = field(default_factory=dict)
    #: rejected because of what is in the table: only true for marks read after the listing
    rejected: dict[TxlogName, Reject] = field(default_factory=dict)
    held: dict[TxlogName, Hold] = field(default_factory=dict)
    holes: list[TxlogName] = field(default_factory=list)
    #: incarnations that could not go on, however much room there was
    blocked: set[IncarnationKey] = field(default_factory=set)
    #: whether `before` holds incarnations that go on after their marks were pruned
    resumed: bool = False
    #: whether it holds the first txlog of an incarnation of a keyed table
    begins: bool = False

    @property
    def doubtful(self) -> bool:
        """
        Whether it rejects, resumes or makes holes, or passes from one incarnation to the next on a keyed table: only a
        second listing and newer marks can prove that.
        """
        return bool(self.rejected or self.holes or self.resumed or self.begins)

    @property
    def names(self) -> list[TxlogName]:
        """The txlogs of this commit."""
        return [txlog.name for txlog in self.txlogs]


def resumed(
    marks: Marks,
    order: Sequence[TxlogName],
    good: Mapping[TxlogName, Txlog],
    not_pending: frozenset[TxlogName],
    rejected: Callable[[], Iterable[Found]],
) -> Marks:
    """
    `marks`, with one more for each incarnation that goes on after its own was pruned.

    Which of its earlier sequences are in is unknown, so all of them count as in except those in rejected/.
    """
    firsts: dict[IncarnationKey, TxlogName] = {}
    for name in order:
        firsts.setdefault(name.incarnation_key, name)
    for name in firsts.values():
        txlog = good.get(name)
        if txlog is None or not marks.may_go_on(name, txlog.created_ms):
            continue
        if not_pending.issuperset(gaps([name], marks)):
            own = [item.name.sequence for item in rejected() if item.name.at(1) == name.at(1)]
            marks = marks.gone_on(name, [sequence for sequence in own if sequence < name.sequence])
    return marks


def gaps(names: Sequence[TxlogName], marks: Marks) -> list[TxlogName]:
    """
    The gaps: sequences that are neither in nor listed, below one that is listed. Look for them by name, because a
    listing is no snapshot.
    """
    found: list[TxlogName] = []
    before: TxlogName | None = None
    for name in sorted(names):
        if before is None or before.incarnation_key != name.incarnation_key:
            before = name.at((marks.mark(name) or NO_MARK).last)
        first = max(before.sequence + 1, name.sequence - MOST_HOLES - 1)
        found += [name.at(number) for number in range(first, name.sequence)]
        before = name
    return found


def plan(
    order: Sequence[TxlogName],
    checked: CheckedTxlogs,
    marks: Marks,
    limits: Limits,
    left: Set[str] = frozenset(),
) -> Batch:
    """
    The batch for txlogs in `order` (see `in_order`) that are not in yet.

    `left` are the writers of pending txlogs that are not in `order`: no txlog of theirs is rejected for its position.
    """
    planner = _Planner(checked, marks, limits)
    planner.waiting.update(left)
    while planner.go_through(order):
        pass
    if len(planner.accepted) < len(order):
        planner.reject_positions = True
        planner.go_through(order)
    return planner.batch


class _Waits(Exception):
    """Its position does not fit yet, and may still do so."""


class _Planner:
    """
    Goes through the txlogs in passes, because a chain of positions may lie spread over incarnations, in any order. A
    txlog whose position does not fit is rejected only when a pass adds nothing more.
    """

    def __init__(self, checked: CheckedTxlogs, marks: Marks, limits: Limits) -> None:
        self.checked, self.marks, self.limits = checked, marks, limits
        self.batch = Batch(marks)
        self.reject_positions = self.unfit = False
        self.stopped: set[IncarnationKey] = set()
        #: writers of txlogs that wait for the next tick: their position may still move
        self.waiting: set[str] = set()
        self.last: dict[IncarnationKey, Mark] = {}
        self.accepted: set[TxlogName] = set()
        self.pruned: set[IncarnationKey] = set()
        self.refused = ChainMap[TxlogName, Any](self.batch.rejected, {**checked.bad})
        self.files = self.bytes = self.rows = 0

    @cached_property
    def live_specs(self) -> Set[int]:
        """The specs of live data files: of one head, so asked for once."""
        return self.checked.live_specs()

    def go_through(self, order: Sequence[TxlogName]) -> bool:
        """Goes through all txlogs once; returns whether another pass may add something."""
        before = len(self.accepted)
        self.stopped, self.batch.blocked, self.unfit = set(), set(), False
        for name in order:
            self._consider(name)
        return self.unfit and len(self.accepted) > before

    def _consider(self, name: TxlogName) -> None:
        key = name.incarnation_key
        if key in self.stopped or name in self.checked.bad or name in self.accepted or name in self.batch.rejected:
            return
        txlog, mark = self.checked.good.get(name), self.last.get(key) or self.marks.mark(name) or NO_MARK
        if txlog is None or not self._contiguous(name, mark):
            self._stop(key, blocks=True)
        elif not self._fits(txlog):
            self._stop(key, blocks=False)
        else:
            self._try(txlog, key, mark)

    def _stop(self, key: IncarnationKey, blocks: bool) -> None:
        self.stopped.add(key)
        self.waiting.add(key[0])
        if blocks:
            self.batch.blocked.add(key)

    def _try(self, txlog: Txlog, key: IncarnationKey, mark: Mark) -> None:
        try:
            self._accept(txlog, mark)
        except (_Waits, WaitsForEarlier):
            # Its writer is not `waiting` for it: what it waits for may have to be rejected for its position.
            self.unfit = True
            self.stopped.add(key)
            self.batch.blocked.add(key)
        except Reject as error:
            self.batch.rejected[txlog.name] = without_frames(error)
        except Hold as error:
            self.batch.held[txlog.name] = without_frames(error)
            self._stop(key, blocks=True)

    def _contiguous(self, name: TxlogName, mark: Mark) -> bool:
        gap = name.sequence - mark.last - 1
        if gap <= 0 or gap > MOST_HOLES:  # a longer one is held as TooManyHoles, whatever is in it
            return True
        passable = (self.checked.not_pending, self.checked.bad, self.batch.rejected)
        return all(any(name.at(number) in names for names in passable) for number in mark.passed(name))

    def _fits(self, txlog: Txlog) -> bool:
        batch = self.batch.txlogs
        return not batch or (
            len(batch) < self.limits.txlogs
            and self.files + len(txlog.rows) + txlog.delete_count <= self.limits.files
            and self.bytes + txlog.data_bytes + txlog.delete_bytes <= self.limits.bytes
            and self.rows + txlog.row_count <= LARGEST
        )

    def _accept(self, txlog: Txlog, mark: Mark) -> None:
        name, order = txlog.name, self.checked.order
        if order is not None:
            order.check(txlog, self.accepted, self.refused)
        self._check_age(txlog)
        # Before the position: where too many are missing, it would be rejected for the wrong reason.
        advanced = mark.advanced(name)
        self._check_position(txlog)
        self._check_totals(txlog)
        self._check_delete_spec(txlog)
        if self.checked.room is not None:
            self.checked.room.take(txlog)
        self.batch.holes += [name.at(number) for number in mark.passed(name)]
        self.last[name.incarnation_key] = advanced
        self.files += len(txlog.rows) + txlog.delete_count
        self.bytes += txlog.data_bytes + txlog.delete_bytes
        self.rows += txlog.row_count
        self.accepted.add(name)
        self.batch.txlogs.append(txlog)
        self.batch.begins = self.batch.begins or (order is not None and order.begins(name))
        if txlog.position is not None:
            self.batch.positions[name.writer] = txlog.position
        if txlog.offsets:
            self.batch.offsets[name.writer] = {**self.batch.offsets.get(name.writer, {}), **txlog.offsets}

    def _check_age(self, txlog: Txlog) -> None:
        name, key = txlog.name, txlog.name.incarnation_key
        goes_on = key in self.last and self.marks.mark(name) is None
        if self.marks.is_pruned(name, txlog.created_ms) and not goes_on:
            self.pruned.add(key)
            hint = IncarnationPruned.keyed_hint if self.checked.order is not None else ""
            cause = f"{name} was created before marks were pruned, so it is unknown whether it is in"
            raise IncarnationPruned(cause, hint=hint)
        if key in self.pruned:
            raise _Waits  # until those before it lie in rejected/: then it is clear where it goes on

    def _check_position(self, txlog: Txlog) -> None:
        if txlog.position is None:
            return
        writer = txlog.name.writer
        committed = self.batch.positions.get(writer, self.marks.writer(writer).position)
        if txlog.previous_position != committed:
            if not self.reject_positions or writer in self.waiting:
                raise _Waits
            raise PositionTaken(
                f"{txlog.name} continues from {_shown(txlog.previous_position)}, "
                f"but {writer} is committed up to {_shown(committed)}"
            )

    def _check_delete_spec(self, txlog: Txlog) -> None:
        """
        Holds deletes that are bound to partitions while other specs have live rows, which they would miss.

        It is not rejected: its writer cannot keep other programs from changing the spec.
        """
        if txlog.deletes is None or txlog.deletes.spec_id not in self.checked.partitioned:
            return
        batch = {item.spec_id for item in (*self.batch.txlogs, txlog) if item.rows}
        others = {*self.live_specs, *batch} - {txlog.deletes.spec_id}
        if others:
            raise Hold(
                f"its deletes are bound to the partitions of spec {txlog.deletes.spec_id}, and would miss rows that "
                f"were written with spec {min(others)}",
                hint="Rewrite data files of other specs, or run `bookkeeper init --key` again and restart the writer.",
            )

    def _check_totals(self, txlog: Txlog) -> None:
        """
        Rejects what takes the table's totals past what readers hold, if it is more than one honest file can add.

        A small txlog is never the culprit: it gets in, and totals are saturated.
        """
        rows, size = self.checked.rows + self.rows, self.checked.bytes + self.bytes
        more = txlog.data_bytes + txlog.delete_bytes
        if txlog.row_count > MOST_COUNT and rows + txlog.row_count > LARGEST:
            raise EntryInvalid(f"its {txlog.row_count} records and the table's {rows} are more than a table can count")
        if more > MOST_BYTES and size + more > LARGEST:
            raise EntryInvalid(f"its {more} bytes and the table's {size} are more than a table can count")


def _shown(position: bytes | None) -> str:
    return "the start" if position is None else repr(position[:80])
