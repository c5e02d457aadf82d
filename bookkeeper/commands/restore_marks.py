"""
Restore-marks: restores the property `bookkeeper.marks` from a copy, after it was removed or damaged.

A copy is taken only when no snapshot on `main` is of a later commit of ours: an older one would let txlogs in twice.
"""

from collections.abc import Iterator

from pyiceberg.table import Table

from bookkeeper.catalogs import commit as catalogs
from bookkeeper.contract import marks as marks_format
from bookkeeper.contract import marks_json
from bookkeeper.contract.marks import Marks
from bookkeeper.contract.pending_rewrites import withdraw
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import MarksLost, NotPossible, RewriteUnfit
from bookkeeper.history.main_history import ancestors, descends, is_ours, older
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.marks_publisher import MarksPublisher
from bookkeeper.ledger.view import View

_BY_HAND = "It is unknown what is in. Make a new table and folder, or set the property by hand from a backup."


def restorable(ledger: Ledger, folder: Folder) -> tuple[View, str]:
    """
    The table with the marks that a copy of them says, and where that copy is; nothing is changed yet.

    Raises NotPossible when the table has its marks, or no copy is as new as its last commit of ours; Retry.
    """
    card = folder.card()
    table = catalogs.load_table(ledger.catalog, ledger.identifier)
    if card.table_uuid != str(table.metadata.table_uuid):
        raise NotPossible(f"{folder.store.url} belongs to table {card.table_uuid}, not to {table.metadata.table_uuid}")
    if _readable(table.metadata.properties.get(marks_format.PROPERTY)) is not None:
        raise NotPossible(f"{ledger.identifier} has its marks")
    for marks, where in _copies(table, folder):
        if marks.folder == card.folder and _is_last(table, marks):
            return View(table, marks), where
    raise NotPossible(f"no copy of the marks of {ledger.identifier} is as new as its last commit", hint=_BY_HAND)


def restore(ledger: Ledger, folder: Folder, view: View) -> View:
    """
    Puts them back in one guarded commit with an empty snapshot. Raises Retry after another commit.

    Pending rewrites are rejected first: a crash after that leaves rewrites that are made anew.
    """
    withdraw(folder, RewriteUnfit("the table's marks were restored after it was made"), ledger.clock())
    return MarksPublisher(ledger, folder).record(view, view.marks, "restore-marks")


def _copies(table: Table, folder: Folder) -> Iterator[tuple[Marks, str]]:
    copy = folder.marks()
    if copy is not None and copy.table_uuid == str(table.metadata.table_uuid):
        yield copy.marks, "marks.json"
    for metadata in older(table):
        marks = _readable(metadata.properties.get(marks_format.PROPERTY))
        if marks is not None:
            yield marks, f"a metadata file of {metadata.last_updated_ms} ms"


def _readable(text: str | None) -> Marks | None:
    try:
        return None if text is None else marks_json.loads(text)
    except MarksLost:
        return None


def _is_last(table: Table, marks: Marks) -> bool:
    """Whether the snapshot these marks came with is on `main`, and no later one there is ours."""
    if marks.snapshot is not None and not descends(table, marks.snapshot):
        return False
    for snapshot in ancestors(table.metadata):
        if snapshot.snapshot_id == marks.snapshot:
            return True
        if is_ours(snapshot):
            return False
    return True
