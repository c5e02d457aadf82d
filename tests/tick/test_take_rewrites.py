"""Rewrites as the bookkeeper takes them from the folder: after the rows, all or nothing, and never twice."""

import logging
import uuid
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bookkeeper.cli import pending, repair
from bookkeeper.config.settings import Retention
from bookkeeper.contract.pending_rewrites import (
    TRAY,
    pending_rewrites,
    publish,
    rejected_rewrites,
    withdraw,
)
from bookkeeper.contract.rewrite import encode, key_of
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import ManifestCorrupt, NotPossible, RewriteUnfit, StorageUnavailable
from bookkeeper.format import avro
from bookkeeper.format.avro import Block
from bookkeeper.stores.local import LocalStore
from bookkeeper.tick import check_rewrites
from bookkeeper.tick import take_rewrites as duty
from reaper.files import txlogs
from tests.chaos.crashes import crash_at, on_stage
from tests.chaos.scenes.deciding import _opening
from tests.chaos.scenes.rewriting import Rewriting
from tests.support.compactor import base_of, encoded, live, published
from tests.support.enumerated import crash_points, recorded
from tests.support.faults import BEFORE, Faults
from tests.support.lake import Lake, Writes
from tests.support.round_trips import FarStore, Trips


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", partition_by=())


def filled(lake: Lake, count: int = 4) -> Writes:
    writer, book = Writes(lake), lake.book()
    for number in range(count):
        writer.publish(f"k{number}")
        lake.tick(book)
    return writer


def run(lake: Lake, book: Any = None, ticks: int = 3) -> Any:
    book = book or lake.book()
    for _ in range(ticks):
        lake.tick(book, seconds=6)
    return book


def rejected(lake: Lake) -> dict[str, str]:
    return {item.name: lake.folder.reason(item.name)["error"] for item in rejected_rewrites(lake.folder)}


def test_a_published_rewrite_is_committed_and_leaves_the_folder(lake: Lake) -> None:
    writer = filled(lake)
    published(lake, live(lake))
    run(lake)
    assert (len(live(lake)), lake.keys(), pending_rewrites(lake.folder)) == (1, sorted(writer.keys), [])
    assert rejected(lake) == {}
    assert lake.folder.marks() == lake.view().marks_copy


def test_a_new_file_whose_prefix_takes_more_bytes_than_it_needs_breaks_no_manifest(lake: Lake) -> None:
    """A status in two bytes decodes as one in one byte does."""
    writer = filled(lake)
    name, data = encoded(lake, live(lake))
    found = avro.decode(data, 2**24)
    (block,) = found.blocks
    assert block.payload[0] == 2
    publish(lake.folder, name, avro.encode(found.meta, [Block(block.count, b"\x82\x00" + block.payload[1:])]))
    run(lake)
    assert (len(live(lake)), lake.keys(), rejected(lake)) == (1, sorted(writer.keys), {})


def test_rows_are_committed_before_rewrites_and_none_waits(lake: Lake) -> None:
    writer = filled(lake)
    book = run(lake, ticks=1)
    before = len(lake.operations())
    published(lake, live(lake))
    writer.publish("new")
    lake.tick(book, seconds=11)
    assert lake.operations()[before:] == ["append", "replace"]
    assert lake.keys() == sorted(writer.keys)


def test_retention_counts_what_it_dropped_and_not_what_was_rewritten(lake: Lake) -> None:
    filled(lake)
    published(lake, live(lake))
    book = lake.book()
    results = [lake.tick(book, seconds=6) for _ in range(3)]
    assert [result.dropped_files for result in results] == [0, 0, 0]
    assert lake.operations()[-1] == "replace"


