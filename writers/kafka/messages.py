"""
Messages become rows: one message one row, or a bad message; a change of Debezium none, one or two rows.

The values of a batch are read at once, as lines of JSON are (writers.loader.blocks), or as records of Avro
(writers.kafka.avro). Where that is not sure to give the rows that its messages give one by one, its halves are read,
and in the end its messages: a bad one costs the time of some two batches.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.schema import Schema

from bookkeeper.errors import ConfigInvalid, SchemaRefused
from writers.kafka.avro import AvroForm
from writers.kafka.partitions import Partition
from writers.loader.blocks import ReadBlock
from writers.loader.change_lines import change_table
from writers.loader.formats import Format
from writers.loader.records import BadLine, Row, UnknownColumn, storage_types, table_of

#: a confluent_kafka.Message
Message = Any

Form = Format | AvroForm
Parse = Callable[[bytes], Sequence[Row]]
ReadValues = Callable[[Sequence[bytes]], pa.Table | None]

#: so many messages are parsed in the time that it takes to read a batch of any size
_FEW = 16
_BYTES, _TEXTS = ("binary", "string"), ("string",)
_TYPES = {
    "value": _BYTES,
    "key": _BYTES,
    "headers": _TEXTS,
    "timestamp": ("timestamptz", "timestamp", "long"),
    "topic": _TEXTS,
    "partition": ("int", "long"),
    "offset": ("long",),
}


def _headers(message: Message) -> str | None:
    """JSON of a list of [name, value]; bytes that are no UTF-8 are written as \\xNN."""
    given = message.headers()
    if given is None:
        return None
    pairs = [[name, None if data is None else data.decode("utf-8", "backslashreplace")] for name, data in given]
    return json.dumps(pairs)


def _millis(message: Message) -> int | None:
    kind, millis = message.timestamp()
    return int(millis) if kind else None


#: what of a message a column may hold, beside what its value says
PARTS: Mapping[str, Callable[[Message], Any]] = {
    "value": lambda message: message.value(),
    "key": lambda message: message.key(),
    "headers": _headers,
    "timestamp": _millis,
    "topic": lambda message: message.topic(),
    "partition": lambda message: message.partition(),
    "offset": lambda message: message.offset(),
}


class MessageReader:
    """
    Reads messages as rows of `schema`; `filled` says which part of a message which column holds.

    `form` reads the values; None: no column but the filled ones is read. Raises ConfigInvalid.
    """

    def __init__(
        self,
        schema: Schema,
        keys: Sequence[str],
        former: Mapping[str, int],
        form: Form | None,
        filled: Mapping[str, str],
    ) -> None:
        self._schema, self._form = schema, form
        self._filled = {column: part for part, column in filled.items()}
        _check_filled(schema, keys, filled, form)
        body = Schema(*(item for item in schema.fields if item.name not in self._filled))
        self._body = body
        self._changes = form is not None and form.changes
        self._types = storage_types(schema)
        self._parse: Parse | None = None
        self._read: ReadValues | None = None
        if form is not None:
            self._parse, self._read = _readers(form, body, former, keys)

    @property
    def one_by_one(self) -> bool:
        """Whether it can read no batch at once."""
        return self._form is not None and self._read is None

    def block(self, messages: Sequence[Message]) -> pa.Table | None:
        """The rows of messages; None where that is not sure."""
        if self._form is None:
            body = self._empty(len(messages))
        else:
            values = [message.value() for message in messages]
            if self._read is None or None in values:
                return None
            body = self._read(values)
        if body is None:
            return None
        try:
            return self._with_filled(body, messages)
        except BadLine:
            return None

    def rows(self, messages: Sequence[Message], each: Sequence[Sequence[Row]]) -> pa.Table:
        """The table of the rows that `row_of` gave for each message."""
        rows = [row for some in each for row in some]
        if self._form is None:
            body = self._empty(len(rows))
        else:
            body = (change_table if self._changes else table_of)(rows, self._body)
        return self._with_filled(body, [item for item, some in zip(messages, each, strict=True) for _ in some])

    def row_of(self, message: Message) -> Sequence[Row]:
        """The rows of one message; raises BadLine, UnknownColumn and SchemaRefused."""
        if self._parse is None:
            found: Sequence[Row] = ({},)
        elif (value := message.value()) is not None:
            found = self._parse(value)
        elif self._changes:
            return ()  # a tombstone, which follows a delete
        else:
            raise BadLine("a message without a value")
        for column in self._filled:
            self._column(column, [message])
        return found

    def _empty(self, count: int) -> pa.Table:
        kinds = [(item.name, self._types[item.field_id]) for item in self._body.fields]
        return pa.Table.from_arrays([pa.nulls(count, kind) for _, kind in kinds], names=[name for name, _ in kinds])

    def _with_filled(self, body: pa.Table, messages: Sequence[Message]) -> pa.Table:
        """Raises BadLine."""
        made = {column: self._column(column, messages) for column in self._filled}
        names = [item.name for item in self._schema.fields]
        columns = [made[name] if name in made else body[name] for name in names]
        if self._changes:
            names, columns = [*names, "deleted"], [*columns, body.column(body.num_columns - 1)]
        return pa.Table.from_arrays(columns, names=names)

    def _column(self, column: str, messages: Sequence[Message]) -> pa.Array:
        """Raises BadLine."""
        of, wanted = self._schema.find_field(column), PARTS[self._filled[column]]
        values = [wanted(message) for message in messages]
        if of.required and None in values:
            raise BadLine(f"a message without a {self._filled[column]}, and column {column!r} is required")
        try:
            return _array(values, self._types[of.field_id])
        except (pa.ArrowInvalid, UnicodeDecodeError) as exc:
            raise BadLine(f"column {column!r}: {exc}") from exc


def _readers(
    form: Form, schema: Schema, former: Mapping[str, int], keys: Sequence[str]
) -> tuple[Parse, ReadValues | None]:
    """A parser of one value, and a reader of many, if there is one."""
    if isinstance(form, AvroForm):
        reader = form.reader(schema, former, keys)
        return reader.parse, None if form.changes else reader.batch
    parse, read = form.rows_parser(schema, b"", former, keys), form.block_reader(schema, b"", former, keys)
    return parse, None if read is None else partial(_read_lines, read)


def _read_lines(read: ReadBlock, values: Sequence[bytes]) -> pa.Table | None:
    data = b"\n".join(values)
    if data.count(b"\n") != len(values) - 1:
        return None  # a line break in a message: it could be two lines, and another none
    return read(data, len(values))


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(pa.timestamp("ms", kind.tz)).cast(kind)
    if pa.types.is_large_string(kind) or pa.types.is_string(kind):
        texts = any(isinstance(value, str) for value in values)
        return pa.array(values, kind) if texts else pa.array(values, pa.large_binary()).cast(kind)
    return pa.array(values, kind)


def _check_filled(schema: Schema, keys: Sequence[str], filled: Mapping[str, str], form: Form | None) -> None:
    changes = form is not None and form.changes
    for item in schema.fields if form is None else ():
        if item.required and item.name not in filled.values():
            raise ConfigInvalid(f"column {item.name!r} is required, and no --column fills it")
    known = {item.name: str(item.field_type) for item in schema.fields}
    for part, column in filled.items():
        if column not in known:
            raise ConfigInvalid(f"--column {part}={column}: the table has no column {column!r}")
        if known[column] not in _TYPES[part]:
            types = " or ".join(_TYPES[part])
            raise ConfigInvalid(f"--column {part}={column}: the column is {known[column]}, {types} is expected")
        if column in keys and changes:
            raise ConfigInvalid(f"--column {part}={column}: of a change the keys are in the value")


@dataclass(frozen=True, slots=True)
class Bad:
    """
    A message that is no row; `skipped`: it was passed over, else its partition stops before it. `final`: it may never
    be passed over.
    """

    message: Message
    reason: str
    skipped: bool
    final: bool = False

    @property
    def partition(self) -> Partition:
        """The partition that it comes from."""
        return partition_of(self.message)

    @property
    def offset(self) -> int:
        """Its offset there."""
        return int(self.message.offset())


@dataclass
class Converted:
    """
    What a batch gave: tables in the order of its messages, bad messages, and where partitions stop before one.
    """

    tables: list[pa.Table] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)
    stopped: dict[Partition, int] = field(default_factory=dict)


class Outdated(Exception):
    """A message has a column that the table, as it is known here, does not have: it may have changed."""


def converted(reader: MessageReader, messages: Sequence[Message], skips: int, is_newest: bool) -> Converted:
    """
    The rows of messages of any partitions, each partition in its order.

    At most `skips` bad messages are passed over; before one more its partition stops. Raises Outdated, unless the table
    as it is known here `is_newest`.
    """
    result = Converted()
    _split(reader, list(messages), result, skips, is_newest)
    return result


def _split(reader: MessageReader, messages: list[Message], result: Converted, skips: int, is_newest: bool) -> None:
    if result.stopped:
        messages = [message for message in messages if partition_of(message) not in result.stopped]
    few = len(messages) <= _FEW or reader.one_by_one
    table = None if few else reader.block(messages)
    if table is not None:
        result.tables.append(table)
    elif not few:
        middle = len(messages) // 2
        for half in (messages[:middle], messages[middle:]):
            _split(reader, half, result, skips, is_newest)
    elif messages:
        _one_by_one(reader, messages, result, skips, is_newest)


def _one_by_one(reader: MessageReader, messages: list[Message], result: Converted, skips: int, is_newest: bool) -> None:
    good: list[Message] = []
    each: list[Sequence[Row]] = []
    for message in messages:
        partition = partition_of(message)
        if partition in result.stopped:
            continue
        try:
            rows = reader.row_of(message)
        except (BadLine, SchemaRefused) as exc:
            if isinstance(exc, UnknownColumn) and not is_newest:
                raise Outdated(str(exc)) from exc
            # What follows a change that cannot be applied may need it: it is never passed over.
            final = not isinstance(exc, BadLine)
            skipped = not final and sum(bad.skipped for bad in result.bad) < skips
            result.bad.append(Bad(message, str(exc), skipped, final))
            if not skipped:
                result.stopped[partition] = message.offset()
            continue
        good.append(message)
        each.append(rows)
    if any(each):
        result.tables.append(reader.rows(good, each))


def partition_of(message: Message) -> Partition:
    """
    The partition that a message comes from.
    """
    return Partition(message.topic(), message.partition())
