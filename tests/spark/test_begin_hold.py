"""
While a batch runs its snapshot is held, and a batch that would take longer than that ends with the estimate.
"""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bookkeeper.config.settings import Reaper
from bookkeeper.errors import NotPossible, Retry, StorageUnavailable
from bookkeeper.history.main_history import MainHistory
from bookkeeper.history.registry import JOB, Consumer, spark
from spark_jobs.begin_hold import RENEW_EVERY, Batch, Record, Watch, alone
from tests.support.lake import Clock
from tests.support.table_metadata import line, table

NOW = datetime(2050, 1, 1, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
BATCH = Batch(5, 1_000_000, 4 * 2**30, NOW, lambda: 0.0, lambda: None)
HISTORY = MainHistory(table(*line(9)))


def trouble(share: float, after: timedelta, settings: Reaper, batch: Batch = BATCH) -> NotPossible | None:
    return replace(batch, done=lambda: share).trouble(HISTORY, settings, NOW + after)


def test_a_batch_that_would_take_longer_than_max_hold_is_refused_with_the_estimate() -> None:
    assert trouble(0.05, HOUR, Reaper(max_hold=DAY)) is None
    found = trouble(0.04, HOUR, Reaper(max_hold=DAY))
    assert "the 1,000,000 rows (4 GiB) of snapshot 5 take about 1.04 d at " in str(found)
    assert "held for 1 d at most (max-hold)" in str(found) and found is not None and "raise max-hold" in found.hint


def test_a_batch_under_which_metadata_json_would_outgrow_its_bound_is_refused() -> None:
    most = HISTORY.bytes_after[4] * 10
    assert trouble(0.11, HOUR, Reaper(max_hold=DAY, max_hold_bytes=most)) is None
    found = trouble(0.09, HOUR, Reaper(max_hold=DAY, max_hold_bytes=most))
    assert "max-hold-bytes" in str(found) and found is not None and "window" in found.hint


def test_nothing_is_estimated_of_nothing() -> None:
    tight = Reaper(max_hold=timedelta(seconds=1))
    assert trouble(0.0, DAY, tight) is None
    assert trouble(0.01, RENEW_EVERY - timedelta(seconds=1), tight) is None
    assert trouble(0.01, DAY, tight, replace(BATCH, snapshot=4711)) is None
    assert trouble(0.01, RENEW_EVERY, tight) is not None


class Registered:
    """A registry that keeps what is added, or does not answer."""

    def __init__(self) -> None:
        self.added: list[Consumer] = []
        self.is_away = False

    def add(self, consumer: Consumer) -> None:
        if self.is_away:
            raise StorageUnavailable("away")
        self.added.append(consumer)


class FakeLease:
    """A lease that another run has for so many tries."""

    offering, lasting = False, None

    def __init__(self, taken: int = 0) -> None:
        self.taken, self.released = taken, False

    def hold(self, now: datetime) -> bool:
        self.taken -= 1
        return self.taken < 0

    def release(self) -> None:
        self.released = True


def watch(registry: Any, clock: Any, lease: Any, settings: Reaper, share: float = 0.0) -> tuple[Watch, threading.Event]:
    cancelled = threading.Event()
    record = Record(registry, spark("q", "/cp", NOW, by=JOB), clock)
    batch = replace(BATCH, done=lambda: share, cancel=cancelled.set)
    return Watch(record, lease, batch, settings, lambda: HISTORY), cancelled


def test_the_record_is_renewed_while_the_batch_runs_also_after_an_outage(capsys: pytest.CaptureFixture[str]) -> None:
    registry, moved = Registered(), threading.Event()

    class Ticking(Clock):
        """A minute later at each look, and away at first."""

        def __call__(self) -> datetime:
            self.now += RENEW_EVERY
            registry.is_away = self.now < NOW + 6 * RENEW_EVERY
            if len(registry.added) > 3:
                moved.set()
            return self.now

    watched, cancelled = watch(registry, Ticking(NOW), FakeLease(), Reaper())
    with watched.running(timedelta(milliseconds=1)):
        assert moved.wait(60)
    assert {item.begins_with for item in registry.added} == {5} and not cancelled.is_set()
    renewed = [item.renewed for item in registry.added]
    assert None not in renewed and renewed == sorted(set(renewed), key=str)
    assert "the hold on snapshot 5 was not renewed: away" in capsys.readouterr().err


def test_a_batch_that_takes_too_long_and_one_whose_lease_is_lost_are_ended() -> None:
    late = Clock(NOW + HOUR)

    class Later(Clock):
        def __call__(self) -> datetime:
            self.now += RENEW_EVERY
            return self.now

    for lease, error in ((FakeLease(), NotPossible), (FakeLease(taken=1), Retry)):
        watched, cancelled = watch(Registered(), Later(late.now), lease, Reaper(max_hold=HOUR), share=0.01)
        with watched.running(timedelta(milliseconds=1)):
            assert cancelled.wait(60)
        with pytest.raises(error):
            watched.check()


def test_a_run_that_waited_for_a_lease_gives_the_one_before_time_to_end() -> None:
    for taken, waits in ((0, []), (2, [1.0, 1.0, 3.0])):
        seen: list[float] = []
        lease = FakeLease(taken)
        with alone(lease, "q", Clock(NOW), seen.append):  # type: ignore[arg-type]
            assert not lease.released
        assert (seen, lease.released) == (waits, True)
