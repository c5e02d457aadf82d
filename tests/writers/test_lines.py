"""`writer lines` as a library: each line once, whatever dies when."""

import contextlib
import json
import os
import random
import resource
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, NestedField, StringType

from bookkeeper.errors import NotPossible
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from tests.support.desk import SCHEMA, Broken, Desk, Ledger, Schema, Tampered, rows
from writers.loader.formats import Format
from writers.loader.lines import BadLines, Loader
from writers.sources.source import source_of_bad_lines


@pytest.fixture(autouse=True, params=["by line", "in blocks"])
def small_pieces(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A piece holds a few lines, so that a small file has many; they are read one by one, or all at once."""
    monkeypatch.setattr("writers.sources.source._CHUNK_BYTES", 100 if request.param == "by line" else 140)
    monkeypatch.setattr("writers.loader.lines.FEW_LINES", 1_000 if request.param == "by line" else 1)


def _line(key: str) -> str:
    return json.dumps({"timestamp": "2026-03-01T00:00:00Z", "key": key, "value": "v"}) + "\n"


def _write(path: Path, *keys: str) -> str:
    path.write_text("".join(key if key.startswith("bad") else _line(key) for key in keys))
    return str(path)


def _load(desk: Desk, files: list[str], bad: Path, kind: str = "ndjson", most_bad: int | None = None) -> Loader:
    """One run of `writer lines` until its end, or until it dies."""
    with desk.writer("import") as writer, BadLines(bad) as bad_lines:
        loader = Loader(writer, Format(kind), bad_lines, desk.clock, most_bad=most_bad)
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


def test_a_last_line_that_was_cut_is_loaded_once_it_is_whole(desk: Desk, tmp_path: Path) -> None:
    """A program that writes a log flushes its buffer anywhere: both halves were bad lines, and the row was lost."""
    path, whole = tmp_path / "a.ndjson", _line("b")
    path.write_text(_line("a") + whole[:20])
    for _ in range(2):
        with pytest.raises(NotPossible, match="ends within a line: its last 20 bytes are not loaded"):
            _load(desk, [str(path)], tmp_path / "bad")
    with path.open("a") as file:
        file.write(whole[20:] + _line("c"))
    _load(desk, [str(path)], tmp_path / "bad")
    assert desk.keys() == ["a", "b", "c"]
    assert not (tmp_path / "bad").exists()


def test_a_cut_line_of_a_file_that_others_follow_is_a_bad_line(desk: Desk, tmp_path: Path) -> None:
    files = [_write(tmp_path / "a.ndjson", "a", "bad"), _write(tmp_path / "b.ndjson", "b")]
    _load(desk, files, tmp_path / "bad")
    assert (desk.keys(), _bad(tmp_path / "bad")) == (["a", "b"], [(2, "bad")])


@pytest.mark.parametrize("at", [3, 26])
def test_the_rest_of_a_cut_line_of_csv_is_no_row(desk: Desk, tmp_path: Path, at: int) -> None:
    """Cut in its first field, the rest of a line was a row with another value there."""
    path, whole = tmp_path / "a.csv", "b1234,2026-03-01T00:00:00Z,value\n"
    path.write_text("key,timestamp,value\na,2026-03-01T00:00:00Z,v\n" + whole[:at])
    with contextlib.suppress(NotPossible):
        _load(desk, [str(path)], tmp_path / "bad", kind="csv")
    with path.open("a") as file:
        file.write(whole[at:] + "c,2026-03-01T00:00:00Z,v\n")
    _load(desk, [str(path)], tmp_path / "bad", kind="csv")
    _load(desk, [str(path)], tmp_path / "bad", kind="csv")
    *first, rest = map(json.loads, (tmp_path / "bad").read_text().splitlines())
    assert desk.keys() == ["a", "c"]
    assert [item["text"] for item in first] == [whole[:at]]
    assert (rest["line"], rest["text"]) == (3, whole[at:].rstrip())
    assert "the rest of line 3, whose beginning was taken as a line" in rest["reason"]


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


@pytest.mark.parametrize("truncated", [False, True])
def test_a_file_whose_name_another_one_takes_while_it_is_read_is_refused(
    desk: Desk, tmp_path: Path, truncated: bool
) -> None:
    """A log is rotated: of the new one nothing may be passed over."""
    old, new = ([f"{which}{number:02d}" for number in range(100)] for which in "ab")
    path, saved = tmp_path / "a.ndjson", tmp_path / "a.ndjson.1"
    file = _write(path, *old)

    def rotate(loader: Loader) -> None:
        if loader.rows > 50 and not saved.exists():
            saved.write_bytes(path.read_bytes()) if truncated else path.rename(saved)
            _write(path, *new[:80])

    with desk.writer("import") as writer, BadLines(tmp_path / "bad") as bad_lines:
        loader = Loader(writer, Format("ndjson"), bad_lines, desk.clock, on_progress=rotate)
        with pytest.raises(NotPossible, match="is not the file that was read up to byte"):
            loader.load_files([file])
        writer.close()
    _load(desk, [file], tmp_path / "bad")
    assert desk.keys() == sorted(new[:80])


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


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        pytest.param(b"timestamp,key,value\r2026-03-01T12:00:00Z,a,1\r", r"tr '\r' '\n'", id="carriage returns"),
        pytest.param("timestamp,key\n2026-03-01T12:00:00Z,a\n".encode("utf-16"), "-f utf-16", id="UTF-16"),
    ],
)
def test_a_csv_file_whose_first_line_is_no_header_is_refused(
    desk: Desk, tmp_path: Path, text: bytes, hint: str
) -> None:
    (tmp_path / "a.csv").write_bytes(text)
    with pytest.raises(NotPossible, match="line 1 is no CSV header") as refused:
        _load(desk, [str(tmp_path / "a.csv")], tmp_path / "bad", "csv")
    assert hint in refused.value.hint
    assert desk.folder.pending() == []


def test_a_column_added_while_loading_is_found_without_a_restart(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text(_line("a") + _line("b").replace('"v"}', '"v", "count": 7}'))
    more = Schema(*SCHEMA.fields, NestedField(4, "count", LongType(), required=False), schema_id=1)
    with desk.writer("import") as writer, BadLines(tmp_path / "bad") as bad_lines:
        desk.set_card(more)
        Loader(writer, Format("ndjson"), bad_lines, desk.clock).load_files([str(path)])
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
        Loader(writer, Format(kind), bad_lines, desk.clock).load_files([str(path)])
    assert bad_lines.count == 0
    assert {"key", "name"} <= set().union(*desk.rows())
    assert len(desk.rows()) == 6


def test_stdin_is_published_as_it_comes(desk: Desk, tmp_path: Path) -> None:
    read, write = os.pipe()
    with desk.writer("import") as writer, BadLines(tmp_path / "bad") as bad_lines:
        loader = Loader(writer, Format("ndjson"), bad_lines, desk.clock)
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


def test_stdin_may_have_any_number(desk: Desk, tmp_path: Path) -> None:
    read, write = os.pipe()
    high = 1_500
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= high:
        resource.setrlimit(resource.RLIMIT_NOFILE, (high + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    os.dup2(read, high)
    os.close(read)
    _feed(write, _line("a").encode())
    with desk.writer("import") as writer, BadLines(tmp_path / "bad") as bad_lines:
        Loader(writer, Format("ndjson"), bad_lines, desk.clock).load_pipe(high)
    os.close(high)
    assert desk.keys() == ["a"]


def _feed(handle: int, data: bytes) -> None:
    with open(handle, "wb") as pipe:
        pipe.write(data)


def test_a_wish_to_stop_publishes_what_was_read(desk: Desk, tmp_path: Path) -> None:
    files = [_write(tmp_path / "a.ndjson", *(f"k{number:02d}" for number in range(20)))]
    with desk.writer("import") as writer, BadLines(tmp_path / "bad") as bad_lines:
        loader = Loader(writer, Format("ndjson"), bad_lines, desk.clock, stopped=lambda: True)
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


@pytest.mark.parametrize("kind", ["gzip", "zstd", "bz2"])
def test_compressed_files_are_loaded_and_continued_by_the_byte_of_what_is_in_them(
    desk: Desk, tmp_path: Path, kind: str
) -> None:
    desk.set_card(roll_after_ms=0)
    path = tmp_path / "a"
    _compress(path, kind, _line("a") + _line("b") + "bad 1\n" + _line("c"))
    _load(desk, [str(path)], tmp_path / "bad")
    assert desk.keys() == ["a", "b", "c"]
    _compress(path, kind, _line("d") + _line("e"))  # a second member, as `cat b.gz >> a.gz` makes
    assert _load(desk, [str(path)], tmp_path / "bad").rows == 2
    assert desk.keys() == ["a", "b", "c", "d", "e"]
    assert _bad(tmp_path / "bad") == [(3, "bad 1")]


@pytest.mark.parametrize("kind", ["gzip", "zstd", "bz2"])
def test_a_compressed_file_that_is_cut_is_refused_and_continued_when_it_is_whole(
    desk: Desk, tmp_path: Path, kind: str
) -> None:
    desk.set_card(roll_after_ms=0)
    keys = [f"k{number:05d}" for number in range(300)]
    path = tmp_path / "a"
    _compress(path, kind, "".join(map(_line, keys)))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(NotPossible, match=f"decompressed as {kind}"):
        _load(desk, [str(path)], tmp_path / "bad")
    path.write_bytes(whole)
    _load(desk, [str(path)], tmp_path / "bad")
    assert desk.keys() == keys


def test_a_compressed_file_that_became_shorter_is_another_file(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "a"
    _compress(path, "gzip", _line("a") * 200)
    _load(desk, [str(path)], tmp_path / "bad")
    path.unlink()
    _compress(path, "gzip", _line("a") * 100)
    with pytest.raises(NotPossible, match="is not the file that was read up to byte"):
        _load(desk, [str(path)], tmp_path / "bad")


def test_a_file_that_expands_a_thousandfold_is_read_in_blocks(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("writers.sources.source._CHUNK_BYTES", 2**16)
    monkeypatch.setattr("writers.sources.source._MOST_LINE_BYTES", 2**18)
    path = tmp_path / "a"
    _compress(path, "gzip", "x" * 2**26 + "\n" + _line("a"))
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    _load(desk, [str(path)], tmp_path / "bad")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert desk.keys() == ["a"]
    assert peak + pa.total_allocated_bytes() - before < 2**24
    assert len((tmp_path / "bad").read_bytes()) < 2_000


def _compress(path: Path, kind: str, text: str) -> None:
    with path.open("ab") as file, pa.CompressedOutputStream(file, kind) as out:
        out.write(text.encode())


def test_after_too_many_bad_lines_it_ends_and_a_later_run_continues(desk: Desk, tmp_path: Path) -> None:
    desk.set_card(roll_after_ms=0)
    files = [_write(tmp_path / "a.ndjson", "a", "bad 1\n", "b", "c", "bad 2\n", "d", "e", "f")]
    with pytest.raises(NotPossible, match="no rows of this table: 2; --max-bad allows 1") as caught:
        _load(desk, files, tmp_path / "bad", most_bad=1)
    assert "greater --max-bad" in caught.value.hint
    loaded = desk.keys()
    assert "a" in loaded and "f" not in loaded
    _load(desk, files, tmp_path / "bad", most_bad=2)
    assert desk.keys() == list("abcdef")


def test_a_source_that_begins_with_nothing_but_bad_lines_is_given_up_soon(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text("x\n" * 200_000)
    files = [str(tmp_path / "a.ndjson")]
    with pytest.raises(NotPossible, match=r"none of the first 10000 lines is a row of demo.events: stopped") as caught:
        _load(desk, files, tmp_path / "bad")
    assert "With --max-bad N it reads on" in caught.value.hint
    assert desk.txlogs() == [] and len(_bad(tmp_path / "bad")) == 10_000
    with pytest.raises(NotPossible, match="allows 12000"):
        _load(desk, files, tmp_path / "worse", most_bad=12_000)


def test_long_lines_that_are_all_bad_fill_the_disk_no_further_than_16_mib(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text(("x" * 2**20 + "\n") * 40)
    with pytest.raises(NotPossible, match="none of the first 16 lines is a row"):
        _load(desk, [str(tmp_path / "a.ndjson")], tmp_path / "bad")
    assert (tmp_path / "bad").stat().st_size < 18 * 2**20


def test_many_bad_lines_behind_a_row_do_not_end_the_load(desk: Desk, tmp_path: Path) -> None:
    files = [_write(tmp_path / "a.ndjson", "a", *["bad\n"] * 10_001)]
    _load(desk, files, tmp_path / "bad")
    with (tmp_path / "a.ndjson").open("a") as file:
        file.write("bad\n" * 10_001 + _line("b"))
    _load(desk, files, tmp_path / "bad")
    assert desk.keys() == ["a", "b"] and len(_bad(tmp_path / "bad")) == 20_002


@pytest.mark.parametrize("kind", ["ndjson", "csv"])
def test_bad_lines_are_loaded_again_each_once(desk: Desk, tmp_path: Path, kind: str) -> None:
    desk.set_card(roll_after_ms=0)
    path, bad = tmp_path / "a", tmp_path / "bad"
    lines = [_line(key) if kind == "ndjson" else f"{key},2026-03-01T00:00:00Z,v,7\n" for key in "abc"]
    with_count = [line.replace('"v"}', '"v", "count": 7}') for line in lines]
    path.write_text(("" if kind == "ndjson" else "key,timestamp,value\n") + "".join(with_count) + "never\n")
    _load(desk, [str(path)], bad, kind)
    assert desk.keys() == []
    bad.write_bytes(bad.read_bytes() + bad.read_bytes())  # as after a crash
    more = Schema(*SCHEMA.fields, NestedField(4, "count", LongType(), required=False), schema_id=1)
    desk.set_card(more, roll_after_ms=0)
    if kind == "csv":
        path.write_text("key,timestamp,value,count\n")
    for _ in range(2):
        with desk.writer("again") as writer, BadLines(tmp_path / "bad-again") as bad_lines:
            Loader(writer, Format(kind, retry=True), bad_lines, desk.clock).load_files([str(bad)])
    assert desk.keys() == ["a", "b", "c"]
    assert {row["count"] for row in desk.rows()} == {7}
    assert "never" in (tmp_path / "bad-again").read_text()


def test_bad_lines_of_two_sources_at_one_offset_are_two(desk: Desk, tmp_path: Path) -> None:
    bad, path = tmp_path / "bad", tmp_path / "a"
    for number, key in enumerate("aabc"):
        line = _line(key).replace('"v"}', '"v", "colour": 7}')
        path.write_text(line)
        with desk.writer(f"import-{number}") as writer, BadLines(bad) as bad_lines:
            loader = Loader(writer, Format("ndjson"), bad_lines, desk.clock)
            if number < 2:
                with path.open() as file:
                    loader.load_pipe(file.fileno())
            else:
                loader.load_files([str(path)])
    with desk.writer("again") as writer, BadLines(tmp_path / "bad-again") as bad_lines:
        form = Format("ndjson", ignore_unknown=True, retry=True)
        Loader(writer, form, bad_lines, desk.clock).load_files([str(bad)])
    assert desk.keys() == list("aabc")


@pytest.mark.parametrize("key", [b"k\xff", b"k" * 5000], ids=["not UTF-8", "too long"])
def test_a_bad_line_whose_text_is_not_all_of_it_is_a_bad_line_again(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: bytes
) -> None:
    monkeypatch.setattr("writers.sources.source._MOST_LINE_BYTES", 2000)
    (tmp_path / "a.csv").write_bytes(b"timestamp,value,key\n2026-03-01T00:00:00Z,v," + key + b"\n")
    _load(desk, [str(tmp_path / "a.csv")], tmp_path / "bad", "csv")
    with desk.writer("again") as writer, BadLines(tmp_path / "bad-again") as bad_lines:
        Loader(writer, Format("csv", retry=True), bad_lines, desk.clock).load_files([str(tmp_path / "bad")])
    assert desk.keys() == []
    assert "does not hold the line exactly" in (tmp_path / "bad-again").read_text()


def test_what_is_no_record_of_a_bad_line_is_a_bad_line(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text('{"file": "cu\n{"file": "gone.csv", "offset": 1, "text": "a,b"}\n[1]\n7\n')
    with desk.writer("again") as writer, BadLines(tmp_path / "bad-again") as bad_lines:
        Loader(writer, Format("csv", retry=True), bad_lines, desk.clock).load_files([str(tmp_path / "bad")])
    reasons = [json.loads(line)["reason"] for line in (tmp_path / "bad-again").read_text().splitlines()]
    assert len(reasons) == 4
    assert "the header of gone.csv cannot be read" in reasons[1]


def test_the_format_of_bad_lines_is_that_of_the_file_they_are_from(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text('{"file": "a.csv", "offset": 0}\n')
    (tmp_path / "not").write_text("nonsense\n")
    assert source_of_bad_lines(str(tmp_path / "bad")) == ["a.csv"]
    assert source_of_bad_lines(str(tmp_path / "not")) == []


def test_each_line_is_loaded_once_by_a_loader_that_dies_twenty_times(desk: Desk, tmp_path: Path) -> None:
    desk.set_card(roll_after_ms=0)
    keys = [f"k{number:03d}" for number in range(400)]
    files = [_write(tmp_path / "a.ndjson", *keys[:150], "bad 1\n", *keys[150:250]), _write(tmp_path / "b", *keys[250:])]
    ledger, dice, deaths = Ledger(desk), random.Random(20), 0
    while True:
        desk.stores = dies = Dies(dice.randint(1, 50), "before")
        with contextlib.suppress(Broken):
            _load(desk, files, tmp_path / "bad")
            break
        deaths += len(dies.calls) >= dies.at
        desk.stores = open_store
        if dice.random() < 0.5:
            ledger.tick()
    desk.stores = open_store
    ledger.tick()
    assert deaths >= 20
    assert ledger.keys() == keys
    assert {text for _, text in _bad(tmp_path / "bad")} == {"bad 1"}
