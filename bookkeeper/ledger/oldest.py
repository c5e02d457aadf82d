"""
Up to which commit the oldest files may go when a table has too many bytes; reads the oldest blocks of manifests only.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from pyiceberg.manifest import ManifestContent, ManifestFile

from bookkeeper.format.skim import EntrySummary
from bookkeeper.ledger.block_cache import BlockCache
from bookkeeper.ledger.blocks import Headers, Opened, StoredBlock, live, opened
from bookkeeper.stores.store import Store

NOTHING = -1
#: a manifest, or one of its blocks
Lot = ManifestFile | tuple[Opened, StoredBlock]


def oldest(store: Store, manifests: Sequence[ManifestFile], headers: Headers, memory: BlockCache, excess: int) -> int:
    """
    The newest sequence number for which all live files up to it come to at most `excess` bytes, or NOTHING.

    So what stays is never less than what was asked to be kept; the files of one commit go together.
    """
    known: Counter[int] = Counter()
    upto, lots = NOTHING, _OldestFirst(item for item in manifests if item.content == ManifestContent.DATA)
    for least, lot in lots:
        # Every file of an older commit than the oldest of what is left has been counted.
        upto, excess, full = _taken(known, least - 1, upto, excess)
        if full:
            return upto
        if isinstance(lot, ManifestFile):
            found = opened(store, lot, headers(lot), memory, lambda _: False)
            lots.add(found)
            for part in found.read:
                _count(known, part.rows, lot)
        else:
            _count(known, lot[0].rows(lot[1]), lot[0].manifest)
    return _taken(known, max(known, default=NOTHING), upto, excess)[0]


class _OldestFirst:
    """What may hold files, that which may hold the oldest first; a manifest is followed by its blocks."""

    def __init__(self, manifests: Iterable[ManifestFile]) -> None:
        self._order = count()
        self._heap: list[tuple[int, int, Lot]] = []
        for manifest in manifests:
            self._push(manifest.min_sequence_number or 0, manifest)

    def add(self, found: Opened) -> None:
        """The blocks of which only the range is known."""
        for part in found.known:
            self._push(part.stretch.range.least_sequence, (found, part))

    def _push(self, least: int, lot: Lot) -> None:
        heapq.heappush(self._heap, (least, next(self._order), lot))

    def __iter__(self) -> Iterator[tuple[int, Lot]]:
        while self._heap:
            least, _, lot = heapq.heappop(self._heap)
            yield least, lot


def _count(known: Counter[int], rows: Sequence[EntrySummary], manifest: ManifestFile) -> None:
    for _, row, sequence in live(rows, manifest):
        known[sequence] += row.size_bytes


def _taken(known: Counter[int], settled: int, upto: int, excess: int) -> tuple[int, int, bool]:
    for sequence in sorted(sequence for sequence in known if sequence <= settled):
        if known[sequence] > excess:
            return upto, excess, True
        excess -= known.pop(sequence)
        upto = sequence
    return upto, excess, False
