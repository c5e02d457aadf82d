"""
Enumeration: one run is recorded, then repeated once for each of its operations, stopped or broken there.

The points are recorded, not listed by hand: what the code does today is what is tried.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.support.faults import AFTER, BEFORE, ECHO, LATE, MIDDLE, TWICE, Crash, Faults, crash

READS = ("read ", "size ", "list ", "load_table")


@dataclass(frozen=True)
class Point:
    """The operation with this number, and what goes wrong there."""

    number: int
    operation: str
    when: str
    #: how many operations later it arrives, when it is late
    delay: int = 1_000_000

    def __str__(self) -> str:
        return f"{self.when} operation {self.number}: {self.operation[:100]}"


def recorded(act: Callable[[Faults], None]) -> list[str]:
    """
    The operations of one undisturbed run.
    """
    faults = Faults()
    act(faults)
    return faults.seen


def crash_points(seen: list[str]) -> Iterator[Point]:
    """
    Before, in the middle of and after every operation that changes something.

    A read changes nothing: a crash before or after it leaves what the next change finds.
    """
    for number, operation in enumerate(seen):
        if not operation.startswith(READS):
            yield Point(number, operation, BEFORE)
            yield Point(number, operation, MIDDLE)
            yield Point(number, operation, AFTER)


def error_points(seen: list[str]) -> Iterator[Point]:
    """
    Every operation refused, and every change whose reply is lost.
    """
    for number, operation in enumerate(seen):
        yield Point(number, operation, BEFORE)
        if not operation.startswith(READS):
            yield Point(number, operation, AFTER)


def late_points(seen: list[str]) -> Iterator[Point]:
    """
    Every change done twice at once, done late after it was said to have failed, and done once more in the end.
    """
    for number, operation in enumerate(seen):
        if not operation.startswith(READS):
            yield Point(number, operation, TWICE)
            yield Point(number, operation, LATE, 1 + number % 7)
            yield Point(number, operation, LATE)
            yield Point(number, operation, ECHO)


def crashed(act: Callable[[Faults], None], point: Point) -> bool:
    """
    Runs until the point; True when the process ended there. Every object of the run is garbage after it.
    """
    try:
        act(Faults().at(point.number, point.when, crash))
    except Crash:
        return True
    return False


def erred(act: Callable[[Faults], None], point: Point, error: Callable[[str], BaseException]) -> Faults:
    """
    Runs with this one operation broken; the caller lives on. What is under way then is in the faults returned.
    """
    faults = Faults().at(point.number, point.when, error, point.delay)
    act(faults)
    return faults
