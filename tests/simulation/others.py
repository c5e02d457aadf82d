"""
Who else is at work on the simulated table: compactors and an operator; other programs: `foreign`.
"""

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from bookkeeper.commands.discard import discard, outlook
from bookkeeper.commands.live_files import check_files
from bookkeeper.commands.replay import replay
from bookkeeper.core.folder import Folder
from bookkeeper.core.history import descends
from bookkeeper.core.pending_rewrites import withdraw
from bookkeeper.errors import (
    BookkeeperError,
    NotPossible,
    OutOfOrder,
    RewriteUnfit,
)
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.load import is_older, load
from bookkeeper.ledger.marks_publisher import MarksPublisher
from reaper.compaction.compactor import Compactor
from reaper.compaction.worker import rewrite

if TYPE_CHECKING:
    from tests.simulation.world import World


<<<<<<< HEAD
=======
class Inline:
    """A pool of threads that has none."""

    def __init__(self, *given: Any, **named: Any) -> None:
        pass

    def submit(self, act: Callable[..., Any], *given: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(act(*given))
        except Exception as error:  # noqa: BLE001 - raised again where it is asked for
            done.set_exception(error)
        return done

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        pass


class Output:
    """A database: rows and place are written in one transaction. Each run of the consumer has a keeper on it."""

    def __init__(self, keyed: bool) -> None:
        self.keyed = keyed
        self.rows: list[str] = []
        self.place: str | None = None
        self.runs = 0


class Keeper:
    """Implements PlaceKeeper."""

    def __init__(self, output: Output) -> None:
        self.output, self.epoch = output, 0

    def read(self, consumer: str) -> str | None:
        return self.output.place

    def begin(self, consumer: str, start: str) -> str:
        self.output.runs += 1
        self.epoch = self.output.runs
        self.output.place = self.output.place or start
        return self.output.place

    def commit(self, consumer: str, before: str, after: str, output: pa.Table | None) -> None:
        if self.epoch != self.output.runs or before != self.output.place:
            raise ConsumerFenced("another run has taken over")
        self.output.place = after
        if output is not None:
            self.output.rows += versions(output) if self.output.keyed else output["key"].to_pylist()

    def check(self, consumer: str) -> None:
        """What a run writes that was taken over is not taken."""

    def move(self, consumer: str, before: str, after: str, like: pa.Schema) -> None:
        self.commit(consumer, before, after, None)

    def durable(self, consumer: str) -> str | None:
        return self.output.place


class Reading:
    """A consumer, run after run; whatever it meets, each row that appends added is in its output once."""

    def __init__(self, world: "World") -> None:
        self.world, self.output = world, Output(world.keyed)
        self.consumer: Consumer | None = None
        #: rows that were dropped before it began
        self.before = set[str]()
        #: whether rows were given up: a rollback, or snapshots that others expired
        self.skipped = False

    def die(self) -> None:
        self.consumer = None

    def step(self, dice: Random) -> None:
        # A reaper that read the consumers before this one registered may commit while it reads its first rows.
        first = not self.output.rows
        try:
            self._read()
        except (PlaceExpired, RolledBack) as error:
            if isinstance(error, PlaceExpired) and not (self.world.foreign_expiry or first):
                raise Wrong(f"the reaper expired what a consumer needs: {error}") from error
            self.skipped = True
            assert self.consumer is not None
            self._go_on(self.consumer)
            raise
        except BookkeeperError:
            self.consumer = None
            raise

    def _go_on(self, consumer: Consumer) -> None:
        """With what is live of the rows that were lost, if the table can tell which these are: none is read twice."""
        try:
            consumer.catch_up()
            self.world.counts["consumers caught up"] += 1
        except NotPossible:
            consumer.skip_lost()

    def _read(self) -> None:
        world = self.world
        if self.consumer is None:
            uuid = str(world.metadata.table_uuid)
            catalog: Any = world.catalog
            source = Source(
                world.settings,
                lambda: load_table(catalog, world.settings.identifier),
                uuid,
                world.store(world.folder_url),
            )
            self.consumer = Consumer.at(
                source,
                "sums",
                Keeper(self.output),
                END if world.keyed else BEGINNING,  # from the beginning it would read what delete files hide
                clock=world.scheduler.clock,
                wait=world.scheduler.wait,
            )
            if self.output.runs == 1:
                self.before = set(world.oracle.streamed if world.keyed else world.oracle.dropped)
        for batch in self.consumer.batches(follow=False):
            self.consumer.commit(batch, batch.table)
            world.counts["rows consumed"] += batch.table.num_rows

    def look(self) -> None:
        """After all is read."""
        rows = self.output.rows
        if len(set(rows)) != len(rows):
            twice = sorted({row for row in rows if rows.count(row) > 1})
            raise Wrong(f"a consumer has rows twice: {twice[:5]}")
        if not self.skipped:
            missed = set(self.world.oracle.streamed) - set(rows) - self.before - self.world.oracle.abandoned
            if missed:
                raise Wrong(f"a consumer missed rows: {sorted(missed)[:5]}")


>>>>>>> main
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
