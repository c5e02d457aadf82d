"""
Shares: which of several bookkeepers works on which tables. Bookkeepers do not talk to each other: each knows its own
share, k of n, and the share of a table follows from its identifier.
"""

import hashlib
import re
from datetime import timedelta

#: a bookkeeper that waits for a lease tries it at least this often
TRIES = timedelta(seconds=1)
_SHARE = re.compile(r"([1-9][0-9]{0,3})/([1-9][0-9]{0,3})")


def parse(text: str) -> tuple[int, int]:
    """
    The share's number and how many shares there are; raises ValueError with the allowed values.
    """
    found = _SHARE.fullmatch(text)
    number, shares = (int(part) for part in found.groups()) if found else (1, 0)
    if number > shares:
        raise ValueError('one of n shares, such as "1/2" and "2/2",')
    return number, shares


def share_of(identifier: str, shares: int) -> int:
    """
    The share a table belongs to, 1 to `shares`. When a share is added, tables move to it and nowhere else.
    """

    def weight(number: int) -> bytes:
        return hashlib.sha256(f"{number}/{identifier}".encode()).digest()

    return max(range(1, shares + 1), key=weight)
