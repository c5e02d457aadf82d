"""
Whether an equality-delete file holds what its entry says, by its footer: the key columns alone, of types that the
table's keys can be read from, without nulls, and so many rows.

A file that readers or a fold cannot read would hide rows from no reader for certain, and would stay for ever. Reads the
end of each file, and of a long footer its beginning; both have a bound, whatever the file says. Parquet is decoded
here without a library: a footer that makes one fail must not end the process that commits.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.types import DecimalType, FixedType, IcebergType, NestedField

from bookkeeper.errors import (
    CannotRead,
    DeleteFileDiffers,
    FileFormatDiffers,
    Missing,
    Reject,
    StorageUnavailable,
    Unfit,
)
from bookkeeper.format.entries import DataFile, Entry
from bookkeeper.format.thrift import Reader
from bookkeeper.stores.store import Part, Range, Store

#: the end of a file that is read; most footers of delete files fit in
END_BYTES = 4 * 2**10
#: of a longer footer, from its beginning: the schema and the number of rows come first
SCHEMA_BYTES = 16 * 2**10
_MAGIC = b"PAR1"
_LEAST_BYTES = 12
#: FileMetaData (parquet.thrift)
_SCHEMA, _ROWS = 2, 3
#: SchemaElement
_TYPE, _LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _SCALE, _PRECISION, _ID, _LOGICAL = range(1, 11)
_BOOLEAN, _INT32, _INT64, _BYTE_ARRAY, _FIXED = 0, 1, 2, 6, 7
_REQUIRED, _OPTIONAL = 0, 1
#: LogicalType, a union
_STRING, _DECIMAL, _DATE, _TIME, _TIMESTAMP, _INTEGER, _UUID = 1, 5, 6, 7, 8, 10, 14
_MICROS = 2
#: ConvertedType, which older writers have in its place
_OLD: dict[int, tuple[int, dict[int, Any]]] = {
    0: (_STRING, {}),
    5: (_DECIMAL, {}),
    6: (_DATE, {}),
    8: (_TIME, {2: {_MICROS: {}}}),
}
_OLD |= {10: (_TIMESTAMP, {2: {_MICROS: {}}})}
_OLD |= {number + 15: (_INTEGER, {1: 8 << number, 2: True}) for number in range(4)}
#: what was read of a footer, or why nothing was
Footer = bytes | Missing | Unfit | StorageUnavailable | CannotRead


def read_footers(store: Store, files: Mapping[str, int]) -> dict[str, Footer]:
    """
    The beginning of the footer of each file, given its size in bytes by its key; one request each, all at once.

    A footer longer than END_BYTES takes a second one.
    """
    ends = {key: Range(key, max(0, size - END_BYTES), size) for key, size in files.items()}
    found = store.read_ranges([*ends.values()]) if ends else {}
    footers, longer = dict[str, Footer](), dict[str, Range]()
    for key, asked in ends.items():
        part = found[asked]
        begun = _begun(part, files[key]) if isinstance(part, Part) else part
        if isinstance(begun, int):
            longer[key] = Range(key, begun, min(begun + SCHEMA_BYTES, files[key] - 8))
        else:
            footers[key] = begun
    more = store.read_ranges([*longer.values()]) if longer else {}
    for key, asked in longer.items():
        part = more[asked]
        footers[key] = part.data if isinstance(part, Part) else part
    return footers


def _begun(part: Part, size: int) -> bytes | CannotRead | int:
    """The footer, what is wrong with the file's end, or where in the file the footer begins."""
    end = part.data
    if part.size != size or size < _LEAST_BYTES or end[-4:] != _MAGIC:
        return CannotRead(f"it ends with {end[-4:]!r}, which no Parquet file does that can be read here")
    length = int.from_bytes(end[-8:-4], "little")
    if not 0 < length <= size - _LEAST_BYTES:
        return CannotRead(f"its footer has {length} bytes, the file has {size}")
    return end[-8 - length : -8] if length + 8 <= len(end) else size - 8 - length


def footer_error(entry: Entry, footer: Footer, keys: Sequence[NestedField], alone: bool = True) -> Reject | None:
    """
    What is wrong with an equality-delete file of these keys, as the table has them now; None: nothing.

    Unless `alone`, it may have other columns beside them, as those of other programs, and nulls, which a fold reads.

    Storage that does not answer says nothing: None.
    """
    file = entry.data_file
    if isinstance(footer, StorageUnavailable):
        return None
    try:
        if not isinstance(footer, bytes):
            raise CannotRead(str(footer))
        wrong = next(_wrong_in(footer, file, keys, alone), "")
    except CannotRead as exc:
        return FileFormatDiffers(f"{file.path[:300]}: {exc}")
    return DeleteFileDiffers(f"{file.path[:300]}: {wrong}") if wrong else None


