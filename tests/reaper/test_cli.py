"""
The commands, as a person or a program meets them.
"""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from bookkeeper.cli.main import main as bookkeeper
from bookkeeper.leases.lease import lease_on
from bookkeeper.stores.open import open_store
from reaper.cli import main
from tests.support.configured import configured as config_of
from tests.support.configured import program
from tests.support.crew import Crew, Said
from tests.support.reaper_lake import ReaperLake
from tests.support.watched import samples


def made(root: Path, ago: timedelta) -> ReaperLake:
    """A table whose snapshots and files are so old by the real clock, which the commands read."""
    lake = ReaperLake(root)
    lake.now = datetime.now(UTC) - ago
    files = [lake.data_file() for _ in range(2)]
    lake.append(*files)
    lake.delete(files[0].file_path)
    for _ in range(13):
        lake.append()
    for path in lake.disk():
        os.utime(path.removeprefix("file://"), ((lake.now - timedelta(hours=2)).timestamp(),) * 2)
    os.utime(lake.table().metadata_location.removeprefix("file://"), (lake.now.timestamp(),) * 2)
    configured(lake)
    return lake


@pytest.fixture
def recent(tmp_path: Path) -> ReaperLake:
    """Two hours old."""
    return made(tmp_path, timedelta(hours=2))


