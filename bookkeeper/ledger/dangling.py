"""
Delete files that apply to no row any more: they go in the snapshot that drops the last data files they applied to.

By what the manifest list says, so some stay: a manifest that keeps a part of its files counts with its smallest number
from before. It is written anew with the right one, and a later drop finds what it hid.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from pyiceberg.manifest import ManifestContent

from bookkeeper.contract.delete_scope import delete_file
from bookkeeper.contract.rewrite import file_key
from bookkeeper.errors import ManifestCorrupt
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.skim import EntrySummary
from bookkeeper.manifests.blocks import ManifestDelete, open_manifest, select_live
from bookkeeper.manifests.header import Header
from bookkeeper.manifests.reader import Manifests
from bookkeeper.manifests.stats import StatsCache


def least_number(manifests: Sequence[ListedManifest], drops: Sequence[ManifestDelete]) -> int:
    """
    At most the smallest data sequence number of what stays once these files are dropped; 2**63 where nothing does.
    """
    dropped = {item.manifest.manifest_path: len(item.dropped) for item in drops}
    stay = (
        item.min_sequence_number
        for item in manifests
        if item.content == ManifestContent.DATA and item.live_files > dropped.get(item.manifest_path, 0)
    )
    return min(stay, default=2**63)


def dangling(
    data: bytes, manifest: ListedManifest, header: Header, least: int, is_gone: Callable[[str], bool]
) -> ManifestDelete | None:
    """
    The delete files of a manifest that apply to nothing, once all data files have at least the number `least`, and
    those that `is_gone`, by `file_key`, are dropped. None when all stay, or the manifest does not decode.
    """
    spec_id = manifest.partition_spec_id

    def dangles(row: EntrySummary, number: int) -> bool:
        if row.entry is None:
            return False
        file = delete_file(row.entry, number, header.spec, spec_id)
        return file.largest_number < least or (isinstance(file.scope, str) and is_gone(file.scope))

    try:
        source = open_manifest(data, manifest, header, StatsCache(), lambda _: True)
    except ManifestCorrupt:
        return None
    deleted = select_live(source, dangles)
    return ManifestDelete(source, header, deleted) if any(deleted) else None


def listed_no_more(reader: Manifests, manifests: Sequence[ListedManifest], going: Counter[str]) -> frozenset[str]:
    """
    Of data files by `file_key`, of which so many entries go, those that no other entry lists: `add_files` may have
    added one again, and position deletes are for its path. Reads all manifests of data files.

    Empty where one does not decode, which may list any of them. Raises Retry.
    """
    live = Counter[str]()
    try:
        for _, rows in reader.live(manifests):
            live.update(key for row, _ in rows if (key := file_key(row.path)) in going)
    except ManifestCorrupt:
        return frozenset()
    return frozenset(key for key, count in going.items() if live[key] <= count)
