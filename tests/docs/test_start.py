"""README, "Start with your own data": from a CSV file to rows that DuckDB reads, as it stands."""

import re
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.docs import shell
from tests.docs.commands import is_ours
from tests.histories.readers import duckdb_session
from tests.packaging.project import ROOT
from tests.support.configured import PROGRAMS
from tests.support.logs import logging_put_back

README = (ROOT / "README.md").read_text("utf-8")
SECTION = README[README.index("## Start with your own data") : README.index("## Run it")]
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", SECTION, re.DOTALL)
COLUMNS = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,"
    "dest,air_time,distance,hour,minute,time_hour"
)


def flights(path: Path, count: int) -> None:
    """Rows like those of nycflights13: 19 columns, one of ten cancelled, with NA for what it has not."""
    lines = [COLUMNS]
    for number in range(count):
        at = datetime(2013, 1, 1, 5) + timedelta(hours=number)
        late = "NA" if number % 10 == 0 else str(number % 7 - 2)
        times = f"{late},515,{late},{late},819,{late}"
        where = f"{'UA' if number % 2 else 'B6'},{number},N{number},EWR,IAH,{late},1400"
        lines.append(f"{at.year},{at.month},{at.day},{times},{where},{at.hour},15,{at:%Y-%m-%d %H:%M:%S}")
    path.write_text("\n".join(lines) + "\n")


def test_step_by_step_begins_in_a_folder_without_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOOKKEEPER_CONFIG", raising=False)
    flights(tmp_path / "flights.csv", 50)
    (tmp_path / "config").symlink_to(ROOT / "config")
    steps = next(text for _, text in BLOCKS if "--dry-run" in text)
    made = next(text for _, text in BLOCKS if text.startswith("sed "))
    subprocess.run(["sh", "-ec", made], check=True)
    for words in filter(is_ours, shell.commands(steps)):
        with logging_put_back():
            done = CliRunner().invoke(PROGRAMS[words[0]], words[1:])
        assert done.exit_code == 0, (words, done.output)
    assert (tmp_path / "lake" / "demo" / "flights" / "data").is_dir()
    assert "50" in done.stdout  # rows of the commit


def test_every_command_of_the_section_works_on_a_file_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    session = duckdb_session()  # skips where there is no wheel of the extension
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOOKKEEPER_CONFIG", raising=False)
    flights(tmp_path / "flights.csv", 500)
    ran = []
    for kind, text in BLOCKS:
        if kind == "python":
            exec(text, {})
            continue
        for words in filter(is_ours, shell.commands(text)):
            with logging_put_back():
                done = CliRunner().invoke(PROGRAMS[words[0]], words[1:])
            assert done.exit_code == 0, (words, done.output)
            ran.append(words[1])
    assert ran == ["load", "init", "init", "lines", "once"]
    assert "UA" in capfd.readouterr().out
    session.execute("SET unsafe_enable_version_guessing = true")
    found = "SELECT count(*), count(dep_delay), sum(dep_delay), max(time_hour) FROM iceberg_scan('lake/demo/flights')"
    delays = [number % 7 - 2 for number in range(500) if number % 10]
    last = datetime(2013, 1, 1, 5) + timedelta(hours=499)
    assert session.execute(found).fetchone() == (500, 450, sum(delays), last)
    assert not list(tmp_path.glob("*.bad.ndjson"))
