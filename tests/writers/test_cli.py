"""`writer` as a person or a script starts it."""

import contextlib
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tests.support import forked
from tests.support.crew import Crew
from tests.support.desk import Desk, Ledger
from tests.support.logs import logging_put_back
from tests.support.upserts import keyed_card
from writers.cli import main

COMMANDS = sorted(main.commands)


def _writer(*arguments: str, cwd: Path | None = None, input: str | None = None) -> Result:
    """In this process: a process of its own takes a second to import what it needs."""
    with contextlib.chdir(cwd or os.curdir), logging_put_back(), tempfile.TemporaryFile() as stdin:
        stdin.write((input or "").encode())
        stdin.seek(0)
        done = CliRunner().invoke(main, arguments, stdin, prog_name="writer")
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def _process(*arguments: str, **more: Any) -> "subprocess.CompletedProcess[str]":
    return forked.run(_command(*arguments), capture_output=True, text=True, timeout=120, **more)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "writers", *arguments]


def _folder(desk: Desk) -> str:
    return f"{desk.root.removeprefix('file://')}/_bookkeeper"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_ends_in_examples(name: str) -> None:
    text = CliRunner().invoke(main, [name, "--help"]).output
    examples = [line.strip() for line in text.splitlines() if line.strip().startswith(f"writer {name} ")]
    assert examples
    command: click.Command = main.commands[name]
    for example in examples:
        arguments = [word for word in shlex.split(example)[2:] if not word.endswith((".ndjson", ".txt"))]
        command.make_context(name, arguments)


