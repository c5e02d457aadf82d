"""
What the head holds of files that a rewrite names: live data files by location, and the delete files of the table.

Data manifests are read where they can hold one of the sequence numbers that are asked for, and of those only the
blocks that can. So the search costs what the replaced files cost, not what the table does.
"""

from collections.abc import Collection
from dataclasses import dataclass

from pyiceberg.manifest import ManifestContent, ManifestFile

from bookkeeper.core.rewrite import file_key
from bookkeeper.format.entries import Entry
from bookkeeper.ledger import contents
from bookkeeper.ledger.block_cache import Range
from bookkeeper.ledger.blocks import ManifestDelete, open_manifest, select_live
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.manifests import PartitionKey
from bookkeeper.ledger.merge import live_file_count
from bookkeeper.ledger.view import View

POSITIONS, EQUALITY = 1, 2
#: of `file_path`, the first column of a position delete file (Iceberg spec, "Reserved Field IDs")
_FILE_PATH = 2_147_483_546


def find_live(ledger: Ledger, view: View, sequences: Collection[int], wanted: Collection[str]) -> list[ManifestDelete]:
    """
    The manifests of the head that list live files `wanted`, by `file_key`, with one of these data sequence numbers.

    A manifest that cannot be written anew, because a column of its spec is gone, is left out. Raises Retry, and
    Reject for a manifest that does not decode.
    """
    ordered, numbers, found = sorted(sequences), frozenset(sequences), list[ManifestDelete]()
    store, cache = ledger.metadata_store(view), ledger.cache
    for manifest in ledger.manifests(view):
        known = cache.manifest_range(manifest.manifest_path) or _stated_range(manifest)
        if manifest.content != ManifestContent.DATA or not known.has_one_of(ordered) or not live_file_count(manifest):
            continue
        header = ledger.header_for(view, manifest)
        if header is None:
            continue
        source = open_manifest(store, manifest, header, cache, lambda covered: covered.has_one_of(ordered))
        selected = select_live(source, lambda row, sequence: sequence in numbers and file_key(row.path) in wanted)
        if any(selected):
            found.append(ManifestDelete(source, header, selected))
    return found


def _stated_range(manifest: ManifestFile) -> Range:
    """What the manifest list says: no file has a larger sequence number than the snapshot that wrote the manifest."""
    return Range(None, manifest.min_sequence_number or 0, manifest.sequence_number or 0)


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """
    A live delete file. `partition` is its partition's key, None where that is not known any more.
    """

    key: str
    content: int
    sequence_number: int
    #: the one data file that a position delete file is for, where it is for one
    referenced: str | None
    spec_id: int
    partition: PartitionKey | None
    #: whether its spec has no partitions
    everywhere: bool


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
    header, file = ledger.header_for(view, manifest), entry.data_file
    keys = header.partition_keys([file.partition]) if header is not None else set()
    spec = view.specs[manifest.partition_spec_id]
    return DeleteFile(
        file_key(file.path),
        entry.content,
        entry.sequence_number or 0,
        _referenced(entry) if entry.content == POSITIONS else None,
        manifest.partition_spec_id,
        next(iter(keys), None),
        spec.is_unpartitioned() or all(str(field.transform) == "void" for field in spec.fields),
    )


def _referenced(entry: Entry) -> str | None:
    """The data file that all positions are of: by the field for it, or by equal bounds of the column `file_path`."""
    if entry.referenced_data_file is not None:
        return file_key(entry.referenced_data_file)
    lower = entry.data_file.lower_bounds.get(_FILE_PATH)
    if lower is None or lower != entry.data_file.upper_bounds.get(_FILE_PATH):
        return None
    return file_key(lower.decode("utf-8", "replace"))
