"""
A clock that jumps ahead under a running reaper: nothing is expired by it.
"""

from datetime import timedelta
from typing import Any

import pytest

from bookkeeper.contract.steady_clock import Steady
from reaper.clock import ClockDiffers, ClockJumped, check_storage_clock
from tests.support.reaper_lake import ReaperLake


def test_a_run_after_a_jump_of_two_hours_expires_nothing_until_the_clock_is_set_right(lake: ReaperLake) -> None:
    seconds = 0.0
    steady = Steady(lambda: lake.now, lambda: seconds)
    for _ in range(4):
        lake.append()
    seconds += 4 * 60
    before = lake.history()
    lake.now += timedelta(hours=2)
    with pytest.raises(ClockJumped, match="2 h further ahead"):
        lake.reap(now=lake.now, steady=steady)
    assert lake.history() == before
    lake.now -= timedelta(hours=2)
    seconds += 20 * 60
    lake.now += timedelta(minutes=20)
    assert lake.reap(now=lake.now, steady=steady).snapshots == 2


def test_a_clock_that_the_storages_clock_proves_right_is_taken_over(lake: ReaperLake) -> None:
    steady = Steady(lambda: lake.now, lambda: 0.0)
    lake.now += timedelta(hours=2)
    check_storage_clock(Elsewhere(lake.stores(lake.now)(f"file://{lake.folder_path}")), lake.now, steady)  # type: ignore[arg-type]
    assert steady.ahead() == timedelta(0)


def test_a_clock_two_minutes_ahead_of_the_storages_stamps_nothing_that_would_hold_up_the_bookkeeper(
    lake: ReaperLake,
) -> None:
    """An expiry updates the table at our time, and every two minutes: no bookkeeper would ever catch up."""
    for _ in range(4):
        lake.append()
    now = lake.now + timedelta(hours=1)
    with pytest.raises(ClockDiffers, match="2 m apart"):
        lake.reap(now=now, open_store=lake.stores(now - timedelta(minutes=2)))
    assert len(lake.history()) == 4
    assert lake.reap(now=now, open_store=lake.stores(now - timedelta(seconds=20))).snapshots == 2


class Elsewhere:
    """The same store, reached over a network: its clock is not this machine's."""

    def __init__(self, store: Any) -> None:
        self.store, self.url = store, "s3://bucket/folder"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)
