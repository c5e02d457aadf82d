"""A lease on an object store that its holder left behind: each process that finds it knows how old it is."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import Retry
from bookkeeper.leases.object_lease import LASTING, PutLease
from bookkeeper.stores.local import LocalStore
from reaper.run import LEASE, reap
from tests.support.reaper_lake import ReaperLake

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class DatedStore(LocalStore):
    """Dates what is put by a clock of its own, which no other one needs to agree with."""

    now = datetime(1999, 1, 1, tzinfo=UTC)

    def __init__(self, root: str, dates: dict[str, datetime]) -> None:
        super().__init__(root)
        self.dates = dates

    def replace(self, key: str, data: bytes, if_match: str | None = None) -> str:
        tag = super().replace(key, data, if_match)
        self.dates[key] = self.now
        return tag

    def modified(self, key: str) -> datetime:
        return self.dates[key]


@pytest.fixture
def store(tmp_path: Path) -> DatedStore:
    return DatedStore(str(tmp_path), {})


def lease(store: Any, holder: str) -> PutLease:
    return PutLease(store, "lease", holder)


def test_a_process_that_finds_a_lease_which_nobody_renewed_takes_it_at_once(store: DatedStore) -> None:
    assert lease(store, "dead").hold(NOW)
    store.now += LASTING
    assert lease(store, "new").hold(NOW)


def test_one_that_was_renewed_lately_is_left_alone_and_the_rest_of_its_time_waited_for(store: DatedStore) -> None:
    assert lease(store, "dead").hold(NOW)
    store.now += LASTING / 3
    new = lease(store, "new")
    assert [new.hold(NOW + passed) for passed in (timedelta(0), LASTING / 2, 2 * LASTING / 3)] == [False, False, True]


def test_a_storage_whose_clock_was_put_back_proves_nothing(store: DatedStore) -> None:
    assert lease(store, "dead").hold(NOW)
    store.now -= timedelta(hours=1)
    new = lease(store, "new")
    assert [new.hold(NOW), new.hold(NOW + LASTING / 2), new.hold(NOW + LASTING)] == [False, False, True]


def test_a_reaper_that_was_killed_in_a_run_is_followed_by_the_next_run(
    tmp_path: Path, store: DatedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run is a process of its own, as from cron, or has a lease of its own: it remembers no earlier one."""
    lake = ReaperLake(tmp_path)
    lake.append()
    monkeypatch.setattr("reaper.run.lease_on", lambda _, *rest: PutLease(store, *rest))  # type: ignore[arg-type]
    (Path(store.root) / "reaper").mkdir()
    assert PutLease(store, "reaper/lease", "killed", LEASE).hold(lake.now)  # type: ignore[arg-type]
    store.now += timedelta(seconds=30)
    with pytest.raises(Retry, match="another reaper"):
        reap(lake.opened(), lake.settings, lake.now, open_store=lake.stores(lake.now))
    store.now += timedelta(minutes=2)
    reap(lake.opened(), lake.settings, lake.now, open_store=lake.stores(lake.now))
