"""Commits that are applied and not answered, while the keys that the catalog handed out before end."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Compaction
from bookkeeper.contract.pending_rewrites import pending_rewrites, rejected_rewrites
from bookkeeper.errors import CommitUnknown
from reaper.compactor.compactor import Compactor
from reaper.compactor.worker import rewrite
from tests.catalogs import test_handed_out_writers as governed
from tests.servers.line import Fault, Line
from tests.support.governed import LATER, Lakehouse
from tests.support.lake import Writes

port, house = governed.port, governed.house


@dataclass
class Slow(Line):
    """A line on which `meanwhile` happens before the answer to each commit comes, or does not."""

    def play(self, act: Callable[[], Any]) -> Any:
        """As the line plays it."""
        try:
            return super().play(act)
        finally:
            self.meanwhile()


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.APPLIED_503])
def test_a_compaction_whose_commit_is_not_answered_while_keys_end_is_in_once(house: Lakehouse, fault: Fault) -> None:
    lake = governed.governed(house)
    book, write, catalog = lake.product(), Writes(lake), open_catalog(house.catalog)
    for number in range(4):
        write.publish(f"{number}")
    assert book.tick(lake.clock.now).commit.txlogs == 4
    settings = replace(lake.settings, compaction=Compaction(engine="own", fan_in=4))
    compactor = Compactor(settings, rewrite, lake.clock)
    assert compactor.round(catalog, lake.clock.now).replaced_files == 4
    compactor.close()
    line = Slow(fault, most=1, meanwhile=lambda: later(house))
    house.first.use(line)
    book = lake.product()
    for minutes in range(3):
        with suppress(CommitUnknown):
            book.tick(lake.clock.now + timedelta(minutes=minutes))
    assert line.injected == 1
    assert (pending_rewrites(lake.folder), rejected_rewrites(lake.folder)) == ([], [])
    assert lake.keys() == sorted(write.keys) and len(lake.table().inspect.data_files()) == 1
    write.publish("z")
    assert book.tick(lake.clock.now + timedelta(minutes=9)).commit.txlogs == 1
    assert lake.keys() == sorted(write.keys)
    assert house.desk.refused == [] == house.desk.expired


def later(house: Lakehouse) -> None:
    """All keys that are out have ended."""
    house.desk.now.seconds += 2 * LATER
