"""
What a program gets when it brings no clock and no wait of its own: this machine's.
"""

import time
from datetime import UTC, datetime


def utc_now() -> datetime:
    """
    The time of this machine.
    """
    return datetime.now(UTC)  # noqa: TID251 the default of an argument


def pause(seconds: float) -> None:
    """
    Sleep.
    """
    time.sleep(seconds)  # noqa: TID251 the default of an argument


def millis(at: datetime) -> int:
    """
    Milliseconds since 1970.
    """
    return round(at.timestamp() * 1000)
