"""
Carries the live records of a manifest into another one: whole blocks as they are stored where nothing changes, else
records as bytes, of which only the prefixes are written anew.

Spec: "Manifest Entry Fields", "Sequence Number Inheritance".
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from pyiceberg.manifest import ManifestFile

from bookkeeper.format.decoder import decode_block
from bookkeeper.format.records import DELETED, EXISTING, Prefix, read_prefix, write_prefix
from bookkeeper.format.skim import EntrySummary
from bookkeeper.ledger.blocks import DecodedBlock, Opened, StoredBlock
from bookkeeper.ledger.contents import inherited
from bookkeeper.ledger.manifests import Header
from bookkeeper.ledger.output_blocks import CopiedEntry, OutputBlock, pieces

_NONE: Collection[int] = ()


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


def carried(
    found: Opened, header: Header, gone: Sequence[Collection[int]] = (), snapshot_id: int = 0
) -> Iterator[OutputBlock]:
    """
    The live records of a manifest as EXISTING, snapshot id and both sequence numbers written out.

    Those at the places in `gone`, by block, become DELETED by `snapshot_id`, so that whoever expires can delete the
    files.
    """
    # A widened column lies otherwise in tuples of before and after, under one and the same spec.
    joins, fates = header.joins(found.layout), _StatusRewrite(found.manifest, snapshot_id)
    for number, part in enumerate(found.parts):
        places = gone[number] if gone else _NONE
        if isinstance(part, StoredBlock):
            yield OutputBlock(EXISTING, part.stored, part.stretch)
        elif part.stretch is not None and not places:
            yield OutputBlock(EXISTING, part.block, part.stretch)
        elif joins:
            yield from pieces(_joined(part, fates, places))
        else:
            yield from pieces(_anew(part, found, header, places, snapshot_id))


def _joined(part: DecodedBlock, fates: "_StatusRewrite", places: Collection[int]) -> Iterator[CopiedEntry]:
    payload = part.block.payload
    for place, row in enumerate(part.rows):
        fate = fates.of(row.prefix, place in places)
        if fate is not None:
            prefix, raw = fate
            whole = raw + payload[row.start + len(row.prefix) : row.end]
            yield CopiedEntry(prefix.status, whole, row, prefix.sequence or 0, row.partition)


def _anew(
    part: DecodedBlock, found: Opened, header: Header, places: Collection[int], snapshot_id: int
) -> Iterator[CopiedEntry]:
    entries = decode_block(part.block, found.layout)
    for place, (row, entry) in enumerate(zip(part.rows, entries, strict=True)):
        before = inherited(entry, found.manifest)
        if before.status != DELETED:
            after = replace(before, status=EXISTING)
            if place in places:
                after = replace(before, status=DELETED, snapshot_id=snapshot_id)
            raw, partition = header.record(after)
            yield CopiedEntry(after.status, raw, row, after.sequence_number or 0, partition)


class _StatusRewrite:
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
