"""
Where a writer's positions end: the committed one, and what is pending behind it.
"""

import logging

from bookkeeper.core import txlog
from bookkeeper.core.card import Card
from bookkeeper.core.folder import Folder
from bookkeeper.core.txlog import Txlog
from bookkeeper.errors import BookkeeperError, Missing, StorageUnavailable, Unfit

log = logging.getLogger(__name__)

_MOST_TXLOG_BYTES = 2**28


def end_of_chain(folder: Folder, card: Card, writer: str) -> bytes | None:
    """
    The position that a new run of `writer` continues from; raises StorageUnavailable.

    Pending is listed and read first, marks.json second: what is committed and deleted in between is then in
    the marks, never in neither.
    """
    pending = _pending(folder, card, writer)
    copy = folder.marks()
    if copy is None or copy.table_uuid != card.table_uuid:
        return _followed(None, pending)
    waiting = [item for item in pending if not copy.marks.is_in(item.name)]
    return _followed(copy.marks.writer(writer).position, waiting)


def _pending(folder: Folder, card: Card, writer: str) -> list[Txlog]:
    sizes = {found.name: found.size for found in folder.pending() if found.name.writer == writer}
    decoded = []
    for name, data in folder.read([*sizes], sizes).items():
        if isinstance(data, Missing):
            continue
        if isinstance(data, StorageUnavailable):
            raise data
        try:
            if isinstance(data, Unfit):
                raise data
            item = txlog.decode(name, data, _MOST_TXLOG_BYTES)
        except BookkeeperError as exc:
            log.warning("pending txlog not readable", extra={"action": "skip", "txlog": str(name), "cause": str(exc)})
            continue
        decoded.append(item)
    return [item for item in decoded if item.table_uuid == card.table_uuid and item.position is not None]


def _followed(position: bytes | None, pending: list[Txlog]) -> bytes | None:
    left = list(pending)
    while True:
        link = next((item for item in left if item.previous_position == position), None)
        if link is None:
            return position
        left.remove(link)
        position = link.position
