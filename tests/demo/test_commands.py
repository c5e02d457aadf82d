"""
The demo's configuration is the embedded default in a hurry.
"""

from datetime import timedelta
from pathlib import Path

from bookkeeper.config.load import load
from demo import commands
from demo.folder import DemoPaths


def test_the_configuration_is_the_embedded_default_with_short_times(tmp_path: Path) -> None:
    paths = DemoPaths(tmp_path)
    commands.write_config(paths, older=17)
    ours, embedded = load(str(paths.config), {}), load(str(commands._EMBEDDED), {})
    table = ours.tables[commands.TABLE]
    assert ours.catalog.properties["warehouse"] == f"file://{tmp_path}/lake"
    assert table.identifier == embedded.tables[commands.TABLE].identifier
    assert ours.bookkeeper == embedded.bookkeeper
    assert table.reaper.older_than == timedelta(seconds=17)
    assert table.retention.keep == timedelta(seconds=20)
    assert (table.compaction.every, table.compaction.fan_in) == (timedelta(seconds=1), 4)


def test_a_slow_machine_and_chaos_keep_snapshots_longer() -> None:
    assert commands.expire_after(chaos=False, starting=4) == 15 < commands.expire_after(chaos=False, starting=40)
    assert commands.expire_after(chaos=True, starting=4) == 30 < commands.expire_after(chaos=True, starting=20)


def test_each_run_of_a_writer_has_a_close_log_of_its_own(tmp_path: Path) -> None:
    lines = [commands.writer(DemoPaths(tmp_path), "file:///f", "writer-2", run, 7.4) for run in (1, 2)]
    assert lines[0] != lines[1] and "--seconds 7" in " ".join(lines[0])
