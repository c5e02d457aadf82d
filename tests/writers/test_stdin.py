"""`writer lines NAME -`: stdin that can be sent again, each of its lines once."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bookkeeper.errors import NotPossible
from bookkeeper.stores.open import open_store
from tests.support import forked
from tests.support.crew import Crew
from tests.support.desk import Broken, Desk, Ledger, Tampered
from tests.support.logs import logging_put_back
from writers.cli import main
from writers.loader.formats import Format
from writers.loader.lines import BadLines, Loader
from writers.sources.stdin import ReplayedStdin, shown

KEYS = [f"k{number:02d}" for number in range(12)]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("writers.sources.source._CHUNK_BYTES", 150)


def line(key: str) -> str:
    return json.dumps({"timestamp": "2026-03-01T00:00:00Z", "key": key}) + "\n"


TEXT = "".join([*map(line, KEYS[:5]), "bad\n", *map(line, KEYS[5:])]).encode()


def piped(data: bytes) -> int:
    """The reading end of a pipe that holds all of it and is closed."""
    read, write = os.pipe()
    os.write(write, data)
    os.close(write)
    return read


def load(desk: Desk, data: bytes, bad: Path, at: int | None = None, kind: str = "ndjson") -> Loader:
    handle = piped(data)
    try:
        with desk.writer("import") as writer, BadLines(bad) as bad_lines:
            loader = Loader(writer, Format(kind), bad_lines, desk.clock)
            loader.load_replayed(ReplayedStdin(writer.position, at), handle)
            return loader
    finally:
        os.close(handle)


def reached(desk: Desk) -> int:
    with desk.writer("import") as writer:
        found: int = shown(writer.position)["bytes"]
        return found


def test_what_is_in_is_passed_over_when_stdin_begins_again(desk: Desk, tmp_path: Path) -> None:
    desk.set_card(roll_after_ms=0)
    cut = TEXT.index(line(KEYS[7]).encode())
    assert load(desk, TEXT[:cut], tmp_path / "bad").rows == 7
    assert reached(desk) == cut
    assert load(desk, TEXT, tmp_path / "bad").rows == 5
    assert load(desk, TEXT, tmp_path / "bad").rows == 0
    assert desk.keys() == KEYS
    (bad,) = map(json.loads, (tmp_path / "bad").read_text().splitlines())
    assert (bad["file"], bad["line"], bad["text"]) == ("stdin:import", 6, "bad")


def test_a_source_that_goes_on_at_the_position_is_told_so(desk: Desk, tmp_path: Path) -> None:
    cut = TEXT.index(line(KEYS[7]).encode())
    load(desk, TEXT[:cut], tmp_path / "bad")
    for wrong in (0, cut - 1, cut + 1):
        with pytest.raises(NotPossible, match=f"--at {wrong} is not the position, which is {cut}"):
            load(desk, TEXT[wrong:], tmp_path / "bad", at=wrong)
    assert load(desk, TEXT[cut:], tmp_path / "bad", at=cut).rows == 5
    assert reached(desk) == len(TEXT)
    assert load(desk, TEXT + line("more").encode(), tmp_path / "bad").rows == 1
    assert desk.keys() == [*KEYS, "more"]


def test_csv_keeps_its_header(desk: Desk, tmp_path: Path) -> None:
    text = "\ufefftimestamp,key\n" + "".join(f"2026-03-01T00:00:00Z,{key}\n" for key in KEYS)
    cut = text.index(KEYS[4] + "\n") + 4
    load(desk, text[:cut].encode(), tmp_path / "bad", kind="csv")
    load(desk, text.encode(), tmp_path / "bad", kind="csv")
    assert desk.keys() == KEYS


def test_a_line_that_was_cut_is_not_loaded_but_said(desk: Desk, tmp_path: Path) -> None:
    with pytest.raises(NotPossible, match="ended within a line: its last 10 bytes are not loaded"):
        load(desk, TEXT + line("last").encode()[:10], tmp_path / "bad")
    assert desk.keys() == KEYS
    load(desk, TEXT + line("last").encode(), tmp_path / "bad")
    assert desk.keys() == [*KEYS, "last"]


def test_another_source_is_refused(desk: Desk, tmp_path: Path) -> None:
    load(desk, TEXT, tmp_path / "bad")
    with pytest.raises(NotPossible, match="does not begin as it did"):
        load(desk, line("other").encode() * 40, tmp_path / "bad")
    with pytest.raises(NotPossible, match=f"stdin ends at byte 20, the position is {len(TEXT)}"):
        load(desk, TEXT[:20], tmp_path / "bad")
    assert desk.keys() == KEYS


def test_positions_of_files_and_of_stdin_are_not_taken_for_each_other(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(TEXT)
    files = [str(tmp_path / "a.ndjson")]
    with desk.writer("import") as writer, BadLines(tmp_path / "bad") as bad_lines:
        Loader(writer, Format("ndjson"), bad_lines, desk.clock).load_files(files)
    with pytest.raises(NotPossible, match="is none of stdin"):
        load(desk, TEXT, tmp_path / "bad")


@pytest.mark.parametrize("how", ["before", "after"])
def test_each_line_is_loaded_once_whichever_call_the_run_dies_at(tmp_path: Path, how: str) -> None:
    at, died = 0, True
    while died:
        at, died = at + 1, False
        desk = Desk(f"file://{tmp_path}/{at}")
        desk.set_card(roll_after_ms=0)
        ledger, calls = Ledger(desk), 0

        def count(operation: str, key: str, at: int = at) -> None:
            nonlocal calls, died
            calls += 1
            if calls == at:
                died = True
                raise Broken

        desk.stores = lambda url: Tampered(open_store(url), **{how: count})  # type: ignore[assignment, return-value]
        with contextlib.suppress(Broken):
            load(desk, TEXT, tmp_path / f"{at}" / "bad")
        desk.stores = open_store
        if at % 2:
            ledger.tick()
        load(desk, TEXT, tmp_path / f"{at}" / "bad")
        ledger.tick()
        assert ledger.keys() == KEYS, at
    assert at > 10


def run(*words: str, text: bytes | None = None) -> Result:
    with logging_put_back():
        return CliRunner().invoke(main, [*words], input=text)


def test_the_position_is_printed_for_people_and_for_the_source(local: Desk, tmp_path: Path) -> None:
    where = ("--folder", f"{local.root}/_bookkeeper", "--name", "import")
    assert "nothing was read" in run("position", *where).stdout
    assert run("position", *where, "--bytes").stdout == "0\n"
    load(local, TEXT, tmp_path / "bad")
    assert json.loads(run("position", *where, "--json").stdout) == {"source": "-", "bytes": len(TEXT), "lines": 13}
    assert run("position", *where, "--bytes").stdout == f"{len(TEXT)}\n"
    with local.writer("other") as writer:
        writer.write({"timestamp": local.clock(), "key": "k"}, position=b"42")
    assert "42" in run("position", *where[:3], "other").stdout
    missing = run("position", "--folder", f"{local.root}/nothing", "--name", "import")
    assert missing.exit_code != 0 and "bookkeeper init" in missing.stderr


@pytest.mark.parametrize("words", [("-", "-"), ("--at", "3"), ("--at", "3", "--format", "csv", "-")])
def test_dash_is_alone_and_at_goes_with_it(local: Desk, words: tuple[str, ...]) -> None:
    assert run("lines", "--folder", f"{local.root}/_bookkeeper", "--name", "import", *words).exit_code == 2


def test_a_process_that_is_killed_and_started_again_loads_each_line_once(local: Desk, tmp_path: Path) -> None:
    """kill -9 when a part of the input is published and another one is not; then the same input again."""
    local.set_card(roll_after_ms=1)
    keys = [f"k{number:04d}" for number in range(400)]
    text = "".join(map(line, keys)).encode()
    words = [sys.executable, "-m", "writers", "lines", "--folder", f"{local.root}/_bookkeeper", "--name", "import", "-"]
    ledger = Ledger(local)
    with Crew({"writer": words}, tmp_path) as crew:
        killed = crew.start("writer", stdin=subprocess.PIPE, cwd=tmp_path)
        killed.stdin.write(text[: len(text) // 2 + 7])
        killed.stdin.flush()
        while not list(local.folder.pending()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                pytest.fail(f"it ended with {killed.wait(0.05)}")
        crew.kill("writer")
    ledger.tick()
    forked.run(words, input=text, cwd=tmp_path, check=True, timeout=120)
    ledger.tick()
    assert ledger.keys() == keys
