"""
How long to wait before trying again.
"""

from datetime import timedelta

from bookkeeper.config.settings import Daemon


def backoff(failures: int, settings: Daemon) -> timedelta:
    """
    `every`, doubled with each failure in a row, at most `backoff-most`.
    """
    doublings = min(failures - 1, 30)
    pause: timedelta = min(settings.every * 2**doublings, settings.backoff_most)
    return pause
