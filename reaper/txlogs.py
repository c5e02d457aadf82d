"""
Which files the txlog folder still names: nothing that a pending or rejected txlog names is ever deleted.
"""

from collections.abc import Iterator

from bookkeeper.core import errors
from bookkeeper.core.folder import PENDING, REASON, REJECTED, SUFFIX
from bookkeeper.core.local_store import TEMPORARY
from bookkeeper.core.store import Store
from bookkeeper.core.txlog import PREFIX, VERSION
from bookkeeper.format import avro, manifest
from reaper.reading import spelled

#: a txlog rejected as too large may come back under a higher limit, so the limit is no reason not to look
MOST_BYTES = 2**30
AT_ONCE = 64


def named(store: Store) -> set[str]:
    """
    Every data file named in pending/ or rejected/.

    Raises Retry or NewerVersion when a txlog cannot be read: nobody knows what it names. The caller loads the
    table after this, for what leaves the folder meanwhile is in the table.
    """
    # pending/ first: what is rejected meanwhile is in rejected/ before it leaves pending/.
    return {path for place in (PENDING, REJECTED) for path in _named_in(store, place)}


def _named_in(store: Store, place: str) -> Iterator[str]:
    keys = [item.key for item in store.list(place) if _is_txlog(item.key)]
    for start in range(0, len(keys), AT_ONCE):
        for key, data in store.read_many(keys[start : start + AT_ONCE]).items():
            if isinstance(data, errors.StorageUnavailable):
                raise data
            if not isinstance(data, errors.Missing):
                yield from _paths(key, data, place)


def _is_txlog(key: str) -> bool:
    # Also misnamed ones, and a second one that was rejected under the same name.
    return SUFFIX in key and not key.endswith((REASON, TEMPORARY))


def _paths(key: str, data: bytes, place: str) -> set[str]:
    try:
        header = avro.read_header(data)
        decoded = manifest.decode(data, MOST_BYTES, header=header)
    except errors.TxlogCorrupt as exc:
        if place == REJECTED:
            # Refused for what its bytes are: no replay can ever bring its files into the table.
            return set()
        hint = "The bookkeeper rejects it at its next tick; until then nothing is deleted."
        raise errors.Retry(f"{key} cannot be read: {exc}", hint=hint) from exc
    except errors.TxlogTooLarge as exc:
        hint = "Delete it if it is not to be replayed; until then nothing is deleted."
        raise errors.Retry(f"{key} cannot be read: {exc}", hint=hint) from exc
    version = header.meta.get(f"{PREFIX}version", b"")
    if version.isdigit() and int(version) > VERSION:
        raise errors.NewerVersion(
            f"{key} has version {int(version)}: who knows what it names", hint="Upgrade the reaper."
        )
    return {spelled(entry.data_file.path) for entry in decoded.entries}
