"""
`bookkeeper run` on a storage that takes its time for the tables whose names begin with `slow`; takes the same words.
"""

import sys
import time
from typing import Any

from bookkeeper.cli.main import main
from bookkeeper.config.settings import Settings, Table
from bookkeeper.serve import open as opening
from bookkeeper.tick.tick import Bookkeeper

SECONDS = 0.5
_OPEN = opening.open_bookkeeper


class Slow:
    """A store whose every answer takes so long."""

    def __init__(self, store: Any) -> None:
        self._store, self.url = store, store.url

    def __getattr__(self, name: str) -> Any:
        time.sleep(SECONDS)
        return getattr(self._store, name)


def _opened(settings: Settings, table: Table, **shared: Any) -> Bookkeeper:
    book = _OPEN(settings, table, **shared)
    if table.name.startswith("slow"):
        book.folder.store = Slow(book.folder.store)
    return book


if __name__ == "__main__":
    opening.open_bookkeeper = _opened
    main(sys.argv[1:])
