"""
Lines of requests as rows of a table, by the readers of the guest loader.
"""

from collections.abc import Sequence

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.contract.card import Card
from bookkeeper.errors import SchemaRefused
from writers.http.requests import Line, Refused, refused
from writers.loader.formats import Format
from writers.loader.records import BadLine, Row, table_of
from writers.writer import Writer

FORMAT = Format("ndjson")


class RowReader:
    """Reads lines as rows of the table that the writer's card says."""

    def __init__(self, writer: Writer) -> None:
        self.card: Card = writer.card
        self._schema, former, keys = writer.row_schema, writer.former_names, writer.keys
        self._parse = FORMAT.rows_parser(self._schema, b"", former, keys)
        self._read = FORMAT.block_reader(self._schema, b"", former, keys)

    def block(self, lines: Sequence[Line]) -> pa.Table | None:
        """The rows of all lines at once; None where that is not sure."""
        return None if self._read is None else self._read(b"\n".join(line for _, line in lines), len(lines))

    def rows(self, lines: Sequence[Line]) -> pa.Table:
        """The rows of all lines; raises Refused with the number of the first one that is none."""
        table = self.block(lines)
        return table_of([self._row(number, line) for number, line in lines], self._schema) if table is None else table

    def _row(self, number: int, line: bytes) -> Row:
        try:
            (row,) = self._parse(line)
        except (BadLine, SchemaRefused) as exc:
            hint = "Nothing of this request was taken: mend the row, and send all of it again."
            raise Refused(refused(400, f"row {number}: {exc}", hint, row=number)) from exc
        return row