def call(lake: ReaperLake, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--config", f"{lake.root}/bookkeeper.toml"])


def answer(lake: ReaperLake, *words: str) -> Any:
    result = call(lake, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_plan_lists_exactly_what_once_then_deletes(recent: ReaperLake) -> None:
    before, history = recent.disk(), recent.history()
    [planned] = answer(recent, "plan")
    assert recent.disk() == before

    [done] = answer(recent, "once")

    gone = {path: size for path, size in before.items() if path not in recent.disk()}
    assert {item["name"]: item["bytes"] for item in planned["delete"]} == gone
    assert {item["what"] for item in planned["delete"]} == {"data file", "manifest", "manifest list", "metadata file"}
    assert {int(snapshot) for snapshot in planned["expire"]} == set(history) - set(recent.history())
    assert planned["bytes"] == done["bytes"] == sum(gone.values())
    assert (done["snapshots"], done["data_files"], done["outcome"]) == (13, 1, "done")
    kept = {int(snapshot) for item in planned["kept"] for snapshot in item["snapshots"]}
    assert kept == set(recent.history())
    assert recent.reachable() <= recent.disk().keys()


def test_a_dry_run_prints_the_plan_and_changes_nothing(recent: ReaperLake) -> None:
    before = recent.disk()
    assert answer(recent, "once", "--dry-run") == answer(recent, "plan")
    assert recent.disk() == before
    assert not (recent.folder_path / "reaper").exists()


def test_a_person_reads_what_goes_and_why_the_rest_stays(recent: ReaperLake) -> None:
    recent.ref("keep", recent.history()[3])
    text = call(recent, "plan").stdout
    assert "goes:" in text and "stays:" in text
    assert "tag keep" in text and "after a kept one" in text and "retain-last 2" in text
    assert str(recent.history()[0]) in text


def test_one_table_in_trouble_does_not_keep_the_others_from_their_run(recent: ReaperLake) -> None:
    with open(recent.root / "bookkeeper.toml", "a") as file:
        file.write('[tables.absent]\nidentifier = "demo.absent"\n')
    result = call(recent, "once", "--table", "absent", "--table", "events", "--json")
    rows = json.loads(result.stdout)
    assert [(row["table"], row["outcome"]) for row in rows] == [("absent", "TableMissing"), ("events", "done")]
    assert rows[1]["snapshots"] == 13
    assert result.exit_code == 3
    assert "error: absent:" in result.stderr and "hint:" in result.stderr


def test_two_sections_of_one_table_are_refused_by_what_works_on_both(recent: ReaperLake) -> None:
    """A section that was copied: the table would have its retention, and not the consumers of the other."""
    config = recent.root / "bookkeeper.toml"
    config.write_text(f'{config.read_text()}[tables.copied]\nidentifier = "demo.events"\n')
    for result in (call(recent, "once"), CliRunner().invoke(bookkeeper, ["once", "--config", str(config)])):
        assert (result.exit_code, result.stdout) == (1, "")
        assert "tables.events and tables.copied are both the table demo.events" in result.stderr
    assert call(recent, "once", "--table", "events").exit_code == 0


def test_an_unknown_table_is_refused_in_one_line(recent: ReaperLake) -> None:
    result = call(recent, "plan", "--table", "nosuch")
    assert result.exit_code == 1
    assert "nosuch" in result.stderr and "events" in result.stderr


def test_a_second_reaper_waits(recent: ReaperLake) -> None:
    lease = lease_on(open_store(f"file://{recent.folder_path}"), "reaper/lease", "another")
    assert lease.hold(recent.now)
    result = call(recent, "once")
    lease.release()
    assert result.exit_code == 4
    assert "another reaper is at work" in result.stderr
    assert len(recent.history()) == 15


def test_the_brake_holds_until_a_person_releases_it(tmp_path: Path) -> None:
    quiet = made(tmp_path, timedelta(days=3))
    assert "13 of 15 snapshots would expire" in call(quiet, "plan").stdout
    result = call(quiet, "once")
    assert result.exit_code == 3
    assert "--release-brake" in result.stderr
    assert len(quiet.history()) == 15
    assert answer(quiet, "once", "--release-brake")[0]["snapshots"] == 13


def paths() -> list[str]:
    """Every command, below a group too."""
    groups = {name: command for name, command in main.commands.items() if isinstance(command, click.Group)}
    below = [f"{name} {inner}" for name, group in groups.items() for inner in group.commands]
    return sorted([*(main.commands.keys() - groups.keys()), *below])


@pytest.mark.parametrize("command", paths())
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = CliRunner().invoke(main, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert f"reaper {command} --" in result.output


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, reaper.cli; print([n for n in ('pyiceberg', 'pyarrow', 'apscheduler') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_run_reaps_at_once_and_ends_on_sigterm(recent: ReaperLake) -> None:
    words = program("reaper", recent.root / "bookkeeper.toml", "--metrics", f"{recent.root}/reaper.prom")
    said = Said()
    with Crew({"reaper": words}, recent.root) as crew:
        crew.start("reaper", said=said)
        lines = [said.next()[1] for _ in range(2)]
        assert crew.stop("reaper") == 0
    lines += [line for _, line in iter(said.next, ("reaper", {"action": "ended"}))]
    assert [line["action"] for line in lines] == ["start", "reap", "stop"]
    assert [lines[0]["message"], lines[-1]["message"]] == ["reaper started", "reaper stopped"]
    assert 'reaper_snapshots_expired_total{table="events"} 13' in (recent.root / "reaper.prom").read_text()
    assert (lines[1]["snapshots"], lines[1]["data_files"], lines[1]["table"]) == (13, 1, "events")
    assert recent.reachable() <= recent.disk().keys()


def test_orphans_are_shown_with_the_reason_and_deleted_when_two_sweeps_found_them(recent: ReaperLake) -> None:
    path = Path(recent.location) / "data/lost.parquet"
    path.write_bytes(b"1234")
    os.utime(path, ((datetime.now(UTC) - timedelta(days=4)).timestamp(),) * 2)
    [before] = answer(recent, "orphans")
    assert [(item["bytes"], item["goes"]) for item in before["orphans"]] == [(4, False)]
    assert "no snapshot, txlog or journal names it, 4 d old" in before["orphans"][0]["why"]
    assert answer(recent, "orphans", "--delete")[0]["deleted"] == 0

    state = recent.folder_path / "reaper/orphans.json"
    earlier = (datetime.now(UTC) - timedelta(hours=1, seconds=1)).isoformat()
    said = json.loads(state.read_text())
    state.write_text(json.dumps({**said, "at": earlier, "seen": dict.fromkeys(said["seen"], earlier)}))
    assert "lost.parquet" in call(recent, "orphans").stdout and "lost.parquet" in call(recent, "plan").stdout
    assert answer(recent, "plan")[0]["orphans"][0]["goes"]
    assert answer(recent, "orphans", "--delete")[0] == {
        "table": "events",
        "outcome": "done",
        "deleted": 1,
        "bytes": 4,
    }
    assert not path.exists()


def test_an_orphan_age_below_an_hour_is_refused(recent: ReaperLake) -> None:
    result = call(recent, "orphans", "--older-than", "59m", "--delete")
    assert result.exit_code == 1 and "at least 1 h" in result.stderr


# -- compaction


@pytest.fixture
def small(tmp_path: Path) -> ReaperLake:
    """40 files of a row each, committed just now."""
    lake = ReaperLake(tmp_path)
    lake.now = datetime.now(UTC) - timedelta(hours=3)
    for _ in range(2):
        lake.append(*[lake.data_file() for _ in range(20)])
    configured(lake)
    return lake


def configured(lake: ReaperLake, **compaction: str) -> Path:
    reaper = {"older-than": "10m", "retain-last": 2}
    return config_of(lake, tables__events__reaper=reaper, tables__events__compaction=compaction)


def test_the_plan_of_compaction_shows_groups_sizes_and_why_and_changes_nothing(small: ReaperLake) -> None:
    before = small.disk()
    [planned] = answer(small, "compaction", "plan")
    (group,) = planned["rewrite"]
    data = sum(size for path, size in before.items() if path.endswith(".parquet"))
    assert (group["files"], group["bytes"], group["last"]) == (40, data, True)
    assert (planned["engine"], planned["live files"], planned["bytes"], planned["left alone"]) == ("off", 40, data, {})
    text = call(small, "compaction", "plan").stdout
    assert "the partition is quiet" in text and "would be rewritten:" in text
    assert small.disk() == before
    assert not (small.folder_path / "rewrites").exists() and not (small.folder_path / "reaper").exists()


def test_a_round_rewrites_only_tables_that_want_it(small: ReaperLake) -> None:
    [row] = answer(small, "compaction", "once")
    assert (row["engine"], row["rewrites"], (small.folder_path / "rewrites").exists()) == ("off", 0, False)
    configured(small, engine="own")
    [row] = answer(small, "compaction", "once")
    assert (row["rewrites"], row["replaced_files"], row["new_files"], row["pending"]) == (1, 40, 1, 1)
    assert row["read_bytes"] > row["written_bytes"] > 0
    assert len(list((small.folder_path / "rewrites").iterdir())) == 1
    [planned] = answer(small, "compaction", "plan")
    assert (planned["pending rewrites"], planned["left alone"], planned["rewrite"]) == (1, {"pending": 40}, [])


def test_reaper_run_compacts_beside_its_runs_until_it_is_stopped(small: ReaperLake) -> None:
    configured(small, engine="own", every="1s")
    figures = small.root / "metrics.prom"
    said = Said()
    with Crew(
        {"reaper": program("reaper", small.root / "bookkeeper.toml", "--metrics", str(figures))}, small.root
    ) as crew:
        crew.start("reaper", said=said)
        while "rewrites published" not in said.next()[1]["message"]:
            pass
        assert crew.stop("reaper", 120) == 0
    read = samples(figures.read_text())["reaper_compaction_read_bytes_total", frozenset({("table", "events")})]
    assert read > 0
