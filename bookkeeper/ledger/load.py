"""
Loading the table for its folder: the one place that decides whether table, marks and folder belong together.

Order matters: marks.json is written after the commit it was made for. So a table that is loaded after marks.json was
read knows that commit, or an older table was put in its place. Card and marks.json are read at once, and before the
table; the other way round a healthy table looks restored when another bookkeeper commits in between.
"""

from bookkeeper.catalogs.commit import load_table
from bookkeeper.contract.card import Card
from bookkeeper.contract.marks_json import MarksCopy
from bookkeeper.contract.txlog_folder import NO_CARD, Folder
from bookkeeper.errors import HistoryChanged, Missing, TableMissing, TableUnusable, WrongFolder
from bookkeeper.history import main_history as history
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View

_RESTORED = (
    "Was an old copy of the catalog put back? `bookkeeper recover-catalog` shows the newest metadata file, and points "
    "the catalog at it again. Only if there is none: bookkeeper accept-rollback gives those rows up."
)
_LOST = (
    "The txlog folder knows this table, its rows are there: `bookkeeper recover-catalog` shows what it would register "
    "again."
)


def load(
    ledger: Ledger, folder: Folder, accept_rollback: bool = False, known: View | None = None
) -> tuple[View, Card, MarksCopy | None]:
    """
    The table now, the folder's card, and the marks.json that was there before.

    The manifests that `known` holds are kept while `main` is the same snapshot; all else is of this load. Raises Retry,
    or Halt when they do not belong together; `accept_rollback` takes a table that went back as it is.
    """
    try:
        card, copy = folder.records()
    except Missing as exc:
        raise WrongFolder(f"{folder.store.url} has no card.json", hint=NO_CARD) from exc
    try:
        view = ledger.load(card.folder, accept_rollback).with_manifests_of(known)
    except TableMissing as error:
        error.hint = _LOST
        raise
    except TableUnusable as error:
        there = str(load_table(ledger.catalog, ledger.identifier).metadata.table_uuid)
        if card.table_uuid == there:
            raise
        # One that was made anew has no marks; that `init` sets it up as a queue is the last thing to advise.
        cause = f"{error}, and {folder.store.url} belongs to table {card.table_uuid}, not to this one, {there}"
        raise TableUnusable(cause, hint=WrongFolder.hint) from error
    if card.table_uuid != view.uuid:
        raise WrongFolder(f"{folder.store.url} belongs to table {card.table_uuid}, not to {view.uuid}")
    if is_older(view, copy) and not accept_rollback:
        assert copy is not None
        came_with = history.came_with(view.metadata, view.marks.snapshot)
        raise HistoryChanged(
            f"{ledger.identifier}: the table's last commit of ours has sequence number {came_with}, but "
            f"marks.json knows a later one, snapshot {copy.marks.snapshot} at {copy.sequence_number}",
            hint=_RESTORED,
        )
    return view, card, copy


def is_older(view: View, copy: MarksCopy | None) -> bool:
    """
    Whether marks.json is of a commit of ours that this table, loaded later, has never seen.
    """
    return history.is_older(view.metadata, view.marks.snapshot, copy)


def is_behind(view: View, copy: MarksCopy | None) -> bool:
    """
    Whether marks.json is of an earlier commit than the table: after a crash, or when an old copy was put back.
    """
    same = copy is not None and copy.table_uuid == view.uuid
    return same and copy is not None and copy.marks.snapshot != view.marks.snapshot and not is_older(view, copy)
