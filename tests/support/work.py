"""What code does, counted: the same number on a machine that is busy."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from bookkeeper.contract.names import TxlogName


def work(act: Callable[[], object]) -> int:
    """
    How many lines of Python `act` runs in this thread, and how many functions in C it calls.
    """
    count, before = 0, (sys.gettrace(), sys.getprofile())

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return line

    def call(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "c_call"

    sys.setprofile(call)
    sys.settrace(line)
    try:
        act()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return count


class ComparedName(TxlogName):
    """A name whose comparisons are work that is counted, also where C makes them."""

    __slots__ = ()
    __hash__ = TxlogName.__hash__

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, other)  # type: ignore[arg-type]

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        return tuple.__lt__(self, other)
