"""
What an audit of a table looks at, and what it finds.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.manifest import ManifestContent
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.config.settings import Table
from bookkeeper.contract.rewrite import file_key
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.format.entries import DataFile, Entry
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.removed_files import removed_files
from bookkeeper.ledger.view import View
from bookkeeper.stores.store import Store

ERROR, WARNING, INFO = "error", "warning", "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be; `repair` says what --repair would do, if it can do anything."""

    severity: str
    what: str
    where: str
    repair: str = ""


@dataclass
class Audit:
    """What the audit looks at, read once."""

    view: View
    folder: Folder
    ledger: Ledger
    settings: Table
    open_store: Callable[[str], Store] | None = None
    #: live data files, by path
    live: dict[str, DataFile] = field(default_factory=dict)
    #: live delete files, by path
    deletes: dict[str, Entry] = field(default_factory=dict)
    #: how often each live file is listed
    times: Counter[str] = field(default_factory=Counter)

    @cached_property
    def removed(self) -> dict[str, int]:
        """The files that kept snapshots took out."""
        return removed_files(self.ledger, self.view, expiring=True)

    def later(self) -> "Audit":
        """A new audit, of the table as it is now."""
        view = self.ledger.load(self.view.marks.folder, accept_rollback=True)
        return Audit(view, self.folder, self.ledger, self.settings, self.open_store)

    def read(self) -> None:
        """Reads every manifest of the head."""
        self.live.clear()
        self.deletes.clear()
        self.times.clear()
        for file in self.ledger.live_files(self.view):
            path = file_key(file.path)
            self.live[path] = file
            self.times[path] += 1
        for entry in self.ledger.live_entries(self.view, ManifestContent.DELETES):
            path = file_key(entry.data_file.path)
            self.deletes[path] = entry
            self.times[path] += 1

    @property
    def files(self) -> dict[str, DataFile]:
        """Live data files and delete files, by path."""
        return self.live | {path: entry.data_file for path, entry in self.deletes.items()}


def snapshot_name(snapshot: Snapshot) -> str:
    """
    A snapshot, as findings call it.
    """
    return f"snapshot {snapshot.snapshot_id}"
