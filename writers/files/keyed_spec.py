"""
What the card of a keyed table means for a writer: its keys, its delete files, its op- and order-column.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from bookkeeper.contract.card import Card
from bookkeeper.errors import SchemaRefused
from bookkeeper.format.bounds import Leaf, leaves
from bookkeeper.format.parquet_writer import ParquetFile
from writers.files.last_of_each_key import DELETE
from writers.files.split_by_partition import Splitter

#: Bounds let readers skip delete files. Sixteen characters, as of data files, are too few for "customer/2026/...".
_BOUNDS = {"default": "truncate(64)"}


@dataclass(frozen=True)
class KeyedSpec:
    """Everything about keys that follows from a card; names are those of columns."""

    key_ids: tuple[int, ...]
    #: of the keys alone
    schema: Schema
    arrow: pa.Schema
    leaves: tuple[Leaf, ...]
    compression: str
    #: of delete files, and what splits keys by it; None while the card names a spec that would not fit
    spec: PartitionSpec | None
    splitter: Splitter | None
    op: str | None
    order: str | None
    #: field ids of the op- and the order-column
    filled: frozenset[int | None]

    @classmethod
    def of(cls, card: Card, arrow: pa.Schema) -> "KeyedSpec | None":
        """
        What the card says, None for an append-only table.
        """
        keyed, whole = card.keyed, card.schema
        if keyed is None:
            return None
        fields = [field for field in whole.fields if field.field_id in keyed.key_ids]
        schema = Schema(*fields, schema_id=whole.schema_id)
        spec = _delete_spec(card, keyed.delete_spec_id)
        names = {field.field_id: field.name for field in whole.fields}
        return cls(
            keyed.key_ids,
            schema,
            pa.schema([arrow.field(field.name) for field in fields]),
            leaves(schema, _BOUNDS),
            card.compression,
            spec,
            None if spec is None else Splitter(spec, schema),
            None if keyed.op_field_id is None else names[keyed.op_field_id],
            None if keyed.order_field_id is None else names[keyed.order_field_id],
            frozenset({keyed.op_field_id, keyed.order_field_id} - {None}),
        )

    @property
    def names(self) -> list[str]:
        """The names of the key columns."""
        return [str(name) for name in self.arrow.names]

    def check_given(self, names: Iterable[str], ids: Mapping[str, int], kind: int) -> None:
        """Raises SchemaRefused for columns that a writer fills itself, or that are no keys of a delete."""
        for name in names:
            if ids.get(name) in self.filled:
                raise SchemaRefused(f"column {name!r} is filled by the writer", hint="Leave it out.")
            if kind == DELETE and name in ids and ids[name] not in self.key_ids:
                hint = f"Give the key columns alone, of a frame by select({self.names}); `change` takes whole rows."
                raise SchemaRefused(f"column {name!r} is no key; a delete takes {', '.join(self.names)}", hint=hint)

    def open_file(self) -> ParquetFile:
        """A new, empty equality-delete file: Parquet, whatever format data files have. It never rolls."""
        return ParquetFile(self.arrow, self.leaves, self.compression, 2**62)


def _delete_spec(card: Card, number: int) -> PartitionSpec | None:
    """
    The spec of delete files; None when it is gone, or bound to partitions that new data files do not have: such
    deletes would miss them.
    """
    found = (PartitionSpec.model_validate(spec) for spec in card.specs if spec["spec-id"] == number)
    spec = next(found, None)
    return spec if spec is None or spec.is_unpartitioned() or number == card.spec_id else None
