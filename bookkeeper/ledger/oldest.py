"""
Up to which commit the oldest files may go when a table has too many bytes; decodes the oldest manifests only.
"""

from collections import Counter
from collections.abc import Sequence

from pyiceberg.manifest import ManifestContent, ManifestFile

from bookkeeper.core.store import Store
from bookkeeper.ledger.contents import read_manifest
from bookkeeper.ledger.parts import live

NOTHING = -1


def oldest(store: Store, manifests: Sequence[ManifestFile], excess: int) -> int:
    """
    The newest sequence number for which all live files up to it come to at most `excess` bytes, or NOTHING.

    So what stays is never less than what was asked to be kept; the files of one commit go together.
    """
    known: Counter[int] = Counter()
    upto = NOTHING
    data = [item for item in manifests if item.content == ManifestContent.DATA]
    for manifest in sorted(data, key=lambda item: item.min_sequence_number or 0):
        # Every file of an older commit than this manifest's oldest has been counted.
        settled = (manifest.min_sequence_number or 0) - 1
        upto, excess, full = _taken(known, settled, upto, excess)
        if full:
            return upto
        for _, row, sequence in live(read_manifest(store, manifest).rows, manifest):
            known[sequence] += row.size_bytes
    return _taken(known, max(known, default=NOTHING), upto, excess)[0]


def _taken(known: Counter[int], settled: int, upto: int, excess: int) -> tuple[int, int, bool]:
    for sequence in sorted(sequence for sequence in known if sequence <= settled):
        if known[sequence] > excess:
            return upto, excess, True
        excess -= known.pop(sequence)
        upto = sequence
    return upto, excess, False
