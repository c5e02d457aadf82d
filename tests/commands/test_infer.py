"""`init --like`: what the columns of a file are, what fits them, and what is said where nothing does."""

import bz2
import gzip
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookkeeper.commands.columns import schema_of
from bookkeeper.commands.infer.like import Inferred, infer
from bookkeeper.errors import ConfigInvalid
from writers.loader.records import BadLine, csv_parser, ndjson_parser


def types(found: Inferred) -> dict[str, str]:
    return {field.name: str(field.field_type) for field in found.schema.fields}


def of(tmp_path: Path, text: str | bytes, name: str = "x.csv", **options: Any) -> Inferred:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return infer(str(tmp_path / name), **options)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2"], "long"),
        (["1", "2.5"], "double"),
        (["1e3", "nan"], "double"),
        (["true", "False"], "boolean"),
        (["2026-01-31", ""], "date"),
        (["2026-01-31", "2026-01-31 05:00:00"], "timestamp"),
        (["2026-01-31T05:00:00Z", "2026-01-31T05:00:00.123456+01:00"], "timestamptz"),
        (["2026-01-31T05:00:00Z", "2026-01-31T05:00:00"], "string"),
        (["2026-02-30"], "string"),
        (["2026-01-31T05:00:00.123456789Z"], "string"),
        (["00501", "12"], "string"),
        (["9223372036854775808", "1"], "string"),
        (["1", "true"], "string"),
        (["", ""], "string"),
    ],
)
def test_a_csv_column_gets_the_narrowest_type_that_holds_all_of_it(
    tmp_path: Path, values: list[str], kind: str
) -> None:
    found = of(tmp_path, "".join(f"{line}\n" for line in ["a,b", *(f"{value},x" for value in values)]))
    assert types(found) == {"a": kind, "b": "string"}
    assert not any(field.required for field in found.schema.fields)


CELLS = st.one_of(
    st.sampled_from(
        [
            *(
                "1",
                "-7",
                "007",
                "+1",
                "0x1F",
                "1_000",
                "1.",
                ".5",
                "1e9",
                "nan",
                "-inf",
                "Infinity",
                "true",
                "TRUE",
                "yes",
            ),
            *(
                "9223372036854775807",
                "-9223372036854775809",
                "2026-01-31",
                "2026-1-31",
                "0000-01-01",
                "NA",
                "-",
                "null",
            ),
            *("2026-01-31T24:00:00Z", "2026-01-31T05:00Z", "2026-01-31T05:00:00+0100", "2026-01-31 05:00:00,5"),
        ]
    ),
    st.text("0123456789.-:TZ eE", max_size=12),
).filter(lambda text: text == text.strip())


@settings(max_examples=60, deadline=None)
@given(cells=st.lists(CELLS, min_size=1, max_size=6))
def test_writer_lines_reads_each_field_as_the_type_that_was_chosen(
    tmp_path_factory: pytest.TempPathFactory, cells: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("cells")
    found = of(folder, "".join(f"{line}\n" for line in ["a,b", *(f'"{cell}",x' for cell in cells)]))
    parse = csv_parser(found.schema, b"a,b")
    for cell in cells:
        parse(f'"{cell}",x'.encode())


def test_a_text_that_looks_like_null_is_said_with_its_line_and_the_option(tmp_path: Path) -> None:
    text = "n,t\n1,a\nNA,b\n"
    found = of(tmp_path, text)
    assert types(found)["n"] == "string"
    assert found.notes == ("column 'n' is text, for line 3 has 'NA'; --null NA makes it long.",)
    again = of(tmp_path, text, nulls=["NA"])
    assert types(again)["n"] == "long" and again.notes == () and again.options == ("--null", "NA")
    assert [(row["column"], row["nulls"], row["example"]) for row in again.review()] == [("n", 1, "1"), ("t", 0, "a")]


def test_a_column_that_one_line_makes_text_names_that_line(tmp_path: Path) -> None:
    found = of(tmp_path, "n\n1\n2\n\nmany\n")
    assert found.notes == ("column 'n' is text: line 2 has '1' (long), line 5 'many' (string).",)


def test_lines_that_are_no_records_are_passed_over_and_counted(tmp_path: Path) -> None:
    found = of(tmp_path, b"a,b\n1,2\n1,2,3\n\xff,1\n3,4\n")
    assert types(found) == {"a": "long", "b": "long"} and found.sample.lines == 2
    assert "no records: 2, first" in found.notes[0] and "line 3: 3 fields, the header has 2" in found.notes[0]


def test_a_column_without_a_name_is_left_out_and_the_load_passes_over_it(tmp_path: Path) -> None:
    found = of(tmp_path, ",a\n0,1\n")
    assert types(found) == {"a": "long"} and found.options == ("--ignore-unknown",)


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("x.csv.gz", gzip.compress),
        ("x.csv.bz2", bz2.compress),
        ("x.csv.zst", lambda data: pa.compress(data, "zstd", asbytes=True)),
    ],
)
def test_compressed_files_are_read_as_they_are(tmp_path: Path, name: str, packed: Any) -> None:
    assert types(of(tmp_path, packed(b"a;b\n1;x\n"), name, delimiter=";")) == {"a": "long", "b": "string"}


