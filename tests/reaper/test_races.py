"""
Others at work on the table between plan, commit and deletion.
"""

import json
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.table.update import RemoveSnapshotsUpdate, SetSnapshotRefUpdate

from bookkeeper.contract.marks import Marks
from bookkeeper.contract.marks_json import MarksCopy
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import CommitConflict, CommitUnknown, HistoryChanged, WrongFolder
from bookkeeper.stores.open import open_store
from reaper.context import ReaperContext
from reaper.expiry.verify_journal import verify_journal
from reaper.files import txlogs
from tests.reaper.test_txlogs import txlog
from tests.support.reaper_faults import Crash, Faults
from tests.support.reaper_lake import NAME, ReaperLake

HOUR = timedelta(hours=1)


@pytest.fixture
def old(tmp_path: Path) -> ReaperLake:
    """Five snapshots to expire, on a catalog that commits on whatever it finds then (as REST servers do)."""
    return made(ReaperLake(tmp_path, stock=True))


@pytest.fixture
def flat(tmp_path: Path) -> ReaperLake:
    """The same on our own catalog, which refuses a commit when anything has changed since the load."""
    return made(ReaperLake(tmp_path))


def made(lake: ReaperLake) -> ReaperLake:
    """Five snapshots to expire and a data file that goes with them."""
    file = lake.data_file()
    lake.append(file)
    lake.append()
    lake.delete(file.file_path)
    for _ in range(4):
        lake.append()
    return lake


def run(lake: ReaperLake, faults: Faults, **given: Any) -> Any:
    now = lake.now + HOUR
    catalog = faults.catalog(lake.opened())
    return lake.reap(catalog=catalog, open_store=faults.stores(now), now=now, **given)


def journal(lake: ReaperLake) -> Any:
    path = lake.folder_path / "reaper/journal.json"
    return json.loads(path.read_text()) if path.exists() else None


def test_the_folder_of_another_table_says_nothing_of_this_one(old: ReaperLake) -> None:
    """As where `folder` was copied with a section: its txlogs and consumers are another table's."""
    Folder(open_store(f"file://{old.folder_path}")).publish_marks(MarksCopy(str(uuid4()), 1, Marks("theirs")))
    before = old.disk()
    with pytest.raises(WrongFolder):
        old.reap()
    assert old.disk() == before


@pytest.mark.parametrize("stock", [True, False])
def test_a_busy_table_gets_through_twenty_appends_between_plan_and_commit(tmp_path: Path, stock: bool) -> None:
    old = made(ReaperLake(tmp_path, stock=stock))
    going = old.history()[:5]
    faults = Faults().before("commit_table", *[old.append] * 20)
    done = run(old, faults)
    assert faults.calls.count("commit_table") >= 21
    assert done.data_files == 1
    assert not set(going) & set(old.history())
    assert old.rows() == list(range(1, 26))
    assert old.reachable() <= old.disk().keys()


def test_a_tag_made_between_plan_and_commit_makes_a_conflict_where_the_catalog_sees_it(flat: ReaperLake) -> None:
    target = flat.history()[1]
    with pytest.raises(CommitConflict, match="branches or tags"):
        run(flat, Faults().before("commit_table", lambda: flat.ref("late", target)))
    assert flat.refs()["late"].snapshot_id == target
    assert flat.reap().snapshots == 1
    assert flat.rows(target) == [0, 1]


def test_a_tag_made_between_plan_and_commit_is_restored_and_nothing_deleted(
    old: ReaperLake, caplog: pytest.LogCaptureFixture
) -> None:
    target = old.history()[1]
    rows, before = old.rows(target), old.disk().keys()
    sequence = old.table().metadata.last_sequence_number
    tagged_ms = old.table().metadata.snapshot_by_id(target).timestamp_ms

    with caplog.at_level(logging.WARNING, "reaper"):
        done = run(old, Faults().before("commit_table", lambda: old.ref("late", target)))

    assert not done
    assert [record.action for record in caplog.records] == ["drop-journal"]
    assert old.refs()["late"].snapshot_id == target
    assert len(old.history()) == 3
    assert before <= old.disk().keys()
    assert old.rows(target) == rows
    assert journal(old) is None
    assert old.table().metadata.last_sequence_number > sequence
    assert old.table().metadata.last_updated_ms != tagged_ms
    old.append()
    assert old.rows() == [1, 2, 3, 4, 5, 6]


