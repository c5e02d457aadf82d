"""
Merging of small manifests into large ones, in size tiers.

Planning a scan costs readers about 2.6 ms a manifest, and every commit lists all of them. A manifest is merged when
FAN of its tier are there, so an entry is written again only log(files) / log(FAN) times, and fewer than FAN
manifests of each tier are live beside those that have grown to TARGET_BYTES.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyiceberg.manifest import ManifestContent, ManifestFile

from bookkeeper.core.store import Store
from bookkeeper.format.avro import Block
from bookkeeper.format.manifest import Manifest
from bookkeeper.format.records import DELETED, EXISTING, Records, counted, joined, read_prefix, write_prefix
from bookkeeper.format.skim import Row
from bookkeeper.ledger.manifests import Header
from bookkeeper.ledger.retain import live_entries, read_manifest

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


def live_files(manifest: ManifestFile) -> int:
    """
    How many live entries a manifest has.
    """
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _oldest(group: Sequence[ManifestFile]) -> list[ManifestFile]:
    """The oldest of them, as many as fit in one manifest: neighbours in time stay together."""
    chosen: list[ManifestFile] = []
    size = 0
    for manifest in sorted(group, key=lambda item: item.min_sequence_number or 0):
        size += manifest.manifest_length
        if len(chosen) > 1 and size > TARGET_BYTES:
            break
        chosen.append(manifest)
    return chosen


def merged(store: Store, group: Sequence[ManifestFile], header: Header) -> Records:
    """
    The live records of a group as EXISTING, with snapshot id and both sequence numbers written out.
    """
    parts = [_carried(store, manifest, header) for manifest in group]
    files, rows = (sum(part.counts[EXISTING][index] for part in parts) for index in (0, 1))
    return Records(
        list(joined(block for part in parts for block in part.blocks)),
        counted(()) | {EXISTING: (files, rows)},
        frozenset(values for part in parts for values in part.partitions),
        min((part.least_sequence for part in parts if part.least_sequence is not None), default=None),
    )


def _carried(store: Store, manifest: ManifestFile, header: Header) -> Records:
    found = read_manifest(store, manifest)
    # A widened column lies otherwise in tuples of before and after, under one and the same spec.
    if header.joins(found):
        return carried(found, manifest)
    return header.records([replace(entry, status=EXISTING) for entry in live_entries(store, manifest)])


def carried(found: Manifest, manifest: ManifestFile) -> Records:
    """
    The live records of a manifest in the standard layout, as EXISTING; only their prefixes are written anew.
    """
    prefixes: dict[bytes, tuple[int, int, bytes]] = {}
    records: list[bytes] = []
    rows: list[Row] = []
    least: int | None = None
    for block, skimmed in zip(found.blocks, found.skimmed, strict=True):
        for row in skimmed:
            if row.prefix not in prefixes:
                prefixes[row.prefix] = _existing(row.prefix, manifest)
            status, sequence, prefix = prefixes[row.prefix]
            if status == DELETED:
                continue
            least = sequence if least is None else min(least, sequence)
            records.append(prefix + block.payload[row.start + len(row.prefix) : row.end])
            rows.append(row)
    counts = counted((EXISTING, row.record_count) for row in rows)
    blocks = [Block(len(records), b"".join(records))] if records else []
    return Records(blocks, counts, frozenset(row.partition for row in rows), least)


def _existing(raw: bytes, manifest: ManifestFile) -> tuple[int, int, bytes]:
    """Of a prefix: its status, its sequence number, and the prefix it has when it is carried on."""
    before = read_prefix(raw).inherited(manifest.added_snapshot_id or 0, manifest.sequence_number)
    return before.status, before.sequence or 0, write_prefix(replace(before, status=EXISTING))
