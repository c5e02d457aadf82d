"""A lease is renewed beside the ticks: none waits for it, and what it meets is said at the next."""

import threading
from collections.abc import Callable
from concurrent.futures import wait
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.config.settings import Daemon
from bookkeeper.errors import StorageUnavailable
from bookkeeper.leases.beside import RenewedBeside
from bookkeeper.leases.failover import FailoverLease
from bookkeeper.leases.lease import lease_on
from bookkeeper.leases.object_lease import LASTING, BlobLease, PutLease
from bookkeeper.serve.loop import TableLoop, close, tick_once
from tests.support.lake import Lake, Writes
from tests.support.stores import BACKENDS, Opener

NOW = datetime(2026, 1, 1, tzinfo=UTC)
THIRD = LASTING / 3


class Asked:
    """A lease whose every `hold` waits for its `gate`, and ends as `answers` say: held, or not, or an error."""

    offering = False
    lasting = LASTING

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers, self.at, self.released = list(answers), list[datetime](), 0
        self.threads: list[str] = []
        self.gate, self.begun = threading.Event(), threading.Semaphore(0)
        self.gate.set()

    def hold(self, now: datetime) -> bool:
        self.at.append(now)
        self.threads.append(threading.current_thread().name)
        self.begun.release()
        assert self.gate.wait(60)
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        return answer

    def release(self) -> None:
        self.released += 1


def beside(asked: Any) -> RenewedBeside:
    return RenewedBeside(asked, LASTING)


def test_a_renewal_that_takes_long_keeps_no_tick_waiting() -> None:
    asked = Asked()
    lease = beside(asked)
    assert lease.hold(NOW)
    asked.gate.clear()
    assert all(lease.hold(NOW + number * THIRD) for number in (1, 1.5, 2, 2.9))
    assert asked.begun.acquire(timeout=60) and asked.begun.acquire(timeout=60)
    assert asked.at == [NOW, NOW + THIRD]
    assert [name == "lease renewal" for name in asked.threads] == [False, True]
    asked.gate.set()
    lease.release()
    assert asked.released == 1


def test_it_is_asked_for_three_times_while_it_lasts_and_no_more() -> None:
    asked = Asked()
    lease = beside(asked)
    for second in range(60):
        assert lease.hold(NOW + timedelta(seconds=second))
        if lease._renewal is not None:
            settle(lease)
    lease.release()
    assert len(asked.at) == 12
    assert {later - earlier for earlier, later in zip(asked.at, asked.at[1:], strict=False)} <= {
        THIRD,
        THIRD + timedelta(seconds=1),
    }


def test_one_that_may_have_ended_is_waited_for() -> None:
    asked = Asked(True, False)
    lease = beside(asked)
    assert lease.hold(NOW)
    asked.gate.clear()
    assert lease.hold(NOW + THIRD)
    threading.Timer(0.05, asked.gate.set).start()
    assert not lease.hold(NOW + LASTING), "it waited for the answer, which was no"


def test_one_that_was_lost_is_lost_at_the_next_hold_and_asked_for_again_in_line() -> None:
    asked = Asked(True, False, False, True)
    lease = beside(asked)
    assert lease.hold(NOW) and lease.hold(NOW + THIRD)
    settle(lease)
    assert not lease.hold(NOW + 2 * THIRD)
    assert not lease.hold(NOW + 2 * THIRD)
    assert lease.hold(NOW + 2 * THIRD)
    assert asked.threads[2:] == [threading.current_thread().name] * 2


def settle(lease: RenewedBeside) -> None:
    assert lease._renewal is not None
    wait([lease._renewal[0]], 60)


def test_trouble_with_a_renewal_is_said_at_the_next_hold_and_then_asked_in_line_until_it_is_over() -> None:
    asked = Asked(True, StorageUnavailable("down"), StorageUnavailable("down"))
    lease = beside(asked)
    assert lease.hold(NOW) and lease.hold(NOW + THIRD)
    settle(lease)
    for _ in range(2):
        with pytest.raises(StorageUnavailable):
            lease.hold(NOW + 2 * THIRD)
    assert lease.hold(NOW + 2 * THIRD)
    assert len(asked.at) == 4


