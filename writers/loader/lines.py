"""
Loads lines into the table: files exactly once, by position; stdin as it comes.

Rows are published with the position behind their last line. Lines that are no rows go to the file of bad lines, which
is durable before the position moves, so that none is lost. After a crash it may hold a line twice, with the same file
and offset.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import IO

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.schema import Schema

from bookkeeper.contract.card import Card
from bookkeeper.errors import NotPossible, SchemaRefused
from bookkeeper.format.input_files import compression, csv_header, row_kind
from writers.loader.blocks import ReadBlock
from writers.loader.change_lines import change_table, split_deleted
from writers.loader.formats import Format
from writers.loader.growth import Growth, with_empty
from writers.loader.records import BadLine, Row, UnknownColumn, table_of
from writers.sources.row_files import as_json, batches, empty
from writers.sources.source import (
    STDIN,
    Block,
    SourceLine,
    SourcePosition,
    bad_line_blocks,
    beginning,
    file_blocks,
    first_line,
    is_cut_json,
    is_within_line,
    pipe_blocks,
    place_of,
    position_of,
)
from writers.sources.stdin import ReplayedStdin
from writers.timing import Clock
from writers.values.cast import unknown_columns
from writers.writer import Writer

#: reads the rows of one line
ParseRows = Callable[[bytes], Sequence[Row]]

_CARD_EVERY = timedelta(seconds=1)
_PIPE_PAUSE_SECONDS = 0.5
#: so many lines are parsed in the time that it takes to read a block of any size
FEW_LINES = 16
#: after so many bad lines, or bytes of them, and no row at all it is the wrong file, table or format
_HOPELESS_LINES, _HOPELESS_BYTES = 10_000, 2**24


class BadLines:
    """The file for bad lines, one JSON object each; made for the first one."""

    def __init__(self, path: Path) -> None:
        self.path, self.count, self.size = path, 0, 0
        self._file: IO[bytes] | None = None

    def add(self, source: str, line: SourceLine, reason: str) -> None:
        """Append a bad line with its reason; where its text is not all of it the record says so."""
        text = line.text.decode("utf-8", "backslashreplace")
        record = {"file": source, "line": line.number, "offset": line.start, "reason": reason}
        record["text"] = text.rstrip("\r\n")
        if not line.exact or text.encode() != line.text:
            record["exact"] = False
        if self._file is None:
            self._file = open(self.path, "ab+")  # noqa: SIM115 closed by __exit__
            if self._file.seek(0, os.SEEK_END):
                self._file.seek(-1, os.SEEK_END)
                if self._file.read(1) != b"\n":
                    self._file.write(b"\n")  # a crash cut the last record
        self.size += self._file.write(json.dumps(record).encode() + b"\n")
        self.count += 1

    def sync(self) -> None:
        """Make what was added durable."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def __enter__(self) -> "BadLines":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


