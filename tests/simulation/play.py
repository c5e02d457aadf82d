"""
Plays events in a world of a seed, and makes a list of events that fails shorter.
"""

import hashlib
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.simulation.decoder import Wrong
from tests.simulation.schedule import TO_COMMIT, Event
from tests.simulation.traits import Traits
from tests.simulation.world import World, repeatable


@dataclass
class Played:
    """What became of a run: what is wrong (empty: nothing), after how many ticks, what was counted, its story."""

    wrong: str = ""
    #: the first words of it, by which two failures are the same
    kind: str = ""
    ticks: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)
    where: str = ""
    #: how many events were taken
    taken: int = 0

    @property
    def digest(self) -> str:
        """The same for two runs that took the same way."""
        return hashlib.sha256("\n".join(self.story).encode()).hexdigest()[:16]


def play(
    seed: int,
    steps: Sequence[Event],
    broken: Callable[[], None] = lambda: None,
    traits: Traits | None = None,
) -> Played:
    """
    Plays the events and lets all come to rest; `broken` is called once the world is there. `traits`: others than the
    seed's own.
    """
    played = Played()
    with repeatable(seed) as dice:
        world = World(seed, dice, played.story.append, traits)
        broken()
        try:
            for number, event in enumerate(steps):
                played.taken = number + 1
                played.story.append(_line(number, event))
                world.take(event)
            played.story.append("all faults end")
            world.settle()
        except (Exception, Wrong) as error:  # noqa: BLE001 - a defect of what is tried, whatever it is
            played.wrong = f"{type(error).__name__}: {error}"
            played.kind = played.wrong[:24]
            played.where = "".join(traceback.format_exception(error)[-6:])
        finally:
            world.end()
    played.ticks, played.counts = world.counts["ticks"], world.counts
    return played


def _line(number: int, event: Event) -> str:
    text = f"{number:5} +{event.seconds:g}s {event.who}"
    if event.calls == TO_COMMIT:
        return f"{text} until its commit"
    return text + (f" for {event.calls} calls" if event.calls else "")


def shrink(
    seed: int, steps: Sequence[Event], kind: str, broken: Callable[[], None] = lambda: None, most: int = 400
) -> list[Event]:
    """
    A shorter list that fails in the same way: parts are left out, large ones first (ddmin), for at most so many plays.
    """
    left, size, plays = list(steps), max(1, len(steps) // 2), 0
    while plays < most:
        start, before = 0, len(left)
        while start < len(left) and plays < most:
            fewer = left[:start] + left[start + size :]
            plays += 1
            if play(seed, fewer, broken).kind == kind:
                left = fewer
            else:
                start += size
        if size == 1 and len(left) == before:
            break
        size = max(1, size // 2)
    return _calmer(seed, left, kind, broken)


def _calmer(seed: int, steps: list[Event], kind: str, broken: Callable[[], None]) -> list[Event]:
    """The same events with fewer faults, and not left in the middle, where that fails too."""
    for index, event in enumerate(steps):
        for simpler in (event._replace(fault="", at=0), event._replace(calls=0)):
            tried = [*steps[:index], simpler, *steps[index + 1 :]]
            if simpler != steps[index] and play(seed, tried, broken).kind == kind:
                steps = tried
    return steps
