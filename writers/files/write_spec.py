"""
What a card means for the files of a writer: Arrow schema with field ids, metrics plan, partition splitter.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from bookkeeper.core.card import Card
from bookkeeper.format.bounds import Leaf, leaves
from writers.files.open_file import OpenFile
from writers.files.partition import Splitter


@dataclass(frozen=True)
class WriteSpec:
    """Everything that changes when the card changes."""

    card: Card
    schema: Schema
    arrow: pa.Schema
    leaves: tuple[Leaf, ...]
    splitter: Splitter
    former: Mapping[str, int]

    @classmethod
    def of(cls, card: Card, former: Mapping[str, int] | None = None) -> "WriteSpec":
        """The shape of a card; `former` are names that columns had on earlier cards, with their field ids."""
        return cls(
            card,
            card.schema,
            schema_to_pyarrow(card.schema),
            leaves(card.schema, card.metrics),
            Splitter(card.spec, card.schema),
            former or {},
        )

    def names(self) -> dict[str, int]:
        """Every name a column has or had, for the next shape."""
        return {**self.former, **{field.name: field.field_id for field in self.schema.fields}}

    def suffix(self) -> str:
        """How data file names end."""
        return self.card.file_format.lower()

    def open_file(self) -> OpenFile:
        """A new, empty data file in the card's format."""
        if self.suffix() == "avro":
            from writers.files.avro import AvroFile

            return AvroFile(self.schema, self.leaves, self.card.compression, self.card.target_file_size)
        from writers.files.parquet import ParquetFile

        return ParquetFile(self.arrow, self.leaves, self.card.compression, self.card.target_file_size)
