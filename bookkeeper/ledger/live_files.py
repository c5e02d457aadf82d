"""
What the head holds of files that a rewrite names: live data files by location, and the delete files of the table.

Data manifests are read where they can hold one of the sequence numbers that are asked for, or a newer one than those
that the rewrite knew, and of those only the blocks that can. So the search costs what the replaced files cost and what
came since, not what the table does.
"""

from collections.abc import Collection

from pyiceberg.manifest import ManifestContent, ManifestFile

from bookkeeper.core.delete_scope import DeleteFile, delete_file
from bookkeeper.core.rewrite import file_key
from bookkeeper.format.entries import Entry
from bookkeeper.ledger import contents
from bookkeeper.ledger.block_cache import Range
from bookkeeper.ledger.blocks import ManifestDelete, open_manifest, select_live
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.merge import live_file_count
from bookkeeper.ledger.view import View


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
    Reject for a manifest that does not decode.
    """
    ordered, numbers, found = sorted(sequences), frozenset(sequences), list[ManifestDelete]()
    store, cache = ledger.metadata_store(view), ledger.cache

    def may_hold(covered: Range) -> bool:
        return covered.greatest_sequence > since or covered.has_one_of(ordered)

    for manifest in ledger.manifests(view):
        known = cache.manifest_range(manifest.manifest_path) or _stated_range(manifest)
        if manifest.content != content or not may_hold(known) or not live_file_count(manifest):
            continue
        header = ledger.header_for(view, manifest)
        if header is None:
            continue
        source = open_manifest(store, manifest, header, cache, may_hold)
        selected = select_live(
            source, lambda row, sequence: (sequence in numbers or sequence > since) and file_key(row.path) in wanted
        )
        if any(selected):
            found.append(ManifestDelete(source, header, selected))
    return found


def _stated_range(manifest: ManifestFile) -> Range:
    """What the manifest list says: no file has a larger sequence number than the snapshot that wrote the manifest."""
    return Range(None, manifest.min_sequence_number or 0, manifest.sequence_number or 0)


def live_delete_files(ledger: Ledger, view: View) -> list[DeleteFile]:
    """
    Every live delete file of the head; most queues have none. Raises Retry, and Reject for a manifest that does not
    decode.
    """
    store, found = ledger.metadata_store(view), list[DeleteFile]()
    for manifest in ledger.manifests(view):
        if manifest.content == ManifestContent.DELETES and live_file_count(manifest):
            entries = contents.live_entries(store, manifest)
            found += [_delete_file(ledger, view, manifest, entry) for entry in entries]
    return found


def _delete_file(ledger: Ledger, view: View, manifest: ManifestFile, entry: Entry) -> DeleteFile:
    header = ledger.header_for(view, manifest)
    keys = header.partition_keys([entry.data_file.partition]) if header is not None else set()
    spec = view.specs[manifest.partition_spec_id]
    return delete_file(entry, entry.sequence_number or 0, spec, next(iter(keys), None))
