"""
Which manifests are merged into one: size tiers, pure.

Planning a scan costs readers about 2.6 ms a manifest, and every commit lists all of them. A manifest is merged when
FAN others of its tier are there, so an entry is written again only log(files) / log(FAN) times, and at most
FAN - 1 manifests of each tier are live beside those that have grown to TARGET_BYTES.
"""

from collections.abc import Sequence

from pyiceberg.manifest import ManifestContent, ManifestFile

FAN = 16
TARGET_BYTES = 8 * 2**20  # Iceberg's commit.manifest.target-size-bytes


def groups(manifests: Sequence[ManifestFile]) -> list[list[ManifestFile]]:
    """
    Groups of data manifests, each to become one; oldest first within a group. Usually none.
    """
    tiers: dict[tuple[int, int], list[ManifestFile]] = {}
    for manifest in manifests:
        files = live_files(manifest)
        if manifest.content == ManifestContent.DATA and files and manifest.manifest_length < TARGET_BYTES // 2:
            tiers.setdefault((manifest.partition_spec_id, tier(files)), []).append(manifest)
    return [_oldest(group) for group in tiers.values() if len(group) >= FAN]


def tier(files: int) -> int:
    """
    0 for fewer than FAN files, 1 for fewer than FAN * FAN, and so on.
    """
    level = 0
    while files >= FAN:
        files //= FAN
        level += 1
    return level


def live_files(manifest: ManifestFile) -> int | None:
    """
    Live entries of a manifest; None when it does not say (format v1).
    """
    if manifest.added_files_count is None or manifest.existing_files_count is None:
        return None
    return manifest.added_files_count + manifest.existing_files_count


def _oldest(group: Sequence[ManifestFile]) -> list[ManifestFile]:
    """The oldest of them, as many as fit in one manifest: neighbours in time stay together."""
    ordered = sorted(group, key=lambda manifest: manifest.min_sequence_number or 0)
    chosen: list[ManifestFile] = []
    size = 0
    for manifest in ordered:
        size += manifest.manifest_length
        if chosen and size > TARGET_BYTES:
            break
        chosen.append(manifest)
    return chosen
