"""
Rewrites as a person asks for them: what one says, and whether the table takes it. Reads only.
"""

from collections.abc import Iterator
from datetime import datetime

from bookkeeper.contract import pending_rewrites
from bookkeeper.contract.rewrite import Rewrite
from bookkeeper.contract.tray import FoundObject
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import BookkeeperError, Missing
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.stores.store import Store
from bookkeeper.tick.check_rewrites import check_new_files, check_rewrites


def read_pending(folder: Folder, most_bytes: int) -> Iterator[tuple[FoundObject, Rewrite | BookkeeperError]]:
    """
    Every pending rewrite, oldest first, or why it cannot be read; one at a time, since each may be large.
    """
    for item in pending_rewrites.pending_rewrites(folder):
        try:
            yield item, pending_rewrites.read(folder, item.name, most_bytes)
        except Missing:
            continue  # settled since the listing
        except BookkeeperError as error:
            yield item, error


IN_TABLE, FITS = "in the table already", "fits the table"


def verdict(
    ledger: Ledger, view: View, store: Store, rewrite: Rewrite, written_after: datetime
) -> BookkeeperError | str:
    """
    What the bookkeeper makes of a rewrite that was published before this view was loaded: IN_TABLE, FITS, or why not.

    Raises Retry.
    """
    checked = check_rewrites(ledger, view, [rewrite])
    if checked.in_table:
        return IN_TABLE
    unfit = check_new_files([rewrite], lambda: store, written_after)
    return checked.rejected.get(rewrite.id) or unfit.get(rewrite.id) or FITS
