"""
Which files go with expired snapshots: on one line of history, beside branches and tags, and never a live one.
"""

import logging
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import SetPartitionStatisticsUpdate, SetStatisticsUpdate

from bookkeeper.errors import StorageUnavailable
from tests.support.pyiceberg_files import parquet_file
from tests.support.reaper_lake import ReaperLake


def test_a_deleted_file_goes_with_the_snapshot_that_deleted_it(lake: ReaperLake) -> None:
    file = lake.data_file()
    lake.append(file)
    lake.append()
    lake.delete(file.file_path)
    lake.append()
    assert lake.reap().data_files == 0
    assert file.file_path in lake.disk()

    lake.append()
    assert lake.reap().data_files == 1
    assert file.file_path not in lake.disk()
    assert lake.rows() == [1, 2, 3]


def test_beside_another_branch_too_a_deleted_file_goes_with_the_snapshot_that_deleted_it(lake: ReaperLake) -> None:
    other = lake.append(branch="other")
    file = lake.data_file()
    lake.append(file)
    lake.append()
    lake.delete(file.file_path)
    lake.append()
    assert (lake.reap().data_files, file.file_path in lake.disk()) == (0, True)

    lake.append()
    assert (lake.reap().data_files, file.file_path in lake.disk()) == (1, False)
    assert (lake.rows(), lake.rows(other)) == ([2, 3, 4], [0])


def test_files_of_rows_deleted_and_compacted_by_pyiceberg_itself_go(lake: ReaperLake) -> None:
    table = lake.table()
    for number in range(4):
        table.append(pa.table({"n": [number]}, schema=pa.schema([pa.field("n", pa.int64())])))
    table.delete("n = 1")
    table.overwrite(pa.table({"n": [7, 8]}, schema=pa.schema([pa.field("n", pa.int64())])))
    for number in (9, 10):
        table.append(pa.table({"n": [number]}, schema=pa.schema([pa.field("n", pa.int64())])))
    lake.now = datetime.fromtimestamp(lake.table().metadata.last_updated_ms / 1000, UTC)
    lake.reap()
    data = [path for path in lake.disk() if path.endswith(".parquet")]
    assert set(data) == {path for path in lake.reachable() if path.endswith(".parquet")}
    assert lake.rows() == [7, 8, 9, 10]


def test_a_file_that_was_added_again_after_its_deletion_lives(lake: ReaperLake) -> None:
    back_in_time, back_later, gone = (lake.data_file() for _ in range(3))
    lake.append(back_in_time, back_later, gone)
    lake.delete(back_in_time.file_path, back_later.file_path, gone.file_path)
    lake.append(back_in_time)
    lake.append()
    lake.append(back_later)
    lake.append()
    assert lake.reap().data_files == 1
    assert gone.file_path not in lake.disk()
    assert lake.rows() == [0, 1, 3, 4]


def test_a_file_goes_with_its_last_deletion_however_often_it_was_added_again_before(lake: ReaperLake) -> None:
    gone, back, steady = (lake.data_file() for _ in range(3))
    lake.append(gone, back, steady)
    lake.delete(gone.file_path, back.file_path)
    lake.append(gone, back)
    lake.delete(gone.file_path, steady.file_path)
    lake.delete(back.file_path)
    lake.append(back)
    for _ in range(3):
        lake.append()
    assert lake.reap().data_files == 2
    assert back.file_path in lake.disk() and not {gone.file_path, steady.file_path} & lake.disk().keys()


def test_a_file_that_one_snapshot_deletes_and_adds_lives(lake: ReaperLake) -> None:
    file = lake.data_file()
    lake.append(file)
    lake._snapshot(Operation.OVERWRITE, added=(file,), deleted=(file.file_path,))
    for _ in range(4):
        lake.append()
    assert lake.reap().data_files == 0
    assert file.file_path in lake.disk() and lake.rows() == [0, 1, 2, 3, 4]


def test_a_file_that_was_added_again_under_another_spelling_lives(lake: ReaperLake) -> None:
    file = lake.data_file()
    again = parquet_file(file.file_path, record_count=1)
    again._data[1] = file.file_path.replace("file:///", "file:/")
    lake.append(file)
    lake.delete(file.file_path)
    lake.append(again)
    for _ in range(3):
        lake.append()
    assert lake.reap().data_files == 0
    assert file.file_path in lake.disk()


def test_files_that_stay_in_a_manifest_with_deletions_live(lake: ReaperLake) -> None:
    files = [lake.data_file() for _ in range(3)]
    lake.append(*files)
    lake.delete(files[1].file_path)
    for _ in range(3):
        lake.append()
    assert lake.reap().data_files == 1
    assert {files[0].file_path, files[2].file_path} <= lake.disk().keys()
    assert lake.rows() == [0, 2, 3, 4, 5]


