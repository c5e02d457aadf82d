"""
Publishes the txlogs of one run, in sequence: n+1 only after n is confirmed, every retry the same bytes.

A run with positions continues from the end of its writer's chain: the committed position and the pending txlogs
behind it.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from bookkeeper.config.settings import MOST_TXLOG_BYTES
from bookkeeper.contract import txlog
from bookkeeper.contract.card import Card
from bookkeeper.contract.names import TxlogName, started_ms, year_of
from bookkeeper.contract.offsets import Offsets, merged
from bookkeeper.contract.txlog import Txlog
from bookkeeper.contract.txlog_folder import PENDING, Folder
from bookkeeper.errors import (
    AlreadyExists,
    BookkeeperError,
    Fenced,
    Missing,
    NotPossible,
    StorageUnavailable,
    Unfit,
    UnknownOutcome,
)
from writers.files.rolling_writer import NamedFiles
from writers.files.write_spec import WriteSpec
from writers.publish.pending_monitor import sound
from writers.retries import retry
from writers.timing import Wait

log = logging.getLogger(__name__)

#: a run of a keyed table starts before this (2109), so that the order-column can number all its txlogs
LATEST_MS = 2**42 - 10**10
_LATE = "It is not this writer's. `bookkeeper forget` drops such marks of a writer; or use another writer name."


class Publisher:
    """
    Holds the run's sequence and its chain of positions; after an unknown outcome it publishes nothing more.
    """

    def __init__(self, folder: Folder, last: TxlogName, position: bytes | None, wait: Wait) -> None:
        """`last` is the run's last txlog, of sequence 0 before its first one."""
        self.position = position
        #: the txlog whose publish has an unknown outcome
        self.unknown: TxlogName | None = None
        self._folder, self._wait = folder, wait
        self._last = last

    @property
    def sequence(self) -> int:
        """The sequence of the next txlog."""
        return self._last.sequence + 1

    def check(self) -> None:
        """Raises UnknownOutcome when nothing more may be published."""
        if self.unknown is not None:
            raise UnknownOutcome(f"it is not known whether {self.unknown} was published")

    @property
    def next_name(self) -> TxlogName:
        """The name of the next txlog."""
        return self._last.at(self.sequence)

    def publish(
        self, spec: WriteSpec, files: NamedFiles, position: bytes | None, now_ms: int, offsets: Offsets
    ) -> TxlogName:
        """
        Publish one txlog of `files`; durable when it returns. Raises Fenced, UnknownOutcome.
        """
        self.check()
        name = self.next_name
        previous = None if position is None else self.position
        envelope = txlog.Envelope(name, spec.card.table_uuid, now_ms, position, previous, offsets)
        data = encoded(envelope, spec, files)
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


def encoded(envelope: txlog.Envelope, spec: WriteSpec, files: NamedFiles) -> bytes:
    """
    The txlog's bytes: an append has no steps.
    """
    if not files.deletes:
        return txlog.encode(envelope, spec.schema, spec.card.spec, files.data_files)
    assert spec.keyed is not None and spec.keyed.spec is not None
    span = 1 + max(item.number for item in files.deletes + files.data)
    return txlog.encode_steps(
        envelope, spec.schema, spec.card.spec, files.data, spec.keyed.spec, files.deletes, spec.keyed.key_ids, span
    )


class Resumed(NamedTuple):
    """
    What a new run of a writer continues from: a position, of a slot the offsets there, and on a keyed table the
    earliest start, in ms, that orders it behind every earlier run; and the pending txlogs that lead there.
    """

    position: bytes | None
    least_ms: int
    offsets: Offsets
    pending: Sequence[Txlog]


def resume(folder: Folder, card: Card, writer: str, now_ms: int) -> Resumed:
    """
    What earlier runs of `writer` left; raises StorageUnavailable, and NotPossible when no run can come behind them.

    Pending txlogs are listed and read first, marks.json second: a txlog that is committed and deleted in between is
    then in the marks, never in neither. Rejected ones, which a replay may bring back, are listed in between.
    """
    pending = [found for found in folder.pending() if found.name.writer == writer]
    sizes = {found.name: found.size for found in pending}
    left, names = with_positions(folder, card, sizes), sound(pending, now_ms)
    if card.keyed is not None:
        names += sound([found for found in folder.rejected() if found.name.writer == writer], now_ms)
    copy, position, pruned = folder.marks(), None, 0
    offsets: Offsets = {}
    if copy is not None and copy.table_uuid == card.table_uuid:
        left = [item for item in left if not copy.marks.is_in(item.name)]
        position, pruned = copy.marks.writer(writer).position, copy.marks.pruned_before_ms
        offsets = copy.marks.writer(writer).offsets
        names += [TxlogName(writer, key, mark.last) for key, mark in copy.marks.writer(writer).incarnations.items()]
    chain = list[Txlog]()
    while following := next((item for item in left if item.previous_position == position), None):
        left.remove(following)
        chain.append(following)
        position = following.position
        offsets = merged(offsets, following.offsets)
    return Resumed(position, 0 if card.keyed is None else max([pruned, *map(_behind, names)]), offsets, chain)


def _behind(name: TxlogName) -> int:
    """
    The least start of a run that comes behind a run with this txlog, even if one more of its txlogs arrives.

    A millisecond for each txlog, for the order-column: numbers of an earlier run are smaller, whatever the clocks say.
    """
    at = started_ms(name.incarnation) + name.sequence + 1
    if at >= LATEST_MS:
        raise NotPossible(f"{name} says that its run started in the year {year_of(at)}", hint=_LATE)
    return at


def with_positions(folder: Folder, card: Card, sizes: Mapping[TxlogName, int], place: str = PENDING) -> list[Txlog]:
    """Those of these txlogs, with their sizes, that have a position and can be read; raises StorageUnavailable."""
    decoded = []
    for name, data in folder.read([*sizes], sizes, place=place).items():
        if isinstance(data, Missing):
            continue
        if isinstance(data, StorageUnavailable):
            raise data
        try:
            if isinstance(data, Unfit):
                raise data
            decoded.append(txlog.decode(name, data, MOST_TXLOG_BYTES))
        except BookkeeperError as exc:
            log.warning("txlog not readable", extra={"action": "skip", "txlog": str(name), "cause": str(exc)})
    return [item for item in decoded if item.table_uuid == card.table_uuid and item.position is not None]