def test_a_branch_with_its_own_settings_comes_back_with_them(old: ReaperLake) -> None:
    target = old.history()[1]
    made = SetSnapshotRefUpdate(
        ref_name="audit", type="branch", snapshot_id=target, max_ref_age_ms=5000, min_snapshots_to_keep=3
    )
    run(old, Faults().before("commit_table", lambda: old.catalog.commit_table(old.table(), (), (made,))))
    found = old.refs()["audit"]
    assert (found.snapshot_id, found.max_ref_age_ms, found.min_snapshots_to_keep) == (target, 5000, 3)


@pytest.mark.parametrize("stock", [True, False])
def test_a_tag_whose_age_is_over_is_taken_off_and_holds_nothing_though_others_append(
    tmp_path: Path, stock: bool
) -> None:
    lake = made(ReaperLake(tmp_path, stock=stock))
    going = lake.history()[:5]
    for name, age_ms in (("week", 60_000), ("year", 10**12)):
        update = SetSnapshotRefUpdate(ref_name=name, type="tag", snapshot_id=lake.history()[5], max_ref_age_ms=age_ms)
        if name == "week":
            update = update.model_copy(update={"snapshot_id": going[0]})
        lake.catalog.commit_table(lake.table(), (), (update,))
    planned = lake.outlook(lake.now + HOUR)

    done = run(lake, Faults().before("commit_table", lake.append, lake.append))

    assert lake.refs().keys() == {"main", "year"}
    assert planned.plan.expire == tuple(going)
    assert (done.snapshots, done.data_files) == (5, 1)
    assert not set(going) & set(lake.history())
    assert lake.reachable() <= lake.disk().keys()
    assert journal(lake) is None


def test_two_tags_on_lost_snapshots_come_back_while_others_append(old: ReaperLake) -> None:
    first, second = old.history()[:2]

    def tag() -> None:
        old.ref("one", first)
        old.ref("two", second)

    run(old, Faults().before("commit_table", tag, old.append, old.append))
    assert (old.refs()["one"].snapshot_id, old.refs()["two"].snapshot_id) == (first, second)
    assert old.rows(first) == [0]
    assert old.rows() == [1, 2, 3, 4, 5, 6, 7]
    sequences = [item.sequence_number for item in old.table().metadata.snapshots]
    assert len(set(sequences)) == len(sequences)
    assert max(sequences) <= old.table().metadata.last_sequence_number


def test_a_tag_on_a_snapshot_that_stays_disturbs_nothing(old: ReaperLake) -> None:
    done = run(old, Faults().before("commit_table", lambda: old.ref("late", old.history()[-1])))
    assert (done.snapshots, done.data_files) == (5, 1)
    assert old.refs().keys() == {"main", "late"}


def test_a_branch_grown_from_an_expiring_snapshot_keeps_its_files(
    old: ReaperLake, caplog: pytest.LogCaptureFixture
) -> None:
    fork = old.history()[1]

    def grow() -> None:
        old.ref("audit", fork, "branch")
        old.append(branch="audit")

    with caplog.at_level(logging.WARNING, "reaper"):
        run(old, Faults().before("commit_table", grow))
    grown = old.refs()["audit"].snapshot_id
    assert [record.action for record in caplog.records] == ["spare"]
    assert old.rows(grown) == [0, 1, 6]
    assert old.reachable() <= old.disk().keys()


