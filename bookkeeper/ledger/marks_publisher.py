"""
The one publisher of marks: every commit to a table is followed by its copy in marks.json.

A writer that starts lists pending/ first and reads marks.json second, so marks.json must say what is in before a
consumed txlog is deleted. A crash in between is harmless: marks.json is compared with the table at each load, in each
tick that finds nothing pending, and by the condition of each put.
"""

import logging
from collections.abc import Sequence

from bookkeeper.contract.delete_scope import DeleteFile
from bookkeeper.contract.marks import Marks
from bookkeeper.contract.marks_json import MarksCopy
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.ledger.fold_commit import commit_fold, drop_delete_file
from bookkeeper.ledger.fold_plan import FoldPlan
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.load import is_behind
from bookkeeper.ledger.view import View
from bookkeeper.manifests.blocks import ManifestDelete

log = logging.getLogger("bookkeeper")


class MarksPublisher:
    """
    Commits to one table and publishes its marks. The tick, which has to note its commit first, publishes by itself.
    """

    def __init__(self, ledger: Ledger, folder: Folder, table: str = "") -> None:
        self.ledger = ledger
        self.folder = folder
        #: the table's name in the log
        self.table = table
        #: the content of marks.json, if known, and the highest sequence number that was ever read from it
        self._published: MarksCopy | None = None
        self._highest = -1

    def record(self, view: View, marks: Marks, why: str, even_older: bool = False) -> View:
        """Changes marks only, with an empty snapshot; raises Retry."""
        return self._published_after(self.ledger.record(view, marks, why), even_older)

    def drop(self, view: View, drops: Sequence[ManifestDelete]) -> View:
        """Drops data files; raises Retry."""
        return self._published_after(self.ledger.drop(view, drops), even_older=False)

    def fold(self, view: View, plan: FoldPlan) -> View:
        """Commits a fold; raises Retry, FoldOutdated where the plan is not right for this view any more."""
        return self._published_after(commit_fold(self.ledger, view, plan), even_older=False)

    def drop_delete_file(self, view: View, file: DeleteFile) -> View:
        """Takes out a delete file; raises Retry, FoldOutdated where it is not live any more."""
        return self._published_after(drop_delete_file(self.ledger, view, file), even_older=False)

    def _published_after(self, view: View, even_older: bool) -> View:
        self.publish(view, even_older)
        return view

    def publish(self, view: View, even_older: bool = False, verify: bool = False) -> None:
        """
        Makes marks.json say what the table says, unless that is of a later commit; raises StorageUnavailable.

        Sends nothing when it is known to say so; `verify` reads it all the same. `even_older` is for a table that
        was taken back on purpose.
        """
        if view.marks.snapshot is None:
            return
        copy = view.marks_copy
        if copy == self._published and not (even_older or verify):
            return
        if self.folder.publish_marks(copy, even_older) and copy == self._published:
            self._warn_behind("it has changed since we wrote it")
        self._published, self._highest = copy, max(self._highest, copy.sequence_number)

    def compare(self, view: View, copy: MarksCopy | None) -> None:
        """Warns when marks.json is not what it should be; the next `publish` mends it."""
        sequence = -1 if copy is None else copy.sequence_number
        lost = copy is None and view.marks.snapshot is not None
        if (self._highest < 0 or sequence < self._highest) and (lost or is_behind(view, copy)):
            self._warn_behind("it is gone" if lost else f"it is of sequence number {sequence}")
        self._published = copy if copy == view.marks_copy else None
        self._highest = max(sequence, 0)

    def _warn_behind(self, cause: str) -> None:
        hint = "After a crash this is expected; otherwise an old copy of the folder may have been put back."
        about = {"action": "mend", "table": self.table, "cause": cause, "hint": hint}
        log.warning("marks.json is behind the table", extra=about)
