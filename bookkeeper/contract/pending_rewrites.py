"""
The part of the table's folder that holds rewrites: rewrites/, where compactors publish, and rejected/.
"""

from datetime import datetime

from bookkeeper.config.settings import MOST_TXLOG_BYTES
from bookkeeper.contract.rewrite import REWRITES, Rewrite, decode, parse_key
from bookkeeper.contract.tray import FoundObject, Tray, bytes_of
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import BookkeeperError, RewriteCorrupt, Unfit

SUFFIX = ".avro"


def is_rewrite(name: str) -> bool:
    """
    Whether this is the name of a rewrite.
    """
    try:
        parse_key(name)
    except RewriteCorrupt:
        return False
    return True


TRAY = Tray(REWRITES, SUFFIX, MOST_TXLOG_BYTES, is_rewrite)


def publish(folder: Folder, rewrite_id: str, data: bytes) -> None:
    """
    Makes a rewrite visible, once: the compactor's last step, after every new file is durable.

    Raises AlreadyExists when other bytes are there, and StorageUnavailable.
    """
    TRAY.publish(folder, f"{rewrite_id}{SUFFIX}", data)


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


def rewrite_in(name: str, answer: bytes | BookkeeperError, most_bytes: int) -> Rewrite:
    """
    The rewrite of this name in what was read; raises as `read`.
    """
    return decode(parse_key(name), bytes_of(answer, RewriteCorrupt), most_bytes)


def pending_rewrites(folder: Folder) -> list[FoundObject]:
    """
    What one listing of rewrites/ shows, oldest first; misnamed ones too. Raises StorageUnavailable.
    """
    return TRAY.pending(folder)


def rejected_rewrites(folder: Folder) -> list[FoundObject]:
    """
    Rejected rewrites, oldest first. Raises StorageUnavailable.
    """
    return TRAY.rejected(folder)


def reject(folder: Folder, name: str, why: BookkeeperError, now: datetime) -> None:
    """
    Moves a rewrite to rejected/ with its reason. Its new files stay: if it is in after all, the table needs them.

    One that another bookkeeper has settled meanwhile is left alone. Raises Retry.
    """
    TRAY.reject(folder, name, why, now)


def withdraw(folder: Folder, why: BookkeeperError, now: datetime) -> int:
    """
    Rejects every pending rewrite: what it was made from may not be the table's history any more. Returns how many.
    """
    pending = pending_rewrites(folder)
    for item in pending:
        reject(folder, item.name, why, now)
    return len(pending)
