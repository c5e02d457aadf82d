"""
A lake for the writers' library, which makes its own files: the machine's clock, and the bookkeeper as daemons open it.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from bookkeeper.config.settings import Settings
from bookkeeper.serve.open import open_bookkeeper
from bookkeeper.tick.tick import Bookkeeper
from tests.support.lake import Lake, WallClock
from writers import Writer


class Queue(Lake):
    """One table with its folder, and a bookkeeper that remembers nothing between two ticks."""

    def __init__(self, root: Path, **given: Any) -> None:
        root.mkdir(parents=True, exist_ok=True)
        super().__init__(root, WallClock(), file_names=None, **given)

    def writer(self, name: str = "w1") -> AbstractContextManager[Writer]:
        return Writer.open(self.made.folder, name)

    def book(self, *_: Any, **given: Any) -> Bookkeeper:
        settings = Settings(self.catalog_settings, tables={self.settings.name: self.settings})
        return open_bookkeeper(settings, self.settings, self.clock)
