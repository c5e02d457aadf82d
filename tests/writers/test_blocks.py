"""Whole blocks of lines give the rows and the bad lines that the parser of one line gives, whatever the lines hold."""

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from bookkeeper.errors import NotPossible, SchemaRefused
from tests.support.desk import Clock
from writers.loader import blocks
from writers.loader.formats import Format
from writers.loader.lines import BadLines, Loader
from writers.sources.source import Block, SourcePosition, file_blocks
from writers.values import text_columns


class Rows:
    """A writer that keeps what it is given, as Python values that tell -0.0 from 0.0 and a NaN from a null."""

    former_names: Mapping[str, int] = {}
    evolve: Mapping[str, bool] = {}
    position = None
    keys = ()

    def __init__(self, schema: Schema) -> None:
        self.schema, self.rows = schema, []  # type: ignore[var-annotated]
        self.card, self.row_schema = self, schema

    def write(self, table: pa.Table) -> None:
        table.validate(full=True)
        assert table.column_names == [field.name for field in self.schema.fields]
        self.rows += map(repr, _plain(table).to_pylist())

    def due(self) -> bool:
        return False

    def publish(self, position: bytes | None) -> None:
        pass

    def roll(self) -> None:
        pass


def _plain(table: pa.Table) -> pa.Table:
    """Times as numbers: Python has no year 10000."""
    kinds = {"timestamp[us]": pa.int64(), "timestamp[us, tz=UTC]": pa.int64(), "date32[day]": pa.int32()}
    wanted = [kinds.get(str(column.type)) for column in table.columns]
    # Arrow refuses to cast a struct that is null and has a required field, to its own type, too.
    columns = [column.cast(kind) if kind else column for column, kind in zip(table.columns, wanted, strict=True)]
    return pa.Table.from_arrays(columns, names=table.column_names)


def _load(data: bytes, schema: Schema, form: Format, path: Path, few: int) -> tuple[list[str], list[Any]]:
    (path / "lines").write_bytes(data)
    bad = path / "bad"
    bad.unlink(missing_ok=True)
    writer, limit = Rows(schema), pytest.MonkeyPatch()
    limit.setattr("writers.loader.lines.FEW_LINES", few)
    try:
        with BadLines(bad) as bad_lines:
            Loader(writer, form, bad_lines, Clock()).load_files([str(path / "lines")])  # type: ignore[arg-type]
    except NotPossible as exc:  # its end is no line yet; what is before it counts
        if "ends within a line" not in str(exc):
            raise
    finally:
        limit.undo()
    return writer.rows, [json.loads(line) for line in bad.read_bytes().splitlines()] if bad.exists() else []


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("blocks")


def _same(data: bytes, schema: Schema, place: Path, kind: str, **options: Any) -> None:
    by_line = _load(data, schema, Format(kind, by_line=True, **options), place, 1)
    in_blocks = _load(data, schema, Format(kind, **options), place, 1)
    assert in_blocks == by_line


PRIMITIVES: list[IcebergType] = [
    StringType(),
    BooleanType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    DecimalType(5, 2),
    DecimalType(38, 20),
    DecimalType(3, 3),
    DecimalType(9, 0),
    DateType(),
    TimeType(),
    TimestampType(),
    TimestamptzType(),
    UUIDType(),
    BinaryType(),
    FixedType(2),
]
NESTED: list[IcebergType] = [
    ListType(91, LongType(), element_required=False),
    ListType(91, DoubleType(), element_required=True),
    StructType(NestedField(92, "x", LongType(), required=True), NestedField(93, "t", TimestamptzType())),
    StructType(NestedField(92, "x", ListType(94, StringType(), element_required=False))),
    ListType(91, StructType(NestedField(92, "x", DoubleType())), element_required=False),
    MapType(91, StringType(), 95, LongType(), value_required=False),
]


class Raw(str):
    """A text that stands in JSON without quotes."""


def _is_number(text: str) -> bool:
    try:
        return isinstance(json.loads(text), (int, float))
    except ValueError:
        return False