def test_what_a_tag_or_branch_reads_survives(lake: ReaperLake) -> None:
    old, other = lake.data_file(), lake.data_file()
    tagged = lake.append(old)
    lake.ref("branch", tagged, "branch")
    branched = lake.append(parent=tagged, branch="branch")
    for _ in range(2):
        lake.append()
    lake.append(other)
    lake.delete(old.file_path, other.file_path)
    for _ in range(3):
        lake.append()
    lake.ref("keep", branched)
    lake.drop_ref("branch")
    rows = lake.rows(branched)

    done = lake.reap()

    assert tagged not in lake.history()
    assert (done.snapshots, done.data_files) == (6, 1)
    assert other.file_path not in lake.disk()
    assert lake.rows(branched) == rows
    assert lake.reachable() <= lake.disk().keys()


def test_the_files_of_an_abandoned_line_go_and_those_it_shares_stay(lake: ReaperLake) -> None:
    shared, own = lake.data_file(), lake.data_file()
    lake.append(shared)
    fork = lake.append()
    lake.append(own)
    lake.delete(shared.file_path)
    lake.rollback(fork)
    for _ in range(2):
        lake.append()
    lake.reap()
    assert len(lake.history()) == 2
    assert own.file_path not in lake.disk()
    assert lake.rows() == [0, 2, 3, 4]
    assert lake.disk().keys() == lake.reachable() | {path for path in lake.disk() if path.endswith(".metadata.json")}


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_history_nothing_reachable_goes_and_nothing_else_stays(tmp_path: Path, seed: int) -> None:
    lake, chance = ReaperLake(tmp_path), random.Random(seed)
    for turn in range(14):
        live = lake.live(lake.table(), lake.table().metadata.current_snapshot_id) if turn else []
        choice = chance.choice(["append", "append", "delete", "merge", "tag", "drop", "rollback", "reap"])
        if not live or choice == "append":
            lake.append(rows=chance.randint(1, 3))
        elif choice == "delete":
            lake.delete(*chance.sample(live, chance.randint(1, len(live))))
        elif choice == "merge":
            lake.merge()
        elif choice == "tag":
            lake.ref(f"t{turn}", chance.choice(lake.history()))
        elif choice == "drop" and len(lake.refs()) > 1:
            lake.drop_ref(next(name for name in lake.refs() if name != "main"))
        elif choice == "rollback":
            lake.rollback(chance.choice(lake.history()))
        else:
            lake.reap()
        assert lake.reachable() <= lake.disk().keys()
        assert len(lake.rows()) >= 0
    for name in lake.refs().keys() - {"main"}:
        lake.drop_ref(name)
    for _ in range(3):
        lake.append()
    lake.reap()
    left = {path for path in lake.disk() if not path.endswith(".metadata.json")}
    assert left == {path for path in lake.reachable() if not path.endswith(".metadata.json")}


def test_statistics_of_expired_snapshots_go_and_those_of_others_stay(lake: ReaperLake) -> None:
    snapshots = [lake.append() for _ in range(4)]
    for snapshot in (snapshots[0], snapshots[3]):
        for kind in ("statistics", "partitions"):
            Path(f"{lake.location}/metadata/{snapshot}.{kind}").write_bytes(b"xyz")
        full = {"snapshot-id": snapshot, "statistics-path": f"file://{lake.location}/metadata/{snapshot}.statistics"}
        sizes = {"file-size-in-bytes": 3, "file-footer-size-in-bytes": 1, "blob-metadata": []}
        partial = {**full, "statistics-path": f"file://{lake.location}/metadata/{snapshot}.partitions"}
        lake.catalog.commit_table(
            lake.table(),
            (),
            (
                SetStatisticsUpdate(statistics=StatisticsFile(**full, **sizes)),
                SetPartitionStatisticsUpdate(
                    partition_statistics=PartitionStatisticsFile(**partial, **{"file-size-in-bytes": 3})
                ),
            ),
        )
    lake.reap()
    metadata = lake.table().metadata
    left = [item.snapshot_id for item in (*metadata.statistics, *metadata.partition_statistics)]
    assert left == [snapshots[3]] * 2
    on_disk = sorted(Path(path).name for path in lake.disk() if path.endswith((".statistics", ".partitions")))
    assert on_disk == [f"{snapshots[3]}.partitions", f"{snapshots[3]}.statistics"]


