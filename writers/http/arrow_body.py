"""
The body of a request as an Arrow stream: bounded by what its messages say before it is read, then validated in full.

What it may hold is what takes memory in proportion to its bytes, as it is and as the columns of a table: so no
compressed buffers, no dictionary or view inside another type, and no lists of nothing.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from writers.http.requests import ArrowRows, Refused, printable, refused

ARROW = "application/vnd.apache.arrow.stream"
MOST_MESSAGES, MOST_COLUMNS, MOST_DEPTH = 1000, 2000, 16
_END = b"\xff\xff\xff\xff\0\0\0\0"
#: fields of the tables of Arrow's format (Message.fbs and Schema.fbs), by their numbers
_HEADER, _ENDIANNESS, _LENGTH, _COMPRESSION, _DICTIONARY_DATA, _IS_DELTA = 2, 0, 0, 3, 1, 2
_PACK_ALL = "Send it without; the whole body may have Content-Encoding zstd."
_FIXED = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
)
_SIZED = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
_VIEWS = (pa.types.is_string_view, pa.types.is_binary_view)


def arrow_rows(body: bytes, most_rows: int, reserve: Callable[[int], None]) -> ArrowRows:
    """
    The rows of an Arrow stream, whole and valid; `reserve` is told of bytes that its columns take beside the body.
    Raises Refused.
    """
    with _refusing():
        _check_messages(body, most_rows)
        with pa.ipc.open_stream(pa.py_buffer(body), options=pa.ipc.IpcReadOptions(use_threads=False)) as stream:
            _check_schema(stream.schema)
            batches = [batch for batch in stream if batch.num_rows]
        for batch in batches:
            batch.validate(full=True)
        for batch in batches:
            for column in batch.columns:
                reserve(_plain_size(column))
        if not batches:
            raise Refused(refused(400, "the body has no rows"))
        return ArrowRows(pa.Table.from_batches(batches), body)


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, struct.error, OverflowError) as exc:
        raise Refused(refused(400, f"the body is no Arrow stream: {printable(str(exc))}")) from exc


def _check_messages(body: bytes, most_rows: int) -> None:
    """
    Raises Refused for what could take more memory than the body, or is not checked while it is read; ValueError where
    the stream does not end with the body.
    """
    source = pa.BufferReader(body)
    reader, count, rows, at = pa.ipc.MessageReader.open_stream(source), 0, 0, 0
    while (message := _next(reader)) is not None:
        at, count = source.tell(), count + 1
        if count > MOST_MESSAGES:
            raise Refused(refused(413, f"the stream has more than {MOST_MESSAGES} messages", "Send larger batches."))
        rows += _rows_of(message.type, memoryview(message.metadata))
        if rows > most_rows:
            hint = "Send the rows in several requests."
            raise Refused(refused(413, f"the body has more than {most_rows} rows", hint))
    if body[at:] != _END:
        raise ValueError("its end is cut off, or there are bytes behind it")


def _next(reader: "pa.ipc.MessageReader") -> "pa.ipc.Message | None":
    try:
        return reader.read_next_message()
    except StopIteration:
        return None


def _rows_of(kind: str, data: memoryview) -> int:
    """The rows that a message brings; raises Refused."""
    header = _inner(data, _pointed(data, 0), _HEADER)
    if kind == "schema":
        at = _field(data, header, _ENDIANNESS)
        if at and struct.unpack_from("<h", data, at)[0]:
            raise Refused(refused(400, "the stream is big-endian", "Send it little-endian."))
        return 0
    if kind == "dictionary":
        at = _field(data, header, _IS_DELTA)
        if at and data[at]:
            raise Refused(refused(400, "the stream has dictionaries in parts (deltas)", "Send each as a whole."))
        header = _inner(data, header, _DICTIONARY_DATA)
    elif kind != "record batch":
        raise Refused(refused(400, f"the stream has a message of another kind: {kind}"))
    if _field(data, header, _COMPRESSION):
        raise Refused(refused(400, "the stream has compressed buffers", _PACK_ALL))
    at = _field(data, header, _LENGTH)
    length = struct.unpack_from("<q", data, at)[0] if at else 0
    if length < 0:
        raise ValueError("a batch of less than no rows")
    return int(length)


def _field(data: memoryview, table: int, number: int) -> int:
    """Where a field of a table begins (flatbuffers); 0 where the table does not have it."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if not 0 <= vtable < len(data):
        raise ValueError("a table of fields is outside of its message")
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", data, vtable + at)[0] if at < struct.unpack_from("<H", data, vtable)[0] else 0
    return table + offset if offset else 0


def _inner(data: memoryview, table: int, number: int) -> int:
    if not (at := _field(data, table, number)):
        raise ValueError("a message lacks its header")
    return _pointed(data, at)


def _pointed(data: memoryview, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


def _check_schema(schema: pa.Schema) -> None:
    if _count(schema) > MOST_COLUMNS:
        raise Refused(refused(413, f"the stream has more than {MOST_COLUMNS} columns"))
    for field in schema:
        kind = field.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        elif pa.types.is_null(kind) or _is(kind, _VIEWS):
            continue
        if not _takes(kind, MOST_DEPTH):
            error = f"column {printable(repr(field.name))}: type {printable(str(field.type))} is not read here"
            raise Refused(refused(400, error, "Cast the column first."))


def _count(schema: pa.Schema) -> int:
    """The columns with those inside, MOST_COLUMNS and one at most; raises ValueError for a name that is not UTF-8."""
    fields, found = [*schema], 0
    while fields and found <= MOST_COLUMNS:
        field = fields.pop()
        assert isinstance(field.name, str)
        found += 1
        fields += [field.type.field(index) for index in range(field.type.num_fields)]
    return found


def _takes(kind: pa.DataType, depth: int) -> bool:
    """Whether values of a type take no more memory than their bytes, also as another type."""
    if pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parts = [kind.field(index).type for index in range(kind.num_fields)]
        return bool(parts) and depth > 0 and all(_takes(part, depth - 1) for part in parts)
    if pa.types.is_fixed_size_binary(kind):
        return bool(kind.byte_width > 0)
    return isinstance(kind, pa.UuidType) or _is(kind, _FIXED) or _is(kind, _SIZED)


def _is(kind: pa.DataType, tests: tuple[Callable[[pa.DataType], bool], ...]) -> bool:
    return any(test(kind) for test in tests)


def _plain_size(column: pa.Array) -> int:
    """Bytes that a valid column takes beside the body once each value is written out; 0 where it is there as it is."""
    if pa.types.is_dictionary(column.type):
        values = column.dictionary
        if not _is(values.type, _SIZED):
            return len(column) * (values.nbytes // len(values) + 1) if len(values) else 0
        return int(pc.sum(pc.take(pc.binary_length(values), column.indices)).as_py() or 0)
    if _is(column.type, _VIEWS):
        views = memoryview(column.buffers()[1])[16 * column.offset : 16 * (column.offset + len(column))]
        return sum(views.cast("B").cast("i")[::4])  # a view begins with its length
    return 0
