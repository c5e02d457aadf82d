"""
Carries the live records of a manifest into another one: as bytes, only their prefixes are written anew.

Spec: "Manifest Entry Fields", "Sequence Number Inheritance".
"""

from collections.abc import Collection
from dataclasses import replace
from itertools import count

from pyiceberg.manifest import ManifestFile

from bookkeeper.format.avro import Block
from bookkeeper.format.entries import Entry
from bookkeeper.format.manifest import Manifest
from bookkeeper.format.records import DELETED, EXISTING, Prefix, Records, counted, read_prefix, write_prefix
from bookkeeper.format.skim import Row
from bookkeeper.ledger.contents import inherited
from bookkeeper.ledger.manifests import Header

_NONE: Collection[int] = frozenset()


def carried(
    found: Manifest, manifest: ManifestFile, header: Header, gone: Collection[int] = _NONE, snapshot_id: int = 0
) -> Records:
    """
    The live records of `manifest` as EXISTING, snapshot id and both sequence numbers written out.

    Those at the places in `gone` become DELETED by `snapshot_id`, so that whoever expires can delete the files.
    """
    # A widened column lies otherwise in tuples of before and after, under one and the same spec.
    if header.joins(found):
        return _joined(found, _Fates(manifest, snapshot_id), gone)
    given = (_carried(inherited(entry, manifest), at in gone, snapshot_id) for at, entry in enumerate(found.entries))
    return header.records([entry for entry in given if entry])


def _carried(entry: Entry, gone: bool, snapshot_id: int) -> Entry | None:
    if entry.status == DELETED:
        return None
    return replace(entry, status=DELETED, snapshot_id=snapshot_id) if gone else replace(entry, status=EXISTING)


def _joined(found: Manifest, fates: "_Fates", gone: Collection[int]) -> Records:
    records: list[bytes] = []
    rows: list[tuple[int, Row]] = []
    least: int | None = None
    places = count()
    for block, skimmed in zip(found.blocks, found.skimmed, strict=True):
        for row in skimmed:
            fate = fates.of(row.prefix, next(places) in gone)
            if fate is None:
                continue
            prefix, raw = fate
            if prefix.status != DELETED and prefix.sequence is not None:
                least = prefix.sequence if least is None else min(least, prefix.sequence)
            records.append(raw + block.payload[row.start + len(row.prefix) : row.end])
            rows.append((prefix.status, row))
    counts = counted((status, row.record_count) for status, row in rows)
    blocks = [Block(len(records), b"".join(records))] if records else []
    return Records(blocks, counts, frozenset(row.partition for _, row in rows), least)


class _Fates:
    """What becomes of records that begin alike; a manifest has few different prefixes."""

    def __init__(self, manifest: ManifestFile, snapshot_id: int) -> None:
        self._manifest = manifest
        self._snapshot_id = snapshot_id
        self._known: dict[tuple[bytes, bool], tuple[Prefix, bytes] | None] = {}

    def of(self, raw: bytes, gone: bool) -> tuple[Prefix, bytes] | None:
        """The prefix a record is carried on with, and its bytes; None when it was deleted before."""
        if (raw, gone) not in self._known:
            self._known[raw, gone] = self._made(raw, gone)
        return self._known[raw, gone]

    def _made(self, raw: bytes, gone: bool) -> tuple[Prefix, bytes] | None:
        before = read_prefix(raw).inherited(self._manifest.added_snapshot_id or 0, self._manifest.sequence_number)
        if before.status == DELETED:
            return None
        after = replace(before, status=EXISTING)
        if gone:
            after = replace(before, status=DELETED, snapshot_id=self._snapshot_id)
        return after, write_prefix(after)
