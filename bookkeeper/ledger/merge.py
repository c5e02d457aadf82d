"""
Merging of small manifests into large ones, in size tiers.

Planning a scan costs readers about 2.6 ms a manifest, and every commit lists all of them. A manifest is merged when
FAN of its tier are there, so an entry is written again only log(files) / log(FAN) times, and fewer than FAN
manifests of each tier are live beside those that have grown to TARGET_BYTES or MOST_FILES.
"""

from collections.abc import Iterator, Sequence

from pyiceberg.manifest import ManifestContent
from pyiceberg.table.snapshots import Operation

from bookkeeper.errors import BookkeeperError, ManifestCorrupt, PathRefused
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.ledger import summary
from bookkeeper.ledger.build_commit import CommitAttempt, NewSnapshot
from bookkeeper.manifests.blocks import ManifestBody, assemble, copy_entries, open_manifest
from bookkeeper.manifests.header import Header
from bookkeeper.manifests.reader import Manifests
from bookkeeper.manifests.stats import StatsCache

FAN = 16
TARGET_BYTES = 8 * 2**20  # Iceberg's commit.manifest.target-size-bytes
#: a reader of a manifest holds about 2 KiB per entry: with few columns, 8 MiB would be 100,000 entries and 200 MiB
MOST_FILES = 25_000


class Merges:
    """Merges the manifests of one table, in a snapshot of its own behind those that add files."""

    def __init__(self) -> None:
        #: paths of manifests that do not decode, or that a defect of ours keeps from being merged
        self.unreadable: set[str] = set()

    def add_to(self, commit: CommitAttempt, cache: StatsCache) -> None:
        """
        A `replace` snapshot in which full tiers of manifests have become one manifest each, when there are any.

        The commit can do without it: a merge never makes an append fail.
        """
        new, written, replaced = commit.following(), list[ListedManifest](), set[str]()
        cache.forget_unlisted(manifest.manifest_path for manifest in new.manifests)
        readable = [manifest for manifest in new.manifests if manifest.manifest_path not in self.unreadable]
        for index, group in enumerate(groups(readable)):
            merged = self._merged(commit, new, group, f"r{index}", cache)
            if merged is not None:
                written.append(merged)
                replaced.update(manifest.manifest_path for manifest in group)
        if written:
            new.put(written, replaced)
            kept = new.manifests[len(written) :]
            new.label(Operation.REPLACE, summary.merge_counts(written, replaced, kept))
            commit.spare.append(new)

    def _merged(
        self, commit: CommitAttempt, new: NewSnapshot, group: Sequence[ListedManifest], name: str, cache: StatsCache
    ) -> ListedManifest | None:
        """One manifest for a group; None when the group stays as it is."""
        header = commit.view.header_of(group[0], commit.writer)
        if header is None:
            return None
        try:
            return new.write(name, header, merge(commit.view.reader(new.unsent), group, header, cache), cache)
        except Exception as error:  # noqa: BLE001 - a merge can wait, whatever it is
            # No later try reads these either. A defect of ours is in any of them.
            known = isinstance(error, BookkeeperError)
            bad = [*_unreadable(commit, group)] if known else [manifest.manifest_path for manifest in group]
            self.unreadable.update(bad)
            commit.leave_unmerged(error, bad)
            return None


def _unreadable(commit: CommitAttempt, group: Sequence[ListedManifest]) -> Iterator[str]:
    """Manifests that will never be read: outside of all that can be reached, or in a form that we do not know."""
    reader = commit.view.reader(commit.store)
    for manifest in group:
        try:
            [*reader.rows([manifest])]
        except (ManifestCorrupt, PathRefused):
            yield manifest.manifest_path
        except BookkeeperError:
            continue  # the next try may read it


def groups(manifests: Sequence[ListedManifest]) -> list[list[ListedManifest]]:
    """
    Groups of manifests of data or of deletes, each to become one manifest; oldest first in a group. Usually there are
    none.
    """
    tiers: dict[tuple[ManifestContent, int, int], list[ListedManifest]] = {}
    for manifest in manifests:
        files = manifest.live_files
        room = manifest.manifest_length < TARGET_BYTES // 2 and files < MOST_FILES // 2
        if files and room:
            tiers.setdefault((manifest.content, manifest.partition_spec_id, tier(files)), []).append(manifest)
    return [_oldest(group) for group in tiers.values() if len(group) >= FAN]


def tier(files: int) -> int:
    """
    The size tier of a manifest: 0 for fewer than FAN files, 1 for fewer than FAN * FAN, and so on.
    """
    level = 0
    while files >= FAN:
        files //= FAN
        level += 1
    return level


def _oldest(group: Sequence[ListedManifest]) -> list[ListedManifest]:
    """The oldest manifests, as many as fit in one: neighbours in time stay together."""
    chosen: list[ListedManifest] = []
    size = files = 0
    for manifest in sorted(group, key=lambda item: item.min_sequence_number):
        size, files = size + manifest.manifest_length, files + manifest.live_files
        if len(chosen) > 1 and (size > TARGET_BYTES or files > MOST_FILES):
            break
        chosen.append(manifest)
    return chosen


def merge(reader: Manifests, group: Sequence[ListedManifest], header: Header, cache: StatsCache) -> ManifestBody:
    """
    The live records of a group as EXISTING, with snapshot id and both sequence numbers written out.
    """
    read = reader.contents(group)
    sources = (open_manifest(data, manifest, header, cache, lambda _: False) for manifest, data in read)
    return assemble((block for source in sources for block in copy_entries(source, header)), header, cache)
