"""
Which live files become few: pure, from their sizes, partitions and sequence numbers.

1. Files of one partition of one spec, and of one span of retention (`lifetime`), are a *lot*; no rewrite crosses lots.
2. In a lot, files of about one size are a *tier*: from one power of the fan-in to the next. A tier of 16 files is
   rewritten, oldest first; earlier when its files fill the target. Its new file is of the next tier, so a
   row is rewritten once a tier: four times on the way from 14 KiB to 256 MiB.
3. A lot that is quiet is rewritten a last time, across its tiers.
4. Files of half the target or more stay as they are.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bookkeeper.contract.rewrite import ReplacedFile, comparable
from bookkeeper.format.entries import DataFile
from reaper.compactor.group import Group

#: of one rewrite: 1,000 entries are about 200 KiB, and a bookkeeper checks them in about 15 ms
MOST_FILES = 1000
#: statistics of replaced files are not read
_NONE: Mapping[int, Any] = {}


class LiveFile(NamedTuple):
    """A live data file, as the table's entry describes it; `newest` is the retention column's upper bound."""

    path: str
    file_format: str
    spec_id: int
    partition: tuple[Any, ...]
    record_count: int
    size_bytes: int
    sequence_number: int
    file_sequence_number: int
    sort_order_id: int | None = None
    newest: int | None = None

    def replaced(self) -> ReplacedFile:
        """The file as a rewrite names it."""
        none = _NONE
        file = DataFile(
            self.path, self.file_format, self.partition, self.record_count, self.size_bytes, none, none, none, none,
            none, none, None, self.sort_order_id,
        )  # fmt: skip
        return ReplacedFile(file, self.sequence_number, self.file_sequence_number)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes of a rewritten file, and how many files of a tier become one."""

    target: int
    fan_in: int = 16
    most_files: int = MOST_FILES

    def is_small(self, file: LiveFile) -> bool:
        """Whether a file is small enough to be rewritten."""
        return 2 * file.size_bytes < self.target

    def tier(self, size: int) -> int:
        """The power of the fan-in that a size reaches."""
        return int(math.log(max(size, 1), self.fan_in))


class Candidate(NamedTuple):
    """Files to become one, oldest first, and why now."""

    files: Sequence[LiveFile]
    reason: str
    last: bool = False

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum(file.size_bytes for file in self.files)

    def group(self) -> Group:
        """The group that the worker rewrites."""
        first = self.files[0]
        return Group(
            first.spec_id, first.partition, tuple(file.replaced() for file in self.files), self.reason, self.last
        )


def choose(
    files: Iterable[LiveFile],
    limits: Limits,
    is_quiet: Callable[[Sequence[LiveFile]], bool],
    span: Callable[[LiveFile], Hashable] = lambda _: None,
) -> list[Candidate]:
    """
    What to rewrite now, first what saves most files for its bytes.

    `is_quiet` says of a lot's files, oldest first, whether there will be no more soon; it is asked only where a last
    rewrite would have something to do. `span` is the part of retention's time that a file belongs to.
    """
    lots: dict[Hashable, list[LiveFile]] = defaultdict(list)
    for file in files:
        if limits.is_small(file):
            lots[file.spec_id, partition_key(file.partition), span(file)].append(file)
    found = list[Candidate]()
    for lot in lots.values():
        if len(lot) > 1:
            lot.sort(key=_age)
            found += _in_lot(lot, limits, is_quiet)
    return sorted(found, key=lambda item: item.bytes / len(item.files))


def partition_key(values: tuple[Any, ...]) -> Hashable:
    """
    What two tuples of one spec have in common when they are one partition.
    """
    return tuple(map(comparable, values)) if float in map(type, values) else values


def _age(file: LiveFile) -> tuple[int, str]:
    return file.sequence_number, file.path


def _in_lot(
    lot: Sequence[LiveFile], limits: Limits, is_quiet: Callable[[Sequence[LiveFile]], bool]
) -> Iterable[Candidate]:
    last = list(_last(_worth_joining(lot, limits), limits))
    return last if last and is_quiet(lot) else _tiers(lot, limits)


def _tiers(lot: Iterable[LiveFile], limits: Limits) -> Iterator[Candidate]:
    tiers: dict[int, list[LiveFile]] = defaultdict(list)
    for file in lot:
        tiers[limits.tier(file.size_bytes)].append(file)
    for files in tiers.values():
        for part, full in _parts(files, limits):
            if len(part) >= limits.fan_in:
                yield Candidate(part, f"{len(part)} files of one size")
            elif full:
                yield Candidate(part, "files of one size reach the target")


def _last(lot: Iterable[LiveFile], limits: Limits) -> Iterator[Candidate]:
    for part, _ in _parts(lot, limits):
        if len(part) > 1:
            yield Candidate(part, "the partition is quiet", True)


def _worth_joining(lot: Sequence[LiveFile], limits: Limits) -> Sequence[LiveFile]:
    """
    Without files that are more than the fan-in times as large as all smaller ones together.

    A late row would else cost a rewrite of its whole partition, every hour.
    """
    by_size = sorted(lot, key=lambda file: file.size_bytes)
    below, kept = 0, 1
    for index, file in enumerate(by_size):
        if index and file.size_bytes > limits.fan_in * below:
            break
        below, kept = below + file.size_bytes, index + 1
    return lot if kept == len(lot) else sorted(by_size[:kept], key=_age)


def _parts(files: Iterable[LiveFile], limits: Limits) -> Iterator[tuple[list[LiveFile], bool]]:
    """
    Consecutive files that come to the target together at most, and whether the next one does not fit.

    What is full is more than half the target, as all files are small: so its new file is left alone from then on.
    """
    part, size = list[LiveFile](), 0
    for file in files:
        if part and (size + file.size_bytes > limits.target or len(part) == limits.most_files):
            yield part, True
            part, size = [], 0
        part.append(file)
        size += file.size_bytes
    if part:
        yield part, False
