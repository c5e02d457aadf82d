"""
Shares: which of several bookkeepers works on which tables, without their ever talking to each other.

Each knows only its own share, k of n; a table's follows from its identifier.
"""

import hashlib
import re
from datetime import timedelta

#: who stands by asks for the lease at least this often
TRIES = timedelta(seconds=1)
_SHARE = re.compile(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})")


def parse(text: str) -> tuple[int, int]:
    """
    Which share, of how many; raises ValueError, whose text says what is allowed.
    """
    found = _SHARE.fullmatch(text)
    number, shares = (int(part) for part in found.groups()) if found else (1, 0)
    if number > shares:
        raise ValueError('one of n shares, such as "1/2" and "2/2",')
    return number, shares


def share_of(identifier: str, shares: int) -> int:
    """
    The share a table belongs to, 1 to `shares`; one more share takes tables from the others, and moves no other.
    """

    def weight(number: int) -> bytes:
        return hashlib.sha256(f"{number}/{identifier}".encode()).digest()

    return max(range(1, shares + 1), key=weight)
