"""
Finds whole files that a rule drops, reading only blocks of manifests that can hold one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import ManifestContent, ManifestFile

from bookkeeper.format.skim import EntrySummary
from bookkeeper.ledger.block_cache import BlockCache, Range, spanned, united
from bookkeeper.ledger.blocks import Headers, Opened, StoredBlock, live, opened
from bookkeeper.ledger.manifests import Header
from bookkeeper.ledger.merge import live_files
from bookkeeper.stores.store import Store

#: of a data file and its sequence number
Drops = Callable[[EntrySummary, int], bool]
Reaches = Callable[[ManifestFile], bool]


@dataclass(frozen=True, slots=True)
class ManifestDelete:
    """A manifest that loses files: its blocks, the header it is written anew with, and what goes of each block."""

    opened: Opened
    header: Header
    #: by place in its block
    gone: Sequence[dict[int, EntrySummary]]

    @property
    def manifest(self) -> ManifestFile:
        """As the table's head lists it."""
        return self.opened.manifest

    @property
    def dropped(self) -> list[EntrySummary]:
        """The records that go."""
        return [row for part in self.gone for row in part.values()]


def warm_cache(
    store: Store,
    manifests: Sequence[ManifestFile],
    headers: Headers,
    memory: BlockCache,
    most: int,
    reaches: Reaches = lambda _: True,
) -> bool:
    """
    Reads manifests whose range is not known, until about `most` entries were read; says whether all are known then.
    """
    for manifest in manifests:
        header = headers(manifest) if _unknown(manifest, memory) and reaches(manifest) else None
        if header is None:
            continue
        if most <= 0:
            return False
        found = opened(store, manifest, header, memory, lambda _: False)
        _sifted(found, lambda *_: False)
        most -= live_files(manifest)
    return True


def _unknown(manifest: ManifestFile, memory: BlockCache) -> bool:
    return manifest.content == ManifestContent.DATA and memory.range(manifest.manifest_path) is None


def find(
    store: Store,
    manifests: Sequence[ManifestFile],
    headers: Headers,
    may_drop: Callable[[Range], bool],
    drops: Drops,
    memory: BlockCache,
    reaches: Reaches = lambda _: True,
) -> list[ManifestDelete]:
    """
    Every manifest that loses files under `drops`; `headers` has None for those that cannot be written anew.

    One whose range is not known yet is read only if the rule `reaches` it, by what the manifest list says.
    """
    doomed = []
    for manifest in manifests:
        known = memory.range(manifest.manifest_path)
        hopeless = not reaches(manifest) if known is None else not may_drop(known)
        if manifest.content != ManifestContent.DATA or hopeless:
            continue
        header = headers(manifest)
        if header is not None:
            found = opened(store, manifest, header, memory, may_drop)
            gone = _sifted(found, drops)
            if any(gone):
                doomed.append(ManifestDelete(found, header, gone))
    return doomed


def _sifted(found: Opened, drops: Drops) -> list[dict[int, EntrySummary]]:
    """What goes of each block; remembers the manifest's range."""
    gone, spans = list[dict[int, EntrySummary]](), list[Range]()
    for part in found.parts:
        if isinstance(part, StoredBlock):
            gone.append({})
            spans.append(part.stretch.range)
            continue
        files = list(live(part.rows, found.manifest))
        gone.append({place: row for place, row, sequence in files if drops(row, sequence)})
        spans.append(spanned((row.upper, sequence) for _, row, sequence in files))
    found.memory.put(found.manifest.manifest_path, united(spans), [part.digest for part in found.known])
    return gone
