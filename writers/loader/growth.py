"""
Lines with fields that the table does not have, where its schema may grow.

The unknown fields of a whole block are asked for at once, each in a type that its values in the block fit. A field that
was only null so far asks for nothing: it is read as if it were a column, and a value in it makes it unknown again.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
)

from bookkeeper.contract.column_requests import ADD, WIDEN, ColumnRequest, check_name
from bookkeeper.errors import ColumnRefused, SchemaRefused
from bookkeeper.format.csv_json_types import type_of_json, type_of_text
from bookkeeper.format.input_files import csv_cells
from writers.loader.blocks import ReadBlock
from writers.loader.formats import Format
from writers.loader.records import BadLine, Row, UnknownColumn, csv_columns, csv_decoder, ndjson_decoder
from writers.sources.source import Block
from writers.values.json_values import converter, text_converter
from writers.values.unknown_fields import requests_for
from writers.writer import Writer

ParseRows = Callable[[bytes], Sequence[Row]]
#: fields that are no columns and may be null: more than that are data, not names
MOST_EMPTY = 1000


class Growth:
    """What lines of this form ask the writer's table for; nothing while its card does not allow it."""

    def __init__(self, writer: Writer, form: Format) -> None:
        self._writer, self._form = writer, form
        # Changes in an envelope are left to a person; where unknown fields are ignored no columns are wanted.
        self._fits = not (form.debezium or form.ignore_unknown or (form.retry and form.kind == "csv"))
        #: fields that are no columns, and were null
        self._empty: dict[str, None] = {}
        self._seen: Block | None = None

    @property
    def is_on(self) -> bool:
        """Whether it can help with a bad line."""
        return self._fits and bool(self._writer.card.evolve)

    def empty(self, head: bytes) -> list[NestedField]:
        """Fields that are no columns and may be null, as if they were columns; of a CSV header all that are unknown."""
        if not (self.is_on and self._writer.card.takes(ADD)):
            return []
        known = self._known()
        names = dict.fromkeys(name for name in (*self._empty, *self._header(head)) if name not in known)
        first = max(self._writer.card.schema.field_ids) + 1
        return [NestedField(first + index, name, StringType(), required=False) for index, name in enumerate(names)]

    def _header(self, head: bytes) -> Iterator[str]:
        if self._form.kind != "csv" or not self._form.has_header:
            return
        try:
            names = csv_cells(head, self._form.delimiter)
        except ValueError:
            return  # the parser says what is wrong with it
        for name in names:
            try:
                check_name(name)
            except ColumnRefused:
                continue  # the file is refused for its header
            yield name

    def _known(self) -> set[str]:
        op_field = () if self._form.op_field is None else (self._form.op_field,)
        return {field.name for field in self._writer.card.schema.fields} | {*self._writer.former_names, *op_field}

    def of_block(self, block: Block, head: bytes) -> list[ColumnRequest] | None:
        """
        What the lines of a block ask for; None where that changes nothing. The same block is looked at once.

        Fields that are null in it may be null from then on.
        """
        if not self.is_on or block is self._seen:
            return None
        self._seen = block
        try:
            rows = list(self._decoded(block, head))
        except SchemaRefused:
            return None
        before, card = len(self._empty), self._writer.card
        found = self._unknown(rows) if card.takes(ADD) else []
        found += self._wider(rows) if card.takes(WIDEN) else []
        found = [request for request in found if request not in self._writer.refused_columns]
        return found if found or len(self._empty) > before else None

    def _unknown(self, rows: Sequence[Mapping[str, Any]]) -> list[ColumnRequest]:
        known, of_text = self._known(), self._form.kind == "csv"
        nulls = (name for row in rows for name, value in row.items() if value is None and name not in known)
        for name in dict.fromkeys(nulls):
            if len(self._empty) < MOST_EMPTY:
                self._empty[name] = None
        return requests_for(rows, known, type_of_text if of_text else type_of_json, of_text)

    def reason(self, bad: BadLine) -> str:
        """What is wrong with a bad line; of a field that was asked for also why it is no column."""
        if not (self.is_on and isinstance(bad, UnknownColumn)):
            return str(bad)
        refused = self._writer.refused_columns.items()
        why = next((why for request, why in refused if repr(request.name) in str(bad)), None)
        return str(bad) if why is None else f"{bad}, and gets none: {why}"

    def _decoded(self, block: Block, head: bytes) -> Iterator[Mapping[str, Any]]:
        schema = self._writer.row_schema
        decode: Callable[[bytes], Any] = ndjson_decoder(schema)
        if self._form.kind == "csv":
            ops = [] if self._form.op_field is None else [NestedField(0, self._form.op_field, StringType())]
            fields = Schema(*schema.fields, *ops, *self.empty(head))
            columns = csv_columns(fields, head, self._form.delimiter, self._writer.former_names)
            decode = csv_decoder(columns, self._form.delimiter, self._form.nulls)
        for line in block.lines():
            try:
                row = decode(json.loads(line.text)["text"].encode() if self._form.retry else line.text)
            except (BadLine, ValueError, LookupError, TypeError, AttributeError, RecursionError):
                continue
            if isinstance(row, dict):
                yield row

    def _wider(self, rows: Sequence[Mapping[str, Any]]) -> list[ColumnRequest]:
        found: dict[str, IcebergType] = {}
        kinds = {field.name: field.field_type for field in self._writer.row_schema.fields}
        for row in rows:
            for name, value in row.items():
                have = found.get(name, kinds.get(name))
                if value is not None and have is not None and (wider := self._wider_type(have, value)) is not None:
                    found[name] = wider
        return [ColumnRequest(WIDEN, name, str(kind)) for name, kind in found.items()]

    def _wider_type(self, have: IcebergType, value: Any) -> IcebergType | None:
        """The type that this value needs and Iceberg allows; None where it fits, or none helps."""
        wider: IcebergType | None = None
        if isinstance(have, IntegerType):
            wider = LongType()
        elif isinstance(have, FloatType):
            wider = DoubleType()
        elif isinstance(have, DecimalType) and have.precision < 38:
            wider = DecimalType(38, have.scale)
        if wider is None or self._fits_type(have, value) or not self._fits_type(wider, value):
            return None
        if isinstance(have, DecimalType):
            return DecimalType(max(Decimal(value).adjusted() + 1, 1) + have.scale, have.scale)
        return wider

    def _fits_type(self, kind: IcebergType, value: Any) -> bool:
        convert = text_converter if self._form.kind == "csv" else converter
        try:
            convert(kind)(value)
        except (ValueError, OverflowError):
            return False
        return True


def with_empty(
    parse: ParseRows, read: ReadBlock | None, empty: Sequence[NestedField]
) -> tuple[ParseRows, ReadBlock | None]:
    """
    Readers of the table's columns, from readers that also know `empty` ones: a value in one of these is unknown.
    """
    if not empty:
        return parse, read
    names = {field.field_id: field.name for field in empty}

    def parse_known(line: bytes) -> Sequence[Row]:
        try:
            rows = parse(line)
        except BadLine as exc:
            name = next((name for name in names.values() if str(exc).startswith(f"column {name!r}: ")), None)
            if name is None:
                raise
            raise UnknownColumn(f"the table has no column {name!r}") from exc
        for number, name in names.items():
            if any(number in row for row in rows):
                raise UnknownColumn(f"the table has no column {name!r}")
        return rows

    def read_known(data: bytes, lines: int) -> pa.Table | None:
        assert read is not None
        table = read(data, lines)
        if table is None or any(table[name].null_count < table.num_rows for name in names.values()):
            return None
        return table.drop_columns([*names.values()])

    return parse_known, None if read is None else read_known