def test_a_manifest_that_retention_cannot_read_leaves_the_view_with_the_rewrite(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(lake)
    book = run(lake, ticks=1)
    published(lake, live(lake))

    def unreadable(view: Any, now: datetime) -> Any:
        raise ManifestCorrupt("no manifest")

    monkeypatch.setattr(book.duties.retention, "run", unreadable)
    lake.tick(book, seconds=11)
    assert lake.operations()[-1] == "replace" and "no manifest" in book.duties.retention.held_back
    assert book.loaded.view.head.snapshot_id == lake.view().head.snapshot_id
    assert lake.folder.marks() == lake.view().marks_copy


def test_a_rewrite_that_is_given_back_is_recognised(lake: Lake) -> None:
    writer = filled(lake)
    rewrite_id, data = encoded(lake, live(lake))
    for _ in range(3):
        publish(lake.folder, rewrite_id, data)
        run(lake)
    assert (lake.operations()[4:], lake.keys()) == (["replace"], sorted(writer.keys))
    assert (rejected(lake), pending_rewrites(lake.folder)) == ({}, [])


def test_two_compactors_on_one_partition_take_turns(lake: Lake) -> None:
    writer = filled(lake)
    old = live(lake)
    ids = [published(lake, old[:3]), published(lake, old[1:])]
    run(lake)
    assert (len(live(lake)), lake.keys()) == (2, sorted(writer.keys))
    (name,) = rejected(lake)
    assert name in {f"{rewrite_id}.avro" for rewrite_id in ids}
    assert rejected(lake)[name] == "RewriteOverlaps"


def test_what_is_rejected_says_why_and_its_new_files_stay(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    filled(lake)
    rewrite_id = published(lake, live(lake), record_count=99)
    with caplog.at_level(logging.WARNING):
        run(lake)
    assert rejected(lake) == {f"{rewrite_id}.avro": "RewriteUnfit"}
    assert list(Path(lake.root).rglob(f"{rewrite_id}-00001.parquet"))
    assert ("rewrite", "WARNING") in {(record.action, record.levelname) for record in caplog.records}


def test_the_command_rejected_lists_rewrites_with_their_reasons(
    lake: Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(lake)
    rewrite_id = published(lake, live(lake), record_count=99)
    run(lake)
    monkeypatch.setattr(pending, "opened", lambda *_: SimpleNamespace(folder=lake.folder))
    capsys.readouterr()
    pending.rejected.callback(config=None, table=None, as_json=True)  # type: ignore[misc]
    printed = capsys.readouterr().out
    assert f"{rewrite_id}.avro" in printed and "RewriteUnfit" in printed and "99 rows" in printed


@pytest.mark.parametrize("name", ["garbage.avro", key_of("01a1fdf4-2b80-7001-8203-0405060708aa")[9:]])
def test_garbage_is_rejected_and_others_go_on(lake: Lake, name: str) -> None:
    writer = filled(lake)
    lake.put(f"rewrites/{name}", b"garbage")
    lake.put("rewrites/unfinished.avro.123.tmp", b"half")
    published(lake, live(lake))
    run(lake)
    assert (len(live(lake)), lake.keys()) == (1, sorted(writer.keys))
    assert pending_rewrites(lake.folder) == []
    assert lake.folder.reason(name)["error"] == "RewriteCorrupt"


def test_a_newer_version_is_held_and_others_go_on(lake: Lake) -> None:
    filled(lake)
    old = live(lake)
    rewrite_id, data = encoded(lake, old[:2])
    lake.put(key_of(rewrite_id), data.replace(b"bookkeeper.version\x021", b"bookkeeper.version\x022"))
    published(lake, old[2:])
    run(lake, ticks=6)
    assert [item.name for item in pending_rewrites(lake.folder)] == [f"{rewrite_id}.avro"]
    assert (len(live(lake)), rejected(lake)) == (3, {})


def test_a_rewrite_that_knows_more_than_our_view_is_not_rejected_for_it(lake: Lake) -> None:
    writer = filled(lake)
    book = run(lake, ticks=1)  # its view is kept for ten seconds
    other = lake.book()
    writer.publish("others")
    other.tick(lake.clock.now)
    lake.clock.move(seconds=6)
    published(lake, live(lake))
    run(lake, book)
    assert (rejected(lake), len(live(lake)), lake.keys()) == ({}, 1, sorted(writer.keys))


@pytest.mark.parametrize("change", ["missing", "size", "magic", "old"])
def test_new_files_must_be_there_as_described_and_not_old(lake: Lake, change: str) -> None:
    filled(lake)
    rewrite_id = published(lake, live(lake))
    (path,) = Path(lake.root).rglob(f"{rewrite_id}-00001.parquet")
    if change == "missing":
        path.unlink()
    elif change == "size":
        path.write_bytes(path.read_bytes() + b"x")
    elif change == "magic":
        path.write_bytes(b"XXXX" + path.read_bytes()[4:])
    else:
        lake.clock.move(days=2)  # half of the orphan age is a day and a half
    run(lake)
    assert rejected(lake) == {f"{rewrite_id}.avro": "RewriteUnfit"}
    assert len(live(lake)) == 4


def test_a_new_file_that_goes_while_it_is_looked_up_is_missing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(lake)
    rewrite_id = published(lake, live(lake))
    rightly = LocalStore.modified

    def gone(store: LocalStore, key: str) -> datetime:
        Path(store.root, key).unlink()
        return rightly(store, key)

    monkeypatch.setattr(LocalStore, "modified", gone)
    run(lake)
    assert rejected(lake) == {f"{rewrite_id}.avro": "RewriteUnfit"}
    assert len(live(lake)) == 4


def test_nothing_is_rewritten_by_a_clock_that_differs_from_the_storages(lake: Lake) -> None:
    filled(lake)
    published(lake, live(lake))
    lake.disk_clock = type(lake.clock)(lake.clock.now + timedelta(minutes=10))
    run(lake)
    assert len(live(lake)) == 4
    lake.disk_clock = lake.clock
    run(lake, ticks=20)
    assert len(live(lake)) == 1


def test_a_defect_of_ours_holds_the_rewrite_that_has_it_and_no_other(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = filled(lake, 6)
    old = live(lake)
    ids = [published(lake, old[number : number + 2]) for number in (0, 2, 4)]
    rightly = check_rewrites._Head.check

    def fails(head: Any, rewrite: Any) -> None:
        rightly(head, rewrite)
        assert rewrite.id != ids[1], "a defect"

    monkeypatch.setattr(check_rewrites._Head, "check", fails)
    book = run(lake, ticks=8)
    writer.publish("new")
    run(lake, book)
    assert [item.name for item in pending_rewrites(lake.folder)] == [f"{ids[1]}.avro"]
    assert (len(live(lake)), lake.keys()) == (5, sorted(writer.keys))


@pytest.mark.parametrize("denied", ["rewrites/{}.avro", "{}-00001.parquet", "rejected/{}"])
def test_one_that_the_storage_denies_for_ever_keeps_no_other_from_its_turn(
    lake: Lake, faults: Faults, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, denied: str
) -> None:
    writer = filled(lake, 10)
    old = live(lake)
    wrong = {"record_count": 99} if denied.startswith("rejected") else {}
    ids = [published(lake, old[:4], **wrong)]
    for number in (4, 6, 8):
        lake.clock.move(seconds=1)
        ids.append(published(lake, old[number : number + 2]))
    rightly = check_rewrites._Head.check

    def fails(head: Any, rewrite: Any) -> None:
        rightly(head, rewrite)
        assert rewrite.id != ids[2], "a defect"

    monkeypatch.setattr(check_rewrites._Head, "check", fails)
    monkeypatch.setattr(duty, "MOST_FILES", 5)
    faults.on(denied.format(ids[0]), BEFORE, StorageUnavailable)
    book = lake.book(faults)
    run(lake, book, ticks=20)
    assert [item.name for item in pending_rewrites(lake.folder)] == [f"{ids[0]}.avro", f"{ids[2]}.avro"]
    assert book.duties.rewrites.turns.held == {f"{ids[2]}.avro"}
    assert "rewrite postponed" in caplog.messages
    faults.clear()
    run(lake, book, ticks=9)
    assert [item.name for item in pending_rewrites(lake.folder)] == [f"{ids[2]}.avro"]
    assert (rejected(lake) != {}, lake.keys()) == (bool(wrong), sorted(writer.keys))


def test_a_storage_that_denies_all_rewrites_is_asked_for_a_few(lake: Lake, faults: Faults) -> None:
    filled(lake, 5)
    ids = [published(lake, [item]) for item in live(lake)]
    faults.on("read folder/rewrites/", BEFORE, StorageUnavailable)
    book = lake.book(faults)
    for reads in (3, 6):
        lake.tick(book, seconds=6)
        assert sum(operation.startswith("read folder/rewrites/") for operation in faults.seen) == reads
    assert {item for item in ids if not any(item in operation for operation in faults.seen)} == set()
    faults.clear()
    run(lake, book)
    assert pending_rewrites(lake.folder) == []


def test_new_files_count_towards_what_a_tick_takes(lake: Lake, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is looked up twice."""
    filled(lake, 3)
    card, ids = lake.folder.card(), list[str]()
    for item in live(lake):
        ids.append(str(uuid.uuid4()))
        new = [replace(item.file, path=f"{card.data_path}/{ids[-1]}-{number:05d}.parquet") for number in range(9)]
        publish(lake.folder, ids[-1], encode(ids[-1], base_of(lake), card.schema, card.spec, new, [item]))
    monkeypatch.setattr(duty, "MOST_FILES", 20)
    book = lake.book(faults)
    for done in (2, 3):
        lake.tick(book, seconds=6)
        assert len(rejected(lake)) == done


def others_commit(lake: Lake) -> None:
    """An empty snapshot by another program, as an expiry is."""
    book = lake.book()
    view = book.ledger.load(lake.folder.card().folder)
    lake.folder.publish_marks(book.ledger.record(view, view.marks, "test").marks_copy, even_older=True)


@pytest.mark.parametrize("spot", ["read folder/rewrites/", "-00001.parquet"])
def test_a_commit_of_others_while_rewrites_are_read_and_looked_up_keeps_none_from_the_table(
    lake: Lake, faults: Faults, spot: str
) -> None:
    filled(lake)
    published(lake, live(lake))
    book = lake.book(faults)
    faults.between(spot, lambda: others_commit(lake))
    lake.tick(book)
    assert (faults.hooks, len(live(lake)), pending_rewrites(lake.folder)) == ([], 1, [])


def test_after_a_conflict_fewer_rewrites_are_taken_at_once_by_the_next_tick(lake: Lake, faults: Faults) -> None:
    filled(lake)
    for item in live(lake):
        published(lake, [item])
    book = lake.book(faults)
    book.duties.rewrites.turns.at_once = 2
    faults.between("commit_table", lambda: others_commit(lake))
    pending = []
    for _ in range(4):
        lake.tick(book)
        pending.append(len(pending_rewrites(lake.folder)))
    assert pending == [4, 3, 1, 0]


def test_rewrites_are_read_and_looked_up_together(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind 30 ms a hundred of them, one after the other, kept rows waiting for 9 s."""
    filled(lake, 12)
    for item in live(lake):
        published(lake, [item])
    trips = Trips()
    monkeypatch.setattr(check_rewrites, "together", trips.together)
    book = lake.book()
    far: Any = [FarStore(lake.store(url), trips, "") for url in (lake.made.folder, lake.view().data_root)]
    book.duties.rewrites.folder, book.duties.rewrites.open_store = Folder(far[0]), lambda _: far[1]
    lake.tick(book)
    assert pending_rewrites(lake.folder) == []
    asked = {what.partition(" ")[0]: len(trips.of(what)) for what in ("read_many ", "heads ", "modified ")}
    assert asked == {"read_many": 12, "heads": 12, "modified": 12}
    assert trips.now == 9  # two listings; 8 and 4 reads, heads and times; the delete


def test_once_commits_what_it_finds(lake: Lake) -> None:
    filled(lake)
    published(lake, live(lake))
    lake.tick()  # by a bookkeeper that remembers nothing, as `once` and functions have it
    assert len(live(lake)) == 1


def test_a_folder_that_cannot_be_listed_keeps_nothing_else_from_its_turn(tmp_path: Path, faults: Faults) -> None:
    lake = Lake(tmp_path, partition_by=(), retention=Retention(keep=timedelta(hours=1), every=timedelta(0), brake=1.0))
    writer = filled(lake)
    published(lake, live(lake))
    faults.on("list folder/rewrites", BEFORE, StorageUnavailable)
    book = lake.book(faults)
    lake.tick(book, hours=2)
    writer.publish("new")
    lake.tick(book, seconds=10)
    assert lake.keys() == ["new"]


def test_the_folder_is_listed_seldom_while_nothing_is_there(lake: Lake, faults: Faults) -> None:
    filled(lake)
    book = lake.book(faults)
    for _ in range(120):
        lake.tick(book, seconds=1)
    listed = sum(operation.startswith("list folder/rewrites") for operation in faults.seen)
    assert 3 <= listed <= 6
    published(lake, live(lake))
    for _ in range(65):
        lake.tick(book, seconds=1)
    assert len(live(lake)) == 1


def test_while_rows_come_rewrites_are_looked_for_every_few_seconds(lake: Lake, faults: Faults) -> None:
    writer = filled(lake)
    book = lake.book(faults)
    for _ in range(120):
        lake.tick(book, seconds=1)
    faults.seen.clear()
    for number in range(20):
        writer.publish(f"n{number}")
        lake.tick(book, seconds=1)
    assert 3 <= sum(operation.startswith("list folder/rewrites") for operation in faults.seen) <= 5


def test_the_manifest_list_is_read_once_and_not_at_all_after_a_commit_of_our_own(lake: Lake, faults: Faults) -> None:
    def lists_read() -> int:
        return sum(operation.startswith("read metadata/snap-") for operation in faults.seen)

    writer = filled(lake)
    published(lake, live(lake)[:2])
    book = lake.book(faults)
    lake.tick(book)
    assert (lists_read(), len(live(lake))) == (1, 3)
    published(lake, live(lake)[:2])
    writer.publish("new")
    lake.tick(book, seconds=6)
    assert (lists_read(), len(live(lake))) == (1, 3)


def test_rejected_rewrites_are_swept_by_age(lake: Lake) -> None:
    filled(lake)
    published(lake, live(lake), record_count=99)
    book = run(lake)
    assert len(rejected(lake)) == 1
    lake.tick(book, days=2)
    assert len(rejected(lake)) == 1
    lake.tick(book, days=2)
    assert not list(Path(lake.root).rglob("rejected/*"))


# others that delete or decide


def test_new_files_of_pending_rewrites_are_named_for_the_reaper(lake: Lake) -> None:
    filled(lake)
    rewrite_id = published(lake, live(lake))
    named = txlogs.named(lake.folder.store)
    assert [path for path in named if f"{rewrite_id}-00001.parquet" in path]
    TRAY.settle(lake.folder, [f"{rewrite_id}.avro"])
    assert not [path for path in txlogs.named(lake.folder.store) if rewrite_id in path]


def rolled_back(lake: Lake) -> None:
    first = lake.table().metadata.snapshots[1].snapshot_id
    lake.table().manage_snapshots().rollback_to_snapshot(first).commit()


def accept(lake: Lake) -> None:
    with _opening(lake, Faults()):
        repair.accept_rollback.callback(yes=True, config=None, table=None, as_json=True)  # type: ignore[misc]


def test_accept_rollback_rejects_pending_rewrites_first(lake: Lake) -> None:
    filled(lake)
    # Both files are in the table after the rollback, too, and the snapshot that was read counts as expired.
    rewrite_id = published(lake, live(lake)[:2], replace(base_of(lake), snapshot_id=1))
    rolled_back(lake)
    accept(lake)
    run(lake)
    assert (rejected(lake), len(live(lake))) == ({f"{rewrite_id}.avro": "RewriteUnfit"}, 2)


def test_accept_rollback_is_refused_when_a_file_was_deleted_after_compaction(lake: Lake) -> None:
    filled(lake)
    old = live(lake)
    published(lake, old)
    run(lake)
    Path(old[0].file.path.removeprefix("file://")).unlink()
    rolled_back(lake)
    with pytest.raises(NotPossible, match=r"1 files of the table do not exist any more.*") as refused:
        accept(lake)
    assert ".metadata.json" in refused.value.hint


def test_withdrawn_rewrites_lie_in_rejected(lake: Lake) -> None:
    filled(lake)
    published(lake, live(lake)[:2])
    published(lake, live(lake)[2:])
    assert withdraw(lake.folder, RewriteUnfit("why"), lake.clock.now) == 2
    assert (set(rejected(lake).values()), pending_rewrites(lake.folder)) == ({"RewriteUnfit"}, [])


# crashes


def test_a_crash_at_any_operation_neither_loses_nor_doubles_a_row() -> None:
    with on_stage(Rewriting) as scene:
        points = list(crash_points(recorded(scene.act)))
        assert len(points) > 60
        wrong = [item for point in points for item in crash_at(scene, point).wrong]
    assert wrong == []
