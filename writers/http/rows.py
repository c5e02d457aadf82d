"""
Lines of requests as rows of a table, by the readers of the guest loader.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow

from bookkeeper.contract.card import Card
from bookkeeper.errors import SchemaRefused
from writers.http.requests import NOTHING_TAKEN, ArrowRows, Bad, Line, Partial, Refused, printable, refused
from writers.loader.formats import Format
from writers.loader.records import BadLine, Row, UnknownColumn, table_of
from writers.newer_card import NewerCard
from writers.values.cast import cast
from writers.writer import Writer

FORMAT = Format("ndjson")
_FEW_LINES = 32
#: in microseconds
_YEAR_1, _YEAR_10000 = -62_135_596_800_000_000, 253_402_300_800_000_000
_UNFIT = (SchemaRefused, pa.ArrowException, ValueError, OverflowError)


class RowReader:
    """Reads lines as rows of the table that the writer's card says; `newer_card` is that of the writer's run."""

    def __init__(self, writer: Writer, newer_card: NewerCard) -> None:
        self.card: Card = writer.card
        self._writer = writer
        self._newer_card = newer_card
        self._schema, former, keys = writer.row_schema, writer.former_names, writer.keys
        self._arrow, self._former = schema_to_pyarrow(self._schema), former
        self._parse = FORMAT.rows_parser(self._schema, b"", former, keys)
        self._read = FORMAT.block_reader(self._schema, b"", former, keys)

    def block(self, lines: Sequence[Line]) -> pa.Table | None:
        """The rows of all lines at once; None where that is not sure."""
        return None if self._read is None else self._read(b"\n".join(line for _, line in lines), len(lines))

    def rows(self, lines: Sequence[Line]) -> pa.Table:
        """
        The rows of all lines, of Partial ones of the good ones. Raises Refused with the numbers of those that are none,
        and StorageUnavailable.
        """
        if isinstance(lines, ArrowRows):
            return self._fitted(lines.table)
        bad, unknown = Bad(), list[UnknownColumn]()
        table = pa.concat_tables(self._good(lines, bad, unknown))
        if isinstance(lines, Partial):
            if unknown and self._newer_card.ask():
                return RowReader(self._writer, self._newer_card).rows(lines)
            lines.bad = bad
        elif bad.count:
            raise Refused(bad.refused(400, NOTHING_TAKEN))
        return table

    def _good(self, lines: Sequence[Line], bad: Bad, unknown: list[UnknownColumn]) -> Iterator[pa.Table]:
        """The good rows, in halves where they are not read at once: one bad line costs the time of two readings."""
        if (table := self.block(lines)) is not None:
            yield table
        elif len(lines) > _FEW_LINES:
            half = len(lines) // 2
            yield from self._good(lines[:half], bad, unknown)
            yield from self._good(lines[half:], bad, unknown)
        else:
            yield table_of([*self._each(lines, bad, unknown)], self._schema)

    def _each(self, lines: Sequence[Line], bad: Bad, unknown: list[UnknownColumn]) -> Iterator[Row]:
        for number, line in lines:
            try:
                yield from self._parse(line)
            except (BadLine, SchemaRefused) as exc:
                bad.add(number, str(exc))
                if isinstance(exc, UnknownColumn):
                    unknown[:] = [exc]

    def _fitted(self, table: pa.Table) -> pa.Table:
        """The rows in the table's types, as those of a file; raises Refused with the first that does not fit."""
        try:
            return self._cast(table)
        except _UNFIT as exc:
            row = self._first_unfit(table)
            where = {} if row is None else {"row": row}
            error = f"the rows do not fit the table: {printable(str(exc))}"
            raise Refused(refused(422, error, getattr(exc, "hint", ""), None, **where)) from exc

    def _first_unfit(self, table: pa.Table) -> int | None:
        """The number of the first row that does not fit, from 1; None where the columns do not."""
        begin, rows = 0, table.num_rows
        if not self._fits(table.slice(0, 0)):
            return None
        while rows > 1:
            half = rows // 2
            if self._fits(table.slice(begin, half)):
                begin, half = begin + half, rows - half
            rows = half
        return begin + 1

    def _fits(self, table: pa.Table) -> bool:
        try:
            self._cast(table)
        except _UNFIT:
            return False
        return True

    def _cast(self, table: pa.Table) -> pa.Table:
        found = cast(table, self._schema, self._arrow, self._former)
        for column in found.columns:
            _check_times(column)
        return found


def _check_times(column: pa.ChunkedArray) -> None:
    """Raises SchemaRefused for times that lines cannot say: by some of them there is no partition."""
    if pa.types.is_struct(column.type):
        for part in column.flatten():
            _check_times(part)
    if pa.types.is_timestamp(column.type) and column.type.unit == "us":
        ends = pc.min_max(column.cast(pa.int64())).as_py()
        if ends["min"] is not None and not _YEAR_1 <= ends["min"] <= ends["max"] < _YEAR_10000:
            raise SchemaRefused("a time is outside of the years 1 to 9999")
