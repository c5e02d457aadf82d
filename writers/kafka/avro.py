"""
Messages of Avro as rows: the fields of a record are columns by their names, as the keys of a JSON object are.

A batch is read at once, column by column; where that is not sure, `row_of` decides for one message after the other.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.schema import Schema

from writers.changes import debezium
from writers.kafka.avro_schema import Avro, AvroSchema, NoAvro
from writers.kafka.avro_values import column_of, converter
from writers.loader.change_lines import DELETED
from writers.loader.records import BadLine, Row, UnknownColumn, columns_by_name, storage_types

_HEADER_BYTES = 5
#: schemas of one reader
_MOST_SCHEMAS = 1000


class Schemas(Protocol):
    """Knows the schema of each message."""

    def of(self, value: bytes) -> tuple[AvroSchema, int]:
        """The schema of a message, and where its value begins; raises BadLine, SourceUnavailable, NotPossible."""


class OneSchema:
    """All messages are bare values of one schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema

    def of(self, value: bytes) -> tuple[AvroSchema, int]:
        """See Schemas."""
        return self._schema, 0


class ById:
    """Messages begin with the byte 0 and the id of their schema in 4 bytes, as Confluent's serializers write them."""

    def __init__(self, schema: Callable[[int], AvroSchema]) -> None:
        """`schema` gives the schema of an id; it raises BadLine, SourceUnavailable, NotPossible."""
        self._schema = schema

    def of(self, value: bytes) -> tuple[AvroSchema, int]:
        """See Schemas."""
        if len(value) < _HEADER_BYTES or value[0] != 0:
            hint = (
                "is it JSON? (--format json)" if value.lstrip()[:1] in (b"{", b"[") else "is it bare Avro? (--schema)"
            )
            raise BadLine(f"it does not begin with the byte 0 and the id of a schema; {hint}")
        return self._schema(int.from_bytes(value[1:_HEADER_BYTES], "big")), _HEADER_BYTES


class AvroForm:
    """
    How messages of Avro are read; `changes`: each is the envelope of Debezium.
    """

    def __init__(self, schemas: Schemas, changes: bool = False, ignore_unknown: bool = False) -> None:
        self.schemas, self.changes, self.ignore_unknown = schemas, changes, ignore_unknown

    def reader(self, schema: Schema, former: Mapping[str, int], keys: Sequence[str]) -> "AvroReader":
        """A reader of messages for the table's columns."""
        return AvroReader(self, schema, former, keys)


class AvroReader:
    """To be used by one thread."""

    def __init__(self, form: AvroForm, schema: Schema, former: Mapping[str, int], keys: Sequence[str]) -> None:
        self._form, self._schema, self._former, self._keys = form, schema, former, keys
        #: by schema, and the field of the envelope: the columns of its record
        self._columns = dict[tuple[AvroSchema, str], _Columns]()

    def parse(self, value: bytes) -> Sequence[Row]:
        """The rows of one message; raises BadLine, UnknownColumn, SchemaRefused, SourceUnavailable, NotPossible."""
        schema, data = self._read(value)
        if not self._form.changes:
            return (self._of(schema, "").row(data),)
        is_envelope = schema.top.kind == "record" and "op" in schema.top.parts
        rows = list[Row]()
        for change in debezium(data if is_envelope else {}, self._keys):
            columns = self._of(schema, "before" if change.deleted else "after")
            rows.append(
                {**columns.row(change.row, self._keys), DELETED: True} if change.deleted else columns.row(change.row)
            )
        return rows

    def batch(self, values: Sequence[bytes]) -> pa.Table | None:
        """The rows of messages that are no changes, in their order; None where that is not sure."""
        found = dict[AvroSchema, tuple[list[int], list[Any]]]()
        try:
            for at, value in enumerate(values):
                schema, data = self._read(value)
                places, rows = found.setdefault(schema, ([], []))
                places.append(at)
                rows.append(data)
            tables = [self._of(schema, "").table(rows) for schema, (_, rows) in found.items()]
        except (ValueError, OverflowError, RecursionError, pa.ArrowException):
            return None
        if len(tables) == 1:
            return tables[0]
        order = [0] * len(values)
        for to, at in enumerate(at for places, _ in found.values() for at in places):
            order[at] = to
        return pa.concat_tables(tables).take(pa.array(order))

    def _read(self, value: bytes) -> tuple[AvroSchema, Any]:
        schema, at = self._form.schemas.of(value)
        try:
            return schema, schema.read(value, at)
        except NoAvro as exc:
            raise BadLine(f"not Avro of its schema: {exc}") from exc

    def _of(self, schema: AvroSchema, part: str) -> "_Columns":
        if (schema, part) not in self._columns:
            if len(self._columns) >= _MOST_SCHEMAS:
                self._columns.clear()
            of = schema.top.parts[part].value if part else schema.top
            if of is None or of.kind != "record":
                raise BadLine(f"the schema{f' of {part}' if part else ''} is a {of or 'union'}, a record is expected")
            made = _Columns(of, self._schema, self._former, self._form.ignore_unknown)
            self._columns[schema, part] = made
        return self._columns[schema, part]


class _Columns:
    """The fields of a record as the columns of the table."""

    def __init__(self, record: Avro, schema: Schema, former: Mapping[str, int], ignore_unknown: bool) -> None:
        known, kinds = columns_by_name(schema, former), storage_types(schema)
        self._unknown = [] if ignore_unknown else [name for name in record.parts if name not in known]
        of = {name: known[name] for name in record.parts if name in known}
        numbers = [item.field_id for item in of.values()]
        self._twice = next((item.name for item in of.values() if numbers.count(item.field_id) > 1), None)
        self._converts = {
            name: (item.field_id, converter(record.parts[name], item.field_type, ignore_unknown))
            for name, item in of.items()
        }
        self._required = {item.field_id: item.name for item in schema.fields if item.required}
        #: by field id: the field of the record, and what makes an array of its values
        self._makes = {
            item.field_id: (name, column_of(record.parts[name], item.field_type, kinds[item.field_id], ignore_unknown))
            for name, item in of.items()
        }
        self._columns = [(item, kinds[item.field_id]) for item in schema.fields]

    def row(self, data: Mapping[str, Any], only: Collection[str] | None = None) -> Row:
        """The row of a value; with names, only these columns. Raises BadLine, UnknownColumn."""
        if self._unknown and only is None:
            raise UnknownColumn(f"the table has no column {self._unknown[0]!r}")
        if self._twice is not None:
            raise BadLine(f"{self._twice!r} is given twice, by its name and by the one that it had before")
        row: dict[int, Any] = {}
        for name, (number, convert) in self._converts.items():
            if data.get(name) is None or (only is not None and name not in only):
                continue
            try:
                row[number] = convert(data[name])
            except (ValueError, OverflowError, RecursionError) as exc:
                raise BadLine(f"column {name!r}: {exc}") from exc
        for number, name in self._required.items() if only is None else ():
            if number not in row:
                raise BadLine(f"required column {name!r} is missing")
        return row

    def table(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """The rows of values; raises ValueError, OverflowError, pa.ArrowException."""
        if self._unknown or self._twice is not None:
            raise ValueError("no batch")
        arrays, names = [], []
        for item, kind in self._columns:
            if item.field_id in self._makes:
                name, make = self._makes[item.field_id]
                array = make([row[name] for row in rows])
            else:
                array = pa.nulls(len(rows), kind)
            if item.required and array.null_count:
                raise ValueError("no batch")
            arrays.append(array)
            names.append(item.name)
        return pa.Table.from_arrays(arrays, names=names)
