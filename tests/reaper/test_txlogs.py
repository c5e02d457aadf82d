"""
What the txlog folder names is never deleted, and what cannot be read there stops the run.
"""

import os
import tracemalloc
import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.pending_rewrites import pending_rewrites
from bookkeeper.contract.txlog import Envelope, StepFile, encode, encode_steps
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import NewerVersion, Retry, StorageUnavailable
from bookkeeper.format import avro, manifest
from bookkeeper.format.entries import DataFile, added
from bookkeeper.stores.open import open_store
from reaper.files import txlogs
from tests.support.reaper_faults import Faults
from tests.support.reaper_lake import ClockStore, ReaperLake

NAME = TxlogName("w", "0190c0de-0000-7000-8000-000000000001", 1)


@pytest.fixture
def old(lake: ReaperLake) -> ReaperLake:
    """A table with one data file and some snapshots to go."""
    file = lake.data_file(name="dead.parquet")
    lake.append(file)
    lake.delete(file.file_path)
    for _ in range(3):
        lake.append()
    return lake


def txlog(lake: ReaperLake, path: str) -> bytes:
    file = DataFile(path, "PARQUET", (), 1, 100)
    return encode(Envelope(NAME, "uuid", 1), lake.table().schema(), lake.table().spec(), [file])


def steps(lake: ReaperLake, path: str) -> bytes:
    """A txlog of version 2 whose delete file is this one."""
    file, spec = DataFile(path, "PARQUET", (), 1, 100), lake.table().spec()
    data = [StepFile(replace(file, path=f"{path}-2"), 1)]
    return encode_steps(Envelope(NAME, "uuid", 1), lake.table().schema(), spec, data, spec, [StepFile(file, 1)], [1], 2)


def dead(lake: ReaperLake) -> str:
    return f"file://{lake.location}/data/dead.parquet"


@pytest.mark.parametrize("place", ["pending", "rejected"])
@pytest.mark.parametrize("spelling", ["file://", "", "file:"])
def test_a_data_file_that_a_txlog_names_stays_and_the_rest_goes(old: ReaperLake, place: str, spelling: str) -> None:
    data = txlog(old, spelling + dead(old).removeprefix("file://"))
    (old.folder_path / place / str(NAME)).write_bytes(data)
    assert not old.outlook().files.data
    done = old.reap()
    assert (done.snapshots, done.data_files) == (3, 0)
    assert dead(old) in old.disk()


@pytest.mark.parametrize("place", ["pending", "rejected"])
def test_a_delete_file_that_a_txlog_names_stays(old: ReaperLake, place: str) -> None:
    """Committed without it, deleted rows would be there for ever."""
    (old.folder_path / place / str(NAME)).write_bytes(steps(old, dead(old)))
    assert not old.outlook().files.data
    assert old.reap().data_files == 0
    assert dead(old) in old.disk()


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: b"", lambda data: b"x" * 99])
def test_deletes_that_cannot_be_read_stop_the_run_until_the_txlog_is_rejected(old: ReaperLake, change: Any) -> None:
    found = avro.decode(steps(old, dead(old)), 2**24)
    meta = {**found.meta, "bookkeeper.deletes": change(found.meta["bookkeeper.deletes"])}
    path = old.folder_path / "pending" / str(NAME)
    path.write_bytes(avro.encode(meta, found.blocks))
    with pytest.raises(Retry, match="cannot be read"):
        old.reap()
    path.rename(old.folder_path / "rejected" / str(NAME))
    assert old.reap().data_files == 1


def test_a_rewrite_of_a_newer_version_stops_the_run(old: ReaperLake) -> None:
    newer = avro.encode({"bookkeeper.version": b"2"}, [avro.Block(1, b"?")])
    (old.folder_path / "rewrites").mkdir()
    (old.folder_path / "rewrites" / "x.avro").write_bytes(newer)
    with pytest.raises(NewerVersion):
        old.reap()


def test_a_txlog_published_after_the_plan_keeps_its_files(old: ReaperLake) -> None:
    def publish() -> None:
        (old.folder_path / "pending" / str(NAME)).write_bytes(txlog(old, dead(old)))

    faults = Faults().before("commit_table", publish)
    now = old.now.replace(hour=5)
    assert old.reap(catalog=faults.catalog(old.catalog), now=now).data_files == 0
    assert dead(old) in old.disk()


