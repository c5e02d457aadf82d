"""A bookkeeper that has the table in memory goes on after another that died in the middle of a commit."""

import pytest

from bookkeeper.catalogs.versions import HINT
from bookkeeper.stores.open import open_store
from tests.support.catalog_lake import Chain, place
from tests.support.crashing_store import Crash, CrashingStore


class DiesAtTheHint(CrashingStore):
    """A store whose user dies before it raises the version hint."""

    def replace(self, key: str, *given: object, **named: object) -> object:
        if key.endswith(HINT):
            raise Crash
        return self.__getattr__("replace")(key, *given, **named)


@pytest.mark.parametrize("reload", [0, 11], ids=["at once", "after a reload"])
def test_a_version_without_a_hint_costs_the_next_bookkeeper_an_attempt_and_no_row(reload: float) -> None:
    with place("storage") as where:
        lake = where.lake()
        chain = Chain(lake, "w", positions=True)
        standby = lake.book(catalog=where.open())
        chain.publish()
        lake.tick(standby)
        dying = where.open()
        dying.open_store = lambda url: DiesAtTheHint(open_store(url))  # type: ignore[attr-defined]
        chain.publish()
        with pytest.raises(Crash):
            lake.tick(lake.book(catalog=dying))
        chain.publish()
        if reload:
            lake.clock.move(seconds=reload)
        lake.tick(standby)
        assert (lake.missing(), lake.double(), lake.pending(), lake.wrong()) == ([], [], [], [])
        assert lake.operations().count("append") == 3, "the commit of the one that died counts"
