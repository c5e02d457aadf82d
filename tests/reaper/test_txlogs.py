"""
What the txlog folder names is never deleted, and what cannot be read there stops the run.
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.core.errors import NewerVersion, Retry, StorageUnavailable
from bookkeeper.core.names import TxlogName
from bookkeeper.core.store import open_store
from bookkeeper.core.txlog import Envelope, encode
from bookkeeper.format import manifest
from bookkeeper.format.entries import DataFile, added
from reaper import txlogs
from tests.reaper.faults import Faults
from tests.reaper.lake import ClockStore, Lake

NAME = TxlogName("w", "0190c0de-0000-7000-8000-000000000001", 1)


@pytest.fixture
def old(lake: Lake) -> Lake:
    """A table with one data file and some snapshots to go."""
    file = lake.data_file(name="dead.parquet")
    lake.append(file)
    lake.delete(file.file_path)
    for _ in range(3):
        lake.append()
    return lake


def txlog(lake: Lake, path: str) -> bytes:
    file = DataFile(path, "PARQUET", (), 1, 100)
    return encode(Envelope(NAME, "uuid", 1), lake.table.schema(), lake.table.spec(), [file])


def dead(lake: Lake) -> str:
    return f"file://{lake.location}/data/dead.parquet"


@pytest.mark.parametrize("place", ["pending", "rejected"])
@pytest.mark.parametrize("spelling", ["file://", "", "file:"])
def test_a_data_file_that_a_txlog_names_stays_and_the_rest_goes(old: Lake, place: str, spelling: str) -> None:
    data = txlog(old, spelling + dead(old).removeprefix("file://"))
    (old.folder / place / str(NAME)).write_bytes(data)
    assert not old.outlook().files.data
    done = old.reap()
    assert (done.snapshots, done.data_files) == (3, 0)
    assert dead(old) in old.disk()


def test_a_txlog_published_after_the_plan_keeps_its_files(old: Lake) -> None:
    def publish() -> None:
        (old.folder / "pending" / str(NAME)).write_bytes(txlog(old, dead(old)))

    faults = Faults().before("commit_table", publish)
    now = old.now.replace(hour=5)
    assert old.reap(catalog=faults.catalog(old.catalog), now=now).data_files == 0
    assert dead(old) in old.disk()


@pytest.mark.parametrize("name", ["second.txlog.avro.0123456789ab", "Stranger.txlog.avro"])
def test_misnamed_txlogs_count_too(old: Lake, name: str) -> None:
    (old.folder / "rejected" / name).write_bytes(txlog(old, dead(old)))
    assert old.reap().data_files == 0


def test_an_unreadable_pending_txlog_stops_the_run_this_time(old: Lake) -> None:
    path = old.folder / "pending" / str(NAME)
    path.write_bytes(txlog(old, dead(old))[:-3])
    before = old.disk().keys()
    for _ in range(2):
        with pytest.raises(Retry, match="pending/"):
            old.reap()
    assert old.disk().keys() == before
    assert len(old.history()) == 5
    path.unlink()
    assert old.reap().data_files == 1


def test_one_that_turns_up_after_the_commit_stops_the_deletion_until_it_is_gone(old: Lake) -> None:
    path = old.folder / "pending" / str(NAME)
    faults = Faults().before("commit_table", lambda: path.write_bytes(b"nonsense"))
    with pytest.raises(Retry):
        old.reap(catalog=faults.catalog(old.catalog))
    assert len(old.history()) == 2
    assert dead(old) in old.disk()
    path.unlink()
    assert old.reap().data_files == 1


def test_rejected_bytes_that_nobody_can_ever_replay_stop_nothing(old: Lake) -> None:
    (old.folder / "rejected" / str(NAME)).write_bytes(b"a text file with the right name")
    (old.folder / "rejected" / f"{NAME}.reason.json").write_text("{}")
    assert old.reap().data_files == 1


def test_a_txlog_of_a_newer_version_stops_the_run(old: Lake) -> None:
    file = DataFile(dead(old) + "2", "PARQUET", (), 1, 100)
    meta = manifest.header(old.table.schema(), old.table.spec()) | {"bookkeeper.version": b"2"}
    (old.folder / "pending" / str(NAME)).write_bytes(manifest.encode(meta, [added(file)]))
    with pytest.raises(NewerVersion):
        old.reap()
    assert len(old.history()) == 5


@pytest.mark.parametrize("place", ["pending", "rejected"])
def test_storage_that_fails_on_one_txlog_stops_the_run(old: Lake, place: str) -> None:
    class Failing(ClockStore):
        def read_many(self, keys: Sequence[str], most: object = None) -> dict[str, object]:
            return {key: StorageUnavailable("503") for key in keys}

    (old.folder / place / str(NAME)).write_bytes(txlog(old, dead(old)))
    now = old.now + timedelta(hours=1)
    with pytest.raises(StorageUnavailable, match="503"):
        old.reap(open_store=lambda url: Failing(open_store(url), now))
    assert len(old.history()) == 5


def test_a_txlog_that_moves_while_it_is_read_is_found_where_it_went(old: Lake) -> None:
    pending, rejected = (old.folder / place / str(NAME) for place in ("pending", "rejected"))
    pending.write_bytes(txlog(old, dead(old)))

    def reject() -> None:
        rejected.write_bytes(pending.read_bytes())
        Path(pending).unlink()

    store = Faults().before("read_many", reject).stores(old.now)(f"file://{old.folder}")
    assert txlogs.named(store) == {dead(old)}
