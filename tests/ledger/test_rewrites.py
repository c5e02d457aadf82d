"""Rewrites in the ledger: many files become one, in one commit that streams pass over and others read right."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import (
    BookkeeperError,
    DeletesNotApplied,
    ReplacedFilesChanged,
    RewriteOverlaps,
    RewriteUnfit,
)
from bookkeeper.format import records
from bookkeeper.format.skim import Skimmer
from bookkeeper.history.main_history import ancestors
from bookkeeper.ledger import merge
from bookkeeper.ledger.summary import rewrites_of
from bookkeeper.retention.scan import find
from bookkeeper.tick.check_rewrites import check_rewrites
from tests.support.compactor import base_of, check, commit, compacted, live
from tests.support.lake import Lake, Writes, append_by_others, live_files


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, check_files=False, partition_by=())


def filled(lake: Lake, count: int = 5) -> Writes:
    book, writer = lake.book(), Writes(lake)
    for number in range(count):
        writer.publish(f"k{number:04d}", f"k{number:04d}-b")
        lake.tick(book)
    return writer


def head(lake: Lake) -> Any:
    return lake.table().current_snapshot()


def entries(lake: Lake, discard: bool = True) -> list[Any]:
    table = lake.table()
    found = [m.fetch_manifest_entry(table.io, discard) for m in table.current_snapshot().manifests(table.io)]
    return [entry for listed in found for entry in listed]


def new_manifest(lake: Lake) -> Any:
    """The manifest of new files that the head's own commit wrote."""
    now = head(lake)
    listed = now.manifests(lake.table().io)
    (found,) = [item for item in listed if item.added_files_count and item.added_snapshot_id == now.snapshot_id]
    return found


def test_files_become_one_and_readers_see_the_same_rows(lake: Lake) -> None:
    writer = filled(lake)
    checked = commit(lake, compacted(lake, live(lake)))
    assert (len(checked.good), checked.rejected) == (1, {})
    assert lake.keys() == sorted(writer.keys)
    assert len(live_files(lake)) == 1


def test_the_summary_says_in_icebergs_words_what_became_of_what(lake: Lake) -> None:
    filled(lake)
    old = live(lake)
    rewrite = compacted(lake, old)
    before = head(lake)
    commit(lake, rewrite)
    said = dict(head(lake).summary.additional_properties)
    sizes = [sum(file.size_bytes for file in files) for files in (rewrite.added, [item.file for item in old])]
    assert head(lake).summary.operation.value == "replace"
    assert said.pop("bookkeeper.rewrites") == rewrite.id
    assert said.pop("bookkeeper.reason") == "rewrite"
    assert {key: int(value) for key, value in said.items()} == {
        "added-data-files": 1,
        "added-records": 10,
        "added-files-size": sizes[0],
        "deleted-data-files": 5,
        "deleted-records": 10,
        "removed-files-size": sizes[1],
        "changed-partition-count": 1,
        "total-data-files": 1,
        "total-records": 10,
        "total-files-size": int(before.summary["total-files-size"]) + sizes[0] - sizes[1],
        "total-delete-files": 0,
        "total-position-deletes": 0,
        "total-equality-deletes": 0,
    }


def test_new_files_get_the_largest_number_they_replace_and_the_manifest_says_it(lake: Lake) -> None:
    filled(lake)
    old = live(lake)
    commit(lake, compacted(lake, old[1:4]))
    (entry,) = [entry for entry in entries(lake) if entry.snapshot_id == head(lake).snapshot_id]
    assert entry.sequence_number == old[3].sequence_number
    assert entry.file_sequence_number == head(lake).sequence_number
    assert new_manifest(lake).min_sequence_number == old[3].sequence_number


def test_replaced_files_leave_deleted_entries_for_the_job_that_expires_snapshots(lake: Lake) -> None:
    filled(lake)
    old = live(lake)
    commit(lake, compacted(lake, old[:3]))
    gone = [entry for entry in entries(lake, discard=False) if entry.status.value == 2]
    assert sorted(entry.data_file.file_path for entry in gone) == sorted(item.file.path for item in old[:3])
    assert {entry.snapshot_id for entry in gone} == {head(lake).snapshot_id}
    assert sorted(entry.sequence_number for entry in gone) == [item.sequence_number for item in old[:3]]


def test_marks_are_carried_and_txlogs_go_on(lake: Lake) -> None:
    writer = filled(lake)
    marks = lake.view().marks
    commit(lake, compacted(lake, live(lake)))
    assert lake.view().marks.writers == marks.writers
    assert lake.view().marks.snapshot == head(lake).snapshot_id
    writer.publish("more")
    lake.drain()
    assert lake.keys() == sorted(writer.keys)


