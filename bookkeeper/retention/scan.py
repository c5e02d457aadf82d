"""
Finds the files that a rule drops; reads only blocks of manifests that can hold one.
"""

from collections.abc import Callable

from pyiceberg.manifest import ManifestContent, ManifestFile

from bookkeeper.format.skim import EntrySummary
from bookkeeper.ledger.block_cache import MOST_RANGES, Range
from bookkeeper.ledger.blocks import ManifestDelete, open_manifest, select_live
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.merge import live_file_count
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

    If the cache has a manifest's range, it is read when the range `may_drop` a file; else when the rule `reaches` it.
    """
    cache, manifests = ledger.use_column(column), ledger.manifests(view)
    cache.forget_unlisted(manifest.manifest_path for manifest in manifests)
    found = []
    for manifest in manifests:
        known = cache.manifest_range(manifest.manifest_path)
        wanted = reaches(manifest) if known is None else may_drop(known)
        header = ledger.header_for(view, manifest) if wanted and manifest.content == ManifestContent.DATA else None
        if header is None:
            continue
        blocks = open_manifest(ledger.metadata_store(view), manifest, header, cache, may_drop)
        deleted = select_live(blocks, drops)
        if any(deleted):
            found.append(ManifestDelete(blocks, header, deleted))
    return found


def warm_cache(ledger: Ledger, view: View, column: int | None, reaches: Reaches, most: int) -> bool:
    """
    Reads manifests that `find` would have to read whole, until about `most` entries were read; True when none is left.
    """
    cache, manifests = ledger.use_column(column), ledger.manifests(view)
    if len(manifests) > MOST_RANGES:  # more than the cache holds: that would never end
        return True
    for manifest in manifests:
        known = manifest.content != ManifestContent.DATA or cache.manifest_range(manifest.manifest_path) is not None
        header = ledger.header_for(view, manifest) if not known and reaches(manifest) else None
        if header is None:
            continue
        if most <= 0:
            return False
        opened = open_manifest(ledger.metadata_store(view), manifest, header, cache, lambda _: False)
        select_live(opened, lambda *_: False)
        most -= live_file_count(manifest)
    return True
