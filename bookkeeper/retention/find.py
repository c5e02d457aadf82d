"""
Finds the whole files that a rule drops, reading only blocks of manifests that can hold one.
"""

from collections.abc import Callable

from pyiceberg.manifest import ManifestContent, ManifestFile

from bookkeeper.format.skim import EntrySummary
from bookkeeper.ledger.block_cache import MOST_RANGES, Range, spanned, united
from bookkeeper.ledger.blocks import Opened, StoredBlock, live, opened
from bookkeeper.ledger.copy_entries import ManifestDelete
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.merge import live_files
from bookkeeper.ledger.view import View

#: whether a rule drops a data file, committed with this sequence number
Drops = Callable[[EntrySummary, int], bool]
#: whether a rule can drop a file of this manifest, by what the manifest list says of it
Reaches = Callable[[ManifestFile], bool]


def find(
    ledger: Ledger,
    view: View,
    column: int | None,
    may_drop: Callable[[Range], bool],
    drops: Drops,
    reaches: Reaches = lambda _: True,
) -> list[ManifestDelete]:
    """
    Every manifest of the head that loses files under `drops`; a manifest that cannot be written anew loses none.

    A manifest whose range is known is read if it `may_drop` a file, any other if the rule `reaches` it.
    """
    memory, manifests = ledger.use_column(column), ledger.manifests(view)
    memory.keep(manifest.manifest_path for manifest in manifests)
    found = []
    for manifest in manifests:
        known = memory.range(manifest.manifest_path)
        wanted = reaches(manifest) if known is None else may_drop(known)
        header = ledger.header_for(view, manifest) if wanted and manifest.content == ManifestContent.DATA else None
        if header is None:
            continue
        blocks = opened(ledger.metadata_store(view), manifest, header, memory, may_drop)
        gone = _dropped(blocks, drops)
        if any(gone):
            found.append(ManifestDelete(blocks, header, gone))
    return found


def warm_cache(ledger: Ledger, view: View, column: int | None, reaches: Reaches, most: int) -> bool:
    """
    Reads manifests that `find` would have to read whole, until about `most` entries were read; True when none is left.
    """
    memory, manifests = ledger.use_column(column), ledger.manifests(view)
    if len(manifests) > MOST_RANGES:  # more than the cache holds: that would never end
        return True
    for manifest in manifests:
        known = manifest.content != ManifestContent.DATA or memory.range(manifest.manifest_path) is not None
        header = ledger.header_for(view, manifest) if not known and reaches(manifest) else None
        if header is None:
            continue
        if most <= 0:
            return False
        _dropped(opened(ledger.metadata_store(view), manifest, header, memory, lambda _: False), lambda *_: False)
        most -= live_files(manifest)
    return True


def _dropped(manifest: Opened, drops: Drops) -> list[dict[int, EntrySummary]]:
    """What goes of each block, by place; the cache learns the range of the manifest."""
    gone, ranges = list[dict[int, EntrySummary]](), list[Range]()
    for part in manifest.parts:
        if isinstance(part, StoredBlock):
            gone.append({})
            ranges.append(part.stretch.range)
            continue
        files = list(live(part.rows, manifest.manifest))
        gone.append({place: row for place, row, sequence in files if drops(row, sequence)})
        ranges.append(spanned((row.upper, sequence) for _, row, sequence in files))
    manifest.memory.put(manifest.manifest.manifest_path, united(ranges), [part.digest for part in manifest.known])
    return gone
