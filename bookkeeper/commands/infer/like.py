"""
`bookkeeper init --like FILE`: a schema, a partition that fits, and what there is to say of both.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    DateType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from bookkeeper.commands.infer.arrow import read_arrow
from bookkeeper.commands.infer.lines import looks_like_changes, read_changes, read_csv, read_ndjson
from bookkeeper.commands.infer.sample import Column, Sample
from bookkeeper.commands.new_ids import with_new_ids
from bookkeeper.errors import ConfigInvalid, NotPossible
from bookkeeper.format.csv_json_types import LIST, OBJECT, common_type
from bookkeeper.format.input_files import BYTE_ORDER_MARK, all_end, delimiter_of, opened, row_kind

#: names of columns that say when something happened, the likeliest first
_LIKELY = (
    *("event_time", "eventtime", "event_timestamp", "event_ts", "timestamp", "ts", "occurred_at", "happened_at"),
    *(
        "event_date",
        "time",
        "datetime",
        "date_time",
        "time_hour",
        "created_at",
        "created",
        "inserted_at",
        "date",
        "day",
    ),
)
#: a load writes a file per partition: with more of them than this the files are small
_MOST_PARTITIONS = 62


@dataclass(frozen=True, slots=True)
class Inferred:
    """A schema and where it comes from; `partition` is what fits, and `why`, both empty where nothing does."""

    schema: Schema
    partition: str
    why: str
    notes: tuple[str, ...]
    sample: Sample
    #: the options with which `writer lines` reads the file
    options: tuple[str, ...] = ()

    def review(self) -> list[Mapping[str, Any]]:
        """A row for each column: name, type, whether it is required, nulls and an example where they were looked at."""
        rows: list[Mapping[str, Any]] = []
        for field in self.schema.fields:
            seen = self.sample.columns.get(field.name)
            row: dict[str, Any] = {"column": field.name, "type": str(field.field_type), "required": field.required}
            if seen is not None and seen.values:
                row |= {"nulls": self.sample.lines - seen.values, "example": seen.example}
            rows.append(row)
        return rows

    def with_keys(self, names: Sequence[str]) -> "Inferred":
        """The same with required columns of these names; raises ConfigInvalid where one has nulls."""
        fields = []
        for field in self.schema.fields:
            seen = self.sample.columns.get(field.name)
            nulls = self.sample.lines - seen.values if seen is not None and seen.values else 0
            if field.name in names and not field.required and nulls:
                raise ConfigInvalid(
                    f"--key {field.name}: {nulls} of {self.sample.lines} rows have none", hint="Keys are required."
                )
            fields.append(field.model_copy(update={"required": field.required or field.name in names}))
        return replace(self, schema=Schema(*fields))


def infer(
    path: str, nulls: Sequence[str] = (), delimiter: str | None = None, changes: bool = False, keyed: bool = True
) -> Inferred:
    """
    The columns of a CSV, NDJSON, Parquet or Arrow file, as far as a bounded sample shows them.

    With `changes` it is NDJSON in Debezium's envelope, and the columns are those of the rows in it; not `keyed`, it is
    refused with the columns that may be the key.
    All are optional but those that a Parquet or Arrow file says are required. Raises ConfigInvalid, with what to do.
    """
    try:
        with open(path, "rb") as file:
            if not file.read(1):
                hint = "Give a file with some rows, or say the columns by --schema FILE."
                raise ConfigInvalid(f"{path}: the file is empty", hint=hint)
        if (kind := row_kind(path)) is not None:
            _refuse_csv_options(path, kind, nulls, delimiter)
            if changes:
                raise ConfigInvalid(f"{path}: it is {kind}, and changes are lines of JSON", hint="Make NDJSON.")
            return _of_arrow(path)
        if changes:
            return _of_changes(path, nulls, delimiter, keyed)
        return _of_lines(path, nulls, delimiter)
    except OSError as exc:
        raise ConfigInvalid(f"{path} cannot be read: {exc.strerror or exc}", hint="Give a file of data.") from exc
    except NotPossible as exc:
        raise ConfigInvalid(str(exc), hint=exc.hint) from exc


def _of_arrow(path: str) -> Inferred:
    arrow, sample = read_arrow(path)
    try:
        schema = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(arrow))
    except (ValueError, TypeError) as exc:
        raise ConfigInvalid(f"{path}: {exc}", hint="Say the columns by --schema FILE.") from exc
    return _with_partition(schema, sample, ())


def _of_changes(path: str, nulls: Sequence[str], delimiter: str | None, keyed: bool) -> Inferred:
    _refuse_csv_options(path, "a change stream in JSON", nulls, delimiter)
    sample, able = read_changes(path)
    if not keyed:
        raise ConfigInvalid(
            f"{path}: a change stream needs a keyed table, and no key is given",
            hint=f"Give --key COLUMN, the key of the table in the database. Never null: {', '.join(able) or 'none'}.",
        )
    return _of_sample(path, sample, ["--preset", "debezium"], False)


def _of_lines(path: str, nulls: Sequence[str], delimiter: str | None) -> Inferred:
    as_csv = _is_csv(path, nulls, delimiter)
    options: list[str] = []
    if as_csv:
        sign = delimiter or delimiter_of([path])
        sample = read_csv(path, sign, nulls)
        options += ["--format", "csv"] if not all_end([path], ".csv", ".tsv") else []
        options += ["--delimiter", delimiter] if delimiter and delimiter != delimiter_of([path]) else []
        options += [word for text in nulls for word in ("--null", text)]
    else:
        sample = read_ndjson(path)
        if looks_like_changes(sample):
            sample.notes.append(
                f"{path} looks like Debezium's changes: `bookkeeper init --like {path} --preset debezium --key COLUMN` "
                "makes a table of their rows."
            )
    if any("--ignore-unknown" in note for note in sample.notes):
        options.append("--ignore-unknown")
    return _of_sample(path, sample, options, as_csv)


def _of_sample(path: str, sample: Sample, options: Sequence[str], as_csv: bool) -> Inferred:
    fields = [
        NestedField(-1, name, _type(path, column, name, sample.notes, as_csv), required=False)
        for name, column in sample.columns.items()
    ]
    if not sample.whole:
        sample.notes.append(f"the types are those of the first {sample.lines} rows of {path}.")
    return _with_partition(with_new_ids(fields, path), sample, options)


def _is_csv(path: str, nulls: Sequence[str], delimiter: str | None) -> bool:
    """By its name, else by its first byte; raises ConfigInvalid for options of CSV that are given for JSON."""
    if all_end([path], ".csv", ".tsv"):
        return True
    as_json = all_end([path], ".ndjson", ".jsonl", ".json")
    if not as_json:
        with opened(path) as (file, _):
            as_json = file.read(4096).lstrip(BYTE_ORDER_MARK + b" \r\n\t").startswith(b"{")
    if as_json:
        _refuse_csv_options(path, "JSON", nulls, delimiter)
    elif not nulls and delimiter is None:
        hint = "Is it CSV? Then give --delimiter ','. Others are known by their first bytes."
        raise ConfigInvalid(f"{path}: it is not known what this file holds", hint=hint)
    return not as_json


def _refuse_csv_options(path: str, kind: str, nulls: Sequence[str], delimiter: str | None) -> None:
    given = " and ".join(name for name, value in (("--null", nulls), ("--delimiter", delimiter)) if value)
    if given:
        raise ConfigInvalid(
            f"{path} is {kind}, and {given} {'are' if ' ' in given else 'is'} for CSV",
            hint=f"Leave {given} out: {kind} has a null of its own. Is it CSV all the same? Name it *.csv.",
        )


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[\w./-]+", text) else f"'{text}'"


def _type(path: str, column: Column, where: str, notes: list[str], as_csv: bool) -> IcebergType:
    found = common_type(column.kinds) if column.kinds else None
    if not column.kinds:
        what = f"only {', '.join(map(repr, column.null_texts))}" if column.null_texts else "no value"
        notes.append(f"column {where!r} has {what}: taken as text.")
        return StringType()
    if as_csv:
        return _type_of_texts(column, where, notes, found)
    if found is None:
        (first, (line, text)), (second, (later, other)) = list(column.kinds.items())[:2]
        raise ConfigInvalid(
            f"{path}, line {later}: column {where!r} is {_named(second)} ({other}), "
            f"in line {line} {_named(first)} ({text})",
            hint="No type holds both: mend the line, or say the columns by --schema FILE; lines that do not fit are "
            "bad lines then.",
        )
    if found == OBJECT:
        if not column.fields:
            notes.append(f"column {where!r} has only empty objects: taken as a map of texts.")
            return MapType(-1, StringType(), -1, StringType(), value_required=False)
        return StructType(
            *[
                NestedField(-1, name, _type(path, child, f"{where}.{name}", notes, False), required=False)
                for name, child in column.fields.items()
            ]
        )
    if found == LIST:
        assert column.element is not None
        return ListType(-1, _type(path, column.element, f"{where}[]", notes, False), element_required=False)
    return _primitive(found)


def _named(kind: str) -> str:
    return {OBJECT: "an object", LIST: "a list", "string": "a text", "boolean": "a boolean"}.get(kind, f"a {kind}")


def _type_of_texts(column: Column, where: str, notes: list[str], found: str | None) -> IcebergType:
    """A CSV column is a text as soon as one of its fields is; a field that looks like null is said with its line."""
    if column.null_texts and found not in (None, "string"):
        text, line = next(iter(column.null_texts.items()))
        notes.append(
            f"column {where!r} is text, for line {line} has {text!r}; --null {_quoted(text)} makes it {found}."
        )
        return StringType()
    if found is None or (found == "string" and len(column.kinds) > 1):
        (first, (line, text)), (second, (later, other)) = list(column.kinds.items())[:2]
        notes.append(
            f"column {where!r} is text: line {line} has {text!r} ({first}), line {later} {other!r} ({second})."
        )
    return _primitive(found or "string")


def _primitive(kind: str) -> IcebergType:
    return NestedField.model_validate({"id": 1, "name": "x", "type": kind, "required": False}).field_type


def _with_partition(schema: Schema, sample: Sample, options: Sequence[str]) -> Inferred:
    partition, why = _partition(schema, sample)
    return Inferred(schema, partition, why, tuple(sample.notes), sample, tuple(options))


def _partition(schema: Schema, sample: Sample) -> tuple[str, str]:
    """The day, month or year of the column that likely says when a row happened, else of the first with a time."""
    timed = [field.name for field in schema.fields if isinstance(field.field_type, TimestampType | TimestamptzType)]
    columns = timed + [field.name for field in schema.fields if isinstance(field.field_type, DateType)]
    if not columns:
        return "", ""
    likely = [column for name in _LIKELY for column in columns if column.lower() == name]
    column = likely[0] if likely else columns[0]
    what = "a time" if column in timed else "a date"
    why = f"the first column with {what}" if column == columns[0] else "which by its name says when a row happened"
    days = sample.columns[column].days() or 1
    if days <= _MOST_PARTITIONS:
        return f"day({column})", why
    unit = "month" if days <= 31 * _MOST_PARTITIONS else "year"
    return f"{unit}({column})", f"{why}: it spans {days} days, and a load writes a file per partition"
