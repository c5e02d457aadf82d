"""
Finds the files that a rule drops; reads only blocks of manifests that can hold one.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

from pyiceberg.manifest import ManifestContent

from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.skim import EntrySummary
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.live_files import selected_files
from bookkeeper.ledger.view import View
from bookkeeper.manifests.blocks import ManifestDelete
from bookkeeper.manifests.cache import MOST_MANIFESTS
from bookkeeper.manifests.reader import Manifests
from bookkeeper.manifests.stats import Range

#: whether a rule drops a data file, committed with this sequence number
Drops = Callable[[EntrySummary, int], bool]
#: whether a rule can drop a file of this manifest, by what the manifest list says of it
Reaches = Callable[[ListedManifest], bool]


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

    def is_read(manifest: ListedManifest) -> bool:
        known = cache.manifest(manifest.manifest_path)
        return reaches(manifest) if known is None else may_drop(known)

    data = [item for item in manifests if item.content == ManifestContent.DATA and is_read(item)]
    return [item for item in selected_files(ledger, view, data, may_drop, drops) if any(item.deleted)]


def warm_cache(ledger: Ledger, view: View, column: int | None, reaches: Reaches, most: int) -> bool:
    """
    Reads manifests that `find` would have to read whole, until about `most` entries were read; True when none is left.
    """
    cache, manifests = ledger.use_column(column), ledger.manifests(view)
    if len(manifests) > MOST_MANIFESTS:  # more than the cache holds: that would never end
        return True
    data = [item for item in manifests if item.content == ManifestContent.DATA]
    new = [item for item in data if cache.manifest(item.manifest_path) is None and reaches(item)]
    left = [item for item in new if ledger.header_for(view, item) is not None]
    now = _first(left, most)
    for _ in selected_files(ledger, view, now, lambda _: False, lambda *_: False):
        pass
    return len(now) == len(left)


def live_bytes(ledger: Ledger, view: View, most: int | None, sizes: dict[str, int]) -> int | None:
    """
    The bytes of all live files, by manifest in `sizes`; None where, after about `most` entries, some are left to read.
    """
    listed = {item.manifest_path: item for item in ledger.manifests(view) if item.live_files}
    for gone in sizes.keys() - listed.keys():
        del sizes[gone]
    new = [item for path, item in listed.items() if path not in sizes]
    now = new if most is None else _first(new, most)
    reader = Manifests(ledger.reader(view).fetch, foreign=True)  # none of these is written anew
    for content in ManifestContent:
        for manifest, rows in reader.live(now, content):
            sizes[manifest.manifest_path] = sum(row.found.size_bytes for row in rows)
    return sum(sizes.values()) if len(now) == len(new) else None


def _first(manifests: Sequence[ListedManifest], most: int) -> list[ListedManifest]:
    """As many of them, from the first, as have about `most` live files."""
    before = [0, *accumulate(item.live_files for item in manifests)]
    return [item for item, files in zip(manifests, before, strict=False) if files < most]