#: texts that look like values, and are not always the ones they look like
TEXTS = [
    *(
        "",
        " ",
        "x",
        "NA",
        "null",
        "ü",
        "\u2028",
        "a\x1cb",
        "a,b",
        'a"b',
        '"a"',
        "\t",
        "0",
        "-0",
        "-0.0",
        "007",
        "+5",
        "1_000",
    ),
    *("0x1F", "0XAB", "1e3", "1E+-2", "1.5", "1.50000", "1.", ".5", " 7", "7 ", "2147483648", "-2147483648", "3.5e38"),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "9007199254740993",
        "1e308",
        "1e309",
        "-1e400",
        "1e-400",
        "4.9e-324",
    ),
    *("nan", "NaN", "nan(1)", "inf", "-Infinity", "infinity", "1e99999999999999999999", "3.4028235677973366e38"),
    *("123456789012304567890.123456789", "1e20", "999.99", "1000", "0.0000000000000000001", "0.100", "0.1005"),
    *("12345678901234567890123456789012345678", "true", "TRUE", "tRuE", "1", "f", "false ", "16777217", "0.1"),
    *("2026-01-31", "0000-01-01", "0001-01-01", "2023-02-29", "20260131", "2026-W01-1", "9999-12-31", " 2026-01-31"),
    *("12:30", "12:30:15.", "12:30:15.5", "12:30:15.1234567", "12:30:15.1234560", "24:00", "23:59:60", "12", "12:30Z"),
    *("2026-01-31T12:00:00Z", "2026-01-31 12:00", "2026-01-31T12:00:00.123456789Z", "2026-01-31T12:00:00+01:00"),
    *(
        "2026-01-31T12:00:00.1234560+0130",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59.999999-01:00",
        "2026-01-31T12Z",
    ),
    *("0000-12-31T23:59:59Z", "2026-01-31T24:00:00Z", "2026-01-31T12:00:00,5Z", "1970-01-01T00:00:00z", "1700000000"),
    *("f79c3e09-677c-4bbd-a479-3f349cb785e7", "{f79c3e09677c4bbda4793f349cb785e7}", "ab", "AP8=", "[1,2]", '{"x":1}'),
]
_texts = st.sampled_from(TEXTS) | st.text(max_size=6)
_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | _texts
    | st.sampled_from([Raw(text) for text in TEXTS if _is_number(text)])
)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["x", "t", "y"]), inner, max_size=2),
    max_leaves=4,
)


