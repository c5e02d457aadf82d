"""The lease: one at a time, given back however its holder ends, and harmless when it is lost."""

import errno
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bookkeeper.errors import StorageUnavailable
from bookkeeper.leases.lease import FileLease, NoLease, lease_on
from bookkeeper.stores.open import open_store
from tests.support.crew import Crew

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOLDER = """
import sys
from datetime import UTC, datetime
from bookkeeper.leases.lease import FileLease
lease = FileLease(sys.argv[1], "other")
print(lease.hold(datetime.now(UTC)), flush=True)
sys.stdin.read()
"""


def lease(path: Path, holder: str = "me") -> FileLease:
    return FileLease(str(path / "lease"), holder)


def test_one_at_a_time_has_it_and_keeps_it(tmp_path: Path) -> None:
    mine, other = lease(tmp_path), lease(tmp_path, "other")
    assert [mine.hold(NOW), other.hold(NOW), mine.hold(NOW)] == [True, False, True]
    assert (tmp_path / "lease").read_text().startswith("me since 2026")


def test_on_a_full_disk_it_is_taken_and_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = lease(tmp_path), lease(tmp_path, "other")

    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("bookkeeper.leases.lease.os.write", full)
        with suppress(StorageUnavailable):
            mine.hold(NOW)
    assert [mine.hold(NOW), other.hold(NOW)] == [True, False]
    mine.release()
    assert other.hold(NOW)


def test_it_can_be_given_back(tmp_path: Path) -> None:
    mine, other = lease(tmp_path), lease(tmp_path, "other")
    assert mine.hold(NOW)
    mine.release()
    assert other.hold(NOW)


def test_a_holder_that_is_killed_gives_it_back_at_once(tmp_path: Path) -> None:
    with Crew({"holder": [sys.executable, "-c", HOLDER, str(tmp_path / "lease")]}, tmp_path) as crew:
        assert crew.start("holder", stdin=subprocess.PIPE, stdout=subprocess.PIPE).stdout.readline() == b"True\n"
        mine = lease(tmp_path)
        assert not mine.hold(NOW)
        crew.kill("holder")
    assert mine.hold(NOW)


def test_a_lease_whose_file_was_removed_is_taken_anew(tmp_path: Path) -> None:
    mine, other = lease(tmp_path), lease(tmp_path, "other")
    assert mine.hold(NOW)
    (tmp_path / "lease").unlink()
    assert other.hold(NOW)
    assert not mine.hold(NOW)


def test_storage_without_leases_lets_every_process_work(tmp_path: Path) -> None:
    assert isinstance(lease_on(open_store("memory://nowhere"), "lease", "me"), NoLease)
    assert isinstance(lease_on(open_store(str(tmp_path)), "lease", "me"), FileLease)
