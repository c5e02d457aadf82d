"""
Waits until file descriptors are readable.
"""

import math
import select
from collections.abc import Collection


def readable(numbers: Collection[int], seconds: float) -> bool:
    """
    Waits at most `seconds` until one of these file descriptors is readable or closed; returns whether one is.
    """
    # select() refuses numbers from 1,024 on, and a few hundred tables have more files open than that.
    poll = select.poll()
    for number in numbers:
        poll.register(number, select.POLLIN)
    return bool(poll.poll(math.ceil(seconds * 1000)))