class Loader:
    """
    Turns lines into rows and publishes them when the writer is due.

    A block of lines is read at once; where that is not sure to give the rows that its lines give one by one, its halves
    are, and in the end its lines. So one bad line costs the time of some two blocks. `stopped` is asked after each
    block; `on_progress` is called before each publish. After more than `most_bad` bad lines NotPossible is raised: what
    is published stays, and the next run continues behind it. Without `most_bad` it is raised where a source begins with
    10,000 bad lines, or 16 MiB of them, and no row.
    """

    def __init__(
        self,
        writer: Writer,
        form: Format,
        bad_lines: BadLines,
        clock: Clock,
        *,
        most_bad: int | None = None,
        stopped: Callable[[], bool] = lambda: False,
        on_progress: Callable[["Loader"], None] = lambda loader: None,
    ) -> None:
        self.rows = self.published = 0
        #: of lines that were read; of the files on the disk: at the start, now, and in all
        self.read_bytes = self.disk_start = self.disk_bytes = self.disk_total = 0
        self.bad_lines = bad_lines
        if form.changes and not writer.keys:
            hint = "`bookkeeper init --key` makes it keyed; without --op-field and --preset its lines are new rows."
            raise NotPossible(f"{writer.card.table} is append-only: it takes no upserts and deletes", hint=hint)
        self._writer, self._form, self._clock = writer, form, clock
        self._most_bad, self._stopped, self._on_progress = most_bad, stopped, on_progress
        self._goes_on = writer.position is not None
        self._card_read_at: datetime | None = None
        self._head, self._growth = b"", Growth(writer, form)
        #: the last file may grow; bytes at its end that are no whole line
        self._may_grow, self._unfinished = False, 0
        #: the beginning that the file had when it was opened
        self._began = b""
        #: the block of the source that is being read
        self._block = Block(0, 0, b"")
        self._reader: tuple[Card, bytes, ParseRows, ReadBlock | None] | None = None
        # Of the block that is being read: rows, and those of the parser that follow them.
        self._tables: list[pa.Table] = []
        self._rows: list[Row] = []

    def load_files(self, files: Sequence[str]) -> bool:
        """
        Load the lines behind the published position; False when `stopped` before the end.

        Raises SchemaRefused at a change that cannot be applied: what is published stays, and the next run comes to the
        same line again, because what follows it may need it; and NotPossible where the last file ends within a line.
        """
        for name in files if self._form.changes else ():
            if (kind := row_kind(name)) is not None:
                raise NotPossible(f"{name} is {kind}: changes are read from lines", hint="Make NDJSON or CSV of it.")
        place = place_of(files, self._writer.position)
        sizes = [os.path.getsize(name) for name in files]
        self.disk_total = sum(sizes)
        self.disk_start = self.disk_bytes = sum(sizes[: place.index])
        if compression(files[place.index]) is None:
            self.disk_start += place.offset
        for index in range(place.index, len(files)):
            place = place if place.index == index else SourcePosition(index)
            self._began, self._may_grow = beginning(files[index]), index == len(files) - 1
            load = self._load_lines if row_kind(files[index]) is None else self._load_rows
            for end, line, on_disk in load(files[index], place):
                self.disk_bytes = sum(sizes[:index]) + on_disk
                place = SourcePosition(index, end, line)
                self._publish(files, place, only_if_due=not self._stopped())
                if self._stopped():
                    return False
        self._publish(files, place, only_if_due=False)
        if self._unfinished:
            raise NotPossible(
                f"{files[-1]} ends within a line: its last {self._unfinished} bytes are not loaded",
                hint="Is it still being written? Give the same command again later: what is before is published. Else "
                "end the file with a line break: then it is a bad line.",
            )
        return True

    def _load_lines(self, name: str, place: SourcePosition) -> Iterator[tuple[int, int, int]]:
        """Load a file block by block; yields the offset, line number and bytes of the file behind each."""
        self._head = first_line(name) if self._form.has_header else b""
        is_rest = not self._is_json and is_within_line(name, place.offset)
        for block in (bad_line_blocks if self._form.retry else file_blocks)(name, place):
            whole = self._without_cut_line(block)
            if whole is not None:
                self._take(name, self._without_rest(name, whole) if is_rest and not whole.cut else whole)
                is_rest = False
                yield whole.end, whole.number + whole.count, block.on_disk

    @property
    def _is_json(self) -> bool:
        return self._form.retry or self._form.kind == "ndjson"

    def _without_cut_line(self, block: Block) -> Block | None:
        """
        A block without the last line of a file that may grow, where JSON tells that it is cut; None: nothing is left.
        """
        begin = block.data.rfind(b"\n") + 1
        if not (self._may_grow and self._is_json) or block.cut or not is_cut_json(block.data[begin:]):
            return block
        self._unfinished = len(block.data) - begin
        return block.split_at(begin)[0] if begin else None

    def _without_rest(self, name: str, block: Block) -> Block:
        """A block without its first line, which is none: what is before it in the file was taken for the whole line."""
        rest, left = block.split_at(block.data.find(b"\n") + 1 or len(block.data))
        line = SourceLine(block.number, rest.start, rest.end, rest.data)
        self._add_bad(
            name, line, f"the rest of line {block.number}, whose beginning was taken as a line: check that row"
        )
        return left

    def _load_rows(self, name: str, place: SourcePosition) -> Iterator[tuple[int, int, int]]:
        """The same for a file of rows; raises SchemaRefused when its columns do not fit."""
        columns = self._known(empty(name))
        given = {self._writer.former_names.get(column) for column in columns.column_names}
        for field in self._writer.card.schema.fields:
            if field.required and field.name not in columns.column_names and field.field_id not in given:
                raise SchemaRefused(f"{name} has no column {field.name!r}, which is required")
        self._writer.write(columns)
        size = os.path.getsize(name)
        for end, total, table in batches(name, place.offset):
            self.read_bytes += table.num_rows * size // total
            self._take_rows(name, end - table.num_rows, self._known(table))
            self._check_bad_lines()
            yield end, end, end * size // total

    def _known(self, table: pa.Table) -> pa.Table:
        if not self._form.ignore_unknown:
            return table
        former = self._writer.former_names
        unknown = unknown_columns(table.column_names, self._writer.card.schema, former)
        return table.drop_columns(unknown)

    def _take_rows(self, source: str, number: int, table: pa.Table) -> None:
        """Write rows from `number` on; where they do not fit their halves, and in the end all but the bad rows."""
        try:
            self._writer.write(table)
            self.rows += table.num_rows
        except SchemaRefused as exc:
            if table.num_rows == 1:
                line = SourceLine(number + 1, number, number + 1, *as_json(table))
                self._add_bad(source, line, str(exc))
                return
            half = table.num_rows // 2
            self._take_rows(source, number, table.slice(0, half))
            self._take_rows(source, number + half, table.slice(half))

    def load_pipe(self, handle: int) -> bool:
        """Load lines until the pipe is closed; False when `stopped` before."""
        for block in pipe_blocks(handle, _PIPE_PAUSE_SECONDS):
            if block is not None:
                self._take(STDIN, block)
            self._publish((), None, only_if_due=not self._stopped())
            if self._stopped():
                return False
        self._publish((), None, only_if_due=False)
        return True

    def load_replayed(self, source: ReplayedStdin, handle: int) -> bool:
        """
        Load the lines of a pipe behind the published position; False when `stopped` before it is closed.

        Raises NotPossible where it ends within a line, which is not loaded: its source may have been cut.
        """
        for block in source.blocks(handle, _PIPE_PAUSE_SECONDS):
            if block is not None:
                self._head = self._head or source.first_line
                self._take(f"stdin:{self._writer.name}", block)
                source.taken(block)
            self._publish((), None, only_if_due=not self._stopped(), position=source.position())
            if self._stopped():
                return False
        self._publish((), None, only_if_due=False, position=source.position())
        if source.unfinished:
            raise NotPossible(
                f"stdin ended within a line: its last {source.unfinished} bytes are not loaded",
                hint="Was its source cut? Send it again, the last line with its line break.",
            )
        return True

    def _publish(
        self,
        files: Sequence[str],
        place: SourcePosition | None,
        only_if_due: bool,
        position: bytes | None = None,
    ) -> None:
        self._on_progress(self)
        if only_if_due and not self._writer.due():
            return
        self.bad_lines.sync()
        self._writer.publish(position if place is None else position_of(files, place, self._began))
        self.published = self.rows

    def _take(self, source: str, block: Block) -> None:
        self.read_bytes += block.end - block.start
        if self._form.has_header and block.number == 0:
            self._head, block = block.first_line()
            self._check_header(source)
        if block.cut:
            line = SourceLine(block.number + 1, block.start, block.end, block.data, exact=False)
            self._add_bad(source, line, f"a line of {block.end - block.start} bytes is too long")
        elif block.data:
            self._block = block
            self._split(source, block)
        self._check_bad_lines()
        self._write()

    def _check_header(self, source: str) -> None:
        """Also where nothing is behind it, as in a file whose lines end in a carriage return; raises NotPossible."""
        try:
            csv_header(self._head, self._form.delimiter)
        except NotPossible as exc:
            raise NotPossible(f"{source}: {exc}", hint=exc.hint) from exc

    def _add_bad(self, source: str, line: SourceLine, reason: str) -> None:
        """Keeps a bad line; raises NotPossible where so far there was nothing else."""
        self.bad_lines.add(source, line, reason)
        count, size = self.bad_lines.count, self.bad_lines.size
        enough = self._most_bad is None and (count >= _HOPELESS_LINES or size >= _HOPELESS_BYTES)
        if enough and not (self.rows or self._rows or self._tables or self._goes_on):
            raise NotPossible(
                f"none of the first {count} lines is a row of {self._writer.card.table}: stopped. The last is line "
                f"{line.number} of {source}: {reason}",
                hint=f"{self.bad_lines.path} has the reason for each. Are --format and the table right? Nothing was "
                "published. With --max-bad N it reads on until there are more than N.",
            )

    def _check_bad_lines(self) -> None:
        if self._most_bad is not None and self.bad_lines.count > self._most_bad:
            raise NotPossible(
                f"lines that are no rows of this table: {self.bad_lines.count}; --max-bad allows {self._most_bad}",
                hint=f"{self.bad_lines.path} has the reason for each. {self.published} rows are published; "
                "with a greater --max-bad and the same --name it continues behind them.",
            )

    def _split(self, source: str, block: Block) -> None:
        read = self._read_block()
        if read is None or block.count <= FEW_LINES:
            self._parse(source, block)
            return
        table = read(block.data, block.count)
        if table is None:
            for half in block.halves():
                self._split(source, half)
            return
        self._close_rows()
        self._tables.append(table)

    def _parse(self, source: str, block: Block) -> None:
        for line in block.lines():
            if line.text.strip():
                rows = self._rows_of(source, line)  # which may write self._rows, and begin them anew
                self._rows += rows

    def _rows_of(self, source: str, line: SourceLine) -> Sequence[Row]:
        try:
            try:
                return self._parser()(line.text)
            except BadLine as exc:
                if not (self._has_grown() or (isinstance(exc, UnknownColumn) and self._table_changed())):
                    raise
                return self._parser()(line.text)
        except BadLine as exc:
            self._add_bad(source, line, self._growth.reason(exc))
            return ()
        except SchemaRefused as exc:
            raise SchemaRefused(f"{source}, line {line.number}: {exc}", hint=exc.hint) from exc

    def _close_rows(self) -> None:
        if self._rows:
            to_table = change_table if self._form.changes else table_of
            self._tables.append(to_table(self._rows, self._writer.row_schema))
            self._rows = []

    def _write(self) -> None:
        self._close_rows()
        if self._tables:
            table = pa.concat_tables(self._tables)
            if self._form.changes:
                self._writer.change(*split_deleted(table))
            else:
                self._writer.write(table)
            self.rows += table.num_rows
            self._tables = []

    def _parser(self) -> ParseRows:
        return self._readers()[2]

    def _read_block(self) -> ReadBlock | None:
        return self._readers()[3]

    def _readers(self) -> tuple[Card, bytes, ParseRows, ReadBlock | None]:
        card, head = self._writer.card, self._head
        if self._reader is None or self._reader[0] is not card or self._reader[1] != head:
            schema, empty = self._writer.row_schema, self._growth.empty(head)
            known = Schema(*schema.fields, *empty, schema_id=schema.schema_id) if empty else schema
            columns = (known, head, self._writer.former_names, self._writer.keys)
            readers = with_empty(self._form.rows_parser(*columns), self._form.block_reader(*columns), empty)
            self._reader = (card, head, *readers)
        return self._reader

    def _has_grown(self) -> bool:
        """Asks for what the lines of this block lack; whether it may be read differently now."""
        wanted = self._growth.of_block(self._block, self._head)
        if wanted is None:
            return False
        self._write()  # in the columns by which these rows were read
        self._writer.ask(wanted)
        self._reader = None
        return True

    def _table_changed(self) -> bool:
        """Whether the card has changed since it was read; reads it at most once a second."""
        now, before = self._clock(), self._writer.card
        if self._card_read_at is not None and timedelta(0) <= now - self._card_read_at < _CARD_EVERY:
            return False
        self._card_read_at = now
        self._write()  # in the columns by which these rows were read
        self._writer.roll()
        return self._writer.card != before
