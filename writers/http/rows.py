"""
Lines of requests as rows of a table, by the readers of the guest loader.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.contract.card import Card
from bookkeeper.errors import SchemaRefused
from writers.http.requests import NOTHING_TAKEN, Bad, Line, Partial, Refused
from writers.loader.formats import Format
from writers.loader.records import BadLine, Row, UnknownColumn, table_of
from writers.newer_card import NewerCard
from writers.writer import Writer

FORMAT = Format("ndjson")
_FEW_LINES = 32


class RowReader:
    """Reads lines as rows of the table that the writer's card says."""

    def __init__(self, writer: Writer) -> None:
        self.card: Card = writer.card
        self._writer = writer
        self._newer_card: NewerCard | None = None
        self._schema, former, keys = writer.row_schema, writer.former_names, writer.keys
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
        bad, unknown = Bad(), list[UnknownColumn]()
        table = pa.concat_tables(self._good(lines, bad, unknown))
        if isinstance(lines, Partial):
            if unknown and self._has_newer_card(lines):
                return RowReader(self._writer).rows(lines)
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

    def _has_newer_card(self, lines: Partial) -> bool:
        self._newer_card = self._newer_card or NewerCard(self._writer, lines.clock)
        return self._newer_card.ask()
