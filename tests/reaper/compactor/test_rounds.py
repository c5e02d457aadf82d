"""Rounds with the real worker beside a bookkeeper that commits and a reaper that expires: few files, the same rows."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Compaction, Reaper, Retention
from bookkeeper.contract.pending_rewrites import pending_rewrites, rejected_rewrites
from bookkeeper.errors import Retry, StorageUnavailable
from bookkeeper.stores.locations import local_path
from reaper.compactor.compactor import Compacted, Compactor
from reaper.compactor.worker import rewrite
from reaper.run import reap
from tests.support.compactions import scanned
from tests.support.compactor import live
from tests.support.deletes import Delete, commit_deletes, equality, positions
from tests.support.enumerated import crash_points, crashed, erred, error_points, recorded
from tests.support.faults import AFTER, Faults, FaultyCatalog
from tests.support.lake import Lake, Writes, append_by_others, live_files

FEW = Compaction(fan_in=4)


def compactor(lake: Lake, faults: Faults | None = None, **settings: Any) -> Compactor:
    """One that remembers nothing, as after a restart."""
    table = replace(lake.settings, compaction=replace(FEW, **settings))
    stores = lake.faulty(faults) if faults else lake.store
    made = Compactor(table, rewrite, lake.clock, open_store=stores)
    for earlier in ended:
        earlier.close()  # the kernel does that when a process ends
    ended[:] = [made]
    return made


ended: list[Compactor] = []


def go(lake: Lake, its: Compactor | None = None, faults: Faults | None = None) -> Compacted:
    catalog: Any = open_catalog(lake.catalog_settings)
    if faults is not None:
        catalog = FaultyCatalog(catalog, faults)
    return (its or compactor(lake, faults)).round(catalog, lake.clock.now)


def filled(lake: Lake) -> list[str]:
    """Four files in each of two partitions."""
    writes, book = Writes(lake), lake.book()
    for number in range(8):
        writes.publish(f"k{number}", f"l{number}", at=lake.clock.now - timedelta(days=number % 2))
    lake.tick(book)
    return writes.keys


def settled(lake: Lake) -> None:
    """What the bookkeeper and the compactor do from here on, until nothing is left to do."""
    book, its = lake.book(), compactor(lake)
    for _ in range(3):
        lake.tick(book, seconds=61)
        go(lake, its)
    lake.tick(book, seconds=61)
    assert pending_rewrites(lake.folder) == []


def test_a_queue_that_is_written_and_expired_meanwhile_stays_small(tmp_path: Path) -> None:
    lake = Lake(tmp_path, reaper=Reaper(older_than=timedelta(seconds=3), retain_last=1))
    writes, book, its = Writes(lake), lake.book(), compactor(lake, fan_in=16)
    most = rewrites = 0
    for second in range(90):
        for index in range(5):
            writes.publish(f"k{second:03d}{index}")
        lake.tick(book)
        if second % 5 == 4:
            rewrites += go(lake, its).rewrites
        if second % 10 == 9:
            reap(open_catalog(lake.catalog_settings), lake.settings, lake.clock.now, open_store=lake.store)
        most = max(most, len(live_files(lake))) if second > 70 else most
    settled(lake)
    assert rewrites >= 10
    assert (rejected_rewrites(lake.folder), lake.rejected()) == ([], {})
    assert lake.keys() == sorted(writes.keys)
    assert most <= 80
    assert len(live_files(lake)) <= 31


def test_a_round_that_is_killed_at_any_point_loses_nothing_and_the_next_one_goes_on(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    keys = filled(lake)
    before, saved = scanned(lake), lake.saved()

    def act(faults: Faults) -> None:
        go(lake, faults=faults)

    points = list(crash_points(recorded(act)))
    assert sum("rewrites/" in point.operation for point in points) == 6  # two creates
    for point in points:
        saved.restore()
        assert crashed(act, point)
        settled(lake)
        assert scanned(lake) == before, str(point)
        assert (len(live_files(lake)), len(keys)) == (2, 16), str(point)
        assert rejected_rewrites(lake.folder) == [], str(point)


def test_an_error_at_any_point_costs_a_round_at_most(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    filled(lake)
    before, saved = scanned(lake), lake.saved()

    def act(faults: Faults) -> None:
        try:
            go(lake, faults=faults)
        except Retry:
            return

    for point in error_points(recorded(act)):
        saved.restore()
        faults = erred(act, point, StorageUnavailable)
        faults.arrive()
        settled(lake)
        assert scanned(lake) == before, str(point)
        assert len(live_files(lake)) == 2, str(point)


@pytest.mark.parametrize("when", ["after the plan", "after the publish"])
def test_files_that_go_meanwhile_cost_a_rewrite_and_no_row(tmp_path: Path, when: str) -> None:
    """Retention, or another program, takes a file that a rewrite is about to replace, or replaces."""
    lake = Lake(tmp_path)
    keys = filled(lake)

    def take() -> None:
        path = live_files(lake)[0].file_path
        gone = set(lake.table().scan().to_arrow()["key"].to_pylist())
        with lake.table().transaction() as transaction, transaction.update_snapshot().overwrite() as change:
            change.delete_data_file(next(file for file in live_files(lake) if file.file_path == path))
        keys[:] = sorted(gone & set(lake.keys()))

    faults = Faults()
    if when == "after the plan":
        faults.between("upload", take)
    go(lake, faults=faults)
    if when == "after the publish":
        take()
    lake.tick(seconds=61)
    assert len(rejected_rewrites(lake.folder)) == 1
    settled(lake)
    assert lake.keys() == keys
    assert len(keys) == 14


Deleting = Callable[[Lake, list[Any]], Delete]
DELETES: dict[str, Deleting] = {
    "positions of one file": lambda lake, old: positions(
        lake, {old[0].file_path: [0]}, _partition(old), referenced=old[0].file_path
    ),
    "positions of a partition": lambda lake, old: positions(lake, {old[0].file_path: [0]}, _partition(old)),
    "values of a partition": lambda lake, old: equality(lake, ["k0"], _partition(old)),
}


def _partition(old: list[Any]) -> tuple[Any, ...]:
    return tuple(old[0].partition[index] for index in range(len(old[0].partition)))


@pytest.mark.parametrize("partition_by", [(), ("day(timestamp)",)])
@pytest.mark.parametrize("kind", DELETES)
def test_files_with_live_deletes_are_left_alone_and_newer_ones_are_not(
    tmp_path: Path, kind: str, partition_by: tuple[str, ...]
) -> None:
    lake = Lake(tmp_path, partition_by=partition_by)
    book, writes = lake.book(), Writes(lake)

    def write(first: int) -> None:
        for number in range(first, first + 4):
            writes.publish(f"k{number}", f"l{number}")
            lake.tick(book)

    write(0)
    old = live_files(lake)
    commit_deletes(lake, DELETES[kind](lake, old))
    write(4)
    before = lake.keys() if kind.startswith("positions") else None  # pyiceberg reads no equality deletes
    alone = 1 if kind == "positions of one file" else 4
    done = go(lake)
    assert (done.left_alone["deletes"], done.rewrites, done.replaced_files) == (alone, 1, 8 - alone)
    lake.tick(seconds=61)
    assert rejected_rewrites(lake.folder) == []
    assert len([file for file in live_files(lake) if "deletes-" not in file.file_path]) == alone + 1
    assert before is None or lake.keys() == before


def test_two_compactors_at_once_rewrite_each_file_once(tmp_path: Path) -> None:
    """Both plan before either publishes, as when the lease is lost."""
    lake = Lake(tmp_path)
    keys = filled(lake)
    one, other = compactor(lake), compactor(lake)
    catalog = open_catalog(lake.catalog_settings)
    context, look = other._look(catalog, lake.clock.now)
    plan = other.planner.plan(context, look, lake.clock.now)
    assert go(lake, one).rewrites == 2
    for candidate in plan.candidates:
        rewrite(
            context,
            plan.table,
            plan.base,
            candidate.group(),
            now=lake.clock.now,
            bytes_per_second=None,
            stopped=lambda: False,
        )
    settled(lake)
    assert (len(rejected_rewrites(lake.folder)), len(live_files(lake)), lake.keys()) == (2, 2, sorted(keys))


def test_a_publish_whose_reply_was_lost_is_committed_and_its_files_stay(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    keys = filled(lake)
    faults = Faults().on("create folder/rewrites", AFTER, StorageUnavailable, times=1)
    done = go(lake, faults=faults)
    assert (done.rewrites, done.failed, len(pending_rewrites(lake.folder))) == (1, 1, 2)
    settled(lake)
    assert (len(live_files(lake)), rejected_rewrites(lake.folder), lake.keys()) == (2, [], sorted(keys))


def test_files_of_another_program_between_ours_are_rewritten_too(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    writes = Writes(lake)
    writes.publish("a")
    lake.tick()
    for number in range(4):
        append_by_others(lake, writes.file([f"o{number}"]))
    settled(lake)
    assert (len(live_files(lake)), lake.keys()) == (1, ["a", "o0", "o1", "o2", "o3"])


def expired(lake: Lake) -> None:
    """Later commits, and the expiry of all snapshots before them."""
    writes, book = Writes(lake), lake.book()
    for number in range(6):
        writes.publish(f"later{number}")
        lake.tick(book, seconds=200)
        reap(open_catalog(lake.catalog_settings), lake.settings, lake.clock.now, open_store=lake.store)


@pytest.mark.parametrize("when", ["before the rewrite, in another lot", "after it was planned"])
def test_a_file_that_is_added_twice_keeps_what_its_other_entry_needs(tmp_path: Path, when: str) -> None:
    lake = Lake(
        tmp_path,
        orphan_age=timedelta(days=30),
        reaper=Reaper(older_than=timedelta(minutes=1), retain_last=1),
        retention=Retention(max_age=timedelta(days=16)),
    )
    writes, book = Writes(lake), lake.book()
    for number in range(5):
        writes.publish(f"k{number}", at=lake.clock.now)
        lake.tick(book)
    first = live(lake)[0].file
    if when == "after it was planned":
        assert go(lake).rewrites == 1
    lake.clock.move(days=1)
    append_by_others(lake, first)
    if when != "after it was planned":
        done = go(lake)
        assert (done.rewrites, done.replaced_files, done.left_alone["failed"]) == (1, 4, 2)
    lake.tick(book, seconds=61)
    assert pending_rewrites(lake.folder) == []
    expired(lake)
    assert Path(local_path(first.path)).exists()
    assert [row["key"] for row in scanned(lake)].count("k0") == 2


def test_with_retention_rows_go_at_most_a_sixteenth_later(tmp_path: Path) -> None:
    hour, keep = timedelta(hours=1), timedelta(hours=16)
    lake = Lake(tmp_path, partition_by=(), retention=Retention(keep=keep, brake=1.0))
    writes, begin = Writes(lake), lake.clock.now
    times = {f"k{number:02d}": begin - number * hour / 4 for number in range(48)}
    for key, at in times.items():
        writes.publish(key, at=at)
    lake.tick()
    settled(lake)
    assert len(live_files(lake)) <= 17  # of 48; the newest hours are in more than one
    book, seen = lake.book(), set[int]()
    for _ in range(17):
        lake.tick(book, hours=1)
        there, now = set(lake.keys()), lake.clock.now
        assert {key for key, at in times.items() if at > now - keep} <= there
        assert there <= {key for key, at in times.items() if at > now - keep - hour}
        seen.add(len(there))
    assert len(seen) > 8
