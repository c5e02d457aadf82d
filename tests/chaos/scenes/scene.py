"""
A scene: a lake as it is before something is done, the doing, and what a restart makes of it.
"""

import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from bookkeeper.commands.verify import ERROR, verify
from bookkeeper.errors import BookkeeperError
from tests.chaos.account import account
from tests.chaos.tally import Tally
from tests.support.faults import Faults
from tests.support.lake import Lake


class Scene:
    """
    Subclasses make `lake` in `prepare`, do what is to be broken in `act`, and name the rows in `published`.

    `act` is run again (by a supervisor or a person) after it broke off: it must bear that.
    """

    name = ""
    #: parts of operations that `act` must have: the test of the test
    parts: tuple[str, ...] = ()

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.lake = self.prepare(root / "lake")
        self.saved = self.lake.saved()

    def prepare(self, root: Path) -> Lake:
        """The lake, up to the moment before."""
        raise NotImplementedError

    def act(self, faults: Faults) -> None:
        """What is broken at each of its operations."""
        raise NotImplementedError

    def published(self) -> list[str]:
        """The keys that must be in the table now."""
        raise NotImplementedError

    def unsure(self) -> Iterable[str]:
        """Keys whose writer died before it knew: there once, or not at all."""
        return ()

    def restore(self) -> None:
        """Back to the moment before."""
        self.saved.restore()

    def again(self) -> None:
        """It is tried once more, in a new process."""
        with suppress(BookkeeperError):
            self.act(Faults())

    def drain(self) -> None:
        """A bookkeeper is started anew and does what there is to do."""
        book = self.lake.book()
        self.lake.tick(book)
        self.lake.tick(book, minutes=2)

    def outcome(self, where: str) -> Tally:
        """What became of the rows, by key; and what an audit says."""
        keys = self.lake.keys()
        done = account(self.published(), keys, self.unsure(), where=where)
        return replace(done, wrong=done.wrong + [f"{where}: {what}" for what in self.wrong()])

    def wrong(self) -> list[str]:
        """What is not as it should be, besides the rows: txlogs left pending, and what `verify` finds."""
        found = verify(self.lake.audit())
        bad = [item for item in found if item.severity == ERROR or "summary" in item.what or "marks.json" in item.what]
        pending = [f"still pending: {name}" for name in self.lake.pending()]
        return pending + [f"{item.what}: {item.where}" for item in bad]


def lake_at(root: Path, **settings: Any) -> Lake:
    """
    A new lake at `root`.
    """
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    return Lake(root, **settings)


DAY, HOUR = timedelta(days=1), timedelta(hours=1)
