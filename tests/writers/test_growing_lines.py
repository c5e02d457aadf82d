"""Lines of tables whose schema grows: unknown fields are asked for block by block, and no row is lost or doubled."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bookkeeper.config.settings import Evolve
from bookkeeper.contract.column_requests import COLUMNS
from bookkeeper.errors import Backpressure
from tests.support.lake import Lake
from tests.writers.test_growing import GROWING, Growing, made
from writers.loader.formats import Format
from writers.loader.lines import BadLines, Loader

AT = "2026-03-01T00:00:00Z"


@pytest.fixture(autouse=True, params=["by line", "in blocks"])
def pieces(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr("writers.sources.source._CHUNK_BYTES", 400)
    monkeypatch.setattr("writers.loader.lines.FEW_LINES", 1_000 if request.param == "by line" else 1)


@pytest.fixture
def lake(tmp_path: Path) -> Growing:
    return Growing(tmp_path / "lake", partition_by=())


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps({"timestamp": AT} | row) + "\n" for row in rows))
    return str(path)


def load(lake: Growing, *files: str, name: str = "import", patience: int = 300, **form: Any) -> Loader:
    bad = lake.root / f"{name}.bad"
    with lake.writer(name, patience=timedelta(seconds=patience)) as writer, BadLines(bad) as bad_lines:
        loader = Loader(
            writer,
            Format(**{"kind": "ndjson"} | form),
            bad_lines,
            lake.clock,
            on_progress=lambda _: lake.clock.move(seconds=11),  # each block is published
        )
        loader.load_files(files)
        return loader


def bad(lake: Lake, name: str = "import") -> list[tuple[int, str]]:
    path = lake.root / f"{name}.bad"
    return [(item["line"], item["reason"]) for item in map(json.loads, path.read_text().splitlines())]


def of(lake: Growing, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in lake.rows()]


def test_unknown_fields_of_lines_become_columns_and_every_line_is_a_row_once(lake: Growing, tmp_path: Path) -> None:
    rows = [{"key": f"k{number:02d}"} | ({"wind": number / 2} if number > 9 else {}) for number in range(40)]
    rows += [{"key": f"k{number}", "gust": number} for number in range(40, 60)]
    loader = load(lake, write(tmp_path / "a.ndjson", *rows))
    assert (loader.bad_lines.count, lake.columns()) == (0, {"wind": "double", "gust": "long"})
    assert of(lake, "key", "wind", "gust") == [(row["key"], row.get("wind"), row.get("gust")) for row in rows]


def test_the_fields_of_a_block_are_asked_for_at_once(lake: Growing, tmp_path: Path) -> None:
    load(lake, write(tmp_path / "a.ndjson", *({"key": "k", f"c{number}": number} for number in range(5))))
    assert (lake.waits, len(lake.columns())) == (1, 5)


def test_types_follow_from_the_values_of_the_block(
    lake: Growing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("writers.sources.source._CHUNK_BYTES", 2_000)
    values = {
        "truth": [True, False],
        "whole": [1, -2],
        "mixed": [1, 2.5],
        "at": ["2026-03-01T12:00:00Z", "2026-03-01T12:00:00.5+01:00"],
        "maybe": ["2026-03-01T12:00:00Z", "soon"],
        "day": ["2026-03-01", "2026-03-02"],
        "local": ["2026-03-01", "2026-03-02T12:00:00"],
        "phone": ["+4930", "+4931"],
        "text": ["a", None],
    }
    load(lake, write(tmp_path / "a.ndjson", *({n: v[i] for n, v in values.items()} | {"key": f"{i}"} for i in (0, 1))))
    kinds = ["boolean", "long", "double", "timestamptz", "string", "date", "timestamp", "string", "string"]
    assert lake.columns() == dict(zip(values, kinds, strict=True))
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    first, second = of(lake, *values)
    days = [date(2026, 3, 1), date(2026, 3, 2)]
    local = [datetime(2026, 3, 1), datetime(2026, 3, 2, 12)]
    assert first == (True, 1, 1.0, noon, "2026-03-01T12:00:00Z", days[0], local[0], "+4930", "a")
    later = noon - timedelta(minutes=59, seconds=59.5)
    assert second == (False, -2, 2.5, later, "soon", days[1], local[1], "+4931", None)


@pytest.mark.parametrize("value", [7, "x"])
def test_a_field_that_is_null_asks_for_nothing_until_it_has_a_value(lake: Growing, tmp_path: Path, value: Any) -> None:
    rows: list[dict[str, Any]] = [{"key": f"k{number:02d}", "wind": None} for number in range(20)]
    loader = load(lake, write(tmp_path / "a.ndjson", *rows))
    assert (loader.bad_lines.count, loader.rows, lake.columns(), lake.waits) == (0, 20, {}, 0)
    rows = [*rows, {"key": "k20", "wind": value}, {"key": "k21", "wind": None}]
    assert load(lake, write(tmp_path / "b.ndjson", *rows), name="again").rows == 22
    assert [row for row in of(lake, "key", "wind") if row[1] is not None] == [("k20", value)]


def test_lines_of_a_table_that_does_not_grow_are_bad_lines_as_ever(tmp_path: Path) -> None:
    lake = Growing(tmp_path / "lake", evolve=Evolve())
    rows: list[dict[str, Any]] = [{"key": "a"}, {"key": "b", "wind": 1}, {"key": "c", "wind": None}, {"key": "d"}]
    load(lake, write(tmp_path / "a.ndjson", *rows))
    assert bad(lake) == [(2, "the table has no column 'wind'"), (3, "the table has no column 'wind'")]
    assert (of(lake, "key"), list(lake.folder.store.list(COLUMNS))) == ([("a",), ("d",)], [])


def test_a_field_that_is_refused_makes_bad_lines_with_the_reason_and_other_fields_are_added(
    lake: Growing, tmp_path: Path
) -> None:
    rows: list[dict[str, Any]] = [
        *({"key": f"k{number:02d}", "KEY": 1 if number % 5 == 0 else None, "wind": number} for number in range(20)),
        {"key": "nested", "box": {"x": 1}},
    ]
    loader = load(lake, write(tmp_path / "a.ndjson", *rows))
    assert (loader.bad_lines.count, loader.rows, lake.waits) == (5, 16, 1)
    assert "'KEY', and gets none: 'KEY' and the column 'key' differ in case" in bad(lake)[0][1]
    assert bad(lake)[-1] == (21, "the table has no column 'box'")
    assert of(lake, "key", "wind") == [(f"k{number:02d}", number) for number in range(20) if number % 5]


def test_names_that_are_data_are_bad_lines_and_soon_nothing_more_is_asked_for(
    lake: Growing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("writers.publish.request_columns.MOST_REFUSED", 8)
    lake.daemon = lake.book(evolve=Evolve(add=True, columns_per_hour=2))
    rows = [{"key": f"k{number:02d}"} | ({f"id{number}": 1} if number % 2 else {}) for number in range(60)]
    loader = load(lake, write(tmp_path / "a.ndjson", *rows))
    assert (len(lake.columns()), loader.rows, loader.bad_lines.count) == (2, 32, 28)
    assert lake.waits < 6
    assert "columns-per-hour" in bad(lake)[0][1]


def test_without_a_bookkeeper_the_run_ends_and_the_next_one_goes_on_from_the_position(
    lake: Growing, tmp_path: Path
) -> None:
    lake.silent = True
    rows = [{"key": f"k{number:02d}"} | ({"wind": number} if number > 15 else {}) for number in range(30)]
    file = write(tmp_path / "a.ndjson", *rows)
    with pytest.raises(Backpressure):
        load(lake, file, patience=10)
    before = len(lake.pending())
    lake.silent = False
    assert 0 < load(lake, file).rows < 30
    assert before > 1
    assert of(lake, "key", "wind") == [(row["key"], row.get("wind")) for row in rows]


def test_a_csv_header_may_name_new_columns(lake: Growing, tmp_path: Path) -> None:
    lines = ["timestamp,key,whole,real,zip,truth,at,late,none"]
    for number in range(20):
        late = "x" if number > 15 else ""
        lines.append(f"{AT},k{number:02d},{number},{number}.5,0{number},TRUE,{AT},{late},")
    (tmp_path / "a.csv").write_text("\n".join(lines))
    loader = load(lake, str(tmp_path / "a.csv"), kind="csv")
    assert (loader.bad_lines.count, loader.rows) == (0, 20)
    kinds = {"whole": "long", "real": "double", "zip": "string", "truth": "boolean", "at": "timestamptz"}
    assert lake.columns() == kinds | {"late": "string"}
    rows = of(lake, "key", "whole", "real", "zip", "truth", "late")
    assert rows == [
        (f"k{number:02d}", number, number + 0.5, f"0{number}", True, "x" if number > 15 else None)
        for number in range(20)
    ]


def test_narrow_columns_are_widened_for_values_that_do_not_fit(lake: Growing, tmp_path: Path) -> None:
    rows = [
        {"key": "a", "n": 1},
        {"key": "b", "n": 2**40},
        {"key": "c", "price": "123456789.5"},
        {"key": "d", "n": "x"},
    ]
    load(lake, write(tmp_path / "a.ndjson", *rows))
    schema = lake.table().schema()
    assert [str(schema.find_type(name)) for name in ("n", "price")] == ["long", "decimal(11, 2)"]
    assert of(lake, "key", "n", "price") == [
        ("a", 1, None),
        ("b", 2**40, None),
        ("c", None, Decimal("123456789.50")),
    ]
    assert [line for line, _ in bad(lake)] == [4]


def test_bad_lines_of_before_are_loaded_once_the_table_grows(lake: Growing, tmp_path: Path) -> None:
    lake.tick(lake.book(evolve=Evolve()), seconds=11)
    load(lake, write(tmp_path / "a.ndjson", *({"key": f"k{number}", "wind": number} for number in range(5))))
    lake.tick(lake.book(evolve=GROWING), seconds=11)
    assert load(lake, str(lake.root / "import.bad"), name="again", retry=True).rows == 5
    assert of(lake, "key", "wind") == [(f"k{number}", number) for number in range(5)]


def test_changes_of_a_keyed_table_bring_new_columns(tmp_path: Path) -> None:
    columns = ({"name": "key", "type": "string", "required": True}, {"name": "n", "type": "int"})
    lake = Lake(tmp_path / "lake", columns=columns, partition_by=(), key=("key",), evolve=GROWING)
    lake.__class__ = Growing
    growing: Any = lake
    growing.daemon, growing.silent, growing.waits = lake.book(), False, 0
    lake.tick(growing.daemon)
    ops = [{"op": "u", "key": "a", "n": 1}, {"op": "u", "key": "b", "wind": 2, "gust": None}, {"op": "d", "key": "a"}]
    path = tmp_path / "a.ndjson"
    path.write_text("".join(json.dumps(op) + "\n" for op in ops))
    loader = load(growing, str(path), op_field="op")
    assert (loader.bad_lines.count, loader.rows) == (0, 3)
    assert str(lake.table().schema().find_type("wind")) == "long"


def test_a_parquet_file_brings_its_columns(lake: Growing, tmp_path: Path) -> None:
    table: pa.Table = made(lake, *({"key": f"k{number}", "wind": number / 2} for number in range(5)))
    pq.write_table(table, tmp_path / "a.parquet")
    assert load(lake, str(tmp_path / "a.parquet")).rows == 5
    assert of(lake, "key", "wind") == [(f"k{number}", number / 2) for number in range(5)]
