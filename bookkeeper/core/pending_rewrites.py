"""
The part of the table's folder that holds rewrites: rewrites/, where compactors publish, and rejected/.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from bookkeeper.config.settings import MOST_TXLOG_BYTES
from bookkeeper.core.folder import REJECTED, Folder
from bookkeeper.core.rewrite import REWRITES, Rewrite, decode, key_of, parse_key
from bookkeeper.errors import BookkeeperError, Missing, RewriteCorrupt, Unfit
from bookkeeper.stores.store import create_once

SUFFIX = ".avro"


class FoundRewrite(NamedTuple):
    """A rewrite as a listing shows it: time of its creation (the store's clock, UTC), name below rewrites/, bytes."""

    modified: datetime
    name: str
    size: int


def publish(folder: Folder, rewrite_id: str, data: bytes) -> None:
    """
    Makes a rewrite visible, once: the compactor's last step, after every new file is durable.

    A put whose reply was lost and that is sent again finds its own bytes, or none: both are success. Raises
    AlreadyExists when other bytes are there.
    """
    create_once(folder.store, key_of(rewrite_id), data, consumed=True)


def read(folder: Folder, name: str, most_bytes: int, place: str = REWRITES) -> Rewrite:
    """
    The rewrite of this name, of at most so many bytes.

    Raises RewriteCorrupt, NewerVersion (hold it, do not reject it), Missing and StorageUnavailable.
    """
    rewrite_id = parse_key(name)
    try:
        return decode(rewrite_id, folder.store.read(f"{place}{name}", most_bytes), most_bytes)
    except Unfit as error:
        raise RewriteCorrupt(str(error)) from error


def pending_rewrites(folder: Folder) -> list[FoundRewrite]:
    """
    What one listing of rewrites/ shows, oldest first; misnamed ones too. Raises StorageUnavailable.
    """
    return _listed(folder, REWRITES)


def rejected_rewrites(folder: Folder) -> list[FoundRewrite]:
    """
    Rejected rewrites, oldest first. Raises StorageUnavailable.
    """
    return [item for item in _listed(folder, REJECTED) if is_rewrite(item.name)]


def _listed(folder: Folder, place: str) -> list[FoundRewrite]:
    # A local write that is unfinished ends otherwise.
    listed = (item for item in folder.store.list(place) if item.key.endswith(SUFFIX))
    return sorted(FoundRewrite(item.modified, item.key.removeprefix(place), item.size) for item in listed)


def is_rewrite(name: str) -> bool:
    """
    Whether this is the name of a rewrite.
    """
    try:
        parse_key(name)
    except RewriteCorrupt:
        return False
    return True


def settle(folder: Folder, names: Iterable[str]) -> int:
    """
    Deletes rewrites that are in the table; what a crash leaves is recognised by its new files.
    """
    return folder.store.delete_many([f"{REWRITES}{name}" for name in names])


def reject(folder: Folder, name: str, why: BookkeeperError, now: datetime) -> None:
    """
    Moves a rewrite to rejected/ with its reason. Its new files stay: if it is in after all, the table needs them.

    One that another bookkeeper has settled meanwhile is left alone. Raises Retry.
    """
    try:
        folder.reject(name, why, now, MOST_TXLOG_BYTES, REWRITES)
    except Missing:
        return


def withdraw(folder: Folder, why: BookkeeperError, now: datetime) -> int:
    """
    Rejects every pending rewrite: what it was made from may not be the table's history any more. Returns how many.
    """
    pending = pending_rewrites(folder)
    for item in pending:
        reject(folder, item.name, why, now)
    return len(pending)