def test_json_lines_give_numbers_times_lists_and_structs(tmp_path: Path) -> None:
    rows = [
        {"n": 1, "t": "2026-01-31T12:00:00Z", "deep": {"x": None, "tags": ["a"]}, "big": 2**64},
        {"n": 1.5, "t": None, "deep": {"x": 3, "more": {"y": True}}, "late": "2026-01-31", "none": None, "empty": {}},
    ]
    text = "\n".join(json.dumps(row) for row in rows)
    found = of(tmp_path, text, "x.ndjson")
    assert types(found) | {"deep": ""} == {
        "n": "double",
        "t": "timestamptz",
        "deep": "",
        "big": "decimal(38, 0)",
        "late": "date",
        "none": "string",
        "empty": "map<string, string>",
    }
    deep = found.schema.find_type("deep")
    assert {field.name: type(field.field_type).__name__ for field in deep.fields} == {  # type: ignore[union-attr]
        "x": "LongType",
        "tags": "ListType",
        "more": "StructType",
    }
    assert len(set(found.schema.field_ids)) == len(found.schema.field_ids)
    assert any("'none' has no value" in note for note in found.notes)
    parse = ndjson_parser(found.schema)
    for row in rows:
        parse(json.dumps(row).encode())


def test_json_values_without_a_common_type_are_refused_with_line_and_column(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        of(tmp_path, '{"a": {"b": 1}}\n\n{"a": {"b": "x"}}\n', "x.ndjson")
    assert "line 3: column 'a.b' is a text (x), in line 1 a long (1)" in str(refused.value)
    assert "--schema" in refused.value.hint


@pytest.mark.parametrize(
    ("name", "text", "said", "hint"),
    [
        ("x.csv", "", "the file is empty", "--schema"),
        ("x.csv", "a,b\n", "a header and no rows", "--schema"),
        ("x.csv", "a,a\n1,2\n", "line 1 names 'a' in columns 1 and 2", "Rename"),
        ("x.csv", "a;b\n1;2\n", "one column, 'a;b'", "--delimiter ';'"),
        ("x.csv", "a,b\n1\n", "line 2: 1 fields, the header has 2", "--schema"),
        ("x.csv", b"\xff,b\n1,2\n", "line 1 is no CSV header", "iconv"),
        ("x.csv", "a,b\n1,2\n".encode("utf-16"), "line 1 is no CSV header", "iconv -f utf-16 -t utf-8"),
        ("x.csv", "a,b\r1,2\r", "line 1 is no CSV header", r"tr '\r' '\n'"),
        ("x.csv.gz", gzip.compress(b"a,b\n1,2\n" * 1000, mtime=0)[:30], "cannot be decompressed", "anew"),
        ("x.txt", "a,b\n1,2\n", "not known what this file holds", "--delimiter"),
        ("x.json", "[\n", "line 1: not JSON: Expecting value", "jq"),
        ("x.json", "[1]", "line 1: list, not an object", "jq"),
        ("x.ndjson", '{"a": ' * 40 + "1" + "}" * 40, "nested too deeply", "--schema"),
        ("x.parquet", b"PAR1 and nothing", "cannot be read as Parquet", ""),
    ],
)
def test_what_cannot_be_inferred_says_what_to_do(
    tmp_path: Path, name: str, text: str | bytes, said: str, hint: str
) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        of(tmp_path, text, name)
    assert said in str(refused.value) and hint in refused.value.hint


def test_lines_that_writer_lines_takes_for_bad_are_counted_and_say_what_is_wrong_first(tmp_path: Path) -> None:
    lines = ['{"a": 1, "a": 2}', '{"a": 1e999, "b": "x"}', '{"a": 3, "b": {"c": 1, "c": 2}}', '{"a": 4, "b": {"c": 5}}']
    with pytest.raises(ConfigInvalid, match="line 3: column 'b' is an object"):
        of(tmp_path, "\n".join(lines), "x.ndjson")
    del lines[1]
    found = of(tmp_path, "\n".join(lines), "x.ndjson")
    assert types(found) == {"a": "long", "b": "struct<3: c: optional long>"}
    assert f"lines of {tmp_path}/x.ndjson that are no rows: 2, first line 1: 'a' is given twice" in found.notes[0]
    parse = ndjson_parser(found.schema)
    for line in lines[:2]:
        with pytest.raises(BadLine, match="is given twice"):
            parse(line.encode())


def test_a_file_in_another_encoding_is_no_json(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="not JSON"):
        of(tmp_path, '{"a": 1}'.encode("utf-16"), "x.ndjson")


@pytest.mark.parametrize("size", [2, 200_000])
def test_a_field_of_any_length_is_read_as_writer_lines_reads_it(tmp_path: Path, size: int) -> None:
    found = of(tmp_path, f"a,b\n{'x' * size},1\nbad\n")
    assert types(found) == {"a": "string", "b": "long"} and found.sample.lines == 1


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="No such file"):
        infer(str(tmp_path / "x.csv"))