def _json(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}: {_json(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def _schema(kinds: list[IcebergType], required: list[bool]) -> Schema:
    pairs = zip(kinds, required, strict=False)
    return Schema(*(NestedField(i, f"c{i}", kind, required=need) for i, (kind, need) in enumerate(pairs, 1)))


_kinds = st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=4)
_kinds_and_nested = st.lists(st.sampled_from([*PRIMITIVES, *NESTED]), min_size=1, max_size=4)
_required = st.lists(st.booleans(), min_size=4, max_size=4)
_ends = st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", "\r", " \n", "\n \n", "\n\t\n"])
_GOOD: dict[str, Any] = {
    "boolean": True,
    "int": 7,
    "long": 2**60,
    "float": 0.1,
    "double": -0.5,
    "date": "2026-01-31",
    "time": "12:30:15.25",
    "timestamp": "2026-01-31T12:00:00.5",
    "timestamptz": "2026-01-31T12:00:00Z",
    "uuid": "f79c3e09-677c-4bbd-a479-3f349cb785e7",
    "fixed[2]": "ab",
}


def _good(kind: IcebergType) -> Any:
    """A value of this type that every reader takes."""
    if isinstance(kind, DecimalType):
        return Raw("0.5" if kind.scale else "5")
    if isinstance(kind, ListType):
        return [_good(kind.element_type)]
    if isinstance(kind, StructType):
        return {field.name: _good(field.field_type) for field in kind.fields}
    return {"k": 1} if isinstance(kind, MapType) else _GOOD.get(str(kind), "text")


def _object(draw: st.DrawFn, schema: Schema) -> str:
    row = {field.name: _good(field.field_type) for field in schema.fields}
    items = [(name, draw(_values) if draw(st.integers(0, 5)) == 0 else value) for name, value in row.items()]
    if draw(st.integers(0, 5)) == 0:
        items.insert(draw(st.integers(0, len(items))), (draw(st.sampled_from(["c1", "c2", "other"])), draw(_values)))
    if draw(st.integers(0, 8)) == 0:
        del items[draw(st.integers(0, len(items) - 1))]
    text = "{" + draw(st.sampled_from([",", ", "])).join(f'"{name}":{_json(value)}' for name, value in items) + "}"
    return draw(_broken(text))


@st.composite
def _broken(draw: st.DrawFn, text: str) -> str:
    """Mostly the text as it is; now and then with bytes put in, taken out or doubled."""
    if draw(st.integers(0, 3)):
        return text
    at = draw(st.integers(0, len(text)))
    put = draw(
        st.sampled_from(
            ["", "\n", "\r", "\0", " ", "\ufeff", ",", "{", "}", '"', "\\", "{}", "\\ud800", "\\ude00", "1", text]
        )
    )
    return text[:at] + put + text[at + draw(st.integers(0, 2)) :]


@st.composite
def _ndjson(draw: st.DrawFn) -> tuple[Schema, bytes]:
    schema = _schema(draw(_kinds_and_nested), draw(_required))
    lines = [_object(draw, schema) + draw(_ends) for _ in range(draw(st.integers(1, 7)))]
    data = "".join(lines).encode("utf-8", "surrogatepass")
    return schema, data.rstrip(b"\n") if draw(st.booleans()) else data


@st.composite
def _csv(draw: st.DrawFn, delimiter: str) -> tuple[Schema, bytes]:
    schema = _schema(draw(_kinds), draw(_required))
    names = [field.name for field in schema.fields]
    lines = [delimiter.join(names) + "\n"]
    for _ in range(draw(st.integers(1, 7))):
        cells = [_cell(draw, _good(field.field_type), delimiter) for field in schema.fields]
        lines.append(draw(_broken(delimiter.join(cells))) + draw(_ends))
    data = "".join(lines).encode("utf-8", "surrogatepass")
    return schema, data.rstrip(b"\n") if draw(st.booleans()) else data


def _cell(draw: st.DrawFn, good: Any, delimiter: str) -> str:
    text = draw(_texts) if draw(st.integers(0, 5)) == 0 else good if isinstance(good, str) else json.dumps(good)
    quoted = delimiter in text or '"' in text or draw(st.integers(0, 5)) == 0
    return '"' + text.replace('"', '""') + '"' if quoted and draw(st.integers(0, 9)) else text


_many = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))


@_many
@given(case=_ndjson(), options=st.sampled_from([{}, {"base64_bytes": True}, {"ignore_unknown": True}]))
def test_json_lines_in_blocks_are_the_rows_and_bad_lines_of_the_parser(
    case: tuple[Schema, bytes], options: dict[str, Any], place: Path
) -> None:
    _same(case[1], case[0], place, "ndjson", **options)


@_many
@given(data=st.data(), delimiter=st.sampled_from([",", ";", "\t", "|", " "]), nulls=st.sampled_from([(), ("NA", "x")]))
def test_csv_in_blocks_is_the_rows_and_bad_lines_of_the_parser(
    data: st.DataObject, delimiter: str, nulls: tuple[str, ...], place: Path
) -> None:
    schema, lines = data.draw(_csv(delimiter))
    _same(lines, schema, place, "csv", delimiter=delimiter, nulls=nulls)


@pytest.mark.parametrize("kind", PRIMITIVES, ids=str)
def test_every_text_that_looks_like_a_value_is_the_same_in_a_block(kind: IcebergType, place: Path) -> None:
    """Each between two good lines, so that a reader of blocks has to decide about it."""
    schema = Schema(NestedField(1, "v", kind), NestedField(2, "k", StringType()))
    good = _good(kind)
    row = f"{good if isinstance(good, str) else json.dumps(good)},k\n"
    short = ["".join(letters) for count in (1, 2) for letters in product("05-+.eEx_ nN:", repeat=count)]
    cells = [text if '"' not in text and "," not in text else json.dumps(text) for text in [*TEXTS, *short]]
    _same(("v,k\n" + "".join(f"{row}{text},k\n{row}" for text in cells)).encode(), schema, place, "csv")
    line = f'{{"v": {_json(good)}}}\n'
    given = [*map(json.dumps, TEXTS), *TEXTS]
    _same("".join(f'{line}{{"v": {text}}}\n{line}' for text in given).encode(), schema, place, "ndjson")


