"""
Which pending txlogs one tick takes up, and in which order: pure, from names, sizes and times of a listing.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from bookkeeper.contract.names import IncarnationKey, TxlogName
from bookkeeper.contract.txlog_folder import Found

READ_BYTES = 2**28


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one commit holds (`reads`: bytes of txlogs); one txlog always fits, however large."""

    files: int
    bytes: int
    txlogs: int
    reads: int = READ_BYTES


def in_order(found: Sequence[Found], by_writer: bool = False) -> list[Found]:
    """
    Pending txlogs, oldest first; each incarnation in its own order, whatever times the storage gave them.

    With `by_writer` also the incarnations of a writer.
    """
    latest: dict[IncarnationKey | str, Found] = {}
    keyed = []
    for item in sorted(found):
        key = item.name.writer if by_writer else item.name.incarnation_key
        before = latest.get(key)
        seen = item if before is None or item.modified >= before.modified else before
        latest[key] = seen
        keyed.append((seen.modified, item.name, item))
    return [item for _, _, item in sorted(keyed, key=lambda entry: entry[:2])]


def cut(found: Sequence[Found], limits: Limits) -> list[TxlogName]:
    """
    As many of them as one tick reads: a flood of large txlogs must not fill the memory. One is always read.
    """
    names, size = list[TxlogName](), 0
    for item in found[: limits.txlogs]:
        size += item.size
        if names and size > limits.reads:
            break
        names.append(item.name)
    return names


def writers_left(found: Sequence[Found], todo: Sequence[TxlogName]) -> Set[str]:
    """
    Writers with pending txlogs that this tick does not read: one of those may be the predecessor of a txlog that it
    reads.
    """
    read = frozenset(todo)
    return frozenset(item.name.writer for item in found if item.name not in read)
