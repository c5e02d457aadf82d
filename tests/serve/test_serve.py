"""`bookkeeper run` as a process: what SIGHUP and SIGTERM do, also beside a table that is frozen."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.cli.run import _say_late
from bookkeeper.config.load import parse
from bookkeeper.leases.lease import FileLease
from tests.serve.daemons import Tables
from tests.support.configured import program
from tests.support.crew import Crew

NAMES = ("a", "b", "c")


class Served(Tables):
    """A daemon on tables of one catalog, and what it says."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, *NAMES)
        self.config, self.crew = root / "bookkeeper.toml", Crew({}, root)

    def configure(self, *names: str, file: str = "bookkeeper.toml", more: str = "", **daemon: str) -> Path:
        path = super().configure(*names, file=file, **{"stop-patience": "5s", "listen": "127.0.0.1:0", **daemon})
        path.write_text(path.read_text() + more)
        return path

    def start(self) -> None:
        self.process = self.crew.start("daemon", program("bookkeeper", self.config), stderr=subprocess.PIPE)

    def hup(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGHUP)
        return self.until(action="reload")

    def until(self, **wanted: Any) -> dict[str, Any]:
        """The next line of the log that says this."""
        for line in self.process.stderr:
            said: dict[str, Any] = json.loads(line)
            if said.items() >= wanted.items():
                return said
        raise AssertionError(f"it ended and never said {wanted}")

    def commits(self, name: str, key: str) -> None:
        """A txlog of this table is committed."""
        self.publish(name, key)
        self.until(action="commit", table=name)

    def freeze(self, name: str) -> None:
        """From now on a read of the table's metadata never ends: pipes without a writer stand in its place."""
        for metadata in (self.root / "demo" / name / "metadata").glob("*.metadata.json"):
            metadata.unlink()
            os.mkfifo(metadata)

    def deafen(self) -> None:
        """From now on its output is not read, and the pipe is full."""
        pipe = os.open(f"/proc/{self.process.pid}/fd/2", os.O_WRONLY | os.O_NONBLOCK)
        with suppress(BlockingIOError):
            while True:
                os.write(pipe, b"x")
        os.close(pipe)

    def lease(self, name: str) -> FileLease:
        return FileLease(f"{self.lakes[name].made.folder.removeprefix('file://')}/lease", "a test")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    with made.crew:
        yield made


def test_beside_a_frozen_table_sighup_is_heard_and_sigterm_ends_the_others_cleanly(served: Served) -> None:
    served.configure("a", "b")
    served.freeze("b")
    served.start()
    assert served.until(action="start")["message"] == "bookkeeper started"
    served.commits("a", "1")

    served.configure("a", "b", "c")
    assert served.hup()["added"] == ["c"]
    served.commits("c", "1")
    served.commits("a", "2")

    served.configure("a", "b", "c", more="[tables.c.retention]\nkeeep = '1h'")
    kept = served.hup()
    assert (kept["level"], kept["config"]) == ("error", str(served.config))
    assert "tables.c.retention.keeep is not a known key" in kept["cause"] and kept["hint"]
    served.commits("c", "2")

    served.configure("b", "c")
    said = served.hup()
    assert (said["added"], said["changed"], said["removed"]) == ([], [], ["a"])
    served.commits("c", "3")
    lake = served.lakes["a"]
    while not served.lease("a").hold(lake.clock.now):
        pass  # it is given back at the end of a's last tick

    served.process.send_signal(signal.SIGTERM)
    assert served.until(action="stop", level="error")["tables"] == ["b"]
    assert served.crew.wait("daemon") == 0
    assert served.lakes["a"].keys() == ["1", "2"] and served.lakes["c"].keys() == ["1", "2", "3"]


@pytest.mark.skipif(sys.platform != "linux", reason="fills the daemon's own stderr by /proc")
def test_a_daemon_whose_log_is_not_read_is_ended_by_sigterm_all_the_same(served: Served) -> None:
    served.configure("a")
    served.start()
    served.commits("a", "1")
    served.deafen()
    served.writers["a"].publish("2")
    while served.lakes["a"].keys() != ["1", "2"]:
        pass  # and then it says so, or tries to
    served.process.send_signal(signal.SIGTERM)
    assert served.crew.wait("daemon", 60) == 0


def test_a_setting_that_needs_a_restart_is_said(caplog: pytest.LogCaptureFixture) -> None:
    before = parse("", {})
    after = parse('[bookkeeper]\nlisten = "0.0.0.0:1"\nread-bytes = "1MiB"\nevery = "2s"', {})
    _say_late(before, after)
    assert [getattr(record, "keys", "") for record in caplog.records] == ["bookkeeper.read-bytes, bookkeeper.listen"]
    _say_late(after, after)
    assert len(caplog.records) == 1
