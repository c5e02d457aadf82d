"""
The scheduler: actors are greenlets of one thread. Each call of storage or catalog is a place where an actor may be
left for a while, may fail, or may die.

A run is a list of events that need nothing of each other: an event that is left out leaves a run, so a failing list
can be made shorter.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeVar

from greenlet import getcurrent, greenlet

from bookkeeper.errors import BookkeeperError

T = TypeVar("T")
#: far from today, so that the catalog's own time never matters
START = datetime(2050, 1, 1, 9, tzinfo=UTC)

BEFORE, LOST, LATE, TWICE, ECHO, TORN, CRASH, CRASH_AFTER, REFUSED, STALE, OUTAGE, ADRIFT = FAULTS = (
    "error before",
    "reply lost",
    "late",
    "twice",
    "echo",
    "torn upload",
    "crash before",
    "crash after",
    "refused",
    "stale listing",
    "outage",
    "crash, and it arrives late",
)


#: as a number of calls: up to the next commit, which is not sent yet
TO_COMMIT = -1
#: so often an actor waits in one event, then others go on: perhaps it waits for them
MOST_WAITS = 3


class Crash(BaseException):
    """The process ends here: no code may catch it, and every object of the actor is thrown away."""


class Event(NamedTuple):
    """
    One step: `who` goes on, or begins anew, `seconds` later, for `calls` calls (0: to the end of what it does;
    TO_COMMIT: until it is about to commit).

    Its `at`-th call that can meets the `fault`; with `at` 0 its next commit (a writer: its txlog). `seed` is
    the dice of what it begins.
    """

    who: str
    seconds: float = 0.0
    seed: int = 0
    calls: int = 0
    fault: str = ""
    at: int = 0


class Call(NamedTuple):
    """A call of storage or catalog: what it does and on what, and which faults it can meet."""

    verb: str
    what: str
    able: frozenset[str]
    #: what an upload that is cut off leaves
    torn: Callable[[], Any] | None = None


READS = frozenset({BEFORE, CRASH, CRASH_AFTER})
LISTS = READS | {STALE}
WRITES = READS | {LOST, LATE, TWICE, ECHO, OUTAGE, ADRIFT}
UPLOADS = WRITES | {TORN}
COMMITS = WRITES | {REFUSED}


@dataclass
class Actor:
    """What one process does: `begin` does one piece of its work, `die` throws all its objects away."""

    name: str
    begin: Callable[[Random], None]
    die: Callable[[], None]
    #: whether what it does depends on the event's dice, which cost 10 us
    rolls: bool = True
    #: what is under way
    running: greenlet | None = None
    calls_left: int = 0
    fault: str = ""
    fault_in: int = 0
    to_commit: bool = False
    #: whether it is left before its next commit
    left_at_commit: bool = False
    #: what it commits by
    commits_by: str = "commit"
    #: how often it may still wait in this event
    waits_left: int = MOST_WAITS
    #: whether its process has died: what runs while it is torn down does nothing any more
    dead: bool = False
    #: whether that was another thread's end
    killed: bool = False


@dataclass
class Late:
    """A call that arrives later: when, and whose it was."""

    at: datetime
    call: Call
    act: Callable[[], Any]


@dataclass
class Scheduler:
    """The clock, the actors, what is under way, and what was counted."""

    dice: Random
    now: datetime = START
    actors: dict[str, Actor] = field(default_factory=dict)
    current: Actor | None = None
    late: list[Late] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    #: until when the disk is full
    full_until: datetime = START
    #: until when the catalog refuses every commit
    refused_until: datetime = START
    #: whether stores give out leases
    leases: bool = False
    #: told of each event and each remarkable call, for the story
    tell: Callable[[str], None] = lambda line: None

    def clock(self) -> datetime:
        return self.now

    def seconds(self) -> float:
        """A clock that is never set."""
        return (self.now - START).total_seconds()

    def epoch_seconds(self) -> float:
        """The time as `time.time` gives it."""
        return self.now.timestamp()

    def add(
        self,
        name: str,
        begin: Callable[[Random], None],
        die: Callable[[], None] = lambda: None,
        rolls: bool = True,
        by: str = "commit",
    ) -> None:
        self.actors[name] = Actor(name, begin, die, rolls, commits_by=by)

    def run(self, event: Event) -> None:
        """Takes one event; raises what is a defect."""
        self.now += timedelta(seconds=event.seconds)
        self.arrive()
        actor = self.actors.get(event.who)
        if actor is None:
            return
        actor.calls_left = event.calls if event.calls > 0 else 1_000_000_000
        actor.left_at_commit = event.calls == TO_COMMIT
        actor.fault, actor.fault_in, actor.to_commit = event.fault, event.at, event.at == 0
        began, actor.waits_left = actor.running is None, MOST_WAITS
        if actor.running is None:
            dice = Random(event.seed) if actor.rolls else self.dice
            actor.dead = actor.killed = False
            actor.running = greenlet(partial(self._work, actor, dice))
        self.current = actor
        try:
            actor.running.switch()
        finally:
            self.current = None
            if actor.running is not None and actor.running.dead:
                actor.running = None
        if not began or actor.running is not None:
            self.counts["interleaved"] += 1

    def _work(self, actor: Actor, dice: Random) -> None:
        try:
            actor.begin(dice)
        except Crash as crash:
            self.counts["crashes"] += 1
            self.tell(f"{actor.name} dies at {crash}")
            if not actor.killed:
                actor.die()
        except BookkeeperError as error:
            self.counts[f"error {type(error).__name__}"] += 1
            self.tell(f"{actor.name}: {type(error).__name__}: {str(error)[:200]}")

    def kill(self, names: Iterable[str]) -> None:
        """These are threads of a process that has died: they do nothing any more."""
        for name in names:
            actor = self.actors[name]
            if actor.running is not None and actor is not self.current:
                actor.dead = actor.killed = True

    def end(self) -> None:
        """Every process that is in the middle of something dies."""
        self.late.clear()
        for actor in self.actors.values():
            if actor.running is not None and not actor.running.dead:
                self.current, actor.calls_left, actor.dead = actor, 1_000_000_000, True
                actor.running.throw(Crash("the end"))
            actor.running = None

    @property
    def acting(self) -> str:
        """The actor whose call is under way; "" for a call that arrives late."""
        actor = self.current
        return actor.name if actor is not None and actor.running is getcurrent() else ""

    def arrive(self, everything: bool = False) -> None:
        """What is late and due arrives; its answer is not waited for."""
        if self.late:
            due = [item for item in self.late if everything or item.at <= self.now]
            if due:
                self.late = [item for item in self.late if item not in due]
                for item in due:
                    self.tell(f"   late: {item.call.verb} {item.call.what}")
                    self.counts["late arrivals"] += 1
                    try:
                        item.act()
                    except Exception:  # noqa: BLE001 - no one waits for the answer
                        continue

    def wait(self, seconds: float) -> None:
        """What actors do in place of sleeping; one that goes on waiting is left there, like at a call."""
        actor = self.current
        self.now += timedelta(seconds=min(seconds, 2.0))
        if actor is None or actor.running is not getcurrent():
            return
        actor.waits_left -= 1
        if actor.waits_left < 0:
            self.leave()

    def leave(self) -> None:
        """Others go on; the current actor is resumed by a later event."""
        actor = self.current
        assert actor is not None and actor.running is getcurrent()
        actor.running.parent.switch()
        if actor.dead:
            raise Crash("the end")

    def call(self, call: Call, act: Callable[[], T], error: Callable[[str], Exception]) -> T:
        """Does `act` as one call of the current actor, which may be left, fail or die here."""
        actor = self.current
        if actor is None or actor.running is not getcurrent():
            return act()
        if actor.dead:
            raise Crash(f"{call.verb} {call.what}")
        actor.calls_left -= 1
        if actor.calls_left < 0 or (actor.left_at_commit and call.verb == actor.commits_by):
            self.leave()
            actor.calls_left -= 1
        if self.now < self.full_until and BEFORE in call.able and LOST in call.able and call.verb != "delete":
            self.counts["fault disk full"] += 1
            raise error("no space left")
        if self.now < self.refused_until and call.verb == "commit":
            self.counts["fault catalog refuses"] += 1
            raise error(REFUSED)
        if not actor.fault or actor.fault not in call.able:
            return act()
        if actor.to_commit:
            if call.verb != actor.commits_by:
                return act()
        else:
            actor.fault_in -= 1
            if actor.fault_in > 0:
                return act()
        fault, actor.fault = actor.fault, ""
        self.counts[f"fault {fault}"] += 1
        self.tell(f"   {actor.name}: {fault}: {call.verb} {call.what}")
        return self._broken(fault, call, act, error)

    def is_stale(self) -> bool:
        """Whether the call that is about to be made is a listing in pages, between which others go on."""
        actor = self.current
        if actor is None or actor.fault != STALE or actor.running is not getcurrent():
            return False
        actor.calls_left, actor.fault = 0, ""
        self.counts[f"fault {STALE}"] += 1
        return True

    def _broken(self, fault: str, call: Call, act: Callable[[], T], error: Callable[[str], Exception]) -> T:
        if fault == ADRIFT:
            self._send_later(call, act)
        if fault in (CRASH, ADRIFT):
            raise self._crash(f"{call.verb} {call.what}")
        if fault == OUTAGE:
            self.full_until = self.now + timedelta(seconds=60)
        if fault in (BEFORE, REFUSED, OUTAGE):
            raise error(fault)
        if fault == LATE:
            self._send_later(call, act)
            raise error(fault)
        if fault == TORN and call.torn is not None:
            call.torn()
            raise error(fault)
        if fault == ECHO:
            self._send_later(call, act)
        result = act()
        if fault == CRASH_AFTER:
            raise self._crash(f"after {call.verb} {call.what}")
        if fault == LOST:
            raise error(fault)
        return act() if fault == TWICE else result

    def _crash(self, where: str) -> Crash:
        assert self.current is not None
        self.current.dead = True
        return Crash(where)

    def _send_later(self, call: Call, act: Callable[[], Any]) -> None:
        # Seconds, or minutes: at most what an attempt may take.
        seconds = self.dice.choice([0.5, 2, 10, 60, 400])
        self.late.append(Late(self.now + timedelta(seconds=seconds), call, act))