GOOD_SCHEMA = _schema(PRIMITIVES, [False] * len(PRIMITIVES))


def _good_line(kind: str) -> str:
    values = [_good(field.field_type) for field in GOOD_SCHEMA.fields]
    if kind == "csv":
        return ",".join(value if isinstance(value, str) else json.dumps(value) for value in values) + "\n"
    return "{" + ",".join(f'"{f.name}": {_json(v)}' for f, v in zip(GOOD_SCHEMA.fields, values, strict=True)) + "}\n"


@pytest.mark.parametrize("kind", ["ndjson", "csv"])
def test_good_lines_of_every_type_are_read_at_once(kind: str) -> None:
    header = ",".join(field.name for field in GOOD_SCHEMA.fields).encode()
    read = Format(kind).block_reader(GOOD_SCHEMA, header, {})
    assert read is not None
    table = read(_good_line(kind).encode() * 50, 50)
    assert table is not None and table.num_rows == 50


@pytest.mark.parametrize("kind", NESTED[:-1], ids=str)
def test_nested_values_in_json_are_read_at_once(kind: IcebergType) -> None:
    schema = Schema(NestedField(1, "v", kind))
    read = Format("ndjson").block_reader(schema, b"", {})
    assert read is not None
    table = read((f'{{"v": {_json(_good(kind))}}}\n' + '{"v": null}\n').encode() * 9, 18)
    assert table is not None and table["v"].null_count == 9


def test_maps_are_left_to_the_parser() -> None:
    assert Format("ndjson").block_reader(Schema(NestedField(1, "v", NESTED[-1])), b"", {}) is None


