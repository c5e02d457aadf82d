"""Many ticks over any mishap: every good txlog gets in exactly once, in the order in which its run published."""

import random
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.contract.marks import Marks
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import Txlog
from bookkeeper.errors import TxlogCorrupt
from bookkeeper.tick.plan_batch import CheckedTxlogs, gaps, plan
from bookkeeper.tick.select import Limits
from tests.support.plans import ONE, TWO, name, txlog


@dataclass
class Queue:
    """A folder, a table and what is wrong with them, in memory."""

    dice: random.Random
    marks: Marks = field(default_factory=lambda: Marks("folder"))
    pending: dict[TxlogName, Txlog] = field(default_factory=dict)
    rejected: dict[TxlogName, Txlog] = field(default_factory=dict)
    bad: set[TxlogName] = field(default_factory=set)
    committed: list[TxlogName] = field(default_factory=list)
    published: dict[str, list[TxlogName]] = field(default_factory=lambda: {ONE: [], TWO: []})
    replayed: set[TxlogName] = field(default_factory=set)

    def publish(self) -> None:
        run = self.dice.choice((ONE, TWO))
        about = name(len(self.published[run]) + 1, run)
        self.published[run].append(about)
        self.pending[about] = txlog(about)
        if self.dice.random() < 0.2:
            self.bad.add(about)

    def replay(self) -> None:
        """A person mends what was bad and gives it back; sometimes twice."""
        for about, found in list(self.rejected.items()):
            if self.dice.random() < 0.3:
                self.bad.discard(about)
                self.replayed.add(about)
                self.pending[about] = found

    def tick(self, mishaps: bool) -> None:
        for about in [about for about in self.pending if self.marks.is_in(about)]:
            del self.pending[about]
        missed = {about for about in self.pending if mishaps and self.dice.random() < 0.1}
        order = sorted(self.pending.keys() - missed)
        unread = {about for about in order if mishaps and self.dice.random() < 0.2}
        readable = [about for about in order if about not in unread]
        bad = {about: TxlogCorrupt("bad") for about in readable if about in self.bad}
        for about in bad:
            self.rejected[about] = self.pending.pop(about)
        not_pending = frozenset(about for about in gaps(order, self.marks) if about not in self.pending)
        known = CheckedTxlogs({about: self.pending[about] for about in readable if about not in bad}, bad, not_pending)
        limits = Limits(self.dice.randint(1, 9), 10**9, self.dice.randint(1, 9))
        batch = plan(order, known, self.marks, limits, {})
        if mishaps and self.dice.random() < 0.3:
            return  # the commit was refused
        self.marks = batch.before.advanced(batch.names, batch.positions, 1)
        self.committed += batch.names
        for about in batch.names:
            self.rejected.pop(about, None)
            if not mishaps or self.dice.random() < 0.7:
                del self.pending[about]


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_every_txlog_gets_in_exactly_once_and_each_run_in_its_order(seed: int, steps: int) -> None:
    queue = Queue(random.Random(seed))
    for _ in range(steps):
        queue.dice.choice((queue.publish, queue.publish, queue.replay, lambda: queue.tick(mishaps=True)))()
    for _ in range(60):
        queue.tick(mishaps=False)
    everything = [about for run in queue.published.values() for about in run]
    assert sorted([*queue.committed, *queue.rejected]) == sorted(everything)
    for run in queue.published.values():
        straight = [about for about in queue.committed if about in run and about not in queue.replayed]
        assert straight == sorted(straight)
