"""
The quiet end of a world: faults stop, the clock goes on, and all programs run, in rounds. Then each debt is settled
within its bound, and in the end the account is right.

A short one ends each world; one of hours, with orphans, marks and rejected txlogs in it, each sixth.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from tests.simulation import account
from tests.simulation.books import BOOKS
from tests.simulation.debts import Debts
from tests.simulation.decoder import Wrong
from tests.simulation.liveness import Liveness
from tests.simulation.schedule import Event
from tests.simulation.sources import POSITIONED
from tests.simulation.traits import FOLDER, NOTIFY

if TYPE_CHECKING:
    from tests.simulation.world import World

SHORT, LONG = timedelta(minutes=2), timedelta(minutes=12)
#: rounds of the one and of the other
SHORT_ROUNDS, LONG_ROUNDS, EACH = 10, 25, 6
#: to come to rest; a writer waits for room for five minutes
MOST_ROUNDS = 100
#: so often in a round those go on that wait, and bookkeepers tick
MOST_TURNS = 2
#: rounds in which a process that has died is not there
AWAY = 5
#: rounds, of the long one, in which only others commit
OTHERS_ROUNDS = 3
#: a table that is not listed any more: what is found then is found by hints
NO_LISTING = 10**9
#: debts that take hours; those that grow while nothing is committed
SLOW = ("orphans are swept", "small files become few")
#: what only bookkeepers do: it is due, too, where they tick for a while and nothing fails
DURING = (
    "a txlog is committed or rejected",
    "a consumed txlog is deleted",
    "marks.json says what the table says",
    "the card shows the table's schema",
    "a request for a column is answered",
)
#: so long nothing else happens then
CALM = timedelta(seconds=45)


class Quiet:
    """The quiet end of one world."""

    def __init__(self, world: "World") -> None:
        self.world, self.scheduler = world, world.scheduler
        self.debts = Debts(world.oracle, world.traits.keep, lambda: world.metadata_location)
        finders = self.debts.finders() | {
            "a program ends what it does": self._suspended,
            "a writer gets room": self._without_room,
            "a lease is taken over": self._tickless,
            "rows reach the consumer": world.reading.missed,
            "a consumer's record follows its place": self._records_behind,
        }
        self.liveness = Liveness(self.scheduler.clock, finders)
        self.calm_since = self.scheduler.now
        self.during = Liveness(self.scheduler.clock, {name: finders[name] for name in DURING})
        self.away: set[str] = set()
        #: how often writers had waited in vain when the quiet began
        self.waited_in_vain = 0
        self.round_began = self.scheduler.now

    # -- while faults go on

    def watch(self, event: Event) -> None:
        """After an event: where bookkeepers have ticked for a while and nothing else was, their duties are done."""
        scheduler, now = self.scheduler, self.scheduler.now
        is_calm = event.who in BOOKS and not event.fault and not event.calls and event.seconds == 1
        troubled = max(scheduler.full_until, scheduler.refused_until) >= now or self.world.disk.ahead
        if not is_calm or troubled or scheduler.late or self.world.oracle.rolled_back:
            self.calm_since = now
            self.during.begin()
        elif now - self.calm_since >= CALM:
            self.during.look(timedelta(0))
            self.calm_since += timedelta(seconds=20)

    # -- the end

    def settle(self) -> None:
        """Raises Wrong for a debt that is not settled, and for an account that is not right."""
        world = self.world
        self.scheduler.full_until = self.scheduler.refused_until = self.scheduler.now
        world.disk.ahead = timedelta(0)
        self._end_what_is_under_way()
        self.scheduler.now += timedelta(minutes=10)
        self.scheduler.arrive(everything=True)
        self._begin()
        self._kill_some()
        for number in range(SHORT_ROUNDS):
            if number == AWAY:
                self.away.clear()
                self.waited_in_vain = world.counts["error Backpressure"]
                self._rely_on_hints()
            self._round(SHORT, writes=number < SHORT_ROUNDS - 2)
        if world.seed % EACH == EACH - 1:
            self._long()
        self._account()

    def _begin(self) -> None:
        self.liveness.begin()
        self.world.queue.sound = True
        self.waited_in_vain = self.world.counts["error Backpressure"]
        self.scheduler.tell("   the quiet begins")

    def _end_what_is_under_way(self) -> None:
        """Some wait for others, and those that receive hints go on for ever."""
        for _ in range(MOST_ROUNDS):
            running = [name for name in self.scheduler.actors if self._is_running(name)]
            for name in (*running, *BOOKS):
                self._run(name, 1)
            if not running:
                return
        raise Wrong(f"{running} do not end what they do")

    def _is_running(self, name: str) -> bool:
        return self.scheduler.actors[name].running is not None and not name.startswith("queue-")

    def _kill_some(self) -> None:
        """Who has the lease dies, and is away for a while; so is a member of a group."""
        world = self.world
        if world.traits.leases:
            holder = next((name for name, slot in world.slots.items() if not slot.standby), BOOKS[0])
            self.scheduler.actors[holder].die()
            self.away |= {holder, f"fold-{holder}", f"lease-{holder}", f"queue-{holder}"}
        if world.traits.group:
            self.scheduler.actors["consumer"].die()
            self.away.add("consumer")

    def _rely_on_hints(self) -> None:
        """Where each message arrives, txlogs are found without a listing; there is one more, for what was lost."""
        if self.world.traits.discover == NOTIFY and not self.world.traits.leases:
            for name in BOOKS * self.world.settings.look_every:
                self._run(name, 1)
            for book in self.world.books.values():
                book.inbox.pending_index.look_every = NO_LISTING

    def _long(self) -> None:
        """Hours; compactors begin anew, for one leaves files alone that it once failed to read."""
        world = self.world
        for name in ("compactor-1", "compactor-2"):
            self.scheduler.actors[name].die()
        for book in world.books.values():
            book.inbox.pending_index.look_every = world.settings.look_every
        self.liveness.begin()
        self._run("foreign-append", 1)
        for number in range(LONG_ROUNDS):
            self._round(LONG, writes=OTHERS_ROUNDS <= number < LONG_ROUNDS - 2, slow=True)

    def _round(self, span: timedelta, writes: bool, slow: bool = False) -> None:
        """Each program runs at least once."""
        self.round_began = began = self.scheduler.now
        for name, seconds in self._programs(writes):
            if name not in self.away:
                self._run(name, seconds)
        self.scheduler.now = max(self.scheduler.now, began + span)
        names = [name for name in self.liveness.finders if slow or name not in SLOW]
        self.liveness.look(max(span, self.scheduler.now - began), names)

    def _programs(self, writes: bool) -> Iterator[tuple[str, float]]:
        """The programs of a round in their order, with the seconds before each."""
        traits = self.world.traits
        if writes:
            yield from (("plain-1", 1), ("chain-1", 1), ("plain-2", 1))
            yield from (("mixed-1", 1),) if traits.keyed else ()
            yield from (("slot-1", 1),) if traits.slots else ()
        yield from self._ticks()
        yield from (("compactor-1", 1), ("reaper", 11))
        yield from self._ticks()
        for _ in range(MOST_TURNS):
            running = [name for name in self.scheduler.actors if self._is_running(name)]
            yield from ((name, 1) for name in running)
            yield from self._ticks() if running else ()
        yield from (("operator", 1), ("book-1", 11), ("consumer", 1))
        yield from (("consumer-b", 1),) if traits.group else ()

    def _ticks(self) -> Iterator[tuple[str, float]]:
        """Of both bookkeepers, with what their threads do."""
        traits = self.world.traits
        for name in BOOKS:
            yield from ((f"queue-{name}", 0.1),) if traits.discover == NOTIFY else ()
            yield name, 11
            yield from ((f"lease-{name}", 0.1),) if traits.leases else ()
            yield from ((f"fold-{name}", 0.1),) if traits.keyed else ()

    def _run(self, name: str, seconds: float) -> None:
        self.world.run(Event(name, seconds, self.scheduler.dice.getrandbits(32)))

    # -- what is not in storage

    def _suspended(self) -> Iterator[str]:
        return (name for name in self.scheduler.actors if self._is_running(name))

    def _without_room(self) -> Iterator[int]:
        waited = self.world.counts["error Backpressure"]
        return iter([waited] if waited > self.waited_in_vain and not self.away else [])

    def _tickless(self) -> Iterator[str]:
        """Where nobody has ticked in this round."""
        return iter(["the table"] if self.world.ticked_at < self.round_began else [])

    def _records_behind(self) -> Iterator[tuple[str, str]]:
        """Consumers whose record has another place than their output."""
        reading = self.world.reading
        if not reading.begun or reading.traits.place == FOLDER:
            return
        for name, place in self.debts.records().items():
            durable = reading.durable(name)
            if durable is not None and durable != place:
                yield name, place

    # -- the account

    def _account(self) -> None:
        world = self.world
        world.foreign.look()
        world.reading.look()
        world.oracle.journal.look()
        confirmed = {actor: run.confirmed for actor, run in world.runs.items()}
        account.look(world.oracle, confirmed, world.changes.confirmed, POSITIONED)
