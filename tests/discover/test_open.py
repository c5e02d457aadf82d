"""Which discovery a table gets, and that it says why it is not the one that was asked for."""

import sys
from pathlib import Path

import pytest

from bookkeeper.config.settings import Table
from bookkeeper.discover.discovery import Listing
from bookkeeper.discover.open import open_discovery
from bookkeeper.stores.local import LocalStore
from bookkeeper.stores.memory import MemoryStore

NOTIFY = Table(name="events", discover="notify")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's")


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    return [(record.action, record.levelname, record.cause) for record in caplog.records]  # type: ignore[attr-defined]


def test_by_default_the_folder_is_listed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(open_discovery(Table(), LocalStore(str(tmp_path))), Listing)
    assert said(caplog) == []


@linux
def test_on_local_disk_the_kernel_notifies(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = open_discovery(NOTIFY, LocalStore(str(tmp_path)))
    assert list(found.wakes())
    assert said(caplog) == []
    found.close()


def test_elsewhere_it_falls_back_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(open_discovery(NOTIFY, LocalStore(str(tmp_path)), platform="darwin"), Listing)
    assert isinstance(open_discovery(NOTIFY, MemoryStore("memory://queue", {})), Listing)
    assert said(caplog) == [
        ("discover", "WARNING", "inotify is Linux's, this is darwin"),
        ("discover", "WARNING", "nothing notifies of new objects in memory://queue"),
    ]


@linux
def test_without_a_watch_it_falls_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(open_discovery(NOTIFY, LocalStore(str(tmp_path / "away"))), Listing)
    assert "no watch on" in said(caplog)[0][2]
