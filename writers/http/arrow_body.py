"""
The body of a request as an Arrow stream: bounded by what its messages say before it is read, then validated in full.

What it may hold is what takes memory in proportion to its bytes, as it is and as the columns of a table: so no
compressed buffers, no dictionary or view inside another type, and no lists of nothing.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.format.arrow_memory import (
    COMPRESSION,
    DICTIONARY_DATA,
    HEADER,
    SIZED,
    VIEWS,
    field_at,
    is_one_of,
    named_at,
    table_at,
    written_size,
)
from writers.http.requests import ArrowRows, Refused, printable, refused

ARROW = "application/vnd.apache.arrow.stream"
MOST_MESSAGES, MOST_COLUMNS, MOST_DEPTH = 1000, 2000, 16
_END = b"\xff\xff\xff\xff\0\0\0\0"
#: fields of the tables of Arrow's format (Message.fbs and Schema.fbs), by their numbers
_ENDIANNESS, _LENGTH, _IS_DELTA = 0, 0, 2
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
                reserve(written_size(column))
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
    header = table_at(data, named_at(data, 0), HEADER)
    if kind == "schema":
        at = field_at(data, header, _ENDIANNESS)
        if at and struct.unpack_from("<h", data, at)[0]:
            raise Refused(refused(400, "the stream is big-endian", "Send it little-endian."))
        return 0
    if kind == "dictionary":
        at = field_at(data, header, _IS_DELTA)
        if at and data[at]:
            raise Refused(refused(400, "the stream has dictionaries in parts (deltas)", "Send each as a whole."))
        header = table_at(data, header, DICTIONARY_DATA)
    elif kind != "record batch":
        raise Refused(refused(400, f"the stream has a message of another kind: {kind}"))
    if field_at(data, header, COMPRESSION):
        raise Refused(refused(400, "the stream has compressed buffers", _PACK_ALL))
    at = field_at(data, header, _LENGTH)
    length = struct.unpack_from("<q", data, at)[0] if at else 0
    if length < 0:
        raise ValueError("a batch of less than no rows")
    return int(length)


def _check_schema(schema: pa.Schema) -> None:
    if _count(schema) > MOST_COLUMNS:
        raise Refused(refused(413, f"the stream has more than {MOST_COLUMNS} columns"))
    for field in schema:
        kind = field.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        elif pa.types.is_null(kind) or is_one_of(kind, VIEWS):
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
    return isinstance(kind, pa.UuidType) or is_one_of(kind, _FIXED) or is_one_of(kind, SIZED)