def test_help_is_instant_and_imports_nothing_heavy() -> None:
    # What makes it slow is what it imports: no other library than click, and few modules.
    script = (
        "import sys; before = {*sys.modules}; "
        "from writers.cli import main; main(['lines', '--help'], standalone_mode=False); "
        "more = {*sys.modules} - before; "
        "print(len(more), *sorted({name.partition('.')[0] for name in more} - sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules, *foreign = done.stdout.splitlines()[-1].split()
    assert foreign == ["bookkeeper", "click", "writers"]
    assert int(modules) < 200


def test_generate_publishes_as_many_files_as_asked(local: Desk, tmp_path: Path) -> None:
    log = tmp_path / "closed.jsonl"
    arguments = shlex.split("--files 3 --records 4 --value-bytes 10 --name load-1 --run r1 --quiet --close-log")
    done = _process("generate", "--folder", _folder(local), *arguments, str(log))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    closed = [json.loads(line) for line in log.read_text().splitlines()]
    assert [item["name"] for item in closed] == [str(item.name) for item in local.txlogs()]
    assert [(item["first"], item["last"]) for item in closed] == [(0, 3), (4, 7), (8, 11)]
    assert local.keys() == [f"load-1/r1/{number:012d}" for number in range(12)]


def test_generate_shows_how_far_it_is(local: Desk) -> None:
    done = _writer("generate", "--folder", _folder(local), "--files", "1", "--records", "2", "--value-bytes", "1KiB")
    assert done.stdout == ""
    assert done.stderr.startswith("generate: txlogs 1, rows 2, bytes 2 KiB, rows/s ")


def test_generate_ends_after_the_current_file_on_sigterm(local: Desk, tmp_path: Path) -> None:
    arguments = ["generate", "--folder", _folder(local), "--records", "5", "--value-bytes", "5", "--pause", "1h"]
    with Crew({"writer": _command(*arguments)}, tmp_path) as crew:
        _until(local.folder.pending, crew.start("writer"))
        assert crew.stop("writer", 60) == 0
    assert "rows 5" in crew.log("writer").read_text()
    assert len(local.keys()) == 5


def test_the_folder_may_come_from_the_configuration(local: Desk, tmp_path: Path) -> None:
    config = tmp_path / "b.toml"
    config.write_text(f'[tables.events]\nfolder = "{_folder(local)}"\n[tables.bare]\n')
    generate = ["generate", "--config", str(config), "--files", "1", "--records", "1", "--quiet"]
    assert _writer(*generate, "--table", "events").exit_code == 0
    assert len(local.keys()) == 1
    done = _writer(*generate, "--table", "bare")
    assert done.exit_code == 1
    assert "error: tables.bare names neither folder nor location" in done.stderr
    assert "hint: Give --folder URL" in done.stderr


def test_no_folder_at_all_is_an_error_with_a_hint(tmp_path: Path) -> None:
    done = _process("generate", "--files", "1", cwd=tmp_path)
    assert done.returncode == 1
    assert "hint: Give --folder URL as `bookkeeper init` prints it." in done.stderr
    assert "Traceback" not in done.stderr


def test_lines_reads_stdin(local: Desk, tmp_path: Path) -> None:
    lines = "".join(_line(f"k{number}") for number in range(3)) + "bad\n"
    done = _process("lines", "--folder", _folder(local), "--name", "in", input=lines, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.endswith("bad lines: 1; in.bad.ndjson has each with its reason\n")
    assert local.keys() == ["k0", "k1", "k2"]
    assert json.loads((tmp_path / "in.bad.ndjson").read_text())["text"] == "bad"


@pytest.mark.parametrize("how", ["stdin", "file"])
def test_lines_of_which_none_is_a_row_end_with_exit_code_1_and_say_why(local: Desk, tmp_path: Path, how: str) -> None:
    (tmp_path / "a.ndjson").write_text("bad\nworse\n")
    given = [str(tmp_path / "a.ndjson")] if how == "file" else []
    lines = None if how == "file" else "bad\nworse\n"
    done = _writer("lines", "--folder", _folder(local), "--name", "in", *given, input=lines, cwd=tmp_path)

    assert done.exit_code == 1
    assert "error: no line is a row of this table; bad lines: 2" in done.stderr
    assert "hint: in.bad.ndjson has the reason for each" in done.stderr
    assert local.txlogs() == []


def test_no_lines_at_all_are_no_error(local: Desk, tmp_path: Path) -> None:
    done = _writer("lines", "--folder", _folder(local), "--name", "in", input="\n", cwd=tmp_path)
    assert done.exit_code == 0


def test_lines_takes_csv_by_the_files_ending(local: Desk, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("timestamp,key,value\n2026-03-01T00:00:00Z,a,AP8=\n")
    done = _writer("lines", "--folder", _folder(local), "--name", "csv", "--base64", str(file), cwd=tmp_path)
    assert done.exit_code == 0
    assert [row["value"] for row in local.rows()] == [b"\x00\xff"]


def test_lines_of_a_forgiving_kind(local: Desk, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("timestamp;key;value;colour\n2026-03-01T00:00:00Z;a;NA;red\n2026-03-01T00:00:00Z;b;x;\n")
    options = shlex.split("--name csv --quiet --format csv --delimiter ';' --null NA --null - --ignore-unknown")
    done = _writer("lines", "--folder", _folder(local), *options, str(file), cwd=tmp_path)
    assert (done.exit_code, done.stderr) == (0, "")
    assert [row["value"] for row in local.rows()] == [None, b"x"]


@pytest.mark.parametrize(
    "options, said",
    [
        ("--null NA", "JSON has a null of its own"),
        ("--delimiter ab", "one character"),
        ("--op-field op --preset debezium", "give one of them"),
        ("--preset debezium --format csv", "for CSV give --op-field"),
        (f"--op-field op --retry-bad {__file__}", "--retry-bad is not for changes"),
    ],
)
def test_lines_refuses_options_that_make_no_sense(local: Desk, tmp_path: Path, options: str, said: str) -> None:
    done = _writer("lines", "--folder", _folder(local), "--name", "in", *options.split(), input="", cwd=tmp_path)
    assert (done.exit_code, said in done.stderr) == (2, True)


def test_lines_of_files_whose_names_are_no_utf8(local: Desk, tmp_path: Path) -> None:
    files = [os.fsdecode(b"\xff.ndjson"), os.fsdecode(b"\xfe.ndjson")]
    for key, name in zip("ab", files, strict=True):
        (tmp_path / name).write_text(_line(key) + "bad\n")
    for given in (files[:1], files, files):
        done = _writer("lines", "--folder", _folder(local), "--name", "in", "--quiet", *given, cwd=tmp_path)
        assert done.exit_code == 0, done.stderr
    assert sorted(row["key"] for row in local.rows()) == ["a", "b"]
    shown = _writer("position", "--folder", _folder(local), "--name", "in", cwd=tmp_path)
    assert shown.exit_code == 0 and "\\udcfe.ndjson" in shown.stdout


@pytest.mark.parametrize("letters", [10, 80, 230])
def test_lines_of_files_in_folders_with_long_names_in_other_letters(local: Desk, tmp_path: Path, letters: int) -> None:
    folder = tmp_path / ("данные" * 40)[: letters // 2] / ("файлы" * 40)[: letters // 2]
    folder.mkdir(parents=True)
    files = []
    for key in "ab":
        files.append(str(folder / f"{key}.ndjson"))
        Path(files[-1]).write_text(_line(key))
        for _ in range(2):
            done = _writer("lines", "--folder", _folder(local), "--name", "in", "--quiet", *files, cwd=tmp_path)
            assert done.exit_code == 0, done.stderr
    assert sorted(row["key"] for row in local.rows()) == ["a", "b"]


@pytest.mark.parametrize("options", ["in.bad.ndjson", "a.ndjson --bad in.bad.ndjson", "--retry-bad in.bad.ndjson"])
def test_lines_adds_no_bad_line_to_a_file_that_it_reads(local: Desk, tmp_path: Path, options: str) -> None:
    (tmp_path / "in.bad.ndjson").write_text(_line("a") + "bad\n")
    (tmp_path / "a.ndjson").symlink_to("in.bad.ndjson")
    lines = ["lines", "--folder", _folder(local), "--name", "in", "--quiet", "--max-bad", "50"]
    done = _writer(*lines, *options.split(), cwd=tmp_path)
    assert (done.exit_code, "goes to another file" in done.stderr, local.txlogs()) == (2, True, [])
    assert len((tmp_path / "in.bad.ndjson").read_text().splitlines()) == 2


def test_lines_ends_with_exit_code_1_at_a_change_that_cannot_be_applied(tmp_path: Path) -> None:
    desk = Desk(f"file://{tmp_path}")
    keyed_card(desk)
    (tmp_path / "a.ndjson").write_text('{"op": "t"}\n')
    options = shlex.split("--name changes --quiet --preset debezium a.ndjson")
    done = _writer("lines", "--folder", _folder(desk), *options, cwd=tmp_path)
    assert (done.exit_code, desk.txlogs()) == (1, [])
    assert "error: a.ndjson, line 1: op 't' truncates the table" in done.stderr
    assert "hint: Empty the table by hand, then load it again." in done.stderr


def test_lines_ends_with_exit_code_1_after_too_many_bad_lines(local: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text(_line("a") + "bad\n")
    lines = ["lines", "--folder", _folder(local), "--name", "in", "--quiet", "a.ndjson", "--max-bad"]
    done = _writer(*lines, "0", cwd=tmp_path)
    assert done.exit_code == 1
    assert "error: lines that are no rows of this table: 1; --max-bad allows 0" in done.stderr
    assert local.txlogs() == []
    assert _writer(*lines, "1", cwd=tmp_path).exit_code == 0
    assert local.keys() == ["a"]


def test_lines_shows_how_far_it_is(local: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text(_line("a"))
    done = _writer("lines", "--folder", _folder(local), "--name", "in", "a.ndjson", cwd=tmp_path)
    assert re.fullmatch(
        r"lines: rows 1, published 1, bad lines 0, rows/s \d+, MB/s [\d.]+, done 100%, left 0 ms\n", done.stderr
    )


def _line(key: str) -> str:
    return json.dumps({"timestamp": "2026-03-01T00:00:00Z", "key": key, "value": "v" * 40}) + "\n"


def _until(done: Any, process: "subprocess.Popen[str]") -> bool:
    """Wait for another process; False when it ended first."""
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        try:
            process.wait(0.01)
        except subprocess.TimeoutExpired:
            continue
        return False
    return True


@pytest.mark.slow
def test_lines_killed_and_started_again_and_again_loads_each_line_once(local: Desk, tmp_path: Path) -> None:
    local.set_card(roll_after_ms=0)
    count = 36_000
    keys = [f"k{number:06d}" for number in range(count)]
    for name, part in (("a", keys[: count // 2]), ("b", keys[count // 2 :])):
        (tmp_path / f"{name}.ndjson").write_text("".join(map(_line, part)).replace("vvvv", "v" * 40))
    files = [str(tmp_path / "a.ndjson"), str(tmp_path / "b.ndjson")]
    ledger, dice, kills = Ledger(local), random.Random(7), 0
    words = _command("lines", "--folder", _folder(local), "--name", "import", "--quiet", *files)
    crew = Crew({"writer": words}, tmp_path)
    while True:
        process = crew.start("writer")
        enough = len(local.folder.pending()) + dice.randint(1, 2)
        if not _until(lambda enough=enough: len(local.folder.pending()) >= enough, process):
            break
        crew.kill("writer")
        kills += 1
        if dice.random() < 0.5:
            ledger.tick()
    assert crew.wait("writer") == 0
    assert kills >= 3
    ledger.tick()
    assert ledger.keys() == keys
    assert not local.folder.rejected()