def test_several_rewrites_are_one_commit_and_each_keeps_its_number(lake: Lake) -> None:
    filled(lake, 6)
    old, before = live(lake), len(lake.operations())
    rewrites = [compacted(lake, old[:2]), compacted(lake, old[2:5])]
    assert len(commit(lake, *rewrites).good) == 2
    assert lake.operations()[before:] == ["replace"]
    numbers = sorted(entry.sequence_number for entry in entries(lake))
    assert numbers == [old[1].sequence_number, old[4].sequence_number, old[5].sequence_number]
    assert new_manifest(lake).min_sequence_number == old[1].sequence_number


def test_of_two_that_replace_one_file_the_first_is_taken(lake: Lake) -> None:
    writer = filled(lake)
    old = live(lake)
    first, second, third = compacted(lake, old[:2]), compacted(lake, old[1:3]), compacted(lake, old[2:])
    checked = commit(lake, first, second, third)
    assert [rewrite.id for rewrite in checked.good] == [first.id, third.id]
    assert {key: type(why) for key, why in checked.rejected.items()} == {second.id: RewriteOverlaps}
    assert lake.keys() == sorted(writer.keys)


def test_a_rewrite_of_merged_manifests_reads_and_leaves_the_others(lake: Lake) -> None:
    writer = filled(lake, 2 * merge.FAN + 3)
    book = lake.book()
    for step in (3, 10, 20, 22):
        commit(lake, compacted(lake, live(lake)[step : step + 4]), book=book)
        assert lake.keys() == sorted(writer.keys)
    assert len(live_files(lake)) == 2 * merge.FAN + 3 - 4 * 3


def test_a_rewrite_of_rewritten_files_and_retention_of_them_go_on(lake: Lake) -> None:
    writer = filled(lake, 8)
    for _ in range(3):
        commit(lake, compacted(lake, live(lake)[:3]))
    assert lake.keys() == sorted(writer.keys)
    oldest = live(lake)[0]
    book, view = lake.book(), lake.view()
    dropped = find(book.ledger, view, None, lambda _: True, lambda row, _: row.path == oldest.file.path)
    book.ledger.drop(view, dropped)
    assert lake.keys() == sorted(writer.keys)[14:]


def test_only_blocks_that_can_hold_a_replaced_number_are_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "BLOCK_BYTES", 1000)  # of about four records
    filled(lake, 4 * merge.FAN)
    book = lake.book()
    for old in (live(lake)[:2], live(lake)[-6:-4]):
        commit(lake, compacted(lake, old), book=book)  # from here on the blocks are known
    counted, rows = [0], Skimmer.rows

    def counting(self: Skimmer, payload: bytes, number: int) -> Any:
        counted[0] += number
        return rows(self, payload, number)

    rewrite = compacted(lake, live(lake)[20:24])
    monkeypatch.setattr(Skimmer, "rows", counting)
    ledger, view, checked = check(lake, rewrite, book=book)
    assert (len(checked.good), len(live_files(lake))) == (1, 4 * merge.FAN - 2)
    assert 4 <= counted[0] <= 16
    ledger.rewrite(view, checked.good, checked.deletes)
    assert len(live_files(lake)) == 4 * merge.FAN - 5


# what is seen again


def test_a_rewrite_that_is_in_is_recognised_by_its_new_file_and_not_committed_again(lake: Lake) -> None:
    writer = filled(lake)
    rewrite = compacted(lake, live(lake))
    commit(lake, rewrite)
    before = lake.operations()
    for _ in range(2):
        assert commit(lake, rewrite).in_table == [rewrite.id]
    assert (lake.operations(), lake.keys()) == (before, sorted(writer.keys))


def test_a_rewrite_whose_files_were_rewritten_since_is_recognised_by_the_summary(lake: Lake) -> None:
    filled(lake)
    first = compacted(lake, live(lake)[:3])
    commit(lake, first)
    commit(lake, compacted(lake, live(lake)))
    assert commit(lake, first).in_table == [first.id]


def test_after_a_rollback_a_rewrite_is_not_in_any_more(lake: Lake) -> None:
    filled(lake)
    rewrite, before = compacted(lake, live(lake)), head(lake).snapshot_id
    commit(lake, rewrite)
    lake.table().manage_snapshots().rollback_to_snapshot(before).commit()
    ledger = lake.book().ledger
    view = ledger.load(lake.folder.card().folder, accept_rollback=True)
    assert rewrite.id not in _committed(view)
    assert view.head is not None and view.head.snapshot_id == before


def _committed(view: Any) -> set[str]:
    return {name for snapshot in ancestors(view.metadata) for name in rewrites_of(snapshot)}


# what is rejected: nothing of it changes the table


def rejected(lake: Lake, *rewrites: Any) -> list[type[BookkeeperError]]:
    before = lake.table().metadata
    checked = commit(lake, *rewrites)
    assert not checked.good and not checked.in_table
    assert lake.table().metadata == before
    return [type(why) for why in checked.rejected.values()]


