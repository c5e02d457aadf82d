"""
The monotonic clock of the daemons.
"""

import time


def elapsed() -> float:
    """
    Seconds that passed, also while the machine slept: then the wall clock goes on, and that is no jump.
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
