"""
Data files and delete files that snapshots of `main` took out. Their rows may be in others now: a file that is not live
is no proof that its rows never came in.
"""

from pyiceberg.manifest import ManifestFile

from bookkeeper.catalogs import open as catalogs
from bookkeeper.core.history import ancestors
from bookkeeper.core.rewrite import file_key
from bookkeeper.format.records import DELETED
from bookkeeper.ledger import contents
from bookkeeper.ledger.blocks import inherited_prefix
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View


def removed_files(ledger: Ledger, view: View) -> dict[str, int]:
    """
    The files that kept snapshots of `main` removed, by `file_key`, each with the id of the newest such snapshot.

    Reads the manifest list of every kept snapshot, so only a person should ask. What expired snapshots removed is not
    known any more. Raises Retry, and Reject for a manifest that does not decode.
    """
    store, found = ledger.metadata_store(view), dict[str, int]()
    for snapshot in ancestors(view.metadata):
        with catalogs.asked(f"read the manifest list of snapshot {snapshot.snapshot_id}"):
            listed = contents.read_list(store, view.table, snapshot)
        for manifest in listed:
            if manifest.added_snapshot_id == snapshot.snapshot_id and _may_remove(manifest):
                rows = contents.read_manifest(store, manifest).rows
                gone = (row.path for row in rows if inherited_prefix(row, manifest).status == DELETED)
                for path in gone:
                    found.setdefault(file_key(path), snapshot.snapshot_id)
    return found


def _may_remove(manifest: ManifestFile) -> bool:
    return manifest.deleted_files_count != 0
