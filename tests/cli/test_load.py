"""`bookkeeper load`: one command from a file to a table, and each row once wherever it is killed."""

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from tests.support.forked import run

_KILLED = """
import importlib, os, signal, sys
from bookkeeper.cli import main
module, _, name = sys.argv[1].rpartition(".")
module, before = importlib.import_module(module), sys.argv[2] == "before"
real = getattr(module, name)
def killed(*given, **more):
    if not before:
        real(*given, **more)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(module, name, killed)
main(["load", "x.csv"])
"""
_STEPS = [
    ("bookkeeper.cli.load._configured", "before"),
    ("os.link", "before"),
    ("os.link", "after"),
    ("bookkeeper.cli.load.make", "before"),
    ("bookkeeper.commands.init._create", "after"),
    ("bookkeeper.cli.load.make", "after"),
    ("bookkeeper.cli.load._ended", "before"),
    ("bookkeeper.cli.load._run_writer", "after"),
    ("bookkeeper.cli.load._rows_of", "after"),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOOKKEEPER_CONFIG", raising=False)
    write(tmp_path / "x.csv", 0, 3000)
    return tmp_path


def write(path: Path, first: int, last: int) -> None:
    path.write_text("id,v\n" + "".join(f"{number},value {number}\n" for number in range(first, last)))


def load(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bookkeeper", "load", *words]
    return run(command, spare=True, capture_output=True, text=True, timeout=120)


def ids(place: Path, table: str = "demo.x") -> list[int]:
    catalog = load_catalog(
        "lake", type="sql", uri=f"sqlite:///{place}/lake/catalog.db", warehouse=f"file://{place}/lake"
    )
    try:
        return sorted(catalog.load_table(table).scan().to_arrow()["id"].to_pylist())
    finally:
        catalog.close()  # type: ignore[attr-defined]


def test_one_command_makes_all_that_is_missing(place: Path) -> None:
    done = load("x.csv", "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["table"], record["rows_added"], record["rows"]) == ("x", 3000, 3000)
    assert ids(place) == list(range(3000))
    assert stat.S_IMODE((place / "bookkeeper.toml").stat().st_mode) == 0o644
    commands = [line.split("  ")[1] for line in done.stderr.partition("next:\n")[2].splitlines()]
    assert len(commands) == 3
    first = shlex.split(commands[0])
    shown = run([sys.executable, "-m", *first], capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0 and len(shown.stdout.splitlines()) == 5, shown.stderr


def test_run_again_it_says_that_the_rows_are_in_and_loads_what_has_grown(place: Path) -> None:
    assert load("x.csv").returncode == 0
    again = load("x.csv")
    assert again.returncode == 0 and "all rows of x.csv were in the table already" in again.stderr
    with (place / "x.csv").open("a") as file:
        file.write("3000,more\n")
    grown = load("x.csv", "--json")
    assert json.loads(grown.stdout)["rows_added"] == 1, grown.stderr
    assert ids(place) == list(range(3001))


def test_a_file_that_was_replaced_or_moved_is_refused_and_taken_under_another_name(place: Path) -> None:
    assert load("x.csv").returncode == 0
    write(place / "x.csv", 5000, 8000)
    refused = load("x.csv")
    assert refused.returncode == 1 and "is not the file that was read" in refused.stderr
    assert "another --name" in refused.stderr and "next:" not in refused.stderr
    (place / "moved").mkdir()
    os.rename("x.csv", "moved/x.csv")
    moved = load("moved/x.csv")
    assert moved.returncode == 1 and "which is not among the files" in moved.stderr
    assert ids(place) == list(range(3000))
    assert load("moved/x.csv", "--name", "x-2").returncode == 0
    assert ids(place) == [*range(3000), *range(5000, 8000)]


def test_lines_that_are_no_rows_are_put_aside_and_the_exit_code_says_whether_any_was_one(place: Path) -> None:
    with open("x.csv", "a") as file:
        file.write("7,too,many\n")
    some = load("x.csv")
    assert (some.returncode, len(ids(place))) == (0, 3000) and "bad lines: 1; " in some.stderr
    (aside,) = place.glob("*.bad.ndjson")
    assert json.loads(aside.read_text())["line"] == 3002
    Path("y.csv").write_text("id,v\na,too,many\nb,too,many\n")
    assert load("y.csv", "--table", "x").returncode == 1


def test_a_second_file_gets_a_table_or_goes_into_one(place: Path) -> None:
    assert load("x.csv").returncode == 0
    os.chmod("bookkeeper.toml", 0o640)
    before = (place / "bookkeeper.toml").read_text()
    write(place / "2026 more.csv", 0, 10)
    assert load("2026 more.csv").returncode == 0
    text = (place / "bookkeeper.toml").read_text()
    assert text.startswith(before) and "[tables.t_2026_more]" in text
    assert stat.S_IMODE((place / "bookkeeper.toml").stat().st_mode) == 0o640
    assert ids(place, "demo.t_2026_more") == list(range(10))
    assert load("2026 more.csv", "--table", "x", "--name", "other").returncode == 0
    assert len(ids(place)) == 3010
    assert (place / "bookkeeper.toml").read_text() == text


def test_a_file_that_is_no_table_leaves_nothing(place: Path) -> None:
    (place / "x.csv").write_text("")
    refused = load("x.csv")
    assert refused.returncode == 1 and "the file is empty" in refused.stderr
    assert [path.name for path in place.iterdir()] == ["x.csv"]


@pytest.mark.parametrize("name", ["x.csv", "x.csv.zip", "x.xlsx"])
def test_a_zip_archive_is_refused_with_what_to_do(place: Path, name: str) -> None:
    with zipfile.ZipFile(place / "archive", "w") as archive:
        archive.write(place / "x.csv", "x.csv")
    (place / "x.csv").unlink()
    os.rename(place / "archive", place / name)
    refused = load(name)
    assert refused.returncode == 1 and f"error: {name} is a zip archive" in refused.stderr
    assert "Unpack it" in refused.stderr
    assert [path.name for path in place.iterdir()] == [name]


def test_of_a_lake_that_was_moved_it_is_said_and_a_link_in_its_old_place_helps(place: Path) -> None:
    (place / "old").mkdir()
    os.rename("x.csv", "old/x.csv")
    assert load("old/x.csv", "--config", "old/bookkeeper.toml").returncode == 0
    os.rename("old", "new")
    status = [sys.executable, "-m", "bookkeeper", "status", "--config", "new/bookkeeper.toml"]
    moved = run(status, capture_output=True, text=True, timeout=60)
    assert moved.returncode == 4 and "Move a lake" in moved.stderr and "old name again" in moved.stderr
    os.symlink("new", "old")
    text = (place / "new" / "bookkeeper.toml").read_text().replace("${HERE}", f"{place}/old")
    (place / "new" / "bookkeeper.toml").write_text(text)
    verify = [sys.executable, "-m", "bookkeeper", "verify", "--config", "new/bookkeeper.toml"]
    found = run(verify, capture_output=True, text=True, timeout=60)
    assert found.returncode == 0 and "no problem" in found.stdout + found.stderr
    write(place / "more.csv", 3000, 3010)
    more = load("more.csv", "--config", "new/bookkeeper.toml", "--table", "x", "--json")
    assert json.loads(more.stdout)["rows"] == 3010, more.stderr


def test_a_folder_called_writers_is_not_run(place: Path) -> None:
    (place / "writers").mkdir()
    (place / "writers" / "__main__.py").write_text("raise SystemExit(77)")
    program = "import sys; from bookkeeper.cli import main; main(['load', 'x.csv'])"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(ids(place)) == 3000


@pytest.mark.parametrize("step, when", _STEPS)
def test_killed_at_each_step_and_run_again_each_row_is_there_once(place: Path, step: str, when: str) -> None:
    words = [sys.executable, "-c", _KILLED, step, when]
    killed = run(words, spare=True, capture_output=True, text=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    # An orphaned writer may still be at work: whichever of the two publishes first, the other one is refused.
    for _ in range(3):
        done = load("x.csv")
        if done.returncode == 0 and len(ids(place)) == 3000:
            break
    assert done.returncode == 0, done.stderr
    assert ids(place) == list(range(3000))
