"""
Data files and delete files that snapshots of `main` took out. Their rows may be in others now: a file that is not live
is no proof that its rows never came in.
"""

from pyiceberg.table.snapshots import Snapshot

from bookkeeper.catalogs import commit as catalogs
from bookkeeper.contract.rewrite import file_key
from bookkeeper.errors import BookkeeperError, Missing
from bookkeeper.history.main_history import ancestors
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View


def removed_files(ledger: Ledger, view: View, expiring: bool = False) -> dict[str, int]:
    """
    The files that kept snapshots of `main` removed, by `file_key`, each with the id of the newest such snapshot.

    Reads the manifest list of every kept snapshot, so only a person should ask. What expired snapshots removed is not
    known any more; with `expiring`, neither is what one removed whose list or manifest is not there. Raises Retry,
    ManifestCorrupt.
    """
    found = dict[str, int]()
    for snapshot in ancestors(view.metadata):
        try:
            gone = _removed_by(ledger, view, snapshot)
        except BookkeeperError as error:
            if not (expiring and isinstance(error if isinstance(error, Missing) else error.__cause__, Missing)):
                raise
            continue
        for path in gone:
            found.setdefault(file_key(path), snapshot.snapshot_id)
    return found


def _removed_by(ledger: Ledger, view: View, snapshot: Snapshot) -> list[str]:
    with catalogs.asked(f"read the manifest list of snapshot {snapshot.snapshot_id} of {ledger.identifier}"):
        removed = ledger.reader(view).removed(snapshot)
    return [row.found.path for _, rows in removed for row in rows]