def test_a_tick_that_hangs_renews_nothing() -> None:
    """Only a hold begins a renewal: without one the lease ends, and another bookkeeper takes over."""
    stores = BACKENDS["memory"](Path())
    mine, other = beside(PutLease(stores(), "lease", "me")), PutLease(stores(), "lease", "other")
    assert mine.hold(NOW) and not other.hold(NOW)
    assert other.hold(NOW + LASTING)
    assert not mine.hold(NOW + LASTING)


def test_a_renewal_under_way_takes_nothing_back_that_was_released() -> None:
    stores = BACKENDS["memory"](Path())
    held, gate, reached = PutLease(stores(), "lease", "me"), threading.Event(), threading.Event()
    lease, put = beside(held), held._put

    def late(tag: str, now: datetime) -> bool:
        reached.set()
        assert gate.wait(60)
        return put(tag, now)

    assert lease.hold(NOW)
    held._put = late  # type: ignore[method-assign]
    assert lease.hold(NOW + THIRD) and reached.wait(60)
    renewal = lease._renewal
    threading.Timer(0.05, gate.set).start()
    lease.release()
    assert renewal is not None and renewal[0].done()
    assert PutLease(stores(), "lease", "other").hold(NOW + THIRD)


@pytest.fixture(params=["azurite", "s3"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return BACKENDS[request.param](tmp_path)


def test_on_every_store_one_at_a_time_has_it_and_keeps_it_and_gives_it_back(stores: Opener) -> None:
    inner = lease_on(stores(), "lease", "me")
    assert isinstance(inner, PutLease | BlobLease)
    mine, other = RenewedBeside(inner, inner.lasting), lease_on(stores(), "lease", "other")
    for number in range(12):
        now = NOW + number * THIRD / 2
        assert (mine.hold(now), other.hold(now)) == (True, False)
        if mine._renewal is not None:
            settle(mine)
    mine.release()
    assert other.hold(NOW + 2 * LASTING)
    assert not mine.hold(NOW + 2 * LASTING)
    other.release()


def test_a_borrowed_lease_is_offered_and_taken_as_ever() -> None:
    asked = Asked()
    lease = FailoverLease(beside(asked), timedelta(0), timedelta(minutes=1), timedelta(seconds=10))
    assert all(lease.hold(NOW + timedelta(seconds=second)) for second in range(0, 60, 2))
    assert not lease.hold(NOW + timedelta(seconds=60)) and asked.released == 1 and lease.offering
    assert lease.hold(NOW + timedelta(seconds=70)) and not lease.offering
    lease.release()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def ticking(lake: Lake, lease: Any) -> Callable[[], Any]:
    def opened() -> Any:
        book = lake.book()
        book.lease = lease
        return book

    return opened


def test_ticks_commit_while_the_store_of_the_lease_does_not_answer_and_its_trouble_postpones_one(lake: Lake) -> None:
    writer, asked, daemon = Writes(lake), Asked(True, StorageUnavailable("down")), Daemon(every=timedelta(seconds=1))
    lease = beside(asked)
    slot = TableLoop("events", ticking(lake, lease))
    tick_once(slot, daemon, lake.clock.move(seconds=1))
    asked.gate.clear()
    for key in "ab":
        writer.publish(key)
        done = tick_once(slot, daemon, lake.clock.move(seconds=5))
        assert done is not None and done.commit is not None
    asked.gate.set()
    settle(lease)
    assert tick_once(slot, daemon, lake.clock.move(seconds=1)) is None
    assert slot.trouble == "StorageUnavailable"
    assert tick_once(slot, daemon, lake.clock.move(seconds=5)) is not None and not slot.trouble
    close(slot)
    assert asked.released == 1
