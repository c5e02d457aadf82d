"""
A slot as long as this instance has its lease: one run after the other.

A run ends where it was fenced, where storage or Kafka are away for long, where partitions were added, or where the
topic is another one. A partition whose txlog was rejected for what is in it is found by runs of one partition each, and
then tried anew now and then, alone; the others go on.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from datetime import timedelta
from functools import partial

from bookkeeper.contract.offsets import MOST_IN_TXLOG, slot_name
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import (
    Backpressure,
    BookkeeperError,
    Fenced,
    Halt,
    NotPossible,
    Retry,
    SchemaRefused,
    StorageUnavailable,
    UnknownOutcome,
)
from bookkeeper.leases.lease import Lease
from writers.kafka.cursor import Handling, TopicChanged
from writers.kafka.dead_letters import Letters
from writers.kafka.partitions import Partition, Topic, end_of
from writers.kafka.run import Run
from writers.kafka.source import Shared
from writers.kafka.start_offsets import StartOffsets
from writers.kafka.start_option import chosen
from writers.publish.suspects import Suspects, rejected_offsets
from writers.retries import backoff
from writers.timing import Waited
from writers.writer import Writer

log = logging.getLogger(__name__)

STEP_SECONDS = 0.5
#: with `until_end`: how long a partition that is published alone waits for its commit
PROOF = timedelta(seconds=30)
#: in seconds, before a run that begins anew
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
#: longer than a lease lasts without its holder, and than another share is given grace
_LEASE_ENDS = timedelta(seconds=30)


class SlotLoop:
    """One slot; to be used by one thread."""

    def __init__(self, shared: Shared, slot: int) -> None:
        self._shared, self._slot = shared, slot
        self._name = slot_name(shared.wanted.name, slot)
        self._suspects = Suspects(shared.clock)
        #: with `until_end`: whether txlogs that earlier processes left rejected were looked at, and the channels that
        #: this process has read to their ends
        self._looked, self._read_to_end = False, set[str]()

    def __call__(self) -> None:
        """Returns when a stop is requested or, with `until_end`, all is read."""
        lease, pauses = self._shared.lease(self._shared.opener.folder(), self._slot), _pauses()
        waited = Waited(self._shared.clock)
        try:
            while not (self._shared.stopping() or self._shared.failures):
                try:
                    if not lease.hold(self._shared.clock()):
                        if not lease.offering:
                            self._shared.away(self._name)
                        if self._is_others(waited):
                            return
                        self._shared.wait(1.0)
                        continue
                    if self._turn(lease):
                        return
                    pauses = _pauses()
                except (Backpressure, Fenced, Halt, Retry, UnknownOutcome, TopicChanged) as exc:
                    self._report(exc)
                    self._shared.wait(next(pauses))
        finally:
            with suppress(StorageUnavailable):  # then it ends by itself
                lease.release()

    def _is_others(self, waited: Waited) -> bool:
        """With `until_end`: whether another instance reads the slot; the lease of a dead one would be free by now."""
        if not self._shared.wanted.until_end or waited() < _LEASE_ENDS:
            return False
        log.warning("slot left to another instance", extra={"action": "leave", "writer": self._name})
        return True

    def _report(self, exc: BookkeeperError) -> None:
        facts = {"action": "again", "writer": self._name, "folder": self._shared.folder, "cause": str(exc)}
        log.warning("slot begins anew", extra=facts)

    def _turn(self, lease: Lease) -> bool:
        """One run; True when all is read. Raises what a run raises."""
        shared = self._shared
        topics = shared.topics(fresh=True)
        own = {topics[item.topic].channel(item.number): item for item in shared.partitions(self._slot, topics)}
        self._check_count(own)
        if own.keys() <= self._suspects.resting().keys() | self._read_to_end:
            return not own or self._stop_resting(own)
        shared.begins(self._name)
        folder = shared.opener.folder()
        letters = shared.letters(folder, self._name)
        with closing(letters) if letters else nullcontext(), shared.opener.writer(self._name, folder) as writer:
            if (before := shared.figures.get(self._name)) is not None:
                writer.figures.continues(before)
            writer.figures.kafka = True
            shared.figures[self._name] = writer.figures
            shared.show(self._name)
            group = self._group(folder, writer, own)
            opened = self._open(folder, writer, letters, topics, {own[channel] for channel in group})
            try:
                return self._read(opened, own, group, lease)
            except Fenced as exc:
                self._read_to_end.clear()
                self._suspects.fenced(exc)
                self._report_resting(own, exc)
                raise
            except SchemaRefused as exc:
                self._refused(exc, own, group)
                return False
            finally:
                opened.close()

    def _check_count(self, own: Mapping[str, Partition]) -> None:
        if len(own) > MOST_IN_TXLOG:
            what = f"{self._name} has {len(own)} partitions, and a txlog has offsets of at most {MOST_IN_TXLOG}"
            raise NotPossible(what, hint="Give a greater --slots; where the copy has begun: `bookkeeper rehash` first.")

    def _group(self, folder: Folder, writer: Writer, own: Mapping[str, Partition]) -> list[str]:
        """
        The channels of the next run: one that is published alone; with `until_end` first those that are published
        together, for of the others each waits a while for its commit.
        """
        if not self._shared.wanted.until_end:
            return self._suspects.groups(sorted(own), writer.committed_offsets())[-1]
        if not self._looked:
            for channel, offsets in rejected_offsets(folder, writer.card, self._name).items():
                if max(map(end_of, offsets)) > end_of(writer.offsets.get(channel, "")):
                    self._suspects.add([channel])
            self._looked = True
        left = sorted(own.keys() - self._read_to_end)
        return self._suspects.groups(left, writer.committed_offsets())[0]

    def _read(self, run: Run, own: Mapping[str, Partition], group: Sequence[str], lease: Lease) -> bool:
        shared, resting = self._shared, self._suspects.resting().keys()
        is_alone, waited = self._suspects.is_suspect(group[0]), Waited(shared.clock)
        while not (shared.stopping() or shared.failures):
            if not lease.hold(shared.clock()):
                if lease.offering:
                    run.finish()
                return False
            run.step(STEP_SECONDS, eager=is_alone or shared.wanted.until_end)
            if is_alone and run.proven:
                self._suspects.clear(group[0])
                self._read_to_end.update(group if shared.wanted.until_end and run.ended else ())
                return False
            waits = is_alone and waited() < PROOF
            if shared.wanted.until_end and not waits and run.ended:
                run.finish()
                self._read_to_end.update(group)
                return False
            more = shared.partitions(self._slot, shared.topics()) - {*own.values()}
            if not run.cursors or more or resting - self._suspects.resting().keys():
                run.finish()
                return False
        run.finish()
        return True

    def _report_resting(self, own: Mapping[str, Partition], exc: Fenced) -> None:
        for channel in exc.channels & self._suspects.resting().keys() & own.keys():
            facts = {"action": "rest", "writer": self._name, "partition": str(own[channel]), "cause": str(exc)}
            log.error("partition rests: its rows are rejected", extra=facts)

    def _refused(self, exc: SchemaRefused, own: Mapping[str, Partition], group: Sequence[str]) -> None:
        """The writer takes none of the rows of a partition."""
        if len(group) > 1:
            self._suspects.add(group)
            return
        self._suspects.clear(group[0])
        self._shared.stop(self._name, own[group[0]], f"its rows are refused: {exc}", exc.hint or "Mend the table.")

    def _stop_resting(self, own: Mapping[str, Partition]) -> bool:
        """With `until_end`: partitions that rest then have stopped, and all is read."""
        if not self._shared.wanted.until_end:
            self._shared.wait(1.0)
            return False
        for channel in self._suspects.resting().keys() & own.keys():
            hint = f"`bookkeeper rejected` says why. {self._name} goes on behind it once it can be committed."
            self._shared.stop(self._name, own[channel], "its rows are rejected", hint)
        return True

    def _open(
        self,
        folder: Folder,
        writer: Writer,
        letters: Letters | None,
        topics: Mapping[str, Topic],
        wanted: set[Partition],
    ) -> Run:
        """A run of these partitions; those that cannot go on are stopped."""
        shared = self._shared
        consumer = shared.cluster.consumer(shared.ahead() // 2)
        try:
            cursors, fresh = StartOffsets(shared, self._name).cursors(consumer, folder, writer, topics, wanted)
            handling = Handling(
                shared.reader,
                shared.wanted.form is not None and shared.wanted.form.changes,
                partial(shared.stop, self._name),
                lambda partition: chosen(shared.wanted.go_on, *partition),
                shared.skips,
                partial(self._skip, writer),
                partial(shared.memory.full, shared.folder, self._name),
                shared.ahead(),
            )
            return Run(shared.cluster, consumer, writer, cursors, fresh, handling, letters, shared.clock, shared.wait)
        except BaseException:
            consumer.close()
            raise

    def _skip(self, writer: Writer, count: int) -> None:
        if count:
            self._shared.skipped[self._name] = self._shared.skipped.get(self._name, 0) + count
            writer.figures.bad += count


def _pauses() -> Iterator[float]:
    return backoff(_FIRST_PAUSE, _LONGEST_PAUSE)


def read_slot(shared: Shared, slot: int) -> None:
    """
    Reads one slot until a stop is requested or, with `until_end`, all is read.
    """
    SlotLoop(shared, slot)()
