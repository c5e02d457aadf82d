"""A round: what it plans from the folder and the table, what it leaves alone, and what trouble costs."""

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.update import SetPropertiesUpdate

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.compaction import PROPERTY
from bookkeeper.config.settings import Compaction, Retention
from bookkeeper.contract.pending_rewrites import is_rewrite, pending_rewrites
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import StorageUnavailable, TableUnusable
from bookkeeper.format import records
from bookkeeper.leases.lease import lease_on
from bookkeeper.stores import together
from bookkeeper.stores.memory import MemoryStore
from reaper.compactor import compactor as compactors
from reaper.compactor import rewrite_plan as plans
from reaper.compactor.choose_files import LiveFile
from reaper.compactor.compactor import Compacted, Compactor
from reaper.compactor.group import CannotRewrite, Group
from reaper.compactor.live_files import LiveFiles
from reaper.context import ReaperContext
from reaper.files.manifest_reader import ManifestReader
from tests.support.compactor import commit, compacted, live
from tests.support.fake_worker import FakeWorker
from tests.support.lake import Lake, Writes, append_by_others, live_files


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A queue with an hour of quiet between tests' rows and the disk's clock."""
    return Lake(tmp_path)


def compactor(lake: Lake, worker: Any = None, **settings: Any) -> Compactor:
    compaction = replace(Compaction(), **{"fan_in": 4, **settings})
    for earlier in others:
        earlier.close()
    others[:] = [Compactor(replace(lake.settings, compaction=compaction), worker or FakeWorker(), lake.clock)]
    return others[0]


#: of the test before, and of this one, as if their processes had ended
others: list[Compactor] = []


def go(lake: Lake, its: Compactor, **given: Any) -> Compacted:
    return its.round(open_catalog(lake.catalog_settings), lake.clock.now, **given)


def filled(lake: Lake, count: int, **about: Any) -> list[str]:
    """So many files of a row each, committed one by one; their keys."""
    writes = Writes(lake)
    book = lake.book()
    for number in range(count):
        writes.publish(f"k{number:03d}", **about)
        lake.tick(book)
    return writes.keys


def appended(lake: Lake, count: int) -> None:
    """So many files, while no bookkeeper works."""
    writes = Writes(lake)
    for number in range(count):
        append_by_others(lake, writes.file([f"o{number}"]))


def committed(lake: Lake) -> None:
    """The bookkeeper takes up what is pending."""
    lake.tick(seconds=61)


def pending(lake: Lake) -> list[str]:
    return [item.name for item in pending_rewrites(lake.folder)]


def rejected(lake: Lake) -> list[str]:
    return [item.key for item in lake.folder.store.list("rejected/") if is_rewrite(item.key.rpartition("/")[2])]


def test_a_round_and_a_tick_make_one_file_of_a_tier_with_the_same_rows(lake: Lake) -> None:
    keys = filled(lake, 9)
    done = go(lake, compactor(lake))
    assert (done.rewrites, done.replaced_files, done.new_files, done.pending) == (1, 9, 1, 1)
    assert done.read_bytes > done.written_bytes > 0 == done.backlog_bytes
    committed(lake)
    assert (pending(lake), rejected(lake), len(live_files(lake))) == ([], [], 1)
    assert lake.keys() == sorted(keys)


def test_files_that_a_pending_rewrite_names_are_left_out(lake: Lake) -> None:
    filled(lake, 4)
    its, worker = compactor(lake), FakeWorker()
    go(lake, its)
    appended(lake, 3)
    again = go(lake, compactor(lake, worker))  # another process
    assert (again.rewrites, again.pending, again.left_alone["pending"], worker.groups) == (0, 1, 4, [])
    assert go(lake, its).rewrites == 0


@pytest.mark.parametrize("spelling", ["file:///", "file:/"])
def test_a_file_that_is_live_twice_is_left_alone_in_any_spelling(lake: Lake, spelling: str) -> None:
    filled(lake, 5)
    first = live(lake)[0].file
    append_by_others(lake, replace(first, path=first.path.replace("file:///", spelling)))
    done = go(lake, compactor(lake, quiet=timedelta(0)))
    assert (done.rewrites, done.replaced_files, done.left_alone["failed"]) == (1, 4, 2)
    committed(lake)
    assert (pending(lake), rejected(lake), len(live_files(lake))) == ([], [], 3)


def test_it_does_not_run_ahead_of_a_bookkeeper_that_commits_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compactors, "MOST_PENDING", 2)
    its = compactor(lake)
    seen = []
    for _ in range(4):
        appended(lake, 4)
        seen.append(go(lake, its))
    assert [done.rewrites for done in seen] == [1, 1, 0, 0]
    assert seen[-1].backlog_bytes > 0
    assert len(pending(lake)) == 2


def test_pending_rewrites_are_read_in_bounded_parts_and_no_more_than_count(monkeypatch: pytest.MonkeyPatch) -> None:
    store, asked = MemoryStore("memory://pending-rewrites", {}), list[int]()
    monkeypatch.setattr(together, "READ_AT_ONCE", 3)
    monkeypatch.setattr(plans, "MOST_PENDING", 7)
    read_many = store.read_many

    def counted(keys: Any, most: Any = None) -> Any:
        asked.append(len(keys))
        return read_many(keys, most)

    monkeypatch.setattr(store, "read_many", counted)
    for number in range(10):
        store.create(f"rewrites/{number:08x}-0000-0000-0000-000000000000.avro", b"x")
    known, found = plans.PendingFiles(), pending_rewrites(Folder(store))
    assert [len(known.read(store, found)) for _ in range(2)] == [7, 7]
    assert asked == [3, 3, 1]


def test_a_group_that_fails_costs_only_itself_and_is_tried_again_later(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "reaper")
    filled(lake, 4)
    filled(lake, 4, at=lake.clock.now - timedelta(days=5))
    first = CannotRewrite("a column of another type")
    worker = FakeWorker(lambda group: first if len(worker.groups) == 1 else None)
    its = compactor(lake, worker)
    done = go(lake, its)
    assert (done.failed, done.rewrites, len(worker.groups)) == (1, 1, 2)
    assert [(record.action, record.levelname) for record in caplog.records] == [("compact", "WARNING")]
    lake.clock.move(seconds=30)
    again = go(lake, its)
    assert (again.rewrites, again.left_alone["failed"], len(worker.groups)) == (0, 4, 2)
    lake.clock.move(seconds=90)
    assert go(lake, its).rewrites == 1


def test_a_file_that_cannot_be_read_keeps_the_others_from_nothing_for_long(lake: Lake) -> None:
    filled(lake, 6)
    bad = live_files(lake)[0].file_path

    def fails(group: Group) -> Exception | None:
        return CannotRewrite("it is torn", bad) if bad in [item.file.path for item in group.files] else None

    its = compactor(lake, FakeWorker(fails))
    assert go(lake, its).failed == 1
    lake.clock.move(minutes=2)
    done = go(lake, its)
    assert (done.rewrites, done.replaced_files, done.left_alone["failed"]) == (1, 5, 1)


def test_an_object_that_can_never_be_read_does_not_keep_its_group_from_being_rewritten(lake: Lake) -> None:
    filled(lake, 8, at=lake.clock.now)
    bad = live_files(lake)[3].file_path

    def fails(group: Group) -> Exception | None:
        return StorageUnavailable("403") if bad in [item.file.path for item in group.files] else None

    its = compactor(lake, FakeWorker(fails), quiet=timedelta(days=30))
    for _ in range(20):
        if go(lake, its).rewrites:
            break
        lake.clock.move(minutes=1)
    committed(lake)
    assert len(live_files(lake)) == 5  # the half without it is one file


def test_a_defect_of_the_worker_costs_only_its_group(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "reaper")
    filled(lake, 4)
    filled(lake, 4, at=lake.clock.now - timedelta(days=5))
    worker = FakeWorker(lambda group: ZeroDivisionError("ours") if len(worker.groups) == 1 else None)
    assert go(lake, compactor(lake, worker)).rewrites == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_storage_that_is_down_ends_the_round(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for days in range(5):
        filled(lake, 4, at=lake.clock.now - timedelta(days=days))
    worker = FakeWorker(lambda group: StorageUnavailable("down"))
    with pytest.raises(StorageUnavailable):
        go(lake, compactor(lake, worker))
    assert len(worker.groups) == 3


def test_a_rejected_rewrite_is_not_made_again_at_once(lake: Lake) -> None:
    filled(lake, 4)
    its = compactor(lake)
    assert go(lake, its).rewrites == 1
    (name,) = pending(lake)
    lake.folder.store.delete_many([f"rewrites/{name}"])  # as a bookkeeper that rejects it
    done = go(lake, its)
    assert (done.rewrites, done.left_alone["failed"]) == (0, 4)
    lake.clock.move(minutes=3)
    assert go(lake, its).rewrites == 1


def test_files_of_rewrites_that_are_rejected_again_and_again_do_not_stay_together(lake: Lake) -> None:
    filled(lake, 8, at=lake.clock.now)
    its, sizes = compactor(lake, quiet=timedelta(days=30)), set[int]()
    for _ in range(20):
        sizes.add(go(lake, its).replaced_files)
        lake.folder.store.delete_many([f"rewrites/{name}" for name in pending(lake)])  # as a bookkeeper that rejects
        lake.clock.move(minutes=1)
    assert sizes == {0, 4, 8}


def test_a_quiet_partition_is_rewritten_a_last_time(lake: Lake) -> None:
    filled(lake, 3)
    its = compactor(lake, worker := FakeWorker(), quiet=timedelta(hours=1))
    assert go(lake, its).rewrites == 0
    lake.clock.move(minutes=61)
    assert go(lake, its).rewrites == 1
    assert worker.groups[0].last
    committed(lake)
    assert go(lake, its).rewrites == 0


def test_a_partition_is_quiet_by_its_files_where_the_snapshots_are_gone(lake: Lake) -> None:
    filled(lake, 3)
    lake.clock.move(minutes=61)
    lake.book().tick(lake.clock.now)
    filled(lake, 1, at=lake.clock.now - timedelta(days=5))
    table = lake.table()
    old = [item.snapshot_id for item in table.metadata.snapshots][:-1]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    worker = FakeWorker()
    for hours, rewrites in ((0.5, 0), (2, 1)):
        for file in live_files(lake):
            written = (lake.clock.now - timedelta(hours=hours)).timestamp()
            os.utime(file.file_path.removeprefix("file://"), (written, written))
        assert go(lake, compactor(lake, worker, quiet=timedelta(hours=1))).rewrites == rewrites
    assert worker.groups[0].last and len(worker.groups[0].files) == 3


def test_an_adopted_table_is_rewritten_only_when_it_says_so(lake: Lake) -> None:
    filled(lake, 4)
    lake.catalog.commit_table(lake.table(), (), (SetPropertiesUpdate(updates={PROPERTY: "off"}),))
    its = compactor(lake)
    assert go(lake, its) == Compacted("off")
    lake.catalog.commit_table(lake.table(), (), (SetPropertiesUpdate(updates={PROPERTY: "own"}),))
    assert go(lake, its) == Compacted("off")  # it is not asked all the time
    lake.clock.move(minutes=1)
    assert go(lake, its).engine == "own"
    lake.catalog.commit_table(lake.table(), (), (SetPropertiesUpdate(updates={PROPERTY: "off"}),))
    assert go(lake, compactor(lake, engine="spark")) == Compacted("spark")
    filled(lake, 4)
    assert go(lake, compactor(lake, engine="own")).rewrites == 1


def test_a_property_that_is_wrong_is_said(lake: Lake) -> None:
    lake.catalog.commit_table(lake.table(), (), (SetPropertiesUpdate(updates={PROPERTY: "yes"}),))
    with pytest.raises(TableUnusable, match=r"bookkeeper\.compaction is 'yes'"):
        go(lake, compactor(lake))


def test_a_second_compactor_leaves_the_work_to_the_first(lake: Lake) -> None:
    filled(lake, 4)
    lease = lease_on(lake.folder.store, "reaper/compactor", "another")
    assert lease.hold(lake.clock.now)
    its = compactor(lake)
    assert go(lake, its).busy
    lease.release()
    assert go(lake, its).rewrites == 1
    assert not lease.hold(lake.clock.now)  # kept for the next round
    its.close()
    assert lease.hold(lake.clock.now)
    lease.release()


def test_giving_the_lease_back_to_a_storage_that_is_down_is_no_error(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(lake, 4)
    its = compactor(lake)
    go(lake, its)
    assert its._held is not None
    lease = its._held.lease

    def down() -> None:
        raise StorageUnavailable("down")

    monkeypatch.setattr(lease, "release", down)
    its.close()
    its.close()
    monkeypatch.undo()
    lease.release()


def test_a_stop_ends_the_round_between_two_groups(lake: Lake) -> None:
    for days in range(3):
        filled(lake, 4, at=lake.clock.now - timedelta(days=days))
    worker = FakeWorker()
    done = go(lake, compactor(lake, worker), stopped=lambda: len(worker.groups) == 2)
    assert (done.rewrites, len(pending(lake))) == (2, 2)
    assert done.backlog_bytes > 0


def test_a_round_that_takes_long_ends_and_plans_anew(lake: Lake) -> None:
    for days in range(3):
        filled(lake, 4, at=lake.clock.now - timedelta(days=days))

    def slow(group: Group) -> None:
        lake.clock.move(seconds=40)

    assert go(lake, compactor(lake, FakeWorker(slow))).rewrites == 1


def test_files_that_retention_drops_soon_are_left_alone(lake: Lake) -> None:
    old = lake.clock.now - timedelta(hours=23, minutes=30)
    filled(lake, 4, at=old)
    its = compactor(lake)
    its.settings = replace(its.settings, retention=Retention(keep=timedelta(days=1)))
    done = go(lake, its)
    assert (done.rewrites, done.left_alone["retention"]) == (0, 4)


def test_files_of_other_writers_are_rewritten_too(lake: Lake) -> None:
    lake.tick()
    appended(lake, 4)
    assert go(lake, compactor(lake)).rewrites == 1
    committed(lake)
    assert (len(live_files(lake)), rejected(lake)) == (1, [])
    assert lake.keys() == ["o0", "o1", "o2", "o3"]


def test_manifests_that_are_known_are_not_read_again_and_blocks_not_decoded(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    decoded: list[int] = []
    planned: list[int] = []
    saw: Callable[[plans.Plan], Compacted] = compactors._seen
    contents: Callable[..., Any] = ManifestReader.contents
    live: Callable[..., Any] = LiveFiles._live

    def reading(reader: ManifestReader, lines: Any) -> Any:
        for line, data in contents(reader, lines):
            read.append(line.manifest_path)
            yield line, data

    def decoding(self: LiveFiles, rows: Any, line: Any) -> Any:
        decoded.append(len(rows))
        return live(self, rows, line)

    def seeing(plan: plans.Plan) -> Compacted:
        planned.append(plan.live_files)
        return saw(plan)

    monkeypatch.setattr(compactors, "_seen", seeing)
    monkeypatch.setattr(ManifestReader, "contents", reading)
    monkeypatch.setattr(LiveFiles, "_live", decoding)
    filled(lake, 3)
    its = compactor(lake)
    for _ in range(2):
        go(lake, its)
    assert (len(read), sum(decoded)) == (3, 3)
    filled(lake, 1)
    go(lake, its)
    assert (len(read), sum(decoded), planned) == (4, 4, [3, 3, 4])


def test_blocks_that_are_passed_on_are_known_by_their_bytes(lake: Lake) -> None:
    filled(lake, 3)
    reader = LiveFiles()
    table = lake.table()
    context = ReaperContext.of(lake.settings, lake.catalog, lake.store, lake.clock.now)
    first, _ = reader.read(context.reader, table, None)
    reader._known._manifests.clear()
    again, _ = reader.read(context.reader, table, None)
    assert [old is new for old, new in zip(first, again, strict=True)] == [True, True, True]


def test_blocks_that_a_new_manifest_takes_over_are_not_decoded_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "BLOCK_BYTES", 1)  # every block is passed on as it is
    writes, decoded, real = Writes(lake), list[int](), LiveFiles._live
    for number in range(4):
        lake.folder.publish(*writes.encoded([writes.file([f"k{number}{part}"]) for part in "ab"]))
    lake.tick()
    reader = LiveFiles()

    def look() -> tuple[int, int]:
        decoded.clear()
        context = ReaperContext.of(lake.settings, lake.catalog, lake.store, lake.clock.now)
        blocks, _ = reader.read(context.reader, lake.table(), None)
        assert sorted(file for files in blocks for file in files) == sorted(fresh(context))
        return sum(map(len, blocks)), sum(decoded)

    def fresh(context: ReaperContext) -> list[LiveFile]:
        """As one reads them that remembers nothing: with the same sequence numbers."""
        with monkeypatch.context() as patch:
            patch.setattr(LiveFiles, "_live", real)
            return [file for files in LiveFiles().read(context.reader, lake.table(), None)[0] for file in files]

    def counted(self: LiveFiles, rows: Any, line: Any) -> Any:
        decoded.append(len(rows))
        return real(self, rows, line)

    monkeypatch.setattr(LiveFiles, "_live", counted)
    seen = [look()]
    for _ in range(3):
        commit(lake, compacted(lake, live(lake)[:1]))
        seen.append(look())
    assert [files for files, _ in seen] == [8, 8, 8, 8]
    # Written anew for the first time, entries get numbers of their own; from then on only what changed is decoded.
    assert [count for _, count in seen[2:]] == [2, 2]
