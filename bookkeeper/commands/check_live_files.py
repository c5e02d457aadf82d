"""
Whether all files of the table are there: after a rollback, files that were compacted away may have been deleted.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from pyiceberg.manifest import ManifestContent

from bookkeeper.errors import Missing, NotPossible, PathRefused, Unfit
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.live_files import live_delete_files
from bookkeeper.ledger.view import View
from bookkeeper.stores.local import LINKED
from bookkeeper.stores.store import Store, key_in


def check_files(ledger: Ledger, view: View) -> None:
    """
    Looks up every live data and delete file. Raises NotPossible when one is not there, and Retry.
    """
    store = ledger.data_store(view)
    paths = [file.path for file in ledger.live_files(view)]
    if any(manifest.content == ManifestContent.DELETES for manifest in ledger.manifests(view)):
        paths += [file.key for file in live_delete_files(ledger, view)]
    missing = list[str]()
    for key, size in store.sizes([*_keys(store, paths)]).items():
        if isinstance(size, Missing):
            missing.append(key)
        elif isinstance(size, Unfit):
            raise NotPossible(str(size), hint=LINKED)
        elif isinstance(size, Exception):
            raise size
    if missing:
        log = view.metadata.metadata_log
        before = f" Before the rollback the table was {log[-1].metadata_file}." if log else ""
        raise NotPossible(
            f"{len(missing)} files of the table do not exist any more, {missing[0]} is one: they were deleted after "
            "compaction or retention had taken them out",
            hint=f"Put main back to a newer snapshot.{before}",
        )


def _keys(store: Store, paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        with suppress(PathRefused):  # another program's file, elsewhere or oddly named: it cannot be looked up
            yield key_in(store, path)
