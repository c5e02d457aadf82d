"""
The order of pending txlogs, and how many of them one tick takes up: pure, from names, sizes and times of a listing.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from bookkeeper.core.folder import Found
from bookkeeper.core.marks import MOST_HOLES, NO_MARK, Marks
from bookkeeper.core.names import IncarnationKey, TxlogName

READ_BYTES = 2**28


@dataclass(frozen=True, slots=True)
class Limits:
    """At most this much per commit, `reads` in bytes of txlogs; one txlog is always let in, however large."""

    files: int
    bytes: int
    txlogs: int
    reads: int = READ_BYTES


def in_order(found: Sequence[Found]) -> list[Found]:
    """
    Pending txlogs, oldest first; each incarnation in its own order, whatever times the storage gave them.
    """
    latest: dict[IncarnationKey, Found] = {}
    keyed = []
    for item in sorted(found):
        key = item.name.incarnation_key
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


def gaps(names: Sequence[TxlogName], marks: Marks) -> list[TxlogName]:
    """
    Sequences that are neither in nor listed though later ones are. Look for them by name: a listing is no snapshot.
    """
    missing: list[TxlogName] = []
    before: TxlogName | None = None
    for name in sorted(names):
        if before is None or before.incarnation_key != name.incarnation_key:
            before = name.at((marks.mark(name) or NO_MARK).last)
        first = max(before.sequence + 1, name.sequence - MOST_HOLES - 1)
        missing += [name.at(number) for number in range(first, name.sequence)]
        before = name
    return missing


def writers_left(found: Sequence[Found], todo: Sequence[TxlogName]) -> Set[str]:
    """
    Writers of pending txlogs that this tick does not read: among them may be what another one continues from.
    """
    read = frozenset(todo)
    return frozenset(item.name.writer for item in found if item.name not in read)
