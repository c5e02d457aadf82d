"""
Objects as rows of a table, by the readers of the guests loader and sources.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile, gettempdir

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.schema import Schema

from bookkeeper.contract.card import Card
from bookkeeper.errors import NotPossible, SchemaRefused, StorageUnavailable
from bookkeeper.format.arrow_memory import repeats, unpacked_sizes, written_size
from bookkeeper.format.input_files import delimiter_of, row_kind
from writers.loader.blocks import ReadBlock
from writers.loader.formats import Format, format_of
from writers.loader.growth import Growth, with_empty
from writers.loader.lines import FEW_LINES, ParseRows
from writers.loader.records import BadLine, Row, table_of
from writers.sources.row_files import batches, empty
from writers.sources.source import Block, SourceLine, SourcePosition, file_blocks, first_line
from writers.values.cast import unknown_columns
from writers.values.given import check_texts
from writers.writer import Writer

_MOST_READERS, _FDS = 100, Path("/proc/self/fd")
_UNREADABLE = (BadLine, SchemaRefused, NotPossible, pa.ArrowException, ValueError, OverflowError)


class NoRows(Exception):
    """The object is no rows of the table; the message says why."""


@dataclass(frozen=True)
class Reading:
    """How objects are read; `kind`: ndjson or csv, None: by the ending. At most `most` bytes of one, also unpacked."""

    most: int
    kind: str | None = None
    delimiter: str | None = None
    nulls: tuple[str, ...] = ()
    base64_bytes: bool = False
    ignore_unknown: bool = False

    def form(self, key: str) -> Format:
        """Of lines in this object."""
        kind = format_of([key], self.kind)
        delimiter = self.delimiter or delimiter_of([key])
        nulls = self.nulls if kind == "csv" else ()
        return Format(kind, delimiter, self.base64_bytes, nulls, self.ignore_unknown)


class ObjectReader:
    """Reads objects as rows that one run of a writer takes."""

    def __init__(self, writer: Writer, reading: Reading, growth: dict[Format, Growth] | None = None) -> None:
        self.card: Card = writer.card
        self._writer, self._growth = writer, {} if growth is None else growth
        self._schema, self._former, self._keys = writer.row_schema, writer.former_names, writer.keys
        self._reading = reading
        #: of lines: they take a while to make, and most objects of a batch have the same
        self._readers = dict[tuple[Format, bytes], tuple[ParseRows, ReadBlock | None]]()

    def again(self) -> "ObjectReader":
        """One by the card that the writer has now."""
        return ObjectReader(self._writer, self._reading, self._growth)

    def rows(self, key: str, data: bytes) -> pa.Table:
        """All rows of the object; raises NoRows."""
        with _spooled(data) as name:
            try:
                return (
                    self._of_lines(self._reading.form(key), name)
                    if row_kind(name) is None
                    else self._of_rows(name, data)
                )
            except _UNREADABLE as exc:
                raise NoRows(str(exc).replace(name, key)) from exc

    def ask(self, key: str, data: bytes) -> None:
        """
        Asks for the columns that lines of the object lack, which is no rows, where the table's schema may grow. Raises
        Backpressure where no bookkeeper answers, and StorageUnavailable.
        """
        form = self._reading.form(key)
        growth = self._growth_of(form)
        if growth.is_on:
            with _spooled(data) as name, suppress(NoRows, *_UNREADABLE):
                for header, block in self._blocks(form, name) if row_kind(name) is None else ():
                    self._writer.ask(growth.of_block(block, header) or [])
        self._readers.clear()

    def _of_rows(self, name: str, data: bytes) -> pa.Table:
        if row_kind(name) == "Arrow":
            self._check_size(sum(unpacked_sizes(data)))
        tables, size = [empty(name)], 0
        if repeating := [field.name for field in tables[0].schema if repeats(field.type)]:
            raise NoRows(f"the type of column {repeating[0]!r} is not taken: cast it first")
        for _, _, table in batches(name, 0, data):
            check_texts(table)
            written = table.nbytes + sum(written_size(chunk) for column in table.columns for chunk in column.chunks)
            size += max(written, self._least_size(table))
            self._check_size(size)
            tables.append(table)
        rows = pa.concat_tables(tables)
        if self._reading.ignore_unknown:
            rows = rows.drop_columns(unknown_columns(rows.column_names, self.card.schema, self._former))
        return rows

    def _of_lines(self, form: Format, name: str) -> pa.Table:
        tables, size = list[pa.Table](), 0
        for header, block in self._blocks(form, name):
            tables.append(self._of_block(form, header, block))
            size += self._least_size(tables[-1])
            self._check_size(size)
        return pa.concat_tables(tables) if tables else table_of([], self._schema)

    def _blocks(self, form: Format, name: str) -> Iterator[tuple[bytes, Block]]:
        """The header, and a block of the lines behind it."""
        header, size = first_line(name) if form.has_header else b"", 0
        for block in file_blocks(name, SourcePosition()):
            size += block.end - block.start
            self._check_size(size)
            if block.cut:
                raise BadLine(f"line {block.number + 1}: it is too long")
            yield header, block.first_line()[1] if header and block.number == 0 else block

    def _of_block(self, form: Format, header: bytes, block: Block) -> pa.Table:
        parse, read = self._reader_of(form, header)
        table = None if read is None or block.count <= FEW_LINES else read(block.data, block.count)
        if table is not None:
            return table
        rows = (row for line in _filled(block) for row in self._parsed(form, parse, line))
        return table_of([*rows], self._schema)

    def _reader_of(self, form: Format, header: bytes) -> tuple[ParseRows, ReadBlock | None]:
        found = self._readers.get((form, header))
        if found is None:
            empty = self._growth_of(form).empty(header)
            known = Schema(*self._schema.fields, *empty, schema_id=self._schema.schema_id) if empty else self._schema
            columns = (known, header, self._former, self._keys)
            if len(self._readers) == _MOST_READERS:
                self._readers.clear()
            found = with_empty(form.rows_parser(*columns), form.block_reader(*columns), empty)
            self._readers[form, header] = found
        return found

    def _growth_of(self, form: Format) -> Growth:
        return self._growth.setdefault(form, Growth(self._writer, form))

    def _parsed(self, form: Format, parse: ParseRows, line: SourceLine) -> Sequence[Row]:
        try:
            return parse(line.text)
        except BadLine as exc:
            raise BadLine(f"line {line.number}: {self._growth_of(form).reason(exc)}") from exc
        except SchemaRefused as exc:
            raise BadLine(f"line {line.number}: {exc}") from exc

    def _least_size(self, table: pa.Table) -> int:
        """Of rows of the table: each value has a byte at least, also those of columns that the object lacks."""
        return int(table.num_rows * len(self._schema.fields))

    def _check_size(self, size: int) -> None:
        if size > self._reading.most:
            raise NoRows(f"unpacked it has more than {self._reading.most} bytes (--max-object)")


@contextmanager
def _spooled(data: bytes) -> Iterator[str]:
    """
    The path of a file with these bytes, for readers of this process; where /proc is, a killed one leaves nothing.
    Raises StorageUnavailable where the disk of temporary files takes no more.
    """
    with ExitStack() as stack:
        try:
            make = TemporaryFile if (unnamed := _FDS.is_dir()) else NamedTemporaryFile
            file = stack.enter_context(make(prefix="writer-watch-"))
            file.write(data)
            file.flush()
        except OSError as exc:
            raise StorageUnavailable(f"no temporary file in {gettempdir()}: {exc.strerror or exc}") from exc
        yield f"{_FDS}/{file.fileno()}" if unnamed else str(file.name)


def _filled(block: Block) -> list[SourceLine]:
    return [line for line in block.lines() if line.text.strip()]
