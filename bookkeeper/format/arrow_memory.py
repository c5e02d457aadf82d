"""
How much memory Arrow data of strangers takes: as it is read, and once each of its values is written out.

Before it is read its messages say it (Message.fbs and File.fbs, flatbuffers): a compressed buffer begins with the bytes
that it has uncompressed, and Arrow takes so many for it. What repeats values, such as a dictionary, takes more later.
"""

import struct
from collections.abc import Callable, Iterator

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

#: fields by their numbers: of a footer, of a message, of a dictionary, of a record batch
_BLOCKS, HEADER, DICTIONARY_DATA, _BUFFERS, COMPRESSION = (2, 3), 2, 1, 2, 3
SIZED = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
VIEWS = (pa.types.is_string_view, pa.types.is_binary_view)
_TAIL, _BLOCK, _BUFFER = struct.Struct("<i6s"), struct.Struct("<qi4xq"), struct.Struct("<qq")


def field_at(data: memoryview, table: int, number: int) -> int:
    """Where a field of a table begins; 0 where the table does not have it. Raises ValueError, struct.error."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if not 0 <= vtable < len(data):
        raise ValueError("a table of fields is outside of its message")
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", data, vtable + at)[0] if at < struct.unpack_from("<H", data, vtable)[0] else 0
    return table + offset if offset else 0


def table_at(data: memoryview, table: int, number: int) -> int:
    """Where the table in a field begins; raises ValueError, struct.error."""
    if not (at := field_at(data, table, number)):
        raise ValueError("a message lacks its header")
    return named_at(data, at)


def named_at(data: memoryview, at: int) -> int:
    """Where that begins which is named here; raises struct.error."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def unpacked_sizes(data: bytes) -> Iterator[int]:
    """
    The bytes that each batch and dictionary of an Arrow file takes in memory as it is read, by the file itself; raises
    ValueError where it is damaged.
    """
    try:
        size, _ = _TAIL.unpack_from(data, len(data) - _TAIL.size)
        footer = memoryview(data)[len(data) - _TAIL.size - size : len(data) - _TAIL.size]
        for number in _BLOCKS:
            for start, head, _ in _structs(footer, named_at(footer, 0), number, _BLOCK):
                message = pa.ipc.read_message(pa.py_buffer(data).slice(start))
                body = memoryview(data)[start + head :]
                yield max(len(message.body), _unpacked_size(message.type, memoryview(message.metadata), body))
    except (struct.error, pa.ArrowException, OSError, IndexError, EOFError) as exc:
        raise ValueError(f"a part of it is not there: {exc}") from exc


def _unpacked_size(kind: str, data: memoryview, body: memoryview) -> int:
    header = table_at(data, named_at(data, 0), HEADER)
    if kind == "dictionary":
        header = table_at(data, header, DICTIONARY_DATA)
    if not field_at(data, header, COMPRESSION):
        return 0
    buffers = _structs(data, header, _BUFFERS, _BUFFER)
    # -1: as it is
    return sum(max(length, *struct.unpack_from("<q", body, start)) for start, length in buffers if length)


def _structs(data: memoryview, table: int, number: int, kind: struct.Struct) -> Iterator[tuple[int, ...]]:
    if at := field_at(data, table, number):
        begin = named_at(data, at)
        for index in range(struct.unpack_from("<I", data, begin)[0]):
            yield kind.unpack_from(data, begin + 4 + index * kind.size)


def is_one_of(kind: pa.DataType, tests: tuple[Callable[[pa.DataType], bool], ...]) -> bool:
    """Whether a type is one of these."""
    return any(test(kind) for test in tests)


def written_size(column: pa.Array) -> int:
    """Bytes that a valid column takes beside its own once each value is written out; 0 where it is there as it is."""
    if pa.types.is_dictionary(column.type):
        values = column.dictionary
        if not is_one_of(values.type, SIZED):
            return len(column) * (values.nbytes // len(values) + 1) if len(values) else 0
        return int(pc.sum(pc.take(pc.binary_length(values), column.indices)).as_py() or 0)
    if is_one_of(column.type, VIEWS):
        views = memoryview(column.buffers()[1])[16 * column.offset : 16 * (column.offset + len(column))]
        return sum(views.cast("B").cast("i")[::4])  # a view begins with its length
    return 0


def repeats(kind: pa.DataType, outer: bool = True) -> bool:
    """
    Whether a type may hold a value many times, or values without bytes, so that `written_size` does not tell: such a
    type inside another one.
    """
    if pa.types.is_dictionary(kind) or pa.types.is_null(kind) or is_one_of(kind, VIEWS):
        return not outer or (pa.types.is_dictionary(kind) and repeats(kind.value_type, False))
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind) or pa.types.is_run_end_encoded(kind):
        return True
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_fixed_size_list(kind):
        size = kind.byte_width if pa.types.is_fixed_size_binary(kind) else kind.list_size
        if size < 1:
            return True
    if pa.types.is_struct(kind) and not kind.num_fields:
        return True
    return any(repeats(kind.field(index).type, False) for index in range(kind.num_fields))
