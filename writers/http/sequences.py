"""
The offset of a producer: the sequence that it has reached, and the day of that.
"""

import re
from datetime import date

_OFFSET = re.compile(r"([0-9]{1,18})(?:/([0-9]{8}))?")
_DAY = "%Y%m%d"


def offset_of(sequence: int, day: date) -> str:
    """
    The offset of a producer that reached this sequence on this day, such as `17/20261128`.
    """
    return f"{sequence}/{day:{_DAY}}"


def number_of(offset: str | None) -> int | None:
    """
    The sequence that an offset says: 0 of a producer without one; None where it is no sequence.
    """
    if offset is None:
        return 0
    found = _OFFSET.fullmatch(offset)
    return int(found[1]) if found else None


def day_of(offset: str) -> date | None:
    """
    The day that an offset says; None where it says none, as those of earlier versions.
    """
    found = _OFFSET.fullmatch(offset)
    try:
        return date.fromisoformat(found[2]) if found and found[2] else None
    except ValueError:
        return None