def test_parquet_and_arrow_keep_their_types_as_iceberg_has_them(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 31, tzinfo=UTC)
    rows = pa.table(
        {
            "id": pa.array([1], pa.uint64()),
            "seen": pa.array([moment], pa.timestamp("ns", "Europe/Berlin")),
            "kind": pa.array(["a"]).dictionary_encode(),
            "nothing": pa.nulls(1),
            "deep": pa.array([{"t": moment}], pa.struct([("t", pa.timestamp("ms"))])),
        }
    )
    rows = rows.cast(rows.schema.set(0, pa.field("id", pa.uint64(), nullable=False)))
    pq.write_table(rows, tmp_path / "x.parquet")
    with pa.ipc.new_file(str(tmp_path / "x.arrow"), rows.schema) as file:
        file.write_table(rows)
    for name in ("x.parquet", "x.arrow"):
        found = infer(str(tmp_path / name))
        assert types(found) | {"deep": ""} == {
            "id": "decimal(20, 0)",
            "seen": "timestamptz",
            "kind": "string",
            "nothing": "string",
            "deep": "",
        }
        assert [field.required for field in found.schema.fields] == [True, False, False, False, False]
        assert found.partition == "day(seen)"


@pytest.mark.parametrize("kind", [pa.duration("s"), pa.decimal256(40, 2), pa.decimal128(5, -1)], ids=str)
def test_a_type_that_iceberg_does_not_have_names_its_column(tmp_path: Path, kind: pa.DataType) -> None:
    rows = pa.table({"took": pa.nulls(1, kind)})
    with pa.ipc.new_file(str(tmp_path / "x.arrow"), rows.schema) as file:
        file.write_table(rows)
    with pytest.raises(ConfigInvalid, match=re.escape(f"column 'took' has the type {kind}")):
        infer(str(tmp_path / "x.arrow"))


@pytest.mark.parametrize(
    ("head", "rows", "partition", "why"),
    [
        ("id,seen", ["1,2026-01-01T00:00:00Z", "2,2026-02-28T00:00:00Z"], "day(seen)", "the first column with a time"),
        ("born,created_at", ["1990-01-01,2026-01-01T00:00:00Z"], "day(created_at)", "the first column with a time"),
        ("a,ts", ["2026-01-01T00:00:00Z,2026-01-01T00:00:00Z"], "day(ts)", "by its name"),
        ("t", ["2013-01-01 05:00:00", "2013-12-31 05:00:00"], "month(t)", "it spans 365 days"),
        ("t", ["1950-01-01", "2013-12-31"], "year(t)", "it spans 23376 days"),
        ("a,b", ["1,2"], "", ""),
    ],
)
def test_the_partition_is_of_the_likely_time_and_makes_no_flood_of_files(
    tmp_path: Path, head: str, rows: list[str], partition: str, why: str
) -> None:
    found = of(tmp_path, "\n".join([head, *rows]))
    assert found.partition == partition and why in found.why


