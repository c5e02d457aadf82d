"""
What the head holds of files that a rewrite names: live data files by location, and the delete files of the table.

Data manifests are read where they can hold one of the sequence numbers that are asked for, or a newer one than those
that the rewrite knew, and of those only the blocks that can. So the search costs what the replaced files cost and what
came since, not what the table does.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import NamedTuple

from pyiceberg.manifest import ManifestContent

from bookkeeper.contract.delete_scope import DeleteFile, Scope, delete_file, scopes_of
from bookkeeper.contract.rewrite import file_key
from bookkeeper.format.entries import Entry
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.skim import EntrySummary
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.manifests.blocks import ManifestDelete, open_manifest, select_live
from bookkeeper.manifests.header import Header, ManifestWriter
from bookkeeper.manifests.reader import with_live_files
from bookkeeper.manifests.stats import Range


def find_live(
    ledger: Ledger,
    view: View,
    sequences: Collection[int],
    since: int,
    wanted: Collection[str],
    content: ManifestContent = ManifestContent.DATA,
) -> list[ManifestDelete]:
    """
    The manifests of the head that list live files `wanted`, by `file_key`, with one of these data sequence numbers or
    one above `since`: data files, or delete files.

    A manifest that cannot be written anew, because a column of its spec is gone, is left out. Raises Retry, and
    ManifestCorrupt.
    """
    ordered, numbers, cache = sorted(sequences), frozenset(sequences), ledger.cache

    def may_hold(covered: Range) -> bool:
        return covered.greatest_sequence > since or covered.has_one_of(ordered)

    def is_wanted(row: EntrySummary, sequence: int) -> bool:
        return (sequence in numbers or sequence > since) and file_key(row.path) in wanted

    listed = with_live_files(ledger.manifests(view), content)
    manifests = [item for item in listed if may_hold(cache.manifest(item.manifest_path) or _stated_range(item))]
    return [item for item in selected_files(ledger, view, manifests, may_hold, is_wanted) if any(item.deleted)]


def selected_files(
    ledger: Ledger,
    view: View,
    manifests: Iterable[ListedManifest],
    may_hold: Callable[[Range], bool],
    wanted: Callable[[EntrySummary, int], bool],
) -> Iterator[ManifestDelete]:
    """
    The live files of each manifest that are `wanted`, by record and sequence number; of those that can be written anew.

    Only blocks are read that `may_hold` one, and those that the ledger's cache does not know: it knows them afterwards.
    Raises as `find_live`.
    """
    listed = [(item, ledger.header_for(view, item)) for item in manifests]
    headers = {item: header for item, header in listed if header is not None}
    for manifest, data in ledger.reader(view).contents(item for item, header in listed if header is not None):
        header = headers[manifest]
        source = open_manifest(data, manifest, header, ledger.cache, may_hold)
        yield ManifestDelete(source, header, select_live(source, wanted))


def _stated_range(manifest: ListedManifest) -> Range:
    """What the manifest list says: no file has a larger sequence number than the snapshot that wrote the manifest."""
    return Range(None, manifest.min_sequence_number, manifest.sequence_number)


class LiveFile(NamedTuple):
    """A live data file or delete file, decoded in full, and the manifest that lists it with its header."""

    manifest: ListedManifest
    #: None when a column of its spec was dropped: then its partition has no key
    header: Header | None
    entry: Entry
    #: the key of its partition
    partition: Hashable | None

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes of delete files that may apply to this data file."""
        return scopes_of(file_key(self.entry.data_file.path), self.manifest.partition_spec_id, self.partition)

    def delete_file(self, view: View) -> DeleteFile:
        """The file as a delete file."""
        spec = view.specs[self.manifest.partition_spec_id]
        return delete_file(self.entry, self.entry.sequence_number or 0, spec, self.partition)


def live_files(
    ledger: Ledger, view: View, content: ManifestContent, writer: ManifestWriter | None = None
) -> Iterator[LiveFile]:
    """
    Every live file of the head; `writer` keeps headers for a caller beside the ticks: the ledger's belongs to them.

    Raises Retry, ManifestCorrupt.
    """
    for manifest, entries in ledger.reader(view).entries(ledger.manifests(view), content):
        header = view.header_of(manifest, writer or ledger.writer)
        for entry in entries:
            keys = header.partition_keys([entry.data_file.partition]) if header is not None else ()
            yield LiveFile(manifest, header, entry, next(iter(keys), None))


def live_delete_files(ledger: Ledger, view: View) -> list[DeleteFile]:
    """
    Every live delete file of the head; most queues have none. Raises as `live_files`.
    """
    return [item.delete_file(view) for item in live_files(ledger, view, ManifestContent.DELETES)]
