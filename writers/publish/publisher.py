"""
Publishes the txlogs of one run, in sequence: n+1 only after n is confirmed, every retry the same bytes.

A run with positions continues from the end of its writer's chain: the committed position and the pending txlogs
behind it.
"""

import logging
from functools import partial

from bookkeeper.core import txlog
from bookkeeper.core.card import Card
from bookkeeper.core.folder import Folder
from bookkeeper.core.names import TxlogName
from bookkeeper.core.txlog import Txlog
from bookkeeper.errors import (
    AlreadyExists,
    BookkeeperError,
    Fenced,
    Missing,
    StorageUnavailable,
    Unfit,
    UnknownOutcome,
)
from bookkeeper.format.entries import DataFile
from writers.files.write_spec import WriteSpec
from writers.timing import Wait, retry

log = logging.getLogger(__name__)

_MOST_TXLOG_BYTES = 2**28


class Publisher:
    """
    Holds the run's sequence and its chain of positions; after an unknown outcome it publishes nothing more.
    """

    def __init__(self, folder: Folder, writer: str, incarnation: str, position: bytes | None, wait: Wait) -> None:
        self.position = position
        #: the txlog whose publish has an unknown outcome
        self.unknown: TxlogName | None = None
        self._folder, self._wait = folder, wait
        self._last = TxlogName(writer, incarnation, 0)

    @property
    def sequence(self) -> int:
        """The sequence of the next txlog."""
        return self._last.sequence + 1

    def check(self) -> None:
        """Raises UnknownOutcome when nothing more may be published."""
        if self.unknown is not None:
            raise UnknownOutcome(f"it is not known whether {self.unknown} was published")

    def publish(self, spec: WriteSpec, files: tuple[DataFile, ...], position: bytes | None, now_ms: int) -> TxlogName:
        """
        Publish one txlog of `files`; durable when it returns. Raises Fenced, UnknownOutcome.
        """
        self.check()
        name = self._last.at(self.sequence)
        previous = None if position is None else self.position
        envelope = txlog.Envelope(name, spec.card.table_uuid, now_ms, position, previous)
        data = txlog.encode(envelope, spec.schema, spec.card.spec, files)
        # Unknown from before the create is sent until its answer is here, whatever ends this call in between.
        self.unknown = name
        try:
            retry(partial(self._folder.publish, name, data), self._wait)
        except AlreadyExists as exc:
            raise Fenced(f"another run published {name}") from exc
        except BookkeeperError as exc:
            raise UnknownOutcome(f"{name}: {exc}") from exc
        self.unknown, self._last = None, name
        self.position = self.position if position is None else position
        return name


def resume_position(folder: Folder, card: Card, writer: str) -> bytes | None:
    """
    The position that a new run of `writer` continues from; raises StorageUnavailable.

    Pending txlogs are listed and read first, marks.json second: a txlog that is committed and deleted in between is
    then in the marks, never in neither.
    """
    left = _pending(folder, card, writer)
    copy, position = folder.marks(), None
    if copy is not None and copy.table_uuid == card.table_uuid:
        left = [item for item in left if not copy.marks.is_in(item.name)]
        position = copy.marks.writer(writer).position
    while following := next((item for item in left if item.previous_position == position), None):
        left.remove(following)
        position = following.position
    return position


def _pending(folder: Folder, card: Card, writer: str) -> list[Txlog]:
    """The pending txlogs of `writer` that have a position and can be read."""
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
            decoded.append(txlog.decode(name, data, _MOST_TXLOG_BYTES))
        except BookkeeperError as exc:
            log.warning("pending txlog not readable", extra={"action": "skip", "txlog": str(name), "cause": str(exc)})
    return [item for item in decoded if item.table_uuid == card.table_uuid and item.position is not None]
