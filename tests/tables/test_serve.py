"""`bookkeeper run` as a process: what SIGHUP and SIGTERM do, also beside a table that is frozen."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.core.lease import FileLease
from tests.tables.daemons import Daemon, Said, Tables

CONFIG = "bookkeeper.toml"


class Served(Tables):
    """A daemon on three tables, and what it says."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "a", "b", "c")
        self.said = Said()

    def start(self) -> None:
        self.daemon = Daemon(self.root / CONFIG, self.said)

    def hup(self) -> dict[str, Any]:
        self.daemon.signal(signal.SIGHUP)
        return self.said.until(action="reload")

    def commits(self, name: str, key: str) -> None:
        """A txlog of this table is committed."""
        self.publish(name, key)
        self.said.until(action="commit", table=name)

    def freeze(self, name: str) -> None:
        """From now on nobody gets an answer who reads the card: a pipe that nobody writes to."""
        card = self.root / "demo" / name / "_bookkeeper" / "card.json"
        card.unlink()
        os.mkfifo(card)

    def lease(self, name: str) -> FileLease:
        return FileLease(f"{self.lakes[name].made.folder.removeprefix('file://')}/lease", "a test")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.daemon.end()


def test_beside_a_frozen_table_sighup_is_heard_and_sigterm_ends_the_others_cleanly(served: Served) -> None:
    served.configure(CONFIG, "a", "b")
    served.freeze("b")
    served.start()
    served.commits("a", "1")

    served.configure(CONFIG, "a", "b", "c")
    assert served.hup()["added"] == ["c"]
    served.commits("c", "1")
    served.commits("a", "2")

    path = served.configure(CONFIG, more="[tables.c.retention]\nkeeep = '1h'")
    kept = served.hup()
    assert (kept["level"], kept["config"]) == ("error", str(path))
    assert "tables.c.retention.keeep is not a known key" in kept["cause"] and kept["hint"]
    served.commits("c", "2")

    served.configure(CONFIG, "b", "c")
    said = served.hup()
    assert (said["added"], said["changed"], said["removed"]) == ([], [], ["a"])
    served.commits("c", "3")
    lease = served.lease("a")
    while not lease.hold(served.lakes["a"].clock.now):
        pass  # it is given back at the end of a's last tick

    served.daemon.signal(signal.SIGTERM)
    assert served.said.until(action="stop", level="error")["tables"] == ["b"]
    served.said.until(action="ended")
    assert served.daemon.process.wait() == 0
    assert served.lakes["a"].keys() == ["1", "2"] and served.lakes["c"].keys() == ["1", "2", "3"]