def test_a_rollback_between_plan_and_commit_stops_the_expiry(old: ReaperLake) -> None:
    target = old.history()[1]
    with pytest.raises(CommitConflict, match="rolled back"):
        run(old, Faults().before("commit_table", lambda: old.rollback(target)))
    assert len(old.history()) == 7
    old.reap()
    assert old.rows() == [0, 1]
    assert target in old.history()


@pytest.mark.parametrize("aside", [1, 2])
def test_main_that_goes_on_to_a_snapshot_beside_it_stops_the_expiry(old: ReaperLake, aside: int) -> None:
    """A staged snapshot that is published, or a rollback that is taken back: its snapshots were beside main."""
    staged = [old.append(branch="staged", parent=None if turn else old.history()[-1]) for turn in range(aside)]
    old.drop_ref("staged")
    with pytest.raises(CommitConflict, match="main"):
        run(old, Faults().before("commit_table", lambda: old.rollback(staged[-1])))
    assert old.refs()["main"].snapshot_id == staged[-1]
    assert len(old.history()) == 7 + aside
    old.reap()
    assert old.rows() == [*range(1, 6 + aside)]
    assert old.reachable() <= old.disk().keys()


def test_the_first_snapshot_that_is_published_on_an_empty_main_is_not_expired(tmp_path: Path) -> None:
    """All snapshots were staged when the expiry was planned; one of them is all that main has when it commits."""
    lake = ReaperLake(tmp_path, stock=True)
    staged = [lake.append(branch="staged"), lake.append(branch="staged")]
    lake.drop_ref("staged")
    with pytest.raises(CommitConflict, match="main"):
        run(lake, Faults().before("commit_table", lambda: lake.rollback(staged[0])))
    assert lake.refs()["main"].snapshot_id == staged[0]
    assert len(lake.rows()) == 1
    assert lake.reachable() <= lake.disk().keys()


def test_other_refs_that_moved_stop_the_expiry(old: ReaperLake) -> None:
    old.ref("keep", old.history()[-2])
    with pytest.raises(CommitConflict, match="branches or tags"):
        run(old, Faults().before("commit_table", lambda: old.ref("keep", old.history()[0])))
    assert len(old.history()) == 7


def test_another_reaper_that_was_first_leaves_nothing_to_lose(old: ReaperLake) -> None:
    with pytest.raises((CommitConflict, CommitUnknown)):
        run(old, Faults().before("commit_table", lambda: _expire_as_spark(old, old.history()[:2])))
    assert len(old.history()) == 5
    old.reap()
    assert old.rows() == [1, 2, 3, 4, 5]
    assert old.reachable() <= old.disk().keys()


def _expire_as_spark(lake: ReaperLake, snapshots: list[int]) -> None:
    lake.catalog.commit_table(lake.table(), (), (RemoveSnapshotsUpdate(snapshot_ids=snapshots),))


def test_a_lost_reply_to_the_commit_is_found_out_by_loading_again(old: ReaperLake) -> None:
    done = run(old, Faults().lose_reply("commit_table", OSError("connection reset")))
    assert (done.snapshots, done.data_files) == (5, 1)
    assert old.reachable() <= old.disk().keys()


