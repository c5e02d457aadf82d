"""The real loop over a real table with real inotify: it would sleep for an hour, and commits as soon as it is told."""

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.config.settings import Daemon
from bookkeeper.console.signals import StopSignal
from bookkeeper.discover.find_pending import PendingIndex
from bookkeeper.discover.open import open_discovery
from bookkeeper.serve.loop import TableLoop, repeat
from bookkeeper.tick.tick import Bookkeeper
from tests.support.lake import Lake, Writes

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's")
HOUR = Daemon(every=timedelta(hours=1), hint_pause=timedelta(milliseconds=10))


def notified(lake: Lake) -> Bookkeeper:
    book = lake.book()
    book.inbox.pending_index = PendingIndex(open_discovery(lake.settings, book.folder.store), lake.settings.look_every)
    return book


def test_txlogs_are_committed_while_the_loop_would_sleep_for_an_hour(tmp_path: Path) -> None:
    lake = Lake(tmp_path, discover="notify")
    writes, book, stop = Writes(lake), notified(lake), StopSignal()
    keys = iter("abc")
    pauses: list[float] = []

    def wait(seconds: float, *how: Callable[[], Any]) -> bool:
        """Publishes one more txlog before each long pause; ends the loop when there are no more."""
        if seconds > 1:
            pauses.append(seconds)
            key = next(keys, None)
            if key is None:
                return True
            writes.publish(key)
        return stop.wait(seconds, *how)

    repeat(TableLoop("events", lambda: book), HOUR, lake.clock, wait)
    assert lake.keys() == ["a", "b", "c"]
    assert len(pauses) == 4
    book.inbox.pending_index.discovery.close()


def test_a_writer_that_publishes_between_tick_and_pause_is_not_missed(tmp_path: Path) -> None:
    lake = Lake(tmp_path, discover="notify")
    writes, book, stop = Writes(lake), notified(lake), StopSignal()
    rounds: list[int] = []

    def wait(seconds: float, *how: Callable[[], Any]) -> bool:
        if seconds > 1 and not rounds:  # between the table's tick and the pause
            rounds.append(1)
            writes.publish("a")
        if seconds > 1 and lake.keys() == ["a"]:
            return True
        return stop.wait(seconds, *how)

    repeat(TableLoop("events", lambda: book), HOUR, lake.clock, wait)
    assert lake.keys() == ["a"]
    book.inbox.pending_index.discovery.close()
