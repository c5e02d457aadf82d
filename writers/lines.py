"""
Loads lines into the table: files exactly once, by position; stdin as it comes.

Rows are published with the position behind their last line. Lines that are no rows go to the file of bad lines, which
is durable before the position moves, so that none is lost. After a crash it may hold a line twice, with the same file
and offset.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import IO

from pyiceberg.schema import Schema

from writers.source import SourceLine, SourcePosition, file_lines, first_line, pipe_lines, place_of, position_of
from writers.timing import Clock
from writers.values.records import BadLine, Parse, Row, UnknownColumn, table_of
from writers.writer import Writer

_CARD_EVERY = timedelta(seconds=1)
_PIPE_PAUSE_SECONDS = 0.5

MakeParser = Callable[[Schema, bytes, Mapping[str, int]], Parse]


class BadLines:
    """The file for bad lines, one JSON object each; made for the first one."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        self._file: IO[bytes] | None = None

    def add(self, source: str, line: SourceLine, reason: str) -> None:
        """Append a bad line with its reason."""
        text = line.text.decode("utf-8", "backslashreplace").rstrip("\r\n")
        record = {"file": source, "line": line.number, "offset": line.start, "reason": reason, "text": text}
        if self._file is None:
            self._file = open(self.path, "ab+")  # noqa: SIM115 closed by __exit__
            if self._file.seek(0, os.SEEK_END):
                self._file.seek(-1, os.SEEK_END)
                if self._file.read(1) != b"\n":
                    self._file.write(b"\n")  # a crash cut the last record
        self._file.write(json.dumps(record).encode() + b"\n")
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

    `stopped` is asked after each piece of lines; `on_progress` is called before each publish.
    """

    def __init__(
        self,
        writer: Writer,
        make_parser: MakeParser,
        bad_lines: BadLines,
        clock: Clock,
        *,
        header: bool,
        stopped: Callable[[], bool] = lambda: False,
        on_progress: Callable[["Loader"], None] = lambda loader: None,
    ) -> None:
        self.rows = self.published = 0
        self.bad_lines = bad_lines
        self._writer, self._make_parser, self._clock = writer, make_parser, clock
        self._header, self._stopped, self._on_progress = header, stopped, on_progress
        self._card_read_at: datetime | None = None
        self._head = b""
        self._parser: tuple[Schema, bytes, Parse] | None = None

    def load_files(self, files: Sequence[str]) -> bool:
        """Load the lines behind the published position; False when `stopped` before the end."""
        place = place_of(files, self._writer.position)
        for index in range(place.index, len(files)):
            place = place if place.index == index else SourcePosition(index)
            self._head = first_line(files[index]) if self._header else b""
            for lines in file_lines(files[index], place):
                self._take(files[index], lines)
                place = SourcePosition(index, lines[-1].end, lines[-1].number)
                self._publish(position_of(files, place), only_if_due=not self._stopped())
                if self._stopped():
                    return False
        self._publish(position_of(files, place), only_if_due=False)
        return True

    def load_pipe(self, handle: int) -> bool:
        """Load lines until the pipe is closed; False when `stopped` before."""
        for lines in pipe_lines(handle, _PIPE_PAUSE_SECONDS):
            self._take("-", lines)
            self._publish(None, only_if_due=not self._stopped())
            if self._stopped():
                return False
        self._publish(None, only_if_due=False)
        return True

    def _publish(self, position: bytes | None, only_if_due: bool) -> None:
        self._on_progress(self)
        if only_if_due and not self._writer.due():
            return
        self.bad_lines.sync()
        self._writer.publish(position)
        self.published = self.rows

    def _take(self, source: str, lines: Sequence[SourceLine]) -> None:
        rows = []
        for line in lines:
            if self._header and line.number == 1:
                self._head = line.text
            elif line.text.strip():
                row = self._row(source, line)
                rows += [] if row is None else [row]
        if rows:
            self._writer.write(table_of(rows, self._writer.card.schema))
            self.rows += len(rows)

    def _row(self, source: str, line: SourceLine) -> Row | None:
        try:
            try:
                return self._parse()(line.text)
            except UnknownColumn:
                if not self._table_changed():
                    raise
                return self._parse()(line.text)
        except BadLine as exc:
            self.bad_lines.add(source, line, str(exc))
            return None

    def _parse(self) -> Parse:
        schema = self._writer.card.schema
        if self._parser is None or self._parser[0] is not schema or self._parser[1] != self._head:
            self._parser = (schema, self._head, self._make_parser(schema, self._head, self._writer.former_names))
        return self._parser[2]

    def _table_changed(self) -> bool:
        """Whether the card has changed since it was read; reads it at most once a second."""
        now, before = self._clock(), self._writer.card
        if self._card_read_at is not None and timedelta(0) <= now - self._card_read_at < _CARD_EVERY:
            return False
        self._card_read_at = now
        self._writer.roll()
        return self._writer.card != before
