"""
Duties that are left undone, one at a time: the simulation objects, in what it says of liveness. What is done wrong:
`tests/rules`.
"""

from contextlib import ExitStack
from typing import Any
from unittest import mock

from bookkeeper.tick.state import Next
from reaper.compactor.compactor import Compacted
from reaper.result import Reaped
from tests.simulation.events import events
from tests.simulation.play import play
from tests.simulation.schedule import Event

#: where names are looked up, and what is found there instead
Patches = list[tuple[str, Any]]
#: of a world, before its quiet end
EVENTS = 40


def the_view(duty: Any, view: Any, now: Any) -> Any:
    """A duty of a tick does nothing."""
    return view


def nothing(*given: Any, **named: Any) -> None:
    """It does nothing, and says nothing."""


def never(*given: Any) -> bool:
    return False


#: the duty, which the oracle must name, and what is broken
LAPSES: dict[str, Patches] = {
    "a txlog is committed or rejected": [("bookkeeper.tick.tick.Bookkeeper._select", lambda *given: Next.IDLE)],
    "a consumed txlog is deleted": [("bookkeeper.tick.delete_consumed.Consumed.delete", nothing)],
    "marks.json says what the table says": [("bookkeeper.ledger.marks_publisher.MarksPublisher.publish", nothing)],
    "the card shows the table's schema": [("bookkeeper.contract.txlog_folder.Folder.write_card", never)],
    "rows past retention are dropped": [("bookkeeper.tick.retain.Retain.run", the_view)],
    "small manifests are merged": [("bookkeeper.ledger.merge.groups", lambda manifests: [])],
    "equality deletes are folded": [("bookkeeper.folds.duty.Folds.run", the_view)],
    "a rewrite is committed or rejected": [("bookkeeper.tick.take_rewrites.Rewrites.run", the_view)],
    "small files become few": [("reaper.compactor.compactor.Compactor._run", lambda *given: Compacted("own"))],
    "snapshots expire": [("reaper.run.expire_step", nothing)],
    "the reaper's journal is carried out": [("reaper.run.finish", lambda *given: Reaped())],
    "old metadata.json files are deleted": [("reaper.run.old_metadata", lambda *given: {})],
    "orphans are swept": [("reaper.orphans.is_due", never)],
    "a rejected txlog that is in is swept": [("bookkeeper.tick.sweep_rejected.Sweep._sweep_rejected", nothing)],
    "a txlog that lost its position is swept": [("bookkeeper.tick.sweep_rejected.Sweep._lost_its_position", never)],
    "a rejected rewrite is swept": [("bookkeeper.tick.take_rewrites.Rewrites._sweep", nothing)],
    "an answer to a request for columns is swept": [("bookkeeper.tick.answer_column_requests.Columns._sweep", nothing)],
    "marks of idle runs are pruned": [("bookkeeper.tick.prune.Prune.pruned", lambda prune, marks, *given: marks)],
    "a request for a column is answered": [("bookkeeper.tick.answer_column_requests.Columns.run", the_view)],
    "a writer gets room": [("writers.publish.pending_monitor.PendingMonitor.look", nothing)],
    "a lease is taken over": [("bookkeeper.leases.object_lease.PutLease._is_silent", never)],
    "rows reach the consumer": [("bookkeeper.consumers.consumer.Consumer._news", lambda consumer: iter(()))],
    "a consumer's record follows its place": [("bookkeeper.consumers.consumer.Consumer._follow_place", nothing)],
}
#: the seeds of worlds in which a lapse shows, and with how many events; elsewhere the first world
WORLDS = {
    "the card shows the table's schema": (6, EVENTS),
    "small manifests are merged": (5, 0),
    "equality deletes are folded": (10, EVENTS),
    "a rewrite is committed or rejected": (2, EVENTS),
    "the reaper's journal is carried out": (2, EVENTS),
    "orphans are swept": (11, EVENTS),
    "a rejected txlog that is in is swept": (5, 600),
    "a txlog that lost its position is swept": (17, EVENTS),
    "a rejected rewrite is swept": (5, 600),
    "an answer to a request for columns is swept": (11, 600),
    "marks of idle runs are pruned": (5, EVENTS),
    "small files become few": (5, 600),
    "a request for a column is answered": (6, EVENTS),
    "a writer gets room": (5, EVENTS),
    "a lease is taken over": (4, EVENTS),
}


def said_of(duty: str) -> str:
    """What the oracle says of a world in which this duty is left undone."""
    seed, count = WORLDS.get(duty, (1, EVENTS))
    steps = list(events(seed, count))
    if duty == "small manifests are merged":
        steps = [Event("plain-1", 1.0), Event("book-1", 1.0), Event("book-2", 1.0)] * 45
    with ExitStack() as stack:
        for where, what in LAPSES[duty]:
            stack.enter_context(mock.patch(where, what))
        return play(seed, steps).wrong
