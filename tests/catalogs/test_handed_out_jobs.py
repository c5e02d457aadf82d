"""Jobs beside the bookkeeper with keys that a REST catalog hands out and that end: the compactor."""

from dataclasses import replace
from typing import Any

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Compaction
from bookkeeper.contract.pending_rewrites import pending_rewrites, rejected_rewrites
from reaper.compactor.compactor import Compactor
from reaper.compactor.worker import rewrite
from tests.catalogs import test_handed_out as governed
from tests.support.lake import Writes

servers, house = governed.servers, governed.house


def test_a_compactor_goes_on_across_renewals_also_within_a_group(house: governed.Lakehouse) -> None:
    lake = house.lake()
    book, write, catalog = lake.product(), Writes(lake), open_catalog(house.catalog)

    def slow(*given: Any, stopped: Any, **more: Any) -> Any:
        def asked() -> bool:  # between two steps of a group
            house.desk.now.seconds += governed.LATER
            return bool(stopped())

        return rewrite(*given, stopped=asked, **more)

    compactor = Compactor(replace(lake.settings, compaction=Compaction(engine="own", fan_in=4)), slow, lake.clock)
    for turn in range(3):
        for number in range(4):
            write.publish(f"{turn}{number}")
        assert book.tick(lake.clock.now).commit.txlogs == 4
        loads = len(house.desk.loads)
        assert compactor.round(catalog, lake.clock.now).replaced_files == 4
        assert len(house.desk.loads) - loads >= 3  # beside its own look
        assert lake.product().tick(lake.clock.now).rewrites.committed == 1
    compactor.close()
    assert (pending_rewrites(lake.folder), rejected_rewrites(lake.folder)) == ([], [])
    assert lake.keys() == sorted(write.keys) and house.desk.refused == [] == house.desk.expired
    assert {key for key, path in house.desk.used if path.startswith("/queue/")} == {"test"}
