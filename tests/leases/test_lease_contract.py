"""What a lease is on every store: one at a time, followed after a kill, harmless when it is lost."""

import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import StorageUnavailable
from bookkeeper.leases.lease import Lease, lease_on
from bookkeeper.leases.object_lease import LASTING, BlobLease, PutLease
from bookkeeper.stores.store import Store
from tests.support.crashing_store import CrashingStore
from tests.support.crew import Crew
from tests.support.stores import BACKENDS, Opener, options_at
from tests.support.threads import at_once

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOLDER = """
import json, sys
from datetime import UTC, datetime
from bookkeeper.leases.lease import lease_on
from bookkeeper.stores.open import open_store
lease = lease_on(open_store(sys.argv[1], json.loads(sys.argv[2])), "lease", "other")
print(lease.hold(datetime(2026, 1, 1, tzinfo=UTC)), flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["azurite", "local", "s3"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """The same place again and again, on each store that has leases."""
    return BACKENDS[request.param](tmp_path)


def lease(stores: Opener, holder: str = "me") -> Lease:
    return lease_on(stores(), "lease", holder)


def followed(waiting: Lease) -> bool:
    """Whether it is taken over within the time that it promises; Azure has a clock of its own."""
    if not isinstance(waiting, BlobLease):
        waiting.hold(NOW)
        return waiting.hold(NOW + LASTING)
    asked, take = list[int](), waiting.remote.take_lease

    def taken(key: str, wanted: str, seconds: int, text: bytes) -> Any:
        asked.append(seconds)
        return take(key, wanted, seconds, text)

    waiting.remote.take_lease = taken
    deadline = time.monotonic() + LASTING.total_seconds() + 120
    while time.monotonic() < deadline:
        if waiting.hold(NOW):
            return {*asked} == {LASTING.total_seconds()}
        time.sleep(0.1)
    return False


def test_one_at_a_time_has_it_and_keeps_it(stores: Opener) -> None:
    mine, other = lease(stores), lease(stores, "other")
    assert [mine.hold(NOW), other.hold(NOW), mine.hold(NOW)] == [True, False, True]
    later = [NOW + number * LASTING / 2 for number in range(6)]
    assert [(mine.hold(now), other.hold(now)) for now in later] == [(True, False)] * 6
    assert b"me" in stores().read("lease")


def test_of_many_that_want_it_at_once_one_gets_it(stores: Opener) -> None:
    wanting = [lease(stores, f"{number}") for number in range(6)]
    assert at_once([lambda each=each: each.hold(NOW) for each in wanting]).count(True) == 1


def test_it_can_be_given_back(stores: Opener) -> None:
    mine, other = lease(stores), lease(stores, "other")
    assert mine.hold(NOW)
    mine.release()
    mine.release()
    assert other.hold(NOW)
    assert not mine.hold(NOW)
    mine.release()
    assert other.hold(NOW + LASTING / 2)


def test_a_holder_that_is_killed_is_followed(stores: Opener, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, stores().url, json.dumps(options_at(stores().url))]
    with Crew({"holder": command}, tmp_path) as crew:
        assert crew.start("holder", stdin=subprocess.PIPE, stdout=subprocess.PIPE).stdout.readline() == b"True\n"
        mine = lease(stores)
        assert not mine.hold(NOW)
        crew.kill("holder")
    assert followed(mine)


def test_a_zombie_finds_out_and_takes_nothing_back(stores: Opener) -> None:
    zombie, mine = lease(stores, "zombie"), lease(stores)
    assert zombie.hold(NOW)
    if isinstance(zombie, BlobLease):
        # Azure's clock does not jump: what its expiry does, a break by another does at once.
        _broken(stores())
    later = NOW + LASTING
    assert mine.hold(NOW) or mine.hold(later) or not isinstance(mine, BlobLease | PutLease)
    if isinstance(mine, BlobLease | PutLease):
        assert not zombie.hold(later)
        zombie.release()
        assert mine.hold(later + LASTING / 2)


def _broken(store: Store) -> None:
    from azure.storage.blob import BlobLeaseClient, BlobServiceClient

    with BlobServiceClient.from_connection_string(options_at(store.url)["adls.connection-string"]) as service:
        container = store.remote.name  # type: ignore[attr-defined]
        blob = service.get_blob_client(container, store.root + "lease")  # type: ignore[attr-defined]
        BlobLeaseClient(blob).break_lease(0)


def test_a_clock_put_back_does_not_hurry_a_take_over() -> None:
    stores = BACKENDS["memory"](Path())
    mine, other = (PutLease(stores(), "lease", name) for name in ("me", "other"))
    assert mine.hold(NOW)
    assert not other.hold(NOW + timedelta(hours=1))
    assert not other.hold(NOW)
    assert not other.hold(NOW + LASTING / 2)
    assert other.hold(NOW + LASTING)


def test_a_renewal_whose_reply_is_lost_is_recognised() -> None:
    stores = BACKENDS["memory"](Path())
    lossy = CrashingStore(stores())
    mine = PutLease(lossy, "lease", "me")  # type: ignore[arg-type]
    assert mine.hold(NOW)
    lossy._lost = {"replace": StorageUnavailable("reply lost")}
    with pytest.raises(StorageUnavailable):
        mine.hold(NOW + LASTING / 2)
    assert mine.hold(NOW + LASTING / 2)
    assert not PutLease(stores(), "lease", "other").hold(NOW + LASTING)


@pytest.mark.parametrize("rubbish", [b"rubbish", b"[]", b'{"id": 7}', b"[" * 60_000])
def test_an_unreadable_lease_is_waited_for_and_taken(rubbish: bytes) -> None:
    stores = BACKENDS["memory"](Path())
    stores().create("lease", rubbish)
    mine = PutLease(stores(), "lease", "me")
    assert [mine.hold(NOW), mine.hold(NOW + LASTING)] == [False, True]
