"""
How lines are read: what `writer lines` was given of it, and the readers that follow from it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.schema import Schema

from bookkeeper.format.input_files import all_end
from writers.changes import Change, debezium, flat
from writers.loader.blocks import ReadBlock, csv_reader, ndjson_reader
from writers.loader.change_lines import change_parser, flat_reader, with_op
from writers.loader.records import (
    Parse,
    Row,
    bad_line_parser,
    csv_columns,
    csv_decoder,
    csv_parser,
    ndjson_decoder,
    ndjson_parser,
    row_maker,
)
from writers.sources.source import first_line
from writers.values.json_values import converter, text_converter


@dataclass(frozen=True, slots=True)
class Format:
    """
    How lines are read; `nulls` are texts for null in CSV, `by_line` keeps to the parser of one line.

    With `retry` the lines are records of bad lines, which hold the lines to be read. With `op_field` or `debezium` they
    are changes (writers.changes).
    """

    kind: str
    delimiter: str = ","
    base64_bytes: bool = False
    nulls: tuple[str, ...] = ()
    ignore_unknown: bool = False
    by_line: bool = False
    retry: bool = False
    op_field: str | None = None
    debezium: bool = False

    @property
    def changes(self) -> bool:
        """Whether lines are upserts and deletes."""
        return self.debezium or self.op_field is not None

    @property
    def has_header(self) -> bool:
        """Whether the first line of a file names the columns."""
        return self.kind == "csv" and not self.retry

    def parser(self, schema: Schema, header: bytes, former: Mapping[str, int]) -> Parse:
        """A parser of one line for the table's columns."""
        if self.retry:
            plain = replace(self, retry=False)
            return bad_line_parser(lambda header: plain.parser(schema, header, former), self.kind, first_line)
        if self.kind == "csv":
            return csv_parser(
                schema, header, self.delimiter, self.base64_bytes, former, self.nulls, self.ignore_unknown
            )
        return ndjson_parser(schema, self.base64_bytes, former, self.ignore_unknown)

    def rows_parser(
        self, schema: Schema, header: bytes, former: Mapping[str, int], keys: Sequence[str]
    ) -> Callable[[bytes], Sequence[Row]]:
        """A parser of the rows of one line: of a change none, one or two."""
        if not self.changes:
            parse = self.parser(schema, header, former)
            return lambda line: (parse(line),)
        given = schema if self.op_field is None else with_op(schema, self.op_field)
        convert = text_converter if self.kind == "csv" else converter
        if self.kind == "csv":
            columns = csv_columns(given, header, self.delimiter, former, self.ignore_unknown)
            decode: Callable[[bytes], Any] = csv_decoder(columns, self.delimiter, self.nulls)
        else:
            decode = ndjson_decoder(schema, self.ignore_unknown)
        to_row = row_maker(
            schema, lambda kind: convert(kind, self.base64_bytes, self.ignore_unknown), former, self.ignore_unknown
        )
        return change_parser(decode, to_row, lambda data: self._changes_of(data, keys), {*_names(given), *former})

    def _changes_of(self, data: Any, keys: Sequence[str]) -> Iterable[Change]:
        return debezium(data, keys) if self.op_field is None else flat(data, self.op_field, keys)

    def block_reader(
        self, schema: Schema, header: bytes, former: Mapping[str, int], keys: Sequence[str] = ()
    ) -> ReadBlock | None:
        """A reader of blocks with the same rows; None where there is only the parser."""
        if self.by_line or self.retry or self.debezium:
            return None
        if self.op_field is not None:
            plain = replace(self, op_field=None)
            return flat_reader(schema, self.op_field, keys, lambda flat: plain.block_reader(flat, header, former))
        if self.kind == "csv":
            columns = csv_columns(schema, header, self.delimiter, former, self.ignore_unknown)
            return csv_reader(schema, columns, self.delimiter, self.base64_bytes, self.nulls, self.ignore_unknown)
        # A column under two names may be given twice: only the parser sees that.
        return ndjson_reader(schema, self.base64_bytes, self.ignore_unknown) if set(former) <= _names(schema) else None


def format_of(files: Sequence[str], kind: str | None) -> str:
    """
    The format `kind`, else the one that the files' names end in, compressed or not.
    """
    return kind or ("csv" if all_end(files, ".csv", ".tsv") else "ndjson")


def _names(schema: Schema) -> set[str]:
    return {field.name for field in schema.fields}