def _wrong_in(footer: bytes, file: DataFile, keys: Sequence[NestedField], alone: bool) -> Iterator[str]:
    """What is wrong with the file, the first thing first; raises CannotRead."""
    found = Reader(footer).struct(until=(_SCHEMA, _ROWS))
    elements, said = found.get(_SCHEMA), found.get(_ROWS)
    if not (isinstance(elements, list) and elements and all(isinstance(item, dict) for item in elements)):
        raise CannotRead("its footer has no schema")
    ids = [item.get(_ID) for item in elements[1:]]
    wanted = {key.field_id: key for key in keys}
    whole = all(type(number) is int for number in ids) and len({*ids}) == len(ids)
    if not (whole and (sorted(ids) == sorted(wanted) if alone else wanted.keys() <= {*ids})):
        shown = ", ".join("none" if number is None else str(number)[:20] for number in ids[:10])
        yield (
            f"its columns have the field ids {shown}, the keys of the table are {sorted(wanted)}; a delete file has "
            "the key columns alone"
        )
        return
    columns = dict(zip(ids, elements[1:], strict=True))
    if said != file.record_count:
        yield f"its footer says {str(said)[:30]} rows, its entry says {file.record_count}"
    for number, key in wanted.items():
        column = columns[number]
        if not fits(column, key.field_type):
            yield f"its column {number} is {_shown(column)}, which is not read as {key.field_type} ({key.name[:60]!r})"
        repetition = column.get(_REPETITION)
        if repetition not in (_REQUIRED, _OPTIONAL) or (
            alone and repetition == _OPTIONAL and key.required and file.null_value_counts.get(number)
        ):
            yield f"its column {number} holds nulls or lists; the key {key.name[:60]!r} is required"


def fits(column: Mapping[int, Any], kind: IcebergType) -> bool:
    """
    Whether a column, a SchemaElement of Parquet by its field ids, holds values of this type, or of one that the type
    was widened from (Iceberg spec, "Parquet" and "Schema Evolution").
    """
    stored, (logical, how), name = column.get(_TYPE), _logical(column), str(kind)
    if column.get(_CHILDREN):
        return False
    if isinstance(kind, DecimalType):
        scale, precision = how.get(1, column.get(_SCALE, 0)), how.get(2, column.get(_PRECISION))
        known = isinstance(precision, int) and precision <= kind.precision and scale == kind.scale
        return logical == _DECIMAL and stored in (_INT32, _INT64, _BYTE_ARRAY, _FIXED) and known
    if isinstance(kind, FixedType):
        return (stored, logical, column.get(_LENGTH)) == (_FIXED, None, len(kind))
    if name in ("time", "timestamp", "timestamptz"):
        unit, wanted = how.get(2), _TIME if name == "time" else _TIMESTAMP
        adjusted = column.get(_LOGICAL) is None or name == "time" or how.get(1) is (name == "timestamptz")
        return (stored, logical) == (_INT64, wanted) and isinstance(unit, dict) and _MICROS in unit and adjusted
    signed = logical is None or (logical == _INTEGER and how.get(2) is True)
    allowed = {
        "int": signed and stored == _INT32,
        "long": signed and stored in (_INT32, _INT64),
        "uuid": (stored, column.get(_LENGTH)) == (_FIXED, 16) and logical in (_UUID, None),
        "boolean": (stored, logical) == (_BOOLEAN, None),
        "date": (stored, logical) == (_INT32, _DATE),
        "string": (stored, logical) == (_BYTE_ARRAY, _STRING),
        "binary": (stored, logical) == (_BYTE_ARRAY, None),
    }
    return bool(allowed.get(name))


def _logical(column: Mapping[int, Any]) -> tuple[int | None, Mapping[int, Any]]:
    """Which logical type a column has, and its parameters."""
    logical = column.get(_LOGICAL)
    if isinstance(logical, dict) and len(logical) == 1:
        ((number, how),) = logical.items()
        return number, how if isinstance(how, dict) else {}
    converted = column.get(_CONVERTED)
    if converted is None:
        return None, {}
    return _OLD.get(converted, (-1, {})) if isinstance(converted, int) else (-1, {})


def _shown(column: Mapping[int, Any]) -> str:
    names = {0: "BOOLEAN", 1: "INT32", 2: "INT64", 3: "INT96", 4: "FLOAT", 5: "DOUBLE", 6: "BYTE_ARRAY", 7: "FIXED"}
    logicals = {_STRING: "STRING", _DECIMAL: "DECIMAL", _DATE: "DATE", _TIME: "TIME", _TIMESTAMP: "TIMESTAMP"}
    logicals |= {_INTEGER: "INTEGER", _UUID: "UUID"}
    logical = _logical(column)[0]
    stored = column.get(_TYPE)
    plain = names.get(stored, "a group") if isinstance(stored, int) else "a group"
    return plain if logical is None else f"{plain} ({logicals.get(logical, 'another logical type')})"