@pytest.mark.parametrize("name", ["second.txlog.avro.0123456789ab", "Stranger.txlog.avro"])
def test_misnamed_txlogs_count_too(old: ReaperLake, name: str) -> None:
    (old.folder_path / "rejected" / name).write_bytes(txlog(old, dead(old)))
    assert old.reap().data_files == 0


@pytest.mark.parametrize("name", [".x.avro.crc", "x.avro.bak", "x.avro"])
def test_below_rewrites_only_what_the_bookkeeper_lists_is_read(old: ReaperLake, name: str) -> None:
    (old.folder_path / "rewrites").mkdir(exist_ok=True)
    path = old.folder_path / "rewrites" / name
    path.write_bytes(b"nonsense")
    listed = [item.name for item in pending_rewrites(Folder(open_store(f"file://{old.folder_path}")))]
    if name in listed:
        with pytest.raises(Retry, match="rewrites/"):
            old.reap()
    else:
        assert old.reap().data_files == 1
    assert listed == (["x.avro"] if name == "x.avro" else [])


def test_an_unreadable_pending_txlog_stops_the_run_this_time(old: ReaperLake) -> None:
    path = old.folder_path / "pending" / str(NAME)
    path.write_bytes(txlog(old, dead(old))[:-3])
    before = old.disk().keys()
    for _ in range(2):
        with pytest.raises(Retry, match="pending/"):
            old.reap()
    assert old.disk().keys() == before
    assert len(old.history()) == 5
    path.unlink()
    assert old.reap().data_files == 1


def test_one_that_turns_up_after_the_commit_stops_the_deletion_until_it_is_gone(old: ReaperLake) -> None:
    path = old.folder_path / "pending" / str(NAME)
    faults = Faults().before("commit_table", lambda: path.write_bytes(b"nonsense"))
    with pytest.raises(Retry):
        old.reap(catalog=faults.catalog(old.catalog))
    assert len(old.history()) == 2
    assert dead(old) in old.disk()
    path.unlink()
    assert old.reap().data_files == 1


def test_rejected_bytes_that_no_replay_can_ever_take_stop_nothing(old: ReaperLake) -> None:
    (old.folder_path / "rejected" / str(NAME)).write_bytes(b"a text file with the right name")
    (old.folder_path / "rejected" / f"{NAME}.reason.json").write_text("{}")
    assert old.reap().data_files == 1


def test_a_txlog_of_a_newer_version_stops_the_run(old: ReaperLake) -> None:
    file = DataFile(dead(old) + "2", "PARQUET", (), 1, 100)
    meta = manifest.header(old.table().schema(), old.table().spec()) | {"bookkeeper.version": b"5"}
    (old.folder_path / "pending" / str(NAME)).write_bytes(manifest.encode(meta, [added(file)]))
    with pytest.raises(NewerVersion):
        old.reap()
    assert len(old.history()) == 5


@pytest.mark.parametrize("place", ["pending", "rejected"])
def test_storage_that_fails_on_one_txlog_stops_the_run(old: ReaperLake, place: str) -> None:
    class Failing(ClockStore):
        def read_many(self, keys: Sequence[str], most: object = None) -> dict[str, object]:
            read = self.store.read_many(keys, most)
            return {key: StorageUnavailable("503") if key.endswith(str(NAME)) else read[key] for key in keys}

    (old.folder_path / place / str(NAME)).write_bytes(txlog(old, dead(old)))
    now = old.now + timedelta(hours=1)
    with pytest.raises(StorageUnavailable, match="503"):
        old.reap(open_store=lambda url: Failing(open_store(url), now))
    assert len(old.history()) == 5


def test_a_txlog_that_moves_while_it_is_read_is_found_where_it_went(old: ReaperLake) -> None:
    pending, rejected = (old.folder_path / place / str(NAME) for place in ("pending", "rejected"))
    pending.write_bytes(txlog(old, dead(old)))

    def reject() -> None:
        rejected.write_bytes(pending.read_bytes())
        Path(pending).unlink()

    store = Faults().before("read_many", reject).stores(old.now)(f"file://{old.folder_path}")
    assert txlogs.named(store) == {dead(old)}


def bombed(lake: ReaperLake, count: int, **header: bytes) -> bytes:
    """Many entries of one location, packed a thousandfold."""
    meta = manifest.header(lake.table().schema(), lake.table().spec()) | {"bookkeeper.version": b"1", **header}
    record = manifest.encode_record(meta["avro.schema"], added(DataFile(dead(lake), "PARQUET", (), 1, 100)))
    return avro.encode(meta, [avro.Block(count, record * count)])


