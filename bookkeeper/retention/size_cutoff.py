"""
Up to which commit the oldest files go when a table has too many bytes; reads the oldest blocks of manifests only.
"""

import heapq
from collections import Counter
from itertools import count

from pyiceberg.manifest import ManifestContent

from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.manifests.blocks import OpenManifest, UnreadBlock, open_manifest
from bookkeeper.manifests.walk import live_rows

NOTHING = -1


def size_cutoff(ledger: Ledger, view: View, column: int | None, excess: int) -> int:
    """
    The newest sequence number for which all live files up to it come to at most `excess` bytes, or NOTHING.

    So at least `keep-bytes` stay; the files of one commit go together.
    """
    cache, order = ledger.use_column(column), count()
    sizes, cutoff = Counter[int](), NOTHING
    # What may hold files, that which may hold the oldest first: manifests, and blocks of manifests that were opened.
    heap: list[tuple[int, int, ListedManifest | tuple[OpenManifest, UnreadBlock]]] = [
        (item.min_sequence_number, next(order), item)
        for item in ledger.manifests(view)
        if item.content == ManifestContent.DATA
    ]
    heapq.heapify(heap)
    while heap:
        least, _, lot = heapq.heappop(heap)
        # Every file of a commit older than the oldest of what is left has been counted.
        cutoff, excess, full = _taken(sizes, least - 1, cutoff, excess)
        if full:
            return cutoff
        if isinstance(lot, ListedManifest):
            ((manifest, data),) = ledger.reader(view).contents([lot])
            found = open_manifest(data, manifest, ledger.header_for(view, lot), cache, lambda _: False)
            for part in found.unread_blocks:
                heapq.heappush(heap, (part.stats.range.least_sequence, next(order), (found, part)))
            blocks = [part.entries for part in found.decoded_blocks]
        else:
            blocks, manifest = [lot[0].read(lot[1])], lot[0].manifest
        for rows in blocks:
            for _, row, sequence in live_rows(rows, manifest):
                sizes[sequence] += row.size_bytes
    return _taken(sizes, max(sizes, default=NOTHING), cutoff, excess)[0]


def _taken(sizes: Counter[int], counted_up_to: int, cutoff: int, excess: int) -> tuple[int, int, bool]:
    """Takes whole commits, oldest first, off the excess; the cutoff, what is left, and whether one did not fit."""
    for sequence in sorted(sequence for sequence in sizes if sequence <= counted_up_to):
        if sizes[sequence] > excess:
            return cutoff, excess, True
        excess -= sizes.pop(sequence)
        cutoff = sequence
    return cutoff, excess, False
