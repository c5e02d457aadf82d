"""
Reads manifest lists and manifests of a table: what each snapshot lists, has, added and removed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from pyiceberg.manifest import ManifestContent
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.errors import Reject
from bookkeeper.format import manifest_list
from bookkeeper.format.entries import Entry
from bookkeeper.format.manifest_list import KnownLines, ListedManifest
from bookkeeper.format.records import ADDED, DELETED, EXISTING, Prefix, count_by_status
from bookkeeper.format.skim import EntrySummary
from bookkeeper.manifests import foreign
from bookkeeper.manifests.fetch import MOST_BYTES, Fetch
from bookkeeper.manifests.walk import (
    Heads,
    ReadBlock,
    Total,
    Walked,
    proven,
    read_blocks,
    read_in_turn,
    split,
    with_inherited,
)
from bookkeeper.stores.together import BYTES_AT_ONCE

T = TypeVar("T")

#: a manifest list of more bytes is read alone: 64 of them at once are no more than 64 MiB
LIST_BYTES = 2**20
#: lines that are remembered though the last list does not have them
_SLACK = 256


class Row(NamedTuple):
    """A record of a manifest, and what stands before its data file, inherited values filled in."""

    found: EntrySummary
    head: Prefix


class Manifests:
    """
    The manifest lists and manifests of a table, which `fetch` reads. Raises what it raises, and ManifestCorrupt.

    With `foreign`, manifests that our decoders do not take are read by pyiceberg; without, they raise ManifestCorrupt:
    for code that writes manifests anew. Lists are read in any form; `lines` of them may be shared by several readers.
    """

    def __init__(self, fetch: Fetch, *, foreign: bool, lines: KnownLines | None = None) -> None:
        self.fetch, self._foreign = fetch, foreign
        #: lists share nearly all their lines: kept once each, memory does not grow with their product
        self._lines: KnownLines = {} if lines is None else lines

    def lists(self, snapshots: Iterable[Snapshot]) -> list[tuple[ListedManifest, ...]]:
        """The manifests of each snapshot."""
        asked = [*snapshots]
        found = {location: listed for location, _, listed in self.sized_lists(asked)}
        return [found[snapshot.manifest_list] for snapshot in asked]

    def sized_lists(self, snapshots: Iterable[Snapshot]) -> Iterator[tuple[str, int, tuple[ListedManifest, ...]]]:
        """The location of the list of each snapshot, its bytes, and its manifests."""
        locations = [snapshot.manifest_list for snapshot in snapshots]
        most = dict.fromkeys(locations, LIST_BYTES if len(locations) > 1 else BYTES_AT_ONCE)
        for location, data in self.fetch.read(most):
            yield location, len(data), self._listed(location, data)

    def contents(self, manifests: Iterable[ListedManifest]) -> Iterator[tuple[ListedManifest, bytes]]:
        """Each manifest, and its bytes; one that is given twice, which doubles its files, is read once."""
        listed = dict[str, list[ListedManifest]]()
        for manifest in manifests:
            listed.setdefault(manifest.manifest_path, []).append(manifest)
        for path, data in self.fetch.read({path: same[0].manifest_length for path, same in listed.items()}):
            for manifest in listed[path]:
                yield manifest, data

    def each(
        self, manifests: Iterable[ListedManifest], read: Callable[[ListedManifest, Iterable[Walked]], T]
    ) -> Iterator[tuple[ListedManifest, T]]:
        """Each manifest, and what `read` returns for it and its blocks; see `walk.read_blocks`."""
        for manifest, data in self.contents(manifests):
            with self.fetch.reading(manifest.manifest_path):
                found = self._walked(manifest, data, partial(read, manifest))
            yield manifest, found

    def rows(self, manifests: Iterable[ListedManifest]) -> Iterator[tuple[ListedManifest, list[Row]]]:
        """Each manifest, and its records, also those that are DELETED."""
        return self.each(manifests, _rows)

    def live(
        self, manifests: Iterable[ListedManifest], content: ManifestContent = ManifestContent.DATA
    ) -> Iterator[tuple[ListedManifest, list[Row]]]:
        """Each manifest of this content, and the records of its live files."""
        for manifest, found in self.rows(with_live_files(manifests, content)):
            yield manifest, [row for row in found if row.head.status != DELETED]

    def added(self, snapshot: Snapshot) -> Iterator[tuple[ListedManifest, list[Row]]]:
        """The manifests of data files that a snapshot added, in the order of its list, and those files."""
        (listed,) = self.lists([snapshot])
        return self._by(snapshot, [item for item in listed if item.content == ManifestContent.DATA], ADDED)

    def removed(self, snapshot: Snapshot) -> Iterator[tuple[ListedManifest, list[Row]]]:
        """The manifests with files that a snapshot took out, data files and delete files, and those files."""
        (listed,) = self.lists([snapshot])
        return self._by(snapshot, [item for item in listed if item.deleted_files_count], DELETED)

    def blocks(
        self, manifests: Iterable[ListedManifest], content: ManifestContent
    ) -> Iterator[tuple[ListedManifest, Iterator[ReadBlock]]]:
        """
        Each manifest of this content with live files, and its blocks, one at a time: for entries in full.

        Raises ManifestCorrupt for one of another layout, always: pyiceberg leaves out a part of its entries.
        """
        for manifest, data in self.contents(with_live_files(manifests, content)):
            yield manifest, _read(manifest, data)

    def entries(
        self, manifests: Iterable[ListedManifest], content: ManifestContent
    ) -> Iterator[tuple[ListedManifest, Iterator[Entry]]]:
        """
        Each manifest of this content, and the entries of its live files, decoded in full, inherited values filled in.

        Raises as `blocks`.
        """
        for manifest, blocks in self.blocks(manifests, content):
            found = (entry for block in blocks for entry in proven(manifest.manifest_path, block.entries))
            yield manifest, (with_inherited(entry, manifest) for entry in found if entry.status != DELETED)

    def _by(
        self, snapshot: Snapshot, manifests: Iterable[ListedManifest], status: int
    ) -> Iterator[tuple[ListedManifest, list[Row]]]:
        own = [item for item in manifests if item.added_snapshot_id == snapshot.snapshot_id]
        for manifest, found in self.rows(own):
            yield manifest, [row for row in found if row.head.status == status]

    def _walked(self, manifest: ListedManifest, data: bytes, read: Callable[[Iterable[Walked]], T]) -> T:
        if self._foreign:
            return read_blocks(data, manifest, read)
        return proven(manifest.manifest_path, lambda: read(split(data)))

    def _listed(self, location: str, data: bytes) -> tuple[ListedManifest, ...]:
        with self.fetch.reading(location):
            try:
                found = manifest_list.decode(data, MOST_BYTES, self._lines)
            except Reject:
                theirs = foreign.read_list(data, location)
            else:
                self._forget(found)
                return tuple(found)
        return tuple(map(self._counted, theirs))

    def _forget(self, listed: Sequence[ListedManifest]) -> None:
        """Forgets, once enough of them have piled up, the lines that this list does not have."""
        if len(self._lines) > 2 * len(listed) + _SLACK:
            kept = {item.manifest_path.encode() for item in listed}
            for path in [path for path in [*self._lines] if path not in kept]:
                self._lines.pop(path, None)  # another thread may have done so

    def _counted(self, manifest: ListedManifest) -> ListedManifest:
        """The manifest with its counts: they are optional in lists of format v1, so then its records are counted."""
        if None not in manifest[_FIRST_COUNT : _FIRST_COUNT + 6]:
            return manifest
        ((_, rows),) = self.rows([manifest])
        counts = count_by_status((row.head.status, row.found.record_count) for row in rows)
        return manifest._replace(
            added_files_count=counts[ADDED][0],
            existing_files_count=counts[EXISTING][0],
            deleted_files_count=counts[DELETED][0],
            added_rows_count=counts[ADDED][1],
            existing_rows_count=counts[EXISTING][1],
            deleted_rows_count=counts[DELETED][1],
        )


#: of a ListedManifest: the first of its six counts
_FIRST_COUNT = ListedManifest._fields.index("added_files_count")


def with_live_files(manifests: Iterable[ListedManifest], content: ManifestContent) -> list[ListedManifest]:
    """
    The manifests of this content that have live files.
    """
    return [item for item in manifests if item.content == content and item.live_files]


def _rows(manifest: ListedManifest, blocks: Iterable[Walked]) -> list[Row]:
    heads, total = Heads(manifest), Total()
    return [Row(row, heads.of(row)) for block in blocks for row in total.with_block(block.rows())]


def _read(manifest: ListedManifest, data: bytes) -> Iterator[ReadBlock]:
    blocks = read_in_turn(data)
    while (block := proven(manifest.manifest_path, lambda: next(blocks, None))) is not None:
        yield block
