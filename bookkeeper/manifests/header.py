"""
Makes manifests and manifest lists (Iceberg spec, "Manifests" and "Manifest Lists"), for a commit to send.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType

from bookkeeper.format import avro, manifest_list
from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.avro import Block
from bookkeeper.format.entries import Entry
from bookkeeper.format.layout import Layout, Physical, parse_layout
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.partition_tuples import FieldSummary, summarise, widened
from bookkeeper.format.records import ADDED, DELETED, EXISTING, Records
from bookkeeper.format.remembered import remembered
from bookkeeper.manifests.cache import digester
from bookkeeper.stores.locations import join
from bookkeeper.stores.unsent import Unsent

#: spec id and comparable values
PartitionKey = tuple[Any, ...]

_HEADERS = 1000
_LINES = 100_000


class ManifestWriter:
    """Writes the manifests and manifest lists of one table; keeps headers and lines, which never change."""

    def __init__(self) -> None:
        self._headers: dict[tuple[ManifestContent, str, str], Header] = {}
        self._lines: dict[str, bytes] = {}

    def header(self, schema: Schema, spec: PartitionSpec, content: ManifestContent = ManifestContent.DATA) -> "Header":
        """The header of manifests of data or deletes written with this schema and spec."""
        # By what is in them: two tables, or a table made anew, both have schema 0 and spec 0.
        key = (content, _text(schema), _text(spec))
        if key not in self._headers:
            _forget(self._headers, _HEADERS)
            self._headers[key] = Header(schema, spec, content)
        return self._headers[key]

    def write(
        self, unsent: Unsent, key: str, header: "Header", records: Records, snapshot_id: int, sequence: int
    ) -> ListedManifest:
        """One manifest under `key`; `sequence` is that of its snapshot."""
        data = avro.encode(header.meta, records.blocks)
        unsent.create(key, data)
        counts: dict[str, Any] = {}
        for status, name in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
            counts[f"{name}_files_count"], counts[f"{name}_rows_count"] = records.counts[status]
        return ListedManifest(
            manifest_path=join(unsent.url, key),
            manifest_length=len(data),
            partition_spec_id=header.spec_id,
            content=header.content,
            sequence_number=sequence,
            min_sequence_number=sequence if records.least_sequence is None else records.least_sequence,
            added_snapshot_id=snapshot_id,
            partitions=header.summaries(records.partitions),
            **counts,
        )

    def write_list(
        self,
        unsent: Unsent,
        key: str,
        manifests: Sequence[ListedManifest],
        snapshot_id: int,
        parent_id: int | None,
        sequence: int,
    ) -> str:
        """The manifest list of a new snapshot under `key`; returns its location."""
        lines = [self._line(manifest) for manifest in manifests]
        unsent.create(key, manifest_list.encode(snapshot_id, parent_id, sequence, lines))
        return join(unsent.url, key)

    def rehearse(self, manifests: Sequence[ListedManifest]) -> None:
        """Makes the lines of manifests and keeps none; raises what encoding them raises."""
        for manifest in manifests:
            manifest_list.encode_line(manifest)

    def _line(self, manifest: ListedManifest) -> bytes:
        line = self._lines.get(manifest.manifest_path)
        if line is None:
            _forget(self._lines, _LINES)
            line = self._lines[manifest.manifest_path] = manifest_list.encode_line(manifest)
        return line


class Header:
    """Header and partition kinds of the manifests of one schema and spec."""

    def __init__(self, schema: Schema, spec: PartitionSpec, content: ManifestContent = ManifestContent.DATA) -> None:
        self.content = content
        self.meta = manifest_format.header(schema, spec, b"data" if content == ManifestContent.DATA else b"deletes")
        self.spec, self.spec_id = spec, spec.spec_id
        #: of the blocks of manifests that are written with it
        self.digest_of = digester(self.meta["avro.schema"])
        decimals = [isinstance(field.field_type, DecimalType) for field in spec.partition_type(schema).fields]
        partition = parse_layout(self.meta["avro.schema"]).partition
        self.kinds: list[tuple[Physical, bool]] = [
            (kind, decimal) for (_, kind), decimal in zip(partition, decimals, strict=True)
        ]

    def summaries(self, tuples: Iterable[tuple[Any, ...]]) -> tuple[FieldSummary, ...]:
        """The partition summaries of a manifest, as a manifest list has them."""
        return tuple(summarise(self.kinds, tuples))

    def partition_keys(self, tuples: Iterable[tuple[Any, ...]]) -> set[PartitionKey]:
        """The keys of these partition tuples; the same partition has one key in every layout."""
        decimals = [decimal for _, decimal in self.kinds]
        distinct = set(tuples)
        return {(self.spec_id, *map(_comparable, values, decimals)) for values in distinct}

    def joins(self, layout: Layout) -> bool:
        """Whether records of this layout are encoded as ours, so that they can stand in one manifest as bytes."""
        theirs = [_encoding(kind) for _, kind in layout.partition]
        return layout.standard and theirs == [_encoding(kind) for kind, _ in self.kinds]

    def encode_blocks(self, given: Iterable[Entry]) -> list[Block]:
        """Entries as blocks, for records of a layout that does not join."""
        return manifest_format.encode_blocks(self.meta["avro.schema"], map(self._fit, given))

    def encode_record(self, given: Entry) -> tuple[bytes, tuple[Any, ...]]:
        """An entry as a record, and its partition."""
        entry = self._fit(given)
        return manifest_format.encode_record(self.meta["avro.schema"], entry), entry.data_file.partition

    def _fit(self, entry: Entry) -> Entry:
        """The entry with its partition's decimals as wide as in this schema: their column may have been widened."""
        values = entry.data_file.partition
        fitted = tuple(
            widened(value, kind[1]) if decimal and isinstance(kind, tuple) and value is not None else value
            for value, (kind, decimal) in zip(values, self.kinds, strict=True)
        )
        return entry if fitted == values else replace(entry, data_file=replace(entry.data_file, partition=fitted))


@remembered
def _text(made: Schema | PartitionSpec) -> str:
    return made.model_dump_json()


def _comparable(value: Any, decimal: bool) -> Any:
    # NaN is not equal to itself, and the same decimal has more bytes once its column was widened.
    if decimal and value is not None:
        return int.from_bytes(value, "big", signed=True)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def _encoding(kind: Physical) -> Physical:
    # Avro writes both in the same way; float and double, and decimals of two widths, it does not.
    return "long" if kind == "int" else kind


def _forget(known: dict[Any, Any], most: int) -> None:
    if len(known) >= most:
        known.pop(next(iter(known)))
