"""
What must hold of the reaper's journal: it is there before its snapshots expire, nothing drops it before its files are
gone, and none is left once all is well. Without it no run knows which files a crash has left.

What arrives late is not asked: a commit or a delete of a reaper that is long gone leaves orphans, by design.
"""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.decoder import Wrong
from tests.simulation.disk import Disk
from tests.simulation.table_state import TableState

REAPER = "reaper"


@dataclass
class JournalRules:
    """Looks at the journal of one table; `acting` is the actor whose call is under way."""

    disk: Disk
    folder: str
    acting: Callable[[], str]
    #: whether the expiry of the journal that is there took off a ref: its files stay, as orphans
    given_up: bool = False
    #: snapshots that the reaper expired; files of those that another program expired are orphans of that program
    by_reaper: set[int] = field(default_factory=set)

    @property
    def location(self) -> str:
        return f"{self.folder}/reaper/journal.json"

    def read(self) -> dict[str, Any] | None:
        """The journal that is there."""
        return json.loads(self.disk.get(self.location).data) if self.disk.has(self.location) else None

    def created(self, location: str) -> None:
        if location == self.location:
            self.given_up = False

    def expired(self, snapshots: Collection[int]) -> None:
        """These have just expired."""
        if snapshots and self.acting() == REAPER:
            journal = self.read()
            if journal is None or not {*snapshots} <= {*journal["expire"]}:
                raise Wrong(f"snapshots {sorted(snapshots)[:3]} expired, and no journal names their files")
            self.by_reaper |= {*snapshots}

    def deleting(self, location: str, table: TableState, named: Callable[[], Collection[str]]) -> None:
        """The journal is about to go: then its files are gone, are named, or their snapshots stay."""
        if location != self.location or self.acting() != REAPER or self.given_up:
            return
        journal = self.read()
        assert journal is not None
        if table.snapshots.keys() & {*journal["expire"]}:
            return
        if self.by_reaper.isdisjoint(journal["expire"]):
            return  # another program expired them after the reaper had found that its commit is not in
        files = [path for sizes in journal["files"].values() for path in sizes if self.disk.has(path)]
        if files and (left := {*files} - {*named()}):
            raise Wrong(f"a journal is dropped, and {sorted(left)[0]} of it stays")

    def look(self) -> None:
        """After all is well."""
        if self.disk.has(self.location):
            raise Wrong("the reaper has left a journal, which no later run carries out")
