"""
Marks: which txlogs are in the table, in ONE table property that changes with the snapshot that adds the files.

Per incarnation its last sequence, its holes (sequences below it that are not in) and when it was last seen; per
writer its position, and of a slot the offsets of its channels. Everything here is pure; O(incarnations and channels),
never O(txlogs).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from bookkeeper.contract.names import TxlogName, started_ms
from bookkeeper.contract.offsets import FORGOTTEN, MOST_CHANNELS, Offsets, forgets_some, merged
from bookkeeper.errors import ChannelTaken, TooManyChannels, TooManyHoles

PROPERTY = "bookkeeper.marks"
MOST_HOLES = 64
FUTURE_MS = 3_600_000  # a txlog may be created this far ahead of the bookkeeper's clock


class Mark(NamedTuple):
    """
    Sequences up to `last` are in, except `holes`; `seen_ms` is the bookkeeper's time of the last commit.

    A mark that was pruned may be made anew. What was created before `remade_ms` and does not count as in may be in all
    the same: of that only `forced` gets in, the holes that a forced replay opened.
    """

    last: int = 0
    holes: tuple[int, ...] = ()
    seen_ms: int = 0
    remade_ms: int = 0
    forced: tuple[int, ...] = ()

    def is_in(self, sequence: int) -> bool:
        """Whether this sequence is in the table."""
        return sequence <= self.last and sequence not in self.holes

    def passed(self, name: TxlogName) -> range:
        """The sequences between the last one that is in and this one; raises TooManyHoles."""
        passed = range(self.last + 1, name.sequence)
        if len(passed) > MOST_HOLES:
            raise TooManyHoles(f"{name} comes {len(passed)} sequences after the last one that is in")
        return passed

    def advanced(self, name: TxlogName, at_ms: int = 0) -> "Mark":
        """After `name` got in at that time; sequences passed over become holes. Raises TooManyHoles."""
        seen = max(at_ms, self.seen_ms)
        if name.sequence == self.last + 1:
            return Mark(name.sequence, self.holes, seen, self.remade_ms, self.forced)
        holes = tuple(sorted({*self.holes, *self.passed(name)} - {name.sequence}))
        forced = tuple(sequence for sequence in self.forced if sequence != name.sequence)
        return _checked(name, Mark(max(self.last, name.sequence), holes, seen, self.remade_ms, forced))


@dataclass(frozen=True, slots=True)
class WriterMarks:
    """
    One writer: its committed position and the marks of its incarnations; of a slot the offsets of its channels, too.

    The offsets are those at the position: both are forgotten together. Without an incarnation `seen_ms` is a time no
    earlier than its last commit, 0 where an earlier version pruned them.
    """

    position: bytes | None = None
    incarnations: Mapping[str, Mark] = field(default_factory=dict)
    seen_ms: int = 0
    offsets: Offsets = field(default_factory=dict)


NO_MARK = Mark()
NO_OFFSETS: Mapping[str, Offsets] = {}
_UNKNOWN = WriterMarks()


@dataclass(frozen=True, slots=True)
class Marks:
    """
    The marks of one table; `snapshot` is the one they came with, `folder` the id of the txlog folder.
    """

    folder: str
    snapshot: int | None = None
    pruned_before_ms: int = 0
    writers: Mapping[str, WriterMarks] = field(default_factory=dict)
    #: (sequence number, ms) of some commits, thinned: tells the age of files whose snapshots are expired
    times: tuple[tuple[int, int], ...] = ()

    def mark(self, name: TxlogName) -> Mark | None:
        """The mark of the incarnation of `name`, or None when it is unknown (new, or pruned)."""
        return self.writer(name.writer).incarnations.get(name.incarnation)

    def writer(self, writer: str) -> WriterMarks:
        """What is known of a writer."""
        return self.writers.get(writer, _UNKNOWN)

    def is_in(self, name: TxlogName) -> bool:
        """Whether this txlog is in the table; False for an unknown incarnation."""
        mark = self.mark(name)
        return mark is not None and mark.is_in(name.sequence)

    def is_pruned(self, name: TxlogName, created_ms: int) -> bool:
        """Whether it may have been in by a mark that was pruned; of a txlog that does not count as in."""
        mark = self.mark(name)
        if mark is None:
            return created_ms < self.pruned_before_ms
        return created_ms < mark.remade_ms and name.sequence not in mark.forced

    def may_go_on(self, name: TxlogName, created_ms: int) -> bool:
        """Whether it may continue an incarnation whose mark was dropped: started before that, created after it."""
        started = started_ms(name.incarnation)
        return self.mark(name) is None and name.sequence > 1 and started < self.pruned_before_ms <= created_ms

    def gone_on(self, name: TxlogName, holes: Sequence[int]) -> "Marks":
        """With the mark of an incarnation that goes on with `name`; unchanged when it has too many holes."""
        if len(holes) > MOST_HOLES:
            return self
        remade_ms = self.pruned_before_ms if holes else 0
        return self._with(name, Mark(name.sequence - 1, tuple(sorted(holes)), remade_ms=remade_ms))

    @property
    def channels(self) -> int:
        """How many channels the slots of the table have."""
        return sum([len(known.offsets) for known in self.writers.values()])

    def with_channels(self, writer: str, reached: Offsets, new: Mapping[str, str]) -> Mapping[str, str]:
        """
        How the channels of the table differ from these marks, each with its writer, or "" where it is forgotten: `new`,
        and what `writer` has reached.

        Raises ChannelTaken where another writer has one of these, TooManyChannels where there is no room.
        """
        known = self.writer(writer).offsets
        here = {channel for channel in reached if new.get(channel, writer if channel in known else "") == writer}
        gone = [channel for channel in here if reached[channel] == FORGOTTEN] if forgets_some(reached) else []
        more = [channel for channel, offset in reached.items() if offset and channel not in here]
        if not more and not gone:
            return new
        readers = {channel: slot for slot, known in self.writers.items() for channel in known.offsets} | {**new}
        readers |= dict.fromkeys(gone, "")
        for channel in more:
            if slot := readers.get(channel):
                raise ChannelTaken(f"channel {channel} is read by {slot}, so {writer} cannot read it")
        if more and (count := sum(map(bool, readers.values())) + len(more)) > MOST_CHANNELS:
            raise TooManyChannels(f"the table would have offsets of {count} channels, it has room for {MOST_CHANNELS}")
        return {**new, **dict.fromkeys(gone, ""), **dict.fromkeys(more, writer)}

    def advanced(
        self,
        names: Iterable[TxlogName],
        positions: Mapping[str, bytes],
        at_ms: int,
        offsets: Mapping[str, Offsets] = NO_OFFSETS,
    ) -> "Marks":
        """
        These marks after `names` got in, which reach these positions and offsets, by writer; sequences passed over
        become holes. Raises TooManyHoles.
        """
        writers = dict(self.writers)
        touched: dict[str, dict[str, Mark]] = {}
        for name in names:
            known = touched.get(name.writer)
            if known is None:
                known = touched[name.writer] = dict(self.writer(name.writer).incarnations)
            known[name.incarnation] = known.get(name.incarnation, NO_MARK).advanced(name, at_ms)
        for writer, incarnations in touched.items():
            before = self.writer(writer)
            reached = merged(before.offsets, offsets.get(writer, {}))
            writers[writer] = WriterMarks(positions.get(writer, before.position), incarnations, offsets=reached)
        return replace(self, writers=writers)

    def seen_ms(self, writer: str) -> int:
        """A time no earlier than the last commit of `writer`, in ms since 1970; 0 where nothing is known."""
        known = self.writer(writer)
        last = max((mark.seen_ms for mark in known.incarnations.values()), default=known.seen_ms)
        # A mark that was pruned was last seen more than FUTURE_MS before that time.
        return last or max(self.pruned_before_ms - FUTURE_MS - 1, 0)

    def pruned(
        self,
        idle_before_ms: int,
        named: Iterable[TxlogName],
        waiting: Iterable[TxlogName] = (),
        of: Collection[str] | None = None,
    ) -> "Marks":
        """
        Without the marks of incarnations last seen before `idle_before_ms` that no name in the folder needs; with `of`
        only those of these writers.

        `pruned_before_ms` moves past any time at which their txlogs can have been created, but never past one that
        is `waiting` to be committed as the first of its incarnation.
        """
        kept = {name.incarnation_key for name in named}
        most = min((started_ms(name.incarnation) for name in waiting if self.mark(name) is None), default=2**63)
        writers, before = {}, self.pruned_before_ms
        for writer, marks in self.writers.items():
            if of is not None and writer not in of:
                writers[writer] = marks
                continue
            gone = {
                incarnation: mark
                for incarnation, mark in marks.incarnations.items()
                if mark.seen_ms < idle_before_ms
                and mark.seen_ms + FUTURE_MS < most
                and (writer, incarnation) not in kept
            }
            before = max([before, *(mark.seen_ms + FUTURE_MS + 1 for mark in gone.values())])
            left = {key: mark for key, mark in marks.incarnations.items() if key not in gone}
            if left or marks.position is not None:
                seen = 0 if left else self.seen_ms(writer)
                writers[writer] = replace(marks, incarnations=left, seen_ms=seen)
        return replace(self, writers=writers, pruned_before_ms=before)

    def newest_start(self, writer: str) -> int:
        """When the newest known run of `writer` began, in ms since 1970, by its incarnation; 0 where none is known."""
        return max(map(started_ms, self.writer(writer).incarnations), default=0)

    def forgotten(self, writers: Iterable[str], now_ms: int) -> "Marks":
        """
        Without the positions and the offsets of `writers`, so that the next run of each starts anew.

        Their marks stay until they are pruned: nothing of their runs gets in twice, and no txlog of another writer is
        rejected. But marks of runs that began more than an hour from now go: on a keyed table no other run would come
        after them. Without its mark, a txlog of such a run is rejected for its time.
        """
        most, left = now_ms + FUTURE_MS, dict(self.writers)
        for writer in writers:
            known = left.pop(writer, _UNKNOWN).incarnations
            if incarnations := {key: mark for key, mark in known.items() if started_ms(key) <= most}:
                left[writer] = WriterMarks(None, incarnations)
        return replace(self, writers=left)

    def without_channel(self, writer: str, channel: str) -> "Marks":
        """Without the offset of a channel of this writer; its position stays."""
        known = self.writer(writer)
        left = {key: offset for key, offset in known.offsets.items() if key != channel}
        return replace(self, writers={**self.writers, writer: replace(known, offsets=left)})

    def opened(self, name: TxlogName, at_ms: int, named: Iterable[TxlogName] = ()) -> "Marks":
        """
        With a hole for `name`, so that it gets in once more (a forced replay). Raises TooManyHoles.

        Of an unknown incarnation every other sequence counts as in, for its mark was pruned, except those `named`
        in the folder: they too may still be wanted, and each needs a forced replay of its own.
        """
        run = {other.sequence for other in named if other.at(1) == name.at(1)} | {name.sequence}
        mark = self.mark(name)
        if mark is None:
            mark, holes = Mark(max(run), remade_ms=self.pruned_before_ms), run
        else:
            holes = {*mark.holes, *mark.passed(name), name.sequence}
        last, seen_ms = max(mark.last, name.sequence), max(at_ms, mark.seen_ms)
        forced = tuple(sorted({*mark.forced, name.sequence})) if mark.remade_ms else ()
        return self._with(name, _checked(name, Mark(last, tuple(sorted(holes)), seen_ms, mark.remade_ms, forced)))

    def discarded(self, name: TxlogName, holes: Iterable[int], at_ms: int) -> "Marks":
        """
        With every sequence of this incarnation up to that of `name` counted as in, except `holes` and later holes.

        A mark that was pruned is made anew: what else arrives of its incarnation may have been in.
        """
        was_pruned = started_ms(name.incarnation) < self.pruned_before_ms
        mark = self.mark(name) or Mark(remade_ms=self.pruned_before_ms if was_pruned else 0)
        left = {*holes, *(hole for hole in mark.holes if hole > name.sequence)}
        forced = tuple(sequence for sequence in mark.forced if sequence in left)
        last, seen_ms = max(mark.last, name.sequence), max(at_ms, mark.seen_ms)
        return self._with(name, _checked(name, Mark(last, tuple(sorted(left)), seen_ms, mark.remade_ms, forced)))

    def joined(self, before: "Marks") -> "Marks":
        """
        With the incarnations of earlier marks that these do not know, as they were then; positions and offsets are
        these'.
        """
        writers = {writer: WriterMarks(None, marks.incarnations) for writer, marks in before.writers.items()}
        for writer, marks in self.writers.items():
            known = before.writer(writer).incarnations
            writers[writer] = replace(marks, incarnations={**known, **marks.incarnations})
        return replace(self, writers=writers)

    def dated_back(self, at_ms: int) -> "Marks":
        """
        With nothing later than `at_ms`: what a clock that was far ahead has written.

        `pruned_before_ms` keeps the hour by which a writer may be ahead, and so does a mark that was remade. What was
        pruned by that clock and is later still is refused as from the future.
        """

        def dated(mark: Mark) -> Mark:
            return mark._replace(seen_ms=min(mark.seen_ms, at_ms), remade_ms=min(mark.remade_ms, at_ms + FUTURE_MS))

        writers = {
            writer: replace(
                marks,
                incarnations={key: dated(mark) for key, mark in marks.incarnations.items()},
                seen_ms=min(marks.seen_ms, at_ms),
            )
            for writer, marks in self.writers.items()
        }
        times = tuple((sequence, min(ms, at_ms)) for sequence, ms in self.times)
        pruned_before_ms = min(self.pruned_before_ms, at_ms + FUTURE_MS)
        return replace(self, writers=writers, times=times, pruned_before_ms=pruned_before_ms)

    def _with(self, name: TxlogName, mark: Mark) -> "Marks":
        before = self.writer(name.writer)
        marks = replace(before, incarnations={**before.incarnations, name.incarnation: mark}, seen_ms=0)
        return replace(self, writers={**self.writers, name.writer: marks})


def _checked(name: TxlogName, mark: Mark) -> Mark:
    if len(mark.holes) > MOST_HOLES:
        raise TooManyHoles(f"{name.writer}.{name.incarnation} would have {len(mark.holes)} holes")
    return mark
