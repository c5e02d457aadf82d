"""
Scenes: a few events in a row, of what takes luck otherwise. Other events come before and after, so each may go another
way.
"""

from collections.abc import Sequence

from tests.simulation.schedule import CRASH_AFTER, TO_COMMIT, Event
from tests.simulation.traits import is_keyed

#: how often a scene is played in the place of an event, and in a world with a keyed table
SCENE, KEYED_SCENE = 0.015, 0.025
#: a line for each event: the seconds before it (1 without), who, and whether it is left there, or dies
SCENES = {
    "a tag that the reaper's plan knew is moved before its commit": """
        pinner
        150 plain-1
        book-1
        61 reaper until its commit
        mover
        reaper
    """,
    "the reaper dies behind its commit": """
        150 plain-1
        book-1
        61 reaper dies behind its commit
        book-1
        61 reaper
    """,
}
#: the same, of worlds with a keyed table
KEYED_SCENES = {
    "rows are dropped while younger ones need delete files": """
        plain-1
        book-1
        300 plain-2
        plain-2
        book-1
        plain-2
        plain-2
        plain-2
        book-1
        450 book-1
        book-1
    """,
    "the bookkeepers are gone for hours, and txlogs wait": """
        mixed-1
        plain-1
        8000 reaper
        4000 reaper
        book-1
    """,
    "a key is inserted and deleted by txlogs of one commit": """
        mixed-1
        mixed-1
        mixed-1
        mixed-1
        book-1
    """,
    "a fold meets a position delete file that is for several data files": """
        plain-1
        plain-2
        mixed-1
        mixed-1
        book-1
        fold-book-1
        deleter
        deleter
        mixed-1
        mixed-1
        mixed-1
        book-1
        fold-book-1
        61 book-1
        fold-book-1
        book-1
    """,
    # The first fold leaves no older delete, which the rewrite would drop.
    "another program's rewrite, begun before, is committed between a fold's plan and its commit": """
        plain-1
        book-1
        plain-1
        book-1
        fold-book-1
        61 book-1
        fold-book-1
        book-1
        fold-book-1
        rewriter until its commit
        plain-1
        plain-1
        plain-1
        book-1
        fold-book-1
        61 book-1
        fold-book-1
        rewriter
        book-1
    """,
}


def scenes_of(seed: int) -> Sequence[Sequence[Event]]:
    """The scenes of the world of this seed; in one with a keyed table most are about keys."""
    keyed = 2 * [*KEYED_SCENES.values()] if is_keyed(seed) else []
    return [events_of(scene) for scene in (*SCENES.values(), *keyed)]


def how_often(seed: int) -> float:
    """How often one is played in the place of an event of this world."""
    return KEYED_SCENE if is_keyed(seed) else SCENE


def events_of(scene: str) -> list[Event]:
    """The events of a scene, whose dice have no seed yet."""
    return [_event(line.split()) for line in scene.strip().splitlines()]


def _event(words: list[str]) -> Event:
    seconds = float(words.pop(0)) if words[0].isdigit() else 1.0
    about = " ".join(words[1:])
    calls, fault = {
        "": (0, ""),
        "until its commit": (TO_COMMIT, ""),
        "dies behind its commit": (0, CRASH_AFTER),
    }[about]
    return Event(words[0], seconds, calls=calls, fault=fault)
