"""
What a card means for the data files of a writer, and when a writer may change to a new card.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from bookkeeper.contract.card import Card
from bookkeeper.errors import WrongFolder
from bookkeeper.format.bloom import bloom_filters
from bookkeeper.format.bounds import Leaf, leaves
from bookkeeper.format.open_file import OpenFile
from bookkeeper.format.sorting import Sorter, sorter_of
from writers.files.keyed_spec import KeyedSpec
from writers.files.split_by_partition import Splitter


@dataclass(frozen=True)
class WriteSpec:
    """
    Everything that follows from a card: Arrow schema with field ids, columns to measure, partition splitter.

    `former` holds the names that columns had on earlier cards, with their field ids.
    """

    card: Card
    schema: Schema
    arrow: pa.Schema
    leaves: tuple[Leaf, ...]
    splitter: Splitter
    former: Mapping[str, int]
    #: of Parquet files, where the table has a sort order
    sorter: Sorter | None
    #: of Parquet files, as pyarrow takes them
    bloom_filters: Mapping[str, Any]
    #: of keyed tables
    keyed: KeyedSpec | None

    @classmethod
    def of(cls, card: Card, before: "WriteSpec | None" = None) -> "WriteSpec":
        """The spec of a card; column names of `before` stay known."""
        former: dict[str, int] = {}
        if before is not None:
            former = {**before.former, **{field.name: field.field_id for field in before.schema.fields}}
        schema, columns = card.schema, leaves(card.schema, card.metrics)
        arrow = schema_to_pyarrow(schema)
        return cls(
            card,
            schema,
            arrow,
            columns,
            Splitter(card.spec, schema),
            former,
            sorter_of(card.order, schema),
            bloom_filters(columns, card.parquet),
            KeyedSpec.of(card, arrow),
        )

    @property
    def ids(self) -> dict[str, int]:
        """The field ids of top-level columns, by the names that they have and had."""
        return {**self.former, **{field.name: field.field_id for field in self.schema.fields}}

    def suffix(self) -> str:
        """How data file names end."""
        return self.card.file_format.lower()

    def open_file(self) -> OpenFile:
        """A new, empty data file in the card's format."""
        if self.suffix() == "avro":
            from writers.files.avro import AvroFile

            return AvroFile(self.schema, self.leaves, self.card.compression, self.card.target_file_size)
        from bookkeeper.format.parquet_writer import ParquetFile

        card = self.card
        return ParquetFile(
            self.arrow, self.leaves, card.compression, card.target_file_size, self.sorter, self.bloom_filters
        )


def check_same_table(old: Card, new: Card) -> None:
    """
    Raises WrongFolder when the card now belongs to another table.
    """
    if new.table_uuid != old.table_uuid:
        raise WrongFolder(
            f"the folder of {old.table} now belongs to {new.table} with uuid {new.table_uuid}",
            hint="The table was made anew: start the writer again, its unpublished rows were for the old one.",
        )
    if new.folder != old.folder:
        raise WrongFolder(
            f"another txlog folder of {old.table} is in the place of this writer's",
            hint="Put the right one back. If this one is right: start the writer again.",
        )


def may_share_txlog(old: Card, new: Card) -> bool:
    """
    Whether one txlog may name files written by both cards: same partition spec, same data path, same keys, no column
    dropped.

    The txlog then names the newer schema, in which the older files' columns all exist.
    """
    same = _partition_spec(old) == _partition_spec(new) and old.data_path == new.data_path and old.keyed == new.keyed
    return same and set(old.schema.field_ids) <= set(new.schema.field_ids)


def _partition_spec(card: Card) -> dict[str, Any]:
    return next(spec for spec in card.specs if spec["spec-id"] == card.spec_id)