@pytest.mark.parametrize("kind", ["ndjson", "csv"])
def test_one_bad_line_leaves_all_but_its_neighbours_to_the_reader_of_blocks(
    kind: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []
    parser = Format.parser

    def counted(self: Format, *given: Any) -> Callable[[bytes], Any]:
        parse = parser(self, *given)
        return lambda line: parsed.append(line) or parse(line)  # type: ignore[func-returns-value]

    monkeypatch.setattr(Format, "parser", counted)
    header = ",".join(field.name for field in GOOD_SCHEMA.fields) + "\n" if kind == "csv" else ""
    lines = [_good_line(kind)] * 1000
    lines[700] = "bad\n"
    rows, bad = _load((header + "".join(lines)).encode(), GOOD_SCHEMA, Format(kind), place, 16)
    assert (len(rows), [item["line"] for item in bad]) == (999, [701 + (kind == "csv")])
    assert len(parsed) <= 32


@pytest.mark.parametrize(
    "check, line",
    [
        ("_plain", '{"c1": "\udcff"}\n{"c1": "a"}\n'),
        ("_object_per_line", '{"c1": "a"} {"c1": "b"}\n{"c1":\n"c"}\n'),
        ("_decimals_fit", '{"c8": 123456789012304567890.123456789}\n{"c8": 1}\n'),
        ("_has_negative_zero", '{"c6": -0}\n{"c6": 1}\n'),
        ("_maybe_deep", '{"x": ' + '{"a":' * 5000 + "1" + "}" * 5000 + '}\n{"c1": "a"}\n'),
    ],
)
def test_what_arrow_is_laxer_about_would_be_seen(
    check: str, line: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"ignore_unknown": check == "_maybe_deep"}
    data = line.encode("utf-8", "surrogateescape")
    _same(data, GOOD_SCHEMA, place, "ndjson", **options)
    monkeypatch.setattr(blocks, check, lambda *given: check not in ("_has_negative_zero", "_maybe_deep"))
    with pytest.raises((AssertionError, pa.ArrowInvalid)):
        _same(data, GOOD_SCHEMA, place, "ndjson", **options)


@pytest.mark.parametrize(
    "check, line",
    [
        ("_quoted_field", '"a"b,1\na,1\n'),
        ("text_columns._FIRST_DAY", ",1,0000-01-01\n,1,2026-01-01\n"),
        ("text_columns._matching", ",1,,0x1F\n,1,,1\n"),
        ("text_columns.decimal_digits", ",1,,,123456789012304567890.123456789\n,1,,,1\n"),
    ],
)
def test_what_arrow_is_laxer_about_in_csv_would_be_seen(
    check: str, line: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: list[IcebergType] = [StringType(), LongType(), DateType(), LongType(), DecimalType(38, 20)]
    kinds = kinds[: line.partition("\n")[0].count(",") + 1]
    data = ",".join(f"c{number}" for number in range(1, len(kinds) + 1)) + "\n" + line
    schema = _schema(kinds, [False] * 5)
    _same(data.encode(), schema, place, "csv")
    laxer = {
        "_quoted_field": lambda delimiter: re.compile(rb'"'),
        "text_columns._FIRST_DAY": -(10**6),
        "text_columns._matching": lambda given, pattern, target: text_columns._cast(given, target),
        "text_columns.decimal_digits": lambda kind: ".*",
    }
    module = f"writers.values.{check}" if "." in check else f"writers.loader.blocks.{check}"
    monkeypatch.setattr(module, laxer[check])
    with pytest.raises(AssertionError):
        _same(data.encode(), schema, place, "csv")


def test_a_header_that_names_a_column_twice_is_refused() -> None:
    with pytest.raises(SchemaRefused):
        Format("csv").block_reader(GOOD_SCHEMA, b"c1,old", {"old": 1})


def test_blocks_are_cut_behind_newlines_and_keep_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("writers.sources.source._CHUNK_BYTES", 10)
    path = tmp_path / "a"
    path.write_bytes(b"one\ntwo\nthree is long\n\nfour")
    found = list(file_blocks(str(path), SourcePosition()))
    assert b"".join(block.data for block in found) == path.read_bytes()
    assert [(block.number, block.start) for block in found] == [(0, 0), (2, 8), (4, 23)]
    again = list(file_blocks(str(path), SourcePosition(0, found[1].end, 4)))
    assert again == found[2:]
    first, second = Block(5, 100, b"a\nb\nc").halves()
    assert (first.data, second.number, second.start, second.data) == (b"a\nb\n", 7, 104, b"c")


def test_a_line_that_is_too_long_is_a_bad_line_and_not_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("writers.sources.source._CHUNK_BYTES", 10)
    monkeypatch.setattr("writers.sources.source._MOST_LINE_BYTES", 100)
    monkeypatch.setattr("writers.sources.source._SHOWN_BYTES", 50)
    schema = Schema(NestedField(1, "v", LongType()))
    data = b'{"v": 1}\n' + b"x" * 1234 + b'\n{"v": 2}\n{"v": 3}\n' + b"y" * 200
    rows, bad = _load(data, schema, Format("ndjson"), place, 1)
    assert rows == ["{'v': 1}", "{'v': 2}", "{'v': 3}"]
    assert [(item["line"], item["offset"], item["reason"]) for item in bad] == [
        (2, 9, "a line of 1235 bytes is too long"),
        (5, 1262, "a line of 200 bytes is too long"),
    ]
    assert all(len(item["text"]) == 50 for item in bad)


def test_decimals_keep_their_digits(place: Path) -> None:
    schema = Schema(NestedField(1, "v", DecimalType(38, 20)))
    rows, bad = _load(b'{"v": 0.10000000000000000001}\n{"v": "7.5"}\n{"v": 2e0}\n', schema, Format("ndjson"), place, 1)
    wanted = ("0.10000000000000000001", "7.50000000000000000000", "2.00000000000000000000")
    assert rows == [repr({"v": Decimal(text)}) for text in wanted]
    assert not bad


@pytest.mark.parametrize("first", ["null", " null", "7", "[]"])
def test_a_block_may_begin_with_a_line_that_is_no_object(place: Path, first: str) -> None:
    _same(f'{first}\n{{"v": 1}}\n{{"v": 2}}\n'.encode(), Schema(NestedField(1, "v", LongType())), place, "ndjson")
