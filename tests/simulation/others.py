"""
Who else is at work on the simulated table: compactors and an operator; other programs: `foreign`.
"""

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from bookkeeper.commands.check_live_files import check_files
from bookkeeper.commands.discard import discard, outlook
from bookkeeper.commands.replay import replay
from bookkeeper.contract.pending_rewrites import withdraw
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import (
    BookkeeperError,
    NotPossible,
    OutOfOrder,
    RewriteUnfit,
)
from bookkeeper.history.main_history import descends
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.load import is_older, load
from bookkeeper.ledger.marks_publisher import MarksPublisher
from reaper.compactor.compactor import Compactor
from reaper.compactor.worker import rewrite

if TYPE_CHECKING:
    from tests.simulation.world import World


def compactor(world: "World", name: str) -> Compactor:
    """A compactor that knows nothing yet."""
    worker = partial(rewrite, clock=world.scheduler.seconds, random=world.random)
    return Compactor(world.settings, worker, world.scheduler.clock, name, open_store=world.store)


def operate(world: "World") -> None:
    """What a person does who reads what the log says."""
    catalog: Any = world.catalog
    folder = Folder(world.store(world.folder_url))
    ledger, failed = Ledger(catalog, world.settings.identifier, world.scheduler.clock, world.store), None
    for act in (accept_rollback, replay_pruned, replay_late, discard_held, release_orphans):
        try:
            act(world, folder, ledger)
        except BookkeeperError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def release_orphans(world: "World", folder: Folder, ledger: Ledger) -> None:
    """`reaper once --release-brake`, where a run has found more orphans than it takes unasked."""
    if world.many_orphans:
        world.many_orphans = False
        world.reap(release_brake=True)
        world.counts["brakes released"] += 1


def discard_held(world: "World", folder: Folder, ledger: Ledger) -> None:
    """
    `bookkeeper discard` of a txlog for which later ones of its writer wait: its files were swept before it arrived, or
    it arrived after marks were pruned.
    """
    held = ("FileMissing", "IncarnationPruned")
    gone = (item.name for item in folder.rejected() if folder.reason(item.name).get("error") in held)
    if world.keyed and (name := next(gone, None)) is not None:
        with suppress(NotPossible):  # it is given up already, or is to be in a moment
            view, given = outlook(folder, ledger, name)
            world.oracle.give_up(str(name))
            discard(folder, ledger, view, given, world.scheduler.now)
            world.counts["discarded"] += 1


def replay_late(world: "World", folder: Folder, ledger: Ledger) -> None:
    """`bookkeeper replay` of the first txlog that came behind a later one of its writer: it is refused."""
    late = (item.name for item in folder.rejected() if folder.reason(item.name).get("error") == "OutOfOrder")
    if world.keyed and (name := next(late, None)) is not None:
        with suppress(OutOfOrder):
            replay(folder, ledger, world.settings, name, world.scheduler.now)
            world.counts["replayed"] += 1


def replay_pruned(world: "World", folder: Folder, ledger: Ledger) -> None:
    """
    `bookkeeper replay --force` of txlogs that arrived after the mark of their run was pruned, and are not in the table.
    """
    for item in folder.rejected():
        name = str(item.name)
        waits = name in world.oracle.waiting
        if waits and not world.keyed and folder.reason(item.name).get("error") == "IncarnationPruned":
            replay(folder, ledger, world.settings, item.name, world.scheduler.now, True)
            world.counts["replayed"] += 1


def accept_rollback(world: "World", folder: Folder, ledger: Ledger) -> None:
    """What `bookkeeper accept-rollback` does, where the table was rolled back."""
    view, _, copy = load(ledger, folder, accept_rollback=True)
    if (view.marks.snapshot is None or descends(view.table, view.marks.snapshot)) and not is_older(view, copy):
        return
    check_files(ledger, view)
    withdraw(folder, RewriteUnfit("the table was rolled back after it was made"), world.scheduler.now)
    publisher = MarksPublisher(ledger, folder, world.settings.name)
    publisher.record(view, view.marks, "accept-rollback", even_older=True)
    world.counts["rollbacks accepted"] += 1