def test_a_commit_that_never_arrived_deletes_nothing(old: ReaperLake, caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> None:
        raise OSError("no route to host")

    before = old.disk().keys()
    with pytest.raises(CommitUnknown):
        run(old, Faults().before("commit_table", refuse))
    assert old.disk().keys() == before
    assert journal(old)
    with caplog.at_level(logging.WARNING, "reaper"):
        assert old.reap().data_files == 1
    assert [record.cause for record in caplog.records] == ["nothing was committed"]


def test_a_consumer_that_went_back_stops_the_expiry(old: ReaperLake) -> None:
    answers = iter([None, None, old.history()[2]])
    with pytest.raises(CommitConflict, match="consumer"):
        run(old, Faults(), floor=lambda table: next(answers))
    assert len(old.history()) == 7


def test_a_consumer_holds_what_it_needs(old: ReaperLake) -> None:
    floor = old.history()[3]
    assert run(old, Faults(), floor=lambda table: floor).snapshots == 3
    assert floor in old.history()


def test_a_table_dropped_and_made_anew_loses_nothing(old: ReaperLake) -> None:
    with pytest.raises(Crash):
        run(old, Faults().crash_after("commit_table"))
    assert journal(old)
    planned = [path for sizes in journal(old)["files"].values() for path in sizes]
    old.catalog.drop_table(NAME)
    old.make()
    old.append()
    there = old.disk().keys()
    assert not old.reap(now=old.now + timedelta(minutes=1))
    assert journal(old) is None
    assert set(planned) <= there == old.disk().keys()
    assert old.rows() == [0]


def test_a_table_dropped_between_plan_and_commit_is_not_touched(old: ReaperLake) -> None:
    def replace() -> None:
        old.catalog.drop_table(NAME)
        old.make()

    with pytest.raises(CommitConflict):
        run(old, Faults().before("commit_table", replace))
    old.append()
    old.reap(now=old.now + timedelta(minutes=1))
    assert old.rows() == [0]


def test_a_tag_made_between_commit_and_deletion_finds_its_files(old: ReaperLake) -> None:
    newest = old.history()[-2:]
    done = run(old, Faults().before("delete_many", lambda: old.ref("late", newest[0])))
    assert done.data_files == 1
    assert old.rows(newest[0]) == [1, 2, 3, 4]


def test_a_file_that_a_later_snapshot_names_again_stays(old: ReaperLake, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Crash):
        run(old, Faults().crash_after("commit_table"))
    dead = next(iter(journal(old)["files"]["data"]))
    back = old.data_file()
    back._data[1] = dead
    old.append(back)
    with caplog.at_level(logging.WARNING, "reaper"):
        assert old.reap().data_files == 0
    assert ("spare", 1) in [(record.action, getattr(record, "files", 0)) for record in caplog.records]
    assert old.reachable() <= old.disk().keys()


def test_a_txlog_that_is_committed_between_the_reads_of_folder_and_table_keeps_its_file(
    old: ReaperLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of them is read first: after the table, the folder would show it no more, and the table not yet."""
    with pytest.raises(Crash):
        run(old, Faults().crash_after("commit_table"))
    dead = next(iter(journal(old)["files"]["data"]))
    pending = old.folder_path / "pending" / str(NAME)
    pending.parent.mkdir(exist_ok=True)
    pending.write_bytes(txlog(old, dead))
    reads = list[str]()

    def watched(name: str, act: Any) -> Any:
        def call(*given: Any) -> Any:
            found = act(*given)
            reads.append(name)
            if len(reads) == 1:  # what a tick does: the commit, then the deletion
                file = old.data_file()
                file._data[1] = dead
                old.append(file)
                pending.unlink()
            return found

        return call

    def verified(*given: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr("reaper.expiry.verify_journal.txlogs.named", watched("folder", txlogs.named))
            patched.setattr(ReaperContext, "load", watched("table", ReaperContext.load))
            return verify_journal(*given)

    monkeypatch.setattr("reaper.run.verify_journal", verified)
    old.reap()
    assert {*reads} == {"folder", "table"} and not pending.exists()
    assert dead in old.reachable() <= old.disk().keys()


def test_a_table_put_back_from_a_backup_keeps_the_files_of_what_came_after(old: ReaperLake) -> None:
    """They look like orphans, and are what the table may still be put back with."""
    folder = Folder(open_store(str(old.folder_path)))
    old.mark(old.history()[0])
    table = old.table()
    later = Marks("f", snapshot=4711)
    folder.publish_marks(MarksCopy(str(table.metadata.table_uuid), table.metadata.last_sequence_number + 3, later))
    there = old.disk().keys()
    with pytest.raises(HistoryChanged, match=r"marks\.json"):
        old.reap(now=old.now + timedelta(days=30), release_brake=True)
    assert there == old.disk().keys()