def test_keys_are_required_and_may_have_no_nulls(tmp_path: Path) -> None:
    found = of(tmp_path, "id,n\n1,\n2,3\n")
    assert [field.required for field in found.with_keys(["id"]).schema.fields] == [True, False]
    with pytest.raises(ConfigInvalid, match="--key n: 1 of 2 rows have none"):
        found.with_keys(["n"])


def test_a_long_file_is_read_in_blocks_with_the_right_lines(tmp_path: Path) -> None:
    lines = [f"{number},{'x' * 50}" for number in range(60_000)]
    lines[45_000] = "odd," + "x" * 50
    found = of(tmp_path, "\n".join(["n,t", *lines]))
    assert found.sample.lines == 60_000
    assert found.notes == ("column 'n' is text: line 2 has '0' (long), line 45002 'odd' (string).",)


@pytest.mark.parametrize("name", ["x.ndjson", "x.jsonl.gz", "plain"])
@pytest.mark.parametrize("options", [{"nulls": ("NA",)}, {"delimiter": ";"}])
def test_options_of_csv_are_refused_for_json(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    data = b'{"a": 1, "b": "NA"}\n'
    with pytest.raises(ConfigInvalid, match=r"is JSON, and --(null|delimiter) is for CSV"):
        of(tmp_path, gzip.compress(data) if name.endswith("gz") else data, name, **options)


def test_a_column_named_like_the_field_of_a_struct_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"x\.ndjson: .*multiple fields for name a\.b") as refused:
        of(tmp_path, '{"a.b": 1, "a": {"b": 2}}\n', "x.ndjson")
    assert "Rename one of the two" in refused.value.hint


def test_a_schema_with_one_name_twice_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match=r"the schema: .*multiple fields for name a"):
        schema_of([{"name": "a", "type": "int"}, {"name": "a", "type": "string"}])


def test_options_of_csv_are_refused_for_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    with pytest.raises(ConfigInvalid, match=r"is Parquet, and --null and --delimiter are for CSV"):
        infer(str(tmp_path / "x.parquet"), ("NA",), ";")


CHANGES = [
    {"op": "r", "before": None, "after": {"id": 1, "name": "a", "at": "2026-01-01T00:00:00Z"}},
    {"op": "u", "before": None, "after": {"id": 1, "name": None, "at": "2026-01-02T00:00:00Z", "more": [1]}},
    {"op": "d", "before": {"id": 1, "name": None, "at": None}, "after": None},
]


@pytest.mark.parametrize("with_schema", [False, True])
def test_a_change_stream_has_the_columns_of_its_rows(tmp_path: Path, with_schema: bool) -> None:
    messages = [{"schema": {"x": 1}, "payload": change} for change in CHANGES] if with_schema else CHANGES
    text = "".join(json.dumps(message) + "\n" for message in [*messages, *([{"schema": None, "payload": None}])])
    found = of(tmp_path, text, "x.ndjson", changes=True)
    assert types(found) == {"id": "long", "name": "string", "at": "timestamptz", "more": "list<long>"}
    assert found.options == ("--preset", "debezium")
    assert found.with_keys(["id"]).schema.find_field("id").required
    with pytest.raises(ConfigInvalid, match="1 of 2 rows have none"):
        found.with_keys(["name"])


def test_a_change_stream_without_a_key_is_refused_with_what_may_be_one(tmp_path: Path) -> None:
    text = "".join(json.dumps(change) + "\n" for change in CHANGES)
    with pytest.raises(ConfigInvalid) as caught:
        of(tmp_path, text, "x.ndjson", changes=True, keyed=False)
    assert "Never null: id." in caught.value.hint
    with pytest.raises(ConfigInvalid, match=r"line 1: it is no change"):
        of(tmp_path, '{"id": 1}\n', "x.ndjson", changes=True)
    assert any("--preset debezium --key COLUMN" in note for note in of(tmp_path, text, "x.ndjson").notes)
