"""`writer lines` as a library: each line once, whatever dies when."""

import contextlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType, NestedField, StringType

from bookkeeper.errors import NotPossible
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from tests.support.desk import SCHEMA, Broken, Desk, Ledger, Schema, Tampered, rows
from writers.commands import Format
from writers.lines import BadLines, Loader
from writers.source import SourcePosition, position_of


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece holds a few lines, so that a small file has many."""
    monkeypatch.setattr("writers.source._CHUNK_BYTES", 100)


def _line(key: str) -> str:
    return json.dumps({"timestamp": "2026-03-01T00:00:00Z", "key": key, "value": "v"}) + "\n"


def _write(path: Path, *keys: str) -> str:
    path.write_text("".join(key if key.startswith("bad") else _line(key) for key in keys))
    return str(path)


def _load(desk: Desk, files: list[str], bad: Path, kind: str = "ndjson", **options: Any) -> Loader:
    """One run of `writer lines` until its end, or until it dies."""
    with desk.writer("import", **options) as writer, BadLines(bad) as bad_lines:
        loader = Loader(writer, Format(kind).parser, bad_lines, desk.clock, header=kind == "csv")
        loader.load_files(files)
        return loader


def _bad(path: Path) -> list[tuple[int, str]]:
    return [(item["line"], item["text"]) for item in map(json.loads, path.read_text().splitlines())]


def test_a_file_is_loaded_with_positions_and_not_again(desk: Desk, tmp_path: Path) -> None:
    desk.set_card(roll_after_ms=0)
    keys = [f"k{number:02d}" for number in range(20)]
    files = [_write(tmp_path / "a.ndjson", *keys)]
    _load(desk, files, tmp_path / "bad")
    assert desk.keys() == keys
    assert len(desk.txlogs()) > 2
    assert _load(desk, files, tmp_path / "bad").rows == 0
    assert desk.keys() == keys
    assert not (tmp_path / "bad").exists()


def test_bad_lines_go_to_the_side_file_with_their_reasons(desk: Desk, tmp_path: Path) -> None:
    files = [_write(tmp_path / "a.ndjson", "a", "bad 1\n", "b", "bad 2\n", "c")]
    loader = _load(desk, files, tmp_path / "bad")
    assert desk.keys() == ["a", "b", "c"]
    assert _bad(tmp_path / "bad") == [(2, "bad 1"), (4, "bad 2")]
    assert loader.bad_lines.count == 2


def test_bad_lines_are_on_the_disk_before_the_position_moves_past_them(desk: Desk, tmp_path: Path) -> None:
    desk.set_card(roll_after_ms=0)
    path, seen = tmp_path / "bad", []

    def look(operation: str, key: str) -> None:
        if operation == "create":
            seen.append(len(_bad(path)))

    desk.stores = lambda url: Tampered(open_store(url), look)
    _load(desk, [_write(tmp_path / "a.ndjson", "bad 1\n", "a", "b", "c", "bad 2\n", "d")], path)
    assert seen[0] == 1
    assert seen[-1] == 2


def test_a_cut_side_file_is_continued_on_a_new_line(tmp_path: Path, desk: Desk) -> None:
    (tmp_path / "bad").write_text('{"file": "cu')
    _load(desk, [_write(tmp_path / "a.ndjson", "a", "bad 1\n")], tmp_path / "bad")
    _, whole = (tmp_path / "bad").read_text().splitlines()
    assert json.loads(whole)["text"] == "bad 1"


def test_the_last_line_needs_no_newline_and_the_file_may_grow(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text(_line("a") + _line("b").rstrip())
    _load(desk, [str(path)], tmp_path / "bad")
    with path.open("a") as file:
        file.write("\n" + _line("c"))
    _load(desk, [str(path)], tmp_path / "bad")
    assert desk.keys() == ["a", "b", "c"]


def test_several_files_are_one_source_and_more_may_follow(desk: Desk, tmp_path: Path) -> None:
    files = [_write(tmp_path / f"{name}.ndjson", name) for name in "abc"]
    _load(desk, files[:2], tmp_path / "bad")
    _load(desk, files, tmp_path / "bad")
    assert desk.keys() == ["a", "b", "c"]


@pytest.mark.parametrize("change", ["other", "reordered", "shrunk", "rewritten", "foreign"])
def test_a_source_that_changed_is_refused(desk: Desk, tmp_path: Path, change: str) -> None:
    files = [_write(tmp_path / f"{name}.ndjson", name * 3, name) for name in "ab"]
    _load(desk, files, tmp_path / "bad")
    if change == "other":
        files = [_write(tmp_path / "c.ndjson", "c")]
    elif change == "reordered":
        files = [_write(tmp_path / "0.ndjson", "0"), *files]
    elif change == "shrunk":
        os.truncate(files[1], 10)
    elif change == "rewritten":
        _write(tmp_path / "b.ndjson", "xxx", "y")
    else:
        with desk.writer("import") as writer:
            writer.write(rows("x"))
            writer.publish(position=b"kafka:7")
    with pytest.raises(NotPossible) as caught:
        _load(desk, files, tmp_path / "bad")
    assert "--name" in caught.value.hint


def test_csv_is_read_by_its_header_also_after_a_restart(desk: Desk, tmp_path: Path) -> None:
    desk.set_card(roll_after_ms=0)
    path = tmp_path / "a.csv"
    header, row = "\ufeffkey,timestamp,value\n", "{},2026-03-01T00:00:00Z,v\n"
    path.write_text(header + row.format("a") + "too,few\n")
    _load(desk, [str(path)], tmp_path / "bad", kind="csv")
    with path.open("a") as file:
        file.write(row.format("b"))
    _load(desk, [str(path)], tmp_path / "bad", kind="csv")
    assert desk.keys() == ["a", "b"]
    assert _bad(tmp_path / "bad") == [(3, "too,few")]


def test_a_column_added_while_loading_is_found_without_a_restart(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text(_line("a") + _line("b").replace('"v"}', '"v", "count": 7}'))
    more = Schema(*SCHEMA.fields, NestedField(4, "count", LongType(), required=False), schema_id=1)
    with desk.writer("import") as writer, BadLines(tmp_path / "bad") as bad_lines:
        desk.set_card(more)
        Loader(writer, Format("ndjson").parser, bad_lines, desk.clock, header=False).load_files([str(path)])
    assert [row.get("count") for row in desk.rows()] == [None, 7]
    assert bad_lines.count == 0


@pytest.mark.parametrize("kind", ["ndjson", "csv"])
def test_lines_with_a_column_that_was_renamed_meanwhile_are_no_bad_lines(desk: Desk, tmp_path: Path, kind: str) -> None:
    desk.set_card(roll_after_ms=0)
    path = tmp_path / "a"
    lines = [_line(key) for key in "abcdef"] if kind == "ndjson" else ["timestamp,key\n"]
    path.write_text("".join(lines) + "2026-03-01T00:00:00Z,a\n" * 6 * (kind == "csv"))
    renamed = NestedField(2, "name", StringType(), required=True)
    with desk.writer("import") as writer, BadLines(tmp_path / "bad") as bad_lines:
        desk.set_card(Schema(SCHEMA.fields[0], renamed, SCHEMA.fields[2], schema_id=1), roll_after_ms=0)
        Loader(writer, Format(kind).parser, bad_lines, desk.clock, header=kind == "csv").load_files([str(path)])
    assert bad_lines.count == 0
    assert {"key", "name"} <= set().union(*desk.rows())
    assert len(desk.rows()) == 6


def test_stdin_is_published_as_it_comes(desk: Desk, tmp_path: Path) -> None:
    read, write = os.pipe()
    with desk.writer("import") as writer, BadLines(tmp_path / "bad") as bad_lines:
        loader = Loader(writer, Format("ndjson").parser, bad_lines, desk.clock, header=False)
        long = "x" * 2_000_000
        text = _line("a") + "bad\n" + _line("b").replace('"v"', json.dumps(long)) + _line("c").rstrip()
        feed = threading.Thread(target=_feed, args=(write, text.encode()))
        feed.start()
        loader.load_pipe(read)
        feed.join()
    os.close(read)
    assert desk.keys() == ["a", "b", "c"]
    assert {len(row["value"]) for row in desk.rows()} == {1, len(long)}
    assert _bad(tmp_path / "bad") == [(2, "bad")]
    assert {item.position for item in desk.txlogs()} == {None}


def _feed(handle: int, data: bytes) -> None:
    with open(handle, "wb") as pipe:
        pipe.write(data)


def test_a_wish_to_stop_publishes_what_was_read(desk: Desk, tmp_path: Path) -> None:
    files = [_write(tmp_path / "a.ndjson", *(f"k{number:02d}" for number in range(20)))]
    with desk.writer("import") as writer, BadLines(tmp_path / "bad") as bad_lines:
        loader = Loader(writer, Format("ndjson").parser, bad_lines, desk.clock, header=False, stopped=lambda: True)
        assert not loader.load_files(files)
    first = len(desk.keys())
    assert 0 < first < 20
    _load(desk, files, tmp_path / "bad")
    assert desk.keys() == [f"k{number:02d}" for number in range(20)]


class Dies:
    """Stores on which the run dies at its n-th call: before it, after it, or in the middle of its n-th upload."""

    def __init__(self, at: int, how: str) -> None:
        self.at, self.how = at, how
        self.calls: list[str] = []

    def __call__(self, url: str) -> Any:
        store = open_store(url)
        if self.how == "torn":
            return Tampered(_torn(store, self))
        return Tampered(store, self._before, self._after)

    def now(self, call: str) -> bool:
        self.calls.append(call)
        return len(self.calls) == self.at

    def _before(self, operation: str, key: str) -> None:
        if self.now(f"{operation} {key}") and self.how == "before":
            raise Broken

    def _after(self, operation: str, key: str) -> None:
        if len(self.calls) == self.at and self.how == "after":
            raise Broken


def _torn(store: Store, dies: Dies) -> Store:
    upload = store.upload

    def half(key: str, data: Any) -> None:
        if dies.now(f"upload {key}"):
            upload(key, bytes(data)[: len(data) // 2])
            raise Broken
        upload(key, data)

    store.upload = half  # type: ignore[method-assign]
    return store


KEYS = [f"k{number:02d}" for number in range(8)]


def _dies_and_starts_again(root: Path, at: int, how: str, meanwhile: Callable[[Ledger], None]) -> list[str]:
    """Dies at call `at`, starts again, drains, and compares; returns the calls before the death."""
    (root / "_bookkeeper").mkdir(parents=True)
    desk = Desk(f"file://{root}")
    desk.set_card(roll_after_ms=0)
    ledger = Ledger(desk)
    first = _write(root / "a.ndjson", *KEYS[:4], "bad 1\n", *KEYS[4:6])
    files = [first, _write(root / "b.ndjson", *KEYS[6:], "bad 2\n")]
    dies = Dies(at, how)
    desk.stores = dies
    with contextlib.suppress(Broken):
        _load(desk, files, root / "bad")
    meanwhile(ledger)
    desk.stores = open_store
    _load(desk, files, root / "bad")
    ledger.tick()
    assert ledger.keys() == KEYS, f"died {how} call {at}: {dies.calls[-1]}"
    assert {text for _, text in _bad(root / "bad")} == {"bad 1", "bad 2"}
    assert not desk.folder.rejected()
    return dies.calls


def _commits_nothing(ledger: Ledger) -> None:
    pass


@pytest.mark.parametrize("how", ["before", "after", "torn"])
@pytest.mark.parametrize("meanwhile", [Ledger.tick, _commits_nothing], ids=["committed", "pending"])
def test_each_line_is_loaded_once_whichever_call_the_run_dies_at(
    tmp_path: Path, how: str, meanwhile: Callable[[Ledger], None]
) -> None:
    calls = _dies_and_starts_again(tmp_path / "never", 10_000, how, meanwhile)
    assert len(calls) > (3 if how == "torn" else 16)
    for at in range(1, len(calls) + 1):
        _dies_and_starts_again(tmp_path / f"{at}", at, how, meanwhile)


def _end_of_file(files: list[str], place: SourcePosition) -> bytes:
    return position_of(files, SourcePosition(place.index, os.path.getsize(files[place.index]), 99))


@pytest.mark.parametrize("wrong", ["too early", "not at all"])
def test_a_position_that_moves_wrongly_would_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    if wrong == "not at all":
        monkeypatch.setattr("writers.lines.place_of", lambda files, position: SourcePosition())
    else:
        monkeypatch.setattr("writers.lines.position_of", _end_of_file)
    with pytest.raises(AssertionError):
        for at in range(1, 30):
            _dies_and_starts_again(tmp_path / f"{at}", at, "after", Ledger.tick)
