"""
The sequence numbers of a commit with delete files: pure, and made anew for each attempt from the table it loaded.

A delete file removes rows with a smaller data sequence number only. So each step of each txlog has a number of its
own, and one commit takes as many numbers as its txlogs have spans:

1. Each txlog has a range, in the order of the batch, behind the table's last number. An entry has the number at its
   relative number in the range of its txlog; one of a txlog without deletes has the only number there.
2. The `delete` snapshot has the last number of all ranges, the `append` snapshot the one behind it: no entry is newer
   than the snapshot that adds it (Iceberg spec, "Sequence Number Inheritance").

Example: the table's last number is 7, the spans are 3, 1 and 2. The ranges are 8 to 10, 11, and 12 to 13; `delete` is
13, `append` 14.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import Txlog


@dataclass(frozen=True, slots=True)
class Numbers:
    """Where the range of each txlog begins, and the numbers of the two snapshots."""

    first: Mapping[TxlogName, int]
    delete: int
    append: int


def numbered(last: int, txlogs: Iterable[Txlog]) -> Numbers:
    """
    The numbers of txlogs in the order of their batch; `last` is the table's last sequence number.
    """
    first, following = dict[TxlogName, int](), last + 1
    for txlog in txlogs:
        first[txlog.name] = following
        following += txlog.span
    return Numbers(first, following - 1, following)


def committed_number(last: int, txlogs: Sequence[Txlog]) -> int:
    """
    The sequence number of the last snapshot that adds files of these txlogs; a merge may follow it.
    """
    if not has_deletes(txlogs):
        return last + 1
    numbers = numbered(last, txlogs)
    return numbers.append if has_data(txlogs) else numbers.delete


def has_deletes(txlogs: Iterable[Txlog]) -> bool:
    """
    Whether one of them names a delete file.
    """
    return any(txlog.deletes is not None for txlog in txlogs)


def has_data(txlogs: Iterable[Txlog]) -> bool:
    """
    Whether one of them names a data file.
    """
    return any(txlog.rows for txlog in txlogs)