@pytest.mark.parametrize("place", ["pending", "rejected"])
def test_more_entries_than_any_bookkeeper_takes_stop_nothing_and_cost_nothing(old: ReaperLake, place: str) -> None:
    (old.folder_path / place / str(NAME)).write_bytes(bombed(old, 300_000))
    tracemalloc.start()
    assert old.reap().data_files == 1
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()


@pytest.mark.parametrize("place", ["pending", "rejected"])
def test_a_txlog_of_a_size_that_no_bookkeeper_takes_is_not_read(old: ReaperLake, place: str) -> None:
    with (old.folder_path / place / str(NAME)).open("wb") as file:
        file.truncate(2**40)
    assert old.reap().data_files == 1


def test_what_is_larger_once_decompressed_than_any_bookkeeper_takes_stops_nothing(old: ReaperLake) -> None:
    meta = manifest.header(old.table().schema(), old.table().spec())
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    record = manifest.encode_record(meta["avro.schema"], added(DataFile("x" * 2**22, "PARQUET", (), 1, 100)))[:-100]
    packed = b"".join(squeeze.compress(record) for _ in range(70)) + squeeze.flush()
    (old.folder_path / "rejected" / str(NAME)).write_bytes(avro.encode(meta, [avro.PackedBlock(70, packed)]))
    tracemalloc.start()
    assert old.reap().data_files == 1
    assert tracemalloc.get_traced_memory()[1] < 2**26
    tracemalloc.stop()


def test_one_refused_under_a_lower_limit_keeps_its_files_for_the_limit_may_be_raised(old: ReaperLake) -> None:
    """300 KB, and 60 MB once decompressed: far more than some max-txlog-bytes, and less than the largest one."""
    file = DataFile(dead(old), "PARQUET", (), 1, 100, upper_bounds={1: bytes(3_000_000)})
    meta = manifest.header(old.table().schema(), old.table().spec())
    (old.folder_path / "rejected" / str(NAME)).write_bytes(manifest.encode(meta, [added(file)] * 20))
    assert old.reap().data_files == 0


@pytest.mark.parametrize("place", ["pending", "rejected"])
def test_a_newer_version_stops_the_run_even_where_it_looks_like_nothing_to_us(old: ReaperLake, place: str) -> None:
    (old.folder_path / place / str(NAME)).write_bytes(avro.encode({"bookkeeper.version": b"5"}, [avro.Block(1, b"?")]))
    with pytest.raises(NewerVersion):
        old.reap()
    assert len(old.history()) == 5


def test_a_link_in_the_folder_is_not_followed_and_names_nothing(old: ReaperLake, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(txlog(old, dead(old)))
    for place in ("pending", "rejected"):
        (old.folder_path / place / str(NAME)).symlink_to(tmp_path / "elsewhere")
    os.mkfifo(old.folder_path / "rejected" / str(NAME.at(2)))
    assert old.reap().data_files == 1


def test_one_that_grows_while_it_is_read_is_read_again(old: ReaperLake) -> None:
    path = old.folder_path / "pending" / str(NAME)
    path.write_bytes(b"1")
    faults = Faults().before("read_many", lambda: path.write_bytes(txlog(old, dead(old))))
    assert txlogs.named(faults.stores(old.now)(f"file://{old.folder_path}")) == {dead(old)}


def test_many_small_ones_are_read_together_and_large_ones_one_by_one(old: ReaperLake) -> None:
    for number in range(1, 131):
        (old.folder_path / "pending" / str(NAME.at(number))).write_bytes(txlog(old, f"{dead(old)}{number}"))
    large = txlog(old, dead(old))
    for number in (131, 132):
        (old.folder_path / "pending" / str(NAME.at(number))).write_bytes(large + bytes(2**26 - len(large)))
    faults = Faults()
    with pytest.raises(Retry):  # they have bytes behind their end
        txlogs.named(faults.stores(old.now)(f"file://{old.folder_path}"))
    for number in (131, 132):
        (old.folder_path / "pending" / str(NAME.at(number))).rename(old.folder_path / "rejected" / str(NAME.at(number)))
    faults = Faults()
    assert len(txlogs.named(faults.stores(old.now)(f"file://{old.folder_path}"))) == 130
    assert faults.calls.count("read_many") == 3 + 2