def test_a_file_that_is_gone_rejects_the_whole_rewrite(lake: Lake) -> None:
    filled(lake)
    old = live(lake)
    rewrite = compacted(lake, old[:3])
    book, view = lake.book(), lake.view()
    book.ledger.drop(view, find(book.ledger, view, None, lambda _: True, lambda row, _: row.path == old[0].file.path))
    assert rejected(lake, rewrite) == [ReplacedFilesChanged]


@pytest.mark.parametrize("changes", [{"sequence_number": 1}, {"file_sequence_number": 1}])
def test_other_sequence_numbers_than_the_tables_are_rejected(lake: Lake, changes: dict[str, int]) -> None:
    filled(lake)
    old = live(lake)
    rewrite = compacted(lake, [old[2]._replace(**changes), old[3]])
    assert rejected(lake, rewrite) == [ReplacedFilesChanged]


def test_a_file_that_is_live_twice_is_not_rewritten(lake: Lake) -> None:
    writer = filled(lake, 2)
    old, other = live(lake), writer.file(["other"])
    append_by_others(lake, old[0].file, other)
    doubled = [item for item in live(lake) if item.file.path == old[0].file.path]
    assert len(doubled) == 2
    (beside,) = [item for item in live(lake) if item.file.path == other.path]
    assert rejected(lake, compacted(lake, [doubled[0], beside])) == [ReplacedFilesChanged]


def test_a_partition_is_never_mixed_with_another(tmp_path: Path) -> None:
    lake = Lake(tmp_path, check_files=False)
    writer, book = Writes(lake), lake.book()
    for number in range(4):
        writer.publish(f"k{number}")
        lake.tick(book, hours=13)
    one = live(lake)
    lied = [item._replace(file=replace(item.file, partition=one[0].file.partition)) for item in (one[0], one[3])]
    assert one[0].file.partition != one[3].file.partition
    assert rejected(lake, compacted(lake, lied)) == [ReplacedFilesChanged]


def test_fewer_or_more_rows_without_a_delete_are_rejected(lake: Lake) -> None:
    filled(lake)
    old = live(lake)
    fewer = compacted(lake, old, keeps=lambda row: row["key"] != "k0001")
    none = compacted(lake, old, keeps=lambda row: False)
    more = compacted(lake, old, record_count=11)
    assert rejected(lake, fewer, none, more) == [RewriteUnfit] * 3


def test_a_delete_file_that_is_not_in_the_table_was_not_applied(lake: Lake) -> None:
    filled(lake)
    base = base_of(lake, ["s3://lake/unknown.parquet"])
    assert rejected(lake, compacted(lake, live(lake), base)) == [DeletesNotApplied]


@pytest.mark.parametrize(
    "changes",
    [
        {"path": "s3://another/{id}.parquet"},
        {"file_format": "ORC"},
        {"size_bytes": 0},
        {"sort_order_id": 99},
        {"value_counts": {99: 1}},
        {"lower_bounds": {1: b"short"}},
    ],
)
def test_a_new_file_that_no_txlog_may_name_is_rejected(lake: Lake, changes: dict[str, Any]) -> None:
    filled(lake)
    assert rejected(lake, compacted(lake, live(lake), **changes)) == [RewriteUnfit]


@pytest.mark.parametrize(
    "changes",
    [
        {"table_uuid": "another"},
        {"sequence_number": 99},
        {"sequence_number": 5},
        {"snapshot_id": 0, "sequence_number": 99},
    ],
)
def test_another_table_or_a_base_that_it_has_not_is_rejected(lake: Lake, changes: dict[str, Any]) -> None:
    filled(lake, 6)
    rewrite = compacted(lake, live(lake)[:3], replace(base_of(lake), **changes))
    assert rejected(lake, rewrite) == [RewriteUnfit]


def test_a_base_on_an_abandoned_line_of_history_is_rejected(lake: Lake) -> None:
    writer = filled(lake)
    old, before = live(lake), head(lake).snapshot_id
    writer.publish("abandoned")
    lake.drain()
    base = base_of(lake)
    lake.table().manage_snapshots().rollback_to_snapshot(before).commit()
    ledger = lake.book().ledger
    view = ledger.load(lake.folder.card().folder, accept_rollback=True)
    rewrite = compacted(lake, old, base)
    assert [type(why) for why in check_rewrites(ledger, view, [rewrite]).rejected.values()] == [RewriteUnfit]


def test_a_base_that_is_expired_is_no_obstacle(lake: Lake) -> None:
    writer = filled(lake)
    base = replace(base_of(lake), snapshot_id=1)  # as if it were not kept
    assert len(commit(lake, compacted(lake, live(lake), base)).good) == 1
    assert lake.keys() == sorted(writer.keys)


def test_a_lost_race_leaves_the_table_as_the_other_left_it(lake: Lake) -> None:
    writer = filled(lake)
    ledger, view, checked = check(lake, compacted(lake, live(lake)))
    writer.publish("meanwhile")
    lake.drain()
    with pytest.raises(BookkeeperError):
        ledger.rewrite(view, checked.good, checked.deletes)
    assert lake.keys() == sorted(writer.keys)
