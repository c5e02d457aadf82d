"""
A clock that is moved by hand, and storage that keeps its time.
"""

import os
from datetime import datetime
from typing import Any

from bookkeeper.stores.local import LocalStore


class Clock:
    """A clock that is moved by hand."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


class TimedStore(LocalStore):
    """A disk whose clock is ours."""

    def __init__(self, root: str, clock: Clock) -> None:
        super().__init__(root)
        self.clock = clock

    def create(self, key: str, data: bytes) -> None:
        super().create(key, data)
        self._stamp(key)

    def replace(self, key: str, data: bytes, if_match: str | None = None) -> str:
        tag = super().replace(key, data, if_match)
        self._stamp(key)
        return tag

    def upload(self, key: str, data: Any) -> None:
        super().upload(key, data)
        self._stamp(key)

    def _stamp(self, key: str) -> None:
        seconds = self.clock.now.timestamp()
        os.utime(f"{self.root}/{key}", (seconds, seconds))
