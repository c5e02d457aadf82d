"""
Which text is which type and value, to `init --like`, to growing schemas and to both parsers of `writer lines`.

A table says for each spelling the type of a new column, and the value in columns of each type; then spellings are made
by chance, and the readers are compared with each other.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from bookkeeper.commands.infer.like import infer
from bookkeeper.contract.column_requests import ADD, ColumnRequest
from bookkeeper.format import csv_json_types as text_types
from bookkeeper.format.csv_json_types import type_of_json, type_of_text
from bookkeeper.format.json_decoder import line_decoder
from writers.loader.formats import Format
from writers.loader.records import BadLine, Row, table_of
from writers.values.unknown_fields import requests_for

KINDS: list[IcebergType] = [
    *(BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), DecimalType(9, 2), DecimalType(38, 0)),
    *(DateType(), TimeType(), TimestampType(), TimestamptzType(), UUIDType()),
]
_TEXTS_IN_JSON = {"date", "time", "timestamp", "timestamptz", "uuid", "decimal(9, 2)", "decimal(38, 0)"}
EXACT = Context(prec=60)
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
UUID_BYTES = bytes.fromhex("f79c3e09677c4bbda4793f349cb785e7")


def number(value: int | str, *kinds: str) -> dict[str, Any]:
    """A number in the columns of these types."""
    made: Mapping[str, Callable[[Any], Any]] = {"int": int, "long": int, "float": float, "double": float}
    return {kind: made.get(kind, Decimal)(value) for kind in kinds}


WHOLE = ("int", "long", "float", "double", "decimal(9, 2)", "decimal(38, 0)")
REAL, FLOATS, LARGE = ("float", "double", "decimal(9, 2)"), ("float", "double"), ("float", "double", "decimal(38, 0)")


def micros(*parts: int, offset: timedelta = timedelta(0)) -> int:
    return (datetime(*parts, tzinfo=UTC) - offset - _EPOCH) // _MICROSECOND  # type: ignore[arg-type, misc]


def at(*parts: int, day: bool = False) -> dict[str, Any]:
    found = {"timestamp": micros(*parts)}
    return found | ({"date": date(*parts)} if day else {})


def zoned(*parts: int, minutes: int = 0) -> dict[str, Any]:
    return {"timestamptz": micros(*parts, offset=timedelta(minutes=minutes))}


NOON = (2026, 1, 31, 12)
#: the text, the type of a new column for it, and its values in columns of types that take it
SPELLINGS: list[tuple[str, str, dict[str, Any]]] = [
    ("0", "long", number(0, *WHOLE)),
    ("-0", "long", number(0, "int", "long", "decimal(9, 2)", "decimal(38, 0)") | {"float": -0.0, "double": -0.0}),
    ("7", "long", number(7, *WHOLE)),
    ("-7", "long", number(-7, *WHOLE)),
    # with a plus or leading zeros it may be a telephone number or a postal code
    ("+5", "string", number(5, *WHOLE)),
    ("007", "string", number(7, *WHOLE)),
    ("-007", "string", number(-7, *WHOLE)),
    ("00", "string", number(0, *WHOLE)),
    (" 5", "string", number(5, *WHOLE)),
    ("\t5 ", "string", number(5, *WHOLE)),
    ("\u00a05", "string", {}),
    ("5\v", "string", {}),
    ("1_000", "string", {}),
    ("\uff11\uff12", "string", {}),
    ("0x1F", "string", {}),
    ("1,5", "string", {}),
    ("2147483648", "long", number(2**31, "long", *LARGE)),
    ("9223372036854775807", "long", number(2**63 - 1, "long", *LARGE)),
    ("9223372036854775808", "string", number(2**63, *LARGE)),
    ("12345678901234567890123456789012345678", "string", number("12345678901234567890123456789012345678", *LARGE)),
    ("1" * 39, "string", number("1" * 39, *FLOATS)),
    ("9" * 5000, "string", {}),
    ("20260131", "long", number(20260131, "int", "long", *LARGE) | at(2026, 1, 31, day=True)),
    ("1700000000", "long", number(1700000000, "int", "long", *LARGE)),
    ("1000", "long", number(1000, *WHOLE)),
    ("12", "long", number(12, *WHOLE)),
    ("1.5", "double", number("1.5", *REAL)),
    ("007.5", "double", number("7.5", *REAL)),
    ("+1.5", "double", number("1.5", *REAL)),
    ("1.", "double", number("1.", *WHOLE[2:])),
    (".5", "double", number(".5", *REAL)),
    ("1.50000", "double", number("1.5", *REAL)),
    ("0.1005", "double", number("0.1005", *FLOATS)),
    (" 1.5", "string", number("1.5", *REAL)),
    ("1e3", "double", number("1e3", *WHOLE[2:])),
    ("1E+3", "double", number("1e3", *WHOLE[2:])),
    ("1e-3", "double", number("1e-3", *FLOATS)),
    ("1e", "string", {}),
    ("1e1_0", "string", {}),
    ("3.5e38", "double", {"double": 3.5e38}),
    ("1e308", "double", {"double": 1e308}),
    ("1e309", "string", {}),
    ("1e99999999999999999999", "string", {}),
    ("1e-400", "double", number(0, *FLOATS)),
    ("nan", "double", number("nan", *FLOATS)),
    ("NaN", "double", number("nan", *FLOATS)),
    ("inf", "double", number("inf", *FLOATS)),
    ("-Infinity", "double", number("-inf", *FLOATS)),
    ("\u0131nf", "string", {}),
    ("true", "boolean", {"boolean": True}),
    ("TRUE", "boolean", {"boolean": True}),
    ("fAlse", "boolean", {"boolean": False}),
    ("t", "string", {}),
    ("yes", "string", {}),
    ("true ", "string", {}),
    ("2026-01-31", "date", at(2026, 1, 31, day=True)),
    ("2026-1-31", "string", {}),
    ("2023-02-29", "string", {}),
    ("0000-01-01", "string", {}),
    ("0001-01-01", "date", at(1, 1, 1, day=True)),
    ("9999-12-31", "date", at(9999, 12, 31, day=True)),
    ("10000-01-01", "string", {}),
    ("2026-W05-6", "string", {}),
    ("2026-01-31 ", "string", {}),
    ("12:30", "string", {"time": time(12, 30)}),
    ("12:30:15.25", "string", {"time": time(12, 30, 15, 250_000)}),
    ("12:30:15,25", "string", {"time": time(12, 30, 15, 250_000)}),
    ("12:30:15.1234560", "string", {"time": time(12, 30, 15, 123_456)}),
    ("12:30:15.1234567", "string", {}),
    ("12:30Z", "string", {}),
    ("24:00", "string", {}),
    ("12:60", "string", {}),
    ("2026-01-31T12:00:00", "timestamp", at(*NOON)),
    ("2026-01-31 12:00", "timestamp", at(*NOON)),
    ("2026-01-31T12", "timestamp", at(*NOON)),
    ("2026-01-31T1200", "timestamp", at(*NOON)),
    ("2026-01-31X12:00", "string", {}),
    ("0000-01-01T12:00:00", "string", {}),
    ("2026-01-31T24:00", "string", {}),
    ("2026-01-31T12:00:00.123456", "timestamp", at(*NOON, 0, 0, 123_456)),
    ("2026-01-31T12:00:00,5", "timestamp", at(*NOON, 0, 0, 500_000)),
    ("2026-01-31T12:00:00.123456789", "string", {}),
    ("2026-01-31T12:00:00Z", "timestamptz", zoned(*NOON)),
    ("2026-01-31T12:00:00z", "string", {}),
    ("2026-01-31T12Z", "timestamptz", zoned(*NOON)),
    ("20260131T120000Z", "timestamptz", zoned(*NOON)),
    ("2026-01-31 12:00:00 +01:00", "timestamptz", zoned(*NOON, minutes=60)),
    ("2026-01-31T12:00:00+0130", "timestamptz", zoned(*NOON, minutes=90)),
    ("2026-01-31T12:00:00-01", "timestamptz", zoned(*NOON, minutes=-60)),
    ("2026-01-31T12:00:00+01:75", "string", {}),
    ("2026-01-31T12:00:00+24:00", "string", {}),
    ("2026-01-31T12:00:00+01:00:30", "string", {}),
    ("2026-01-31T12:00:00.1234560Z", "timestamptz", zoned(*NOON, 0, 0, 123_456)),
    ("2026-01-31T12:00:00.1234567Z", "string", {}),
    ("1" * 22, "string", number("1" * 22, *LARGE)),
    ("f79c3e09-677c-4bbd-a479-3f349cb785e7", "string", {"uuid": UUID_BYTES}),
    ("f79c3e09677c4bbda4793f349cb785e7", "string", {"uuid": UUID_BYTES}),
    ("f79c3e09-677c4bbd-a479-3f349cb785e7", "string", {}),
    ("f79c3e09_77c4bbda4793f349cb785e7a", "string", {}),
    ("NA", "string", {}),
    ("many", "string", {}),
]
IDS = [ascii(text)[:50] for text, _, _ in SPELLINGS]
#: JSON that is no text: the type of a new column, None where no column takes it, and its values
NUMBERS: list[tuple[str, str | None, dict[str, Any]]] = [
    ("7", "long", number(7, *WHOLE)),
    ("-0", "long", number(0, *WHOLE)),
    ("7.0", "double", number(7, *WHOLE[2:])),
    ("1e3", "double", number("1e3", *WHOLE[2:])),
    ("0.1005", "double", number("0.1005", *FLOATS)),
    ("9223372036854775807", "long", number(2**63 - 1, "long", *LARGE)),
    ("9223372036854775808", "decimal(38, 0)", number(2**63, *LARGE)),
    ("1" * 39, "double", number("1" * 39, *FLOATS)),
    ("1" + "0" * 400, None, {}),
    ("1e309", None, {}),
    ("NaN", "double", number("nan", *FLOATS)),
    ("-Infinity", "double", number("-inf", *FLOATS)),
    ("true", "boolean", {"boolean": True}),
    ('"\\ud800"', None, {}),
]


def schema_of(kind: IcebergType) -> Schema:
    return Schema(NestedField(1, "v", kind, required=False), NestedField(2, "k", StringType(), required=False))


def csv(text: str) -> bytes:
    quoted = any(sign in text for sign in ',"\n\r')
    return (('"' + text.replace('"', '""') + '"' if quoted else text) + ",k\n").encode()


def ndjson(value: str) -> bytes:
    return f'{{"v": {value}, "k": "k"}}\n'.encode()


GOOD = {
    "boolean": "true",
    "date": "2026-01-31",
    "time": "12:30:15.25",
    "timestamp": "2026-01-31T12:00:00",
    "timestamptz": "2026-01-31T12:00:00Z",
    "uuid": "f79c3e09677c4bbda4793f349cb785e7",
}


def good(kind: IcebergType, form: str) -> bytes:
    """A line that the reader of blocks takes, too."""
    text = GOOD.get(str(kind), "5")
    quoted = str(kind) in _TEXTS_IN_JSON - {"decimal(9, 2)", "decimal(38, 0)"}
    return csv(text) if form == "csv" else ndjson(json.dumps(text) if quoted else text)


def exact(kind: IcebergType, form: str, line: bytes) -> list[Any] | str:
    """The value that the parser of one line gives, else the reason why it is bad."""
    schema = schema_of(kind)
    try:
        row: Row = Format(form).parser(schema, b"v,k", {})(line)
        return stored(table_of([row], schema))[:1]
    except BadLine as exc:
        return str(exc)


def fast(kind: IcebergType, form: str, line: bytes) -> list[Any] | None:
    """The value that the reader of blocks gives; None where it leaves the line to the parser."""
    read = Format(form).block_reader(schema_of(kind), b"v,k", {})
    table = None if read is None else read(good(kind, form) + line + good(kind, form), 3)
    return None if table is None else stored(table)[1:2]


def stored(table: pa.Table) -> list[Any]:
    """The values; times as numbers, for Python has no year 0."""
    column = table["v"]
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        column = column.cast(pa.int64() if pa.types.is_timestamp(column.type) else pa.int32())
    return [value if value is None else repr(value) for value in column.to_pylist()]


def expected(kind: IcebergType, taken: Mapping[str, Any]) -> list[Any]:
    value = taken[str(kind)]
    if isinstance(kind, DecimalType):
        value = EXACT.plus(value.quantize(Decimal(1).scaleb(-kind.scale), context=EXACT))
    if isinstance(value, date):
        value = (value - _EPOCH.date()).days
    return [repr(pa.scalar(value, pa.float32()).as_py() if str(kind) == "float" else value)]


def check(kind: IcebergType, form: str, line: bytes, taken: Mapping[str, Any]) -> None:
    found, at_once = exact(kind, form, line), fast(kind, form, line)
    if str(kind) in taken:
        assert found == expected(kind, taken), (kind, line)
        assert at_once in (None, found), (kind, line)
    else:
        assert isinstance(found, str), (kind, line, found)
        assert at_once is None, (kind, line)


@pytest.mark.parametrize(("text", "new", "taken"), SPELLINGS, ids=IDS)
def test_a_csv_field_is_the_same_to_both_parsers(text: str, new: str, taken: dict[str, Any]) -> None:
    for kind in KINDS:
        check(kind, "csv", csv(text), taken)


@pytest.mark.parametrize(("text", "new", "taken"), SPELLINGS, ids=IDS)
def test_a_text_in_json_is_the_same_to_both_parsers(text: str, new: str, taken: dict[str, Any]) -> None:
    for kind in KINDS:
        held = {name: value for name, value in taken.items() if name in _TEXTS_IN_JSON}
        check(kind, "ndjson", ndjson(json.dumps(text)), held)


@pytest.mark.parametrize(("text", "new", "taken"), NUMBERS, ids=[text[:40] for text, _, _ in NUMBERS])
def test_a_number_in_json_is_the_same_to_both_parsers(text: str, new: str | None, taken: dict[str, Any]) -> None:
    for kind in KINDS:
        check(kind, "ndjson", ndjson(text), taken)


decode = line_decoder(decimals=False)


def types_for(folder: Path, form: str, cells: Sequence[Any]) -> tuple[str, str]:
    """The type that `init --like` gives the column of these CSV fields or JSON values, and a growing schema."""
    path = folder / f"x.{form}"
    lines = [csv(cell) if form == "csv" else ndjson(cell) for cell in cells]
    path.write_bytes(b"".join([b"v,k\n" * (form == "csv"), *lines]))
    type_of, rows = (
        (type_of_text, cells) if form == "csv" else (type_of_json, [decode(cell.encode()) for cell in cells])
    )
    asked = requests_for([{"v": row} for row in rows], {"k"}, type_of, form == "csv")
    return str(infer(str(path)).schema.find_field("v").field_type), asked[0].type


@pytest.mark.parametrize(("text", "new", "taken"), SPELLINGS, ids=IDS)
def test_a_new_column_gets_one_type_from_init_and_in_growing_schemas(
    tmp_path: Path, text: str, new: str, taken: dict[str, Any]
) -> None:
    # "NA" and the like are null for other programs: init says so
    assert types_for(tmp_path, "csv", [text]) == (new, new)
    in_json = new if new in ("date", "timestamp", "timestamptz") else "string"
    assert types_for(tmp_path, "ndjson", [json.dumps(text)]) == (in_json, in_json)
    assert new == "string" or new in taken


@pytest.mark.parametrize(("text", "new", "taken"), NUMBERS, ids=[text[:40] for text, _, _ in NUMBERS])
def test_a_number_in_json_gets_one_type_and_none_where_no_column_takes_it(
    tmp_path: Path, text: str, new: str | None, taken: dict[str, Any]
) -> None:
    if new is not None:
        assert types_for(tmp_path, "ndjson", [text]) == (new, new)
        return
    (tmp_path / "x.ndjson").write_bytes(ndjson("1") + ndjson(text))
    found = infer(str(tmp_path / "x.ndjson"))
    assert str(found.schema.find_field("v").field_type) == "long"
    assert "no rows: 1, first" in found.notes[0] and "line 2: no type takes" in found.notes[0]
    assert requests_for([{"v": decode(text.encode())}], (), type_of_json, False) == []


_digits = st.text("0123456789", min_size=1, max_size=4)
_numbers = st.builds(
    "".join, st.tuples(*map(st.sampled_from, (["", " ", "\t"], ["", "-", "+"], ["", "0", "00"])), _digits)
)
_reals = st.builds(
    "{}{}{}{}{}".format,
    _numbers,
    st.sampled_from(["", ".", ".5", ".50", ".1005", "_0", ",5"]),
    st.sampled_from(["", "", "e3", "E-2", "e+400", "e", "e1_0"]),
    st.sampled_from(["", "", " ", "\t", "\u00a0", "\x1c"]),
    st.just(""),
)
_days = st.sampled_from(["2026-01-31", "20260131", "2026-1-31", "2026-02-30", "0001-01-01", "0000-01-01", "9999-12-31"])
_clocks = st.sampled_from(["12", "1230", "12:30", "12:30:15", "123015", "12:3015", "24:00", "12:30:60", "2:30", ""])
_parts = st.sampled_from(["", "", ".5", ",5", ".123456", ".1234560", ".1234567", ".000000000", "."])
_zones = st.sampled_from(
    ["", "Z", "z", " Z", "+01", "+0130", "+01:30", "-23:59", "+24:00", "+01:75", " +01:00", "+01:00:30"]
)
_times = st.builds("{}{}{}{}{}".format, _days, st.sampled_from(["T", " ", "t", "_", ""]), _clocks, _parts, _zones)
_clocks_alone = st.builds("{}{}{}".format, _clocks, _parts, _zones)
_table = st.sampled_from([text for text, _, _ in SPELLINGS])
_spellings = (_table | _reals | _times | _clocks_alone | st.text("0123456789.+-:TZ eExX_", max_size=12)).filter(bool)
_many = settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))


@_many
@given(text=_spellings, kind=st.sampled_from(KINDS), form=st.sampled_from(["csv", "ndjson"]))
def test_the_reader_of_blocks_takes_no_spelling_differently(text: str, kind: IcebergType, form: str) -> None:
    line = csv(text) if form == "csv" else ndjson(json.dumps(text))
    assert fast(kind, form, line) in (None, exact(kind, form, line))


@_many
@given(cells=st.lists(_spellings, min_size=1, max_size=4), form=st.sampled_from(["csv", "ndjson"]))
def test_what_is_inferred_is_one_type_and_loads(
    cells: list[str], form: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    given = cells if form == "csv" else [json.dumps(cell) for cell in cells]
    init, growing = types_for(tmp_path_factory.mktemp("spellings"), form, given)
    assert init == growing
    kind = NestedField.model_validate({"id": 1, "name": "v", "type": init, "required": False}).field_type
    for cell in given:
        line = csv(cell) if form == "csv" else ndjson(cell)
        assert isinstance(exact(kind, form, line), list), (init, cell)
    both = Format(form).block_reader(schema_of(kind), b"v,k", {})
    assert both is not None
    at_once = both(b"".join(csv(cell) if form == "csv" else ndjson(cell) for cell in given), len(given))
    assert at_once is None or at_once["v"].null_count == 0


@pytest.mark.parametrize(
    ("laxer", "text", "kind"),
    [
        ({"values.text_columns.CLOCK": re.compile(".*")}, "12", TimeType()),
        ({"values.text_columns._FIRST_DAY": -(10**6)}, "0000-01-01", DateType()),
        ({"values.text_columns._FIRST_MICROSECOND": -(10**18)}, "0000-01-01T12:00:00", TimestampType()),
        ({"loader.blocks.MOST_SINGLE": 1e39}, "3.5e38", FloatType()),
    ],
    ids=str,
)
def test_a_reader_of_blocks_that_is_laxer_would_be_seen(
    laxer: dict[str, Any], text: str, kind: IcebergType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fast(kind, "csv", csv(text)) is None
    for name, value in laxer.items():
        monkeypatch.setattr(f"writers.{name}", value)
    with pytest.raises(AssertionError):
        check(kind, "csv", csv(text), next(taken for spelling, _, taken in SPELLINGS if spelling == text))


def test_requests_for_columns_leave_known_and_null_fields_alone() -> None:
    rows: list[dict[str, Any]] = [{"a": None, "k": "1", "b": "2"}, {"b": "2.5"}]
    assert requests_for(rows, {"k"}, type_of_text, True) == [ColumnRequest(ADD, "b", "double")]


def test_no_other_module_reads_times_or_chooses_types_of_texts() -> None:
    """A second reader of texts would disagree with the first one sooner or later."""
    root = Path(text_types.__file__).parents[2]
    modules = [*(root / "writers").rglob("*.py"), *(root / "bookkeeper" / "commands" / "infer").rglob("*.py")]
    found = [
        path.name
        for path in modules
        if re.search(
            r"fromisoformat|strptime|def (type_of_(text|json)|kind_of_|_?common)|UUID\(|float\((text|value)\)",
            path.read_text(),
        )
    ]
    # of values that are known to be times, or days of ours; of numbers in Avro and JSON, which are no texts
    assert sorted(found) == ["avro_values.py", "json_values.py", "sample.py", "sequences.py"]
