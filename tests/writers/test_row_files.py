"""Parquet and Arrow files through `writer lines`: each row once, bad rows to the side."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import NestedField, StringType

from bookkeeper.errors import NotPossible, SchemaRefused
from bookkeeper.stores.open import open_store
from tests.support.desk import SCHEMA, Broken, Desk, Ledger, Schema, Tampered, rows
from writers.loader.formats import Format
from writers.loader.lines import BadLines, Loader
from writers.sources.row_files import batches

KEYS = [f"k{number:02d}" for number in range(20)]
BOTH = pytest.mark.parametrize("kind", ["parquet", "arrow"])


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("writers.sources.row_files._BATCH_ROWS", 3)


def _file(path: Path, kind: str, table: pa.Table) -> str:
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=7)
    else:
        with pa.ipc.new_file(path, table.schema) as out:
            out.write_table(table, max_chunksize=7)
    return str(path)


def _load(desk: Desk, files: list[str], bad: Path, **form: Any) -> Loader:
    with desk.writer("import") as writer, BadLines(bad) as bad_lines:
        loader = Loader(writer, Format("ndjson", **form), bad_lines, desk.clock)
        loader.load_files(files)
        return loader


@BOTH
def test_rows_of_a_file_are_loaded_once(desk: Desk, tmp_path: Path, kind: str) -> None:
    desk.set_card(roll_after_ms=0)
    files = [_file(tmp_path / "a", kind, rows(*KEYS[:12])), _file(tmp_path / "b", kind, rows(*KEYS[12:]))]
    loader = _load(desk, files, tmp_path / "bad")
    assert (desk.keys(), loader.rows, loader.disk_bytes) == (KEYS, 20, loader.disk_total)
    assert len(desk.txlogs()) > 4
    assert _load(desk, files, tmp_path / "bad").rows == 0


@BOTH
def test_rows_are_loaded_once_whichever_call_the_run_dies_at(tmp_path: Path, kind: str) -> None:
    at, died = 0, True
    while died:
        at, died = at + 1, False
        root = tmp_path / str(at)
        (root / "_bookkeeper").mkdir(parents=True)
        desk, calls = Desk(f"file://{root}"), 0
        desk.set_card(roll_after_ms=0)
        ledger = Ledger(desk)

        def dies(operation: str, key: str, at: int = at) -> None:
            nonlocal calls, died
            calls += 1
            if calls == at:
                died = True
                raise Broken

        desk.stores = lambda url, dies=dies: Tampered(open_store(url), dies)
        file = _file(root / "a", kind, rows(*KEYS[:10]))
        with contextlib.suppress(Broken):
            _load(desk, [file], root / "bad")
        ledger.tick()
        desk.stores = open_store
        _load(desk, [file], root / "bad")
        ledger.tick()
        assert ledger.keys() == KEYS[:10]
    assert at > 16


@BOTH
def test_a_bad_row_goes_to_the_side_file_and_the_others_are_loaded(desk: Desk, tmp_path: Path, kind: str) -> None:
    table = rows(*KEYS).set_column(1, "key", pa.array([None if key == "k13" else key for key in KEYS]))
    _load(desk, [_file(tmp_path / "a", kind, table)], tmp_path / "bad")
    assert desk.keys() == [key for key in KEYS if key != "k13"]
    record = json.loads((tmp_path / "bad").read_text())
    assert (record["line"], record["offset"], json.loads(record["text"])["key"]) == (14, 13, None)
    assert "required column 'key'" in record["reason"]


@BOTH
@pytest.mark.parametrize("name", ["timestamp", "key"])
def test_a_bad_row_with_a_value_that_python_does_not_hold_goes_to_the_side_file_too(
    desk: Desk, tmp_path: Path, kind: str, name: str
) -> None:
    values = {
        "timestamp": pa.array([1 if key == "k13" else 1000 for key in KEYS], pa.timestamp("ns", "UTC")),
        "key": pa.array([b"\xff" if key == "k13" else key.encode() for key in KEYS]).view(pa.string()),
    }
    table = rows(*KEYS)
    table = table.set_column(table.column_names.index(name), name, values[name])
    _load(desk, [_file(tmp_path / "a", kind, table)], tmp_path / "bad")
    assert desk.keys() == [key for key in KEYS if key != "k13"]
    record = json.loads((tmp_path / "bad").read_text())
    assert (record["line"], record["exact"]) == (14, False)


@BOTH
def test_columns_that_do_not_fit_are_refused_before_any_row(desk: Desk, tmp_path: Path, kind: str) -> None:
    table = rows(*KEYS)
    for wrong, said in (
        (table.append_column("colour", table["key"]), "colour"),
        (table.drop_columns(["key"]), "'key', which is required"),
        (table.set_column(1, "key", pa.array(range(20))), "the table wants"),
    ):
        with pytest.raises(SchemaRefused, match=said):
            _load(desk, [_file(tmp_path / "a", kind, wrong)], tmp_path / "bad")
    assert desk.txlogs() == []
    _load(
        desk,
        [_file(tmp_path / "a", kind, table.append_column("colour", table["key"]))],
        tmp_path / "bad",
        ignore_unknown=True,
    )
    assert desk.keys() == KEYS


@BOTH
def test_a_file_with_the_former_name_of_a_required_column_is_loaded(desk: Desk, tmp_path: Path, kind: str) -> None:
    desk.set_card(roll_after_ms=0)
    renamed = NestedField(2, "name", StringType(), required=True)
    with desk.writer("import") as writer, BadLines(tmp_path / "bad") as bad_lines:
        desk.set_card(Schema(SCHEMA.fields[0], renamed, SCHEMA.fields[2], schema_id=1), roll_after_ms=0)
        writer.roll()
        loader = Loader(writer, Format("ndjson"), bad_lines, desk.clock)
        loader.load_files([_file(tmp_path / "a", kind, rows(*KEYS))])
    assert [row["name"] for row in desk.rows()] == KEYS


def test_a_parquet_file_of_large_values_is_read_in_small_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("writers.sources.row_files._BATCH_ROWS", 16_384)
    monkeypatch.setattr("writers.sources.row_files._BATCH_BYTES", 2**20, raising=False)
    table = pa.table({"value": [os.urandom(2**16) for _ in range(64)]})
    pq.write_table(table, tmp_path / "a")
    found = list(batches(str(tmp_path / "a"), 0))
    assert max(piece.nbytes for _, _, piece in found) <= 2**20 + 2**17
    assert pa.concat_tables([piece for _, _, piece in found]).equals(table)


@BOTH
def test_a_file_whose_dictionary_unpacks_to_much_is_read_in_small_batches(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("writers.sources.row_files._BATCH_ROWS", 16_384)
    monkeypatch.setattr("writers.sources.row_files._BATCH_BYTES", 2**20)
    table = pa.table({"value": pa.array(["x" * 2**16] * 256).dictionary_encode()})
    if kind == "parquet":
        pq.write_table(table.cast(pa.schema([("value", pa.string())])), tmp_path / "a")
    else:
        with pa.ipc.new_file(tmp_path / "a", table.schema) as out:
            out.write_table(table)
    found = [piece.cast(pa.schema([("value", pa.string())])) for _, _, piece in batches(str(tmp_path / "a"), 5)]
    assert max(piece.nbytes for piece in found) <= 2**21
    assert sum(piece.num_rows for piece in found) == 251


@BOTH
def test_a_file_that_changed_or_is_damaged_is_refused(desk: Desk, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    _load(desk, [_file(path, kind, rows(*KEYS))], tmp_path / "bad")
    _file(path, kind, rows(*reversed(KEYS), "more"))
    with pytest.raises(NotPossible, match="is not the file that was read"):
        _load(desk, [str(path)], tmp_path / "bad")
    other = tmp_path / "b"
    other.write_bytes(path.read_bytes()[:-100])
    desk.stores = open_store
    with (
        desk.writer("other") as writer,
        BadLines(tmp_path / "bad") as bad,
        pytest.raises(NotPossible, match="cannot be"),
    ):
        Loader(writer, Format("ndjson"), bad, desk.clock).load_files([str(other)])


@BOTH
@pytest.mark.parametrize("end", ["constant", "wide"])
def test_a_file_with_the_size_and_the_end_of_the_one_that_was_read_is_another_file(
    desk: Desk, tmp_path: Path, kind: str, end: str
) -> None:
    """An export of each day may differ from the last one in its values alone: its rows were taken for those."""
    path = tmp_path / "a"

    def export(*keys: str) -> str:
        made = rows(*keys)
        if end == "constant":
            made = made.append_column("region", pa.array(["x" * 5000] * len(keys)))
        else:
            for number in range(200):
                made = made.append_column(f"not in the table, {number:03d}", pa.nulls(len(keys)))
        if kind == "parquet":
            pq.write_table(made, path, compression="none", use_dictionary=False, write_statistics=False)
            return str(path)
        return _file(path, kind, made)

    _load(desk, [export("k1", "k2")], tmp_path / "bad", ignore_unknown=True)
    size, tail = path.stat().st_size, path.read_bytes()[-4096:]
    export("k3", "k4")
    assert (path.stat().st_size, path.read_bytes()[-4096:]) == (size, tail)
    with pytest.raises(NotPossible, match="is not the file that was read"):
        _load(desk, [str(path)], tmp_path / "bad", ignore_unknown=True)
    assert desk.keys() == ["k1", "k2"]
