"""A catalog that is down, at start or later: tried again with backoff, said once, nothing lost."""

import logging
import os
import sqlite3
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import create_engine

from bookkeeper.catalogs.sqlite_file import write_ahead
from bookkeeper.config.settings import Catalog, Daemon, Settings
from bookkeeper.errors import CatalogUnavailable
from bookkeeper.serve.loop import TableLoop, tick_once
from bookkeeper.serve.open import open_bookkeeper
from tests.support.catalog_lake import CatalogLake, Chain, Place

# A REST catalog refuses snapshots a minute ahead of its own clock, so no long pauses.
DAEMON = Daemon(every=timedelta(milliseconds=20), backoff_most=timedelta(milliseconds=100), lease=False)


@pytest.fixture(params=["postgres", "rest"])
def served(request: pytest.FixtureRequest) -> Place:
    """Each kind that has a server."""
    made: Place = request.getfixturevalue(request.param)
    return made


class Down:
    """A bookkeeper in its loop, as the daemon runs it, on a catalog that comes and goes."""

    def __init__(self, lake: CatalogLake, caplog: pytest.LogCaptureFixture, catalog: Catalog | None = None) -> None:
        caplog.set_level(logging.INFO, "bookkeeper")
        settings = Settings(catalog or lake.where.settings, DAEMON, tables={lake.settings.name: lake.settings})
        self.lake, self.caplog = lake, caplog
        self.slot = TableLoop(lake.settings.name, lambda: open_bookkeeper(settings, lake.settings, lake.clock))

    def turn(self, **move: float) -> Any:
        """One round of the loop, a second later: longer than the longest pause."""
        return tick_once(self.slot, DAEMON, self.lake.clock.move(**(move or {"seconds": 1})))

    def said(self) -> list[str]:
        """The actions of the log, commits left out."""
        records = (record for record in self.caplog.records if record.name == "bookkeeper")
        return [action for record in records if (action := getattr(record, "action", "")) != "commit"]


def test_a_catalog_that_is_down_at_start_is_waited_for(served: Place, caplog: pytest.LogCaptureFixture) -> None:
    lake = served.lake()
    Chain(lake, "w1").publish()
    assert served.server is not None
    served.server.stop()
    down = Down(lake, caplog)
    try:
        assert [down.turn() for _ in range(4)] == [None] * 4
        assert down.slot.failures == 4 and down.slot.ready(DAEMON)
    finally:
        served.restart()
    _recovers(down)
    assert down.said() == ["postpone", "recover"]


def test_a_catalog_that_goes_down_later_is_waited_for(served: Place, caplog: pytest.LogCaptureFixture) -> None:
    lake = served.lake()
    chain, down = Chain(lake, "w1", positions=True), Down(lake, caplog)
    chain.publish()
    assert down.turn().commit is not None
    assert served.server is not None
    served.server.crash()
    try:
        for _ in range(DAEMON.not_ready_after):
            chain.publish()
            assert down.turn() is None
        assert not down.slot.ready(DAEMON)
    finally:
        served.restart()
    _recovers(down, turns=2)
    assert [action for action in down.said() if action != "retry"] == ["postpone", "not-ready", "recover"]


def test_the_pause_between_two_tries_doubles_up_to_the_longest(sqlite: Place, caplog: pytest.LogCaptureFixture) -> None:
    nowhere = Catalog("lake", {"type": "rest", "uri": "http://127.0.0.1:1"})
    down, pauses = Down(sqlite.lake(), caplog, nowhere), []
    for _ in range(7):
        assert down.turn() is None
        assert down.slot.next_at is not None
        pauses.append((down.slot.next_at - down.lake.clock.now).total_seconds())
    assert pauses == [0.02, 0.04, 0.08, 0.1, 0.1, 0.1, 0.1]
    assert down.turn(milliseconds=50) is None and down.slot.failures == 7  # not due yet: nothing was tried


def test_an_sqlite_catalog_whose_disk_is_not_mounted_is_waited_for(
    sqlite: Place, caplog: pytest.LogCaptureFixture
) -> None:
    lake = sqlite.lake()
    Chain(lake, "w1").publish()
    down, away = Down(lake, caplog), f"{lake.root}/unmounted"
    os.rename(f"{lake.root}/catalog", away)
    try:
        assert [down.turn() for _ in range(2)] == [None, None]
    finally:
        os.rename(away, f"{lake.root}/catalog")
    _recovers(down)
    assert down.said() == ["postpone", "recover"]


def test_an_sqlite_catalog_that_another_process_keeps_locked_is_waited_for(
    sqlite: Place, caplog: pytest.LogCaptureFixture
) -> None:
    lake, uri = sqlite.lake(), sqlite.settings.properties["uri"]
    impatient = {**sqlite.settings.properties, "uri": f"{uri}?timeout=0.05"}
    down = Down(lake, caplog, replace(sqlite.settings, properties=impatient))
    Chain(lake, "w1").publish()
    assert down.turn().commit is not None
    Chain(lake, "w2").publish()
    other = sqlite3.connect(uri.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        assert [down.turn() for _ in range(2)] == [None, None]
    finally:
        other.execute("ROLLBACK")
        other.close()
    _recovers(down)
    assert [action for action in down.said() if action != "retry"] == ["postpone", "recover"]


def test_a_disk_on_which_sqlite_cannot_write_ahead_is_refused(tmp_path: Path) -> None:
    """Not silently: readers would lock us out, and a COMMIT could fail in the middle."""
    engine = create_engine(f"sqlite:///file:{tmp_path}/catalog.db?vfs=unix-dotfile&uri=true")
    with pytest.raises(CatalogUnavailable, match="journal mode stays 'delete'"):
        write_ahead(SimpleNamespace(engine=engine))  # type: ignore[arg-type]


def _recovers(down: Down, turns: int = 1) -> None:
    """Within so many turns: a pooled connection may have to be found broken first."""
    done = [down.turn() for _ in range(turns)]
    assert any(turn is not None and turn.commit is not None for turn in done)
    assert (down.lake.missing(), down.lake.double(), down.lake.pending()) == ([], [], [])
    assert down.slot.failures == 0 and down.slot.ready(DAEMON)