def test_a_file_outside_of_the_table_is_never_deleted(lake: ReaperLake, caplog: pytest.LogCaptureFixture) -> None:
    outside = lake.data_file(name="../../other/data.parquet")
    path = Path(outside.file_path.removeprefix("file://")).resolve()
    outside._data[1] = f"file://{path}"
    in_folder = lake.data_file(name="../_bookkeeper/data.parquet")
    in_folder._data[1] = f"file://{lake.folder_path}/data.parquet"
    lake.append(outside, in_folder)
    lake.delete(outside.file_path, in_folder.file_path)
    for _ in range(3):
        lake.append()
    with caplog.at_level(logging.WARNING, "reaper"):
        lake.reap()
    assert path.exists() and (lake.folder_path / "data.parquet").exists()
    assert [(record.action, record.files) for record in caplog.records] == [("refuse", 2)]
    assert not lake.outlook().refused


def test_files_on_a_data_path_of_its_own_are_deleted(lake: ReaperLake, tmp_path: Path) -> None:
    lake.properties(write__data__path=f"file://{tmp_path}/elsewhere")
    file = lake.data_file(name="../../elsewhere/data.parquet")
    path = tmp_path / "elsewhere" / "data.parquet"
    path.parent.mkdir(exist_ok=True)
    Path(file.file_path.removeprefix("file://")).resolve().replace(path)
    file._data[1] = f"file://{path}"
    lake.append(file)
    lake.delete(file.file_path)
    for _ in range(3):
        lake.append()
    assert lake.reap().data_files == 1
    assert not path.exists()


def test_a_data_file_entry_that_names_a_live_manifest_costs_nothing(lake: ReaperLake) -> None:
    lake.append()
    live = lake.table().metadata.current_snapshot().manifests(lake.table().io)[0].manifest_path
    evil = lake.data_file()
    evil._data[1] = live
    lake.append(evil)
    lake.delete(live)
    for _ in range(3):
        lake.append()
    assert lake.reap().data_files == 0
    assert lake.reachable() <= lake.disk().keys()


def test_a_manifest_that_cannot_be_read_stops_the_run(lake: ReaperLake) -> None:
    for _ in range(4):
        lake.append()
    oldest = lake.table().metadata.snapshot_by_id(lake.history()[0])
    Path(oldest.manifest_list.removeprefix("file://")).write_bytes(b"no Avro")
    before = lake.disk().keys()
    with pytest.raises(StorageUnavailable):
        lake.reap()
    assert lake.disk().keys() == before
    assert len(lake.history()) == 4


def test_gc_disabled_deletes_nothing_at_all(lake: ReaperLake) -> None:
    for _ in range(15):
        lake.append()
    lake.properties(gc__enabled="false")
    before = lake.disk().keys()
    assert not lake.reap(now=lake.now + timedelta(days=9))
    assert lake.disk().keys() == before


def test_more_snapshots_than_fit_one_commit_go_in_several(lake: ReaperLake) -> None:
    lake.append()
    lake.burst(210)
    before = lake.table().metadata.metadata_log[-1].metadata_file
    planned = lake.outlook().files
    done = lake.reap()
    assert (done.snapshots, len(planned.manifest_lists)) == (209, 209)
    commits = [entry.metadata_file for entry in lake.table().metadata.metadata_log]
    assert len(commits) - commits.index(before) == 1 + 3
    assert not planned.sizes().keys() & lake.disk().keys()
    assert lake.rows() == [0]


@pytest.mark.parametrize("spelling", ["file:///", "file:/"])
@pytest.mark.parametrize("merged", [False, True], ids=["as it is", "merged"])
def test_a_file_that_is_listed_twice_stays_as_long_as_a_snapshot_reads_it(
    lake: ReaperLake, spelling: str, merged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention takes out the entry with forged bounds; the other entry's rows are live."""
    file = lake.data_file()
    lake.append(file)
    again = file.file_path.replace("file:///", spelling)
    lake.append(parquet_file(again, record_count=1, file_size_in_bytes=file.file_size_in_bytes))
    lake.delete(again, once=True)
    if merged:
        lake.merge()
    for _ in range(4):
        lake.append()
    assert lake.reap().kept == 1
    assert file.file_path in lake.disk()
    assert lake.rows() == [0, 1, 2, 3, 4]
    kept = [record for record in caplog.records if record.__dict__.get("action") == "keep"]
    assert [(record.__dict__["files"], record.__dict__["first"]) for record in kept] == [(1, file.file_path)]

    lake.delete(file.file_path)
    for _ in range(3):
        lake.append()
    lake.reap()
    assert file.file_path not in lake.disk()
    assert lake.rows() == [1, 2, 3, 4, 5, 6, 7]
