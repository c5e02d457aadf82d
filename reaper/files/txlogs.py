"""
The data files and delete files that the txlog folder still names: none that a pending or rejected txlog or a pending
rewrite names is ever deleted.

A txlog is read within the bookkeeper's own bounds and the largest possible max-txlog-bytes: one that was rejected under
a lower limit can be replayed under a higher one. A txlog that no bookkeeper can ever take names nothing.
"""

from collections.abc import Iterator

from bookkeeper import errors
from bookkeeper.config.settings import MOST_TXLOG_BYTES
from bookkeeper.contract import rewrite
from bookkeeper.contract.pending_rewrites import SUFFIX as REWRITE_SUFFIX
from bookkeeper.contract.rewrite import REWRITES
from bookkeeper.contract.txlog import MOST_ENTRIES, PREFIX, VERSION
from bookkeeper.contract.txlog_folder import PENDING, REASON, REJECTED, SUFFIX
from bookkeeper.format import avro
from bookkeeper.format.locations import locations
from bookkeeper.stores.disk import TEMPORARY
from bookkeeper.stores.store import Store
from bookkeeper.stores.together import in_parts
from reaper.files.manifest_reader import normalize


def named(store: Store) -> set[str]:
    """
    Every data file and delete file named in pending/ or rejected/, or by a rewrite.

    Raises Retry or NewerVersion when a txlog cannot be read, because what it names is unknown then. Folder first,
    table last: the caller loads the table after this, so what leaves the folder meanwhile is in the table. What a
    rejected rewrite made is in the table, or never will be.
    """
    # pending/ first: a txlog that is rejected meanwhile is in rejected/ before it leaves pending/.
    places = ((REWRITES, REWRITE_SUFFIX), (PENDING, SUFFIX), (REJECTED, SUFFIX))
    return {path for folder, suffix in places for path in _named_in(store, folder, suffix)}


def _named_in(store: Store, folder: str, suffix: str) -> Iterator[str]:
    txlogs = (item for item in store.list(folder) if _may_name(folder, suffix, item.key))
    for part in in_parts((item.key, item.size) for item in txlogs if item.size <= MOST_TXLOG_BYTES):
        for key, read in store.read_many([*part], part).items():
            if isinstance(read, errors.StorageUnavailable):
                raise read
            data = _read_again(store, key) if isinstance(read, errors.TooLarge) else read
            if isinstance(data, bytes):
                yield from _paths(key, data, folder)


def _may_name(folder: str, suffix: str, key: str) -> bool:
    if folder == REWRITES:
        # As the bookkeeper lists them: another object is never committed, and never rejected, so it would stay.
        return key.endswith(suffix)
    # Also misnamed txlogs, and a second one that was rejected under the same name.
    return suffix in key and not key.endswith((REASON, TEMPORARY))


def _read_again(store: Store, key: str) -> bytes | None:
    """A txlog that has grown since it was listed, as it is now; None when no txlog can be so large."""
    try:
        return store.read(key, MOST_TXLOG_BYTES)
    except (errors.Missing, errors.Unfit):
        return None


def _paths(key: str, data: bytes, folder: str) -> set[str]:
    try:
        header = avro.read_header(data)
        # Before anything else is read: the entries of a newer version may have another form.
        version = header.meta.get(f"{PREFIX}version", b"")
        if version.isdigit() and int(version[:20]) > (rewrite.VERSION if folder == REWRITES else VERSION):
            message = f"{key} has version {int(version[:20])}: what it names is not known"
            raise errors.NewerVersion(message, hint="Upgrade the reaper.")
        found = {normalize(path) for path in locations(data, header, MOST_TXLOG_BYTES, MOST_ENTRIES)}
        deletes = header.meta.get(f"{PREFIX}deletes")
        if deletes is not None:
            entries = locations(deletes, avro.read_header(deletes), MOST_TXLOG_BYTES, MOST_ENTRIES)
            found |= {normalize(path) for path in entries}
        return found
    except errors.TxlogTooLarge:
        # No bookkeeper takes it, whichever limit is set.
        return set()
    except errors.TxlogCorrupt as exc:
        if folder == REJECTED:
            # Rejected for its bytes: no replay can ever bring its files into the table.
            return set()
        hint = "The bookkeeper rejects it at its next tick; until then nothing is deleted."
        raise errors.Retry(f"{key} cannot be read: {exc}", hint=hint) from exc
