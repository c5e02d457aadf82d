"""
Rewrites of files that delete files apply to: deleted rows stay deleted, and no other row goes.

What a reader sees is asked of DuckDB, which applies position and equality deletes. Each rule is broken on purpose, too.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.contract.rewrite import Rewrite
from bookkeeper.errors import DeletesNotApplied, ReplacedFilesChanged
from bookkeeper.retention.scan import find
from bookkeeper.tick import check_rewrites
from tests.histories.decoded import local
from tests.histories.readers import duckdb_session
from tests.support.compactor import base_of, commit, compacted, live
from tests.support.deletes import Delete, commit_deletes, equality, positions
from tests.support.lake import Lake, Writes


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Any]:
    session = duckdb_session()
    yield session
    session.close()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, check_files=False, partition_by=())


def publish(lake: Lake, *keys: str, writer: str = "w1") -> None:
    """One file with these keys, committed; its number is the next one."""
    Writes(lake, writer).publish(*keys)
    lake.tick()


def seen(lake: Lake, duckdb: Any) -> list[str]:
    """The keys that DuckDB reads."""
    location = local(lake.table().metadata_location)
    return sorted(key for (key,) in duckdb.execute(f"SELECT key FROM iceberg_scan('{location}')").fetchall())


def without(*keys: str) -> Callable[[dict[str, Any]], bool]:
    return lambda row: row["key"] not in keys


def applying(lake: Lake, old: Sequence[Any], deletes: Sequence[Delete], *gone: str) -> Rewrite:
    """The rewrite of a compactor that applied these delete files, by which these keys are gone."""
    base = base_of(lake, [delete.applied() for delete in deletes])
    return compacted(lake, old, base, without(*gone))


def reasons(checked: Any) -> list[type[Exception]]:
    return [type(why) for why in checked.rejected.values()]


# position deletes

SCOPES: dict[str, dict[str, Any]] = {
    "by the field": {"referenced": True},
    "by equal bounds": {"bounds": True},
    "by the partition": {},
}


def position_delete(lake: Lake, old: Any, scope: str) -> Delete:
    """The delete of the second row of a file."""
    more = dict(SCOPES[scope])
    if more.pop("referenced", False):
        more["referenced"] = old.file.path
    return positions(lake, {old.file.path: [1]}, **more)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_position_delete_must_have_been_applied(lake: Lake, duckdb: Any, scope: str) -> None:
    publish(lake, "a", "gone")
    publish(lake, "b")
    old = live(lake)
    delete = position_delete(lake, old[0], scope)
    blind = compacted(lake, old)
    commit_deletes(lake, delete)
    assert seen(lake, duckdb) == lake.keys() == ["a", "b"]
    assert reasons(commit(lake, blind)) == [DeletesNotApplied]
    assert len(commit(lake, applying(lake, old, [delete], "gone")).good) == 1
    assert seen(lake, duckdb) == lake.keys() == ["a", "b"]


@pytest.mark.parametrize("scope", SCOPES)
def test_a_position_delete_of_another_file_or_partition_is_no_obstacle(tmp_path: Path, duckdb: Any, scope: str) -> None:
    lake = Lake(tmp_path, check_files=False)
    publish(lake, "a", "gone")
    lake.clock.move(days=2)
    publish(lake, "b")
    publish(lake, "c")
    old = live(lake)
    more = {**SCOPES[scope]}
    if more.pop("referenced", False):
        more["referenced"] = old[0].file.path
    commit_deletes(lake, positions(lake, {old[0].file.path: [1]}, old[0].file.partition, **more))
    assert len(commit(lake, compacted(lake, old[1:])).good) == 1
    assert seen(lake, duckdb) == ["a", "b", "c"]


def test_a_position_delete_of_the_same_commit_as_its_file_must_have_been_applied(lake: Lake) -> None:
    publish(lake, "a", "gone")
    publish(lake, "b")
    old = live(lake)
    commit_deletes(lake, positions(lake, {old[1].file.path: [0]}, number=old[1].sequence_number, bounds=True))
    assert reasons(commit(lake, compacted(lake, old))) == [DeletesNotApplied]
    assert len(commit(lake, compacted(lake, old[:1])).good) == 1


def test_a_position_delete_that_came_after_the_rewrite_was_made_rejects_it(lake: Lake, duckdb: Any) -> None:
    publish(lake, "a", "gone", "too")
    old = live(lake)
    first = position_delete(lake, old[0], "by equal bounds")
    commit_deletes(lake, first)
    rewrite = applying(lake, old, [first], "gone")
    commit_deletes(lake, positions(lake, {old[0].file.path: [2]}))
    assert reasons(commit(lake, rewrite)) == [DeletesNotApplied]
    assert seen(lake, duckdb) == ["a"]


# equality deletes


def test_an_equality_delete_between_the_oldest_and_the_newest_must_have_been_applied(lake: Lake, duckdb: Any) -> None:
    publish(lake, "a", "x")
    delete = equality(lake, ["x"])
    commit_deletes(lake, delete)
    publish(lake, "x", "b")
    old = live(lake)
    assert seen(lake, duckdb) == ["a", "b", "x"]
    assert reasons(commit(lake, compacted(lake, old))) == [DeletesNotApplied]
    merged = one_x(lake, old, [delete])
    assert len(commit(lake, merged).good) == 1
    assert seen(lake, duckdb) == ["a", "b", "x"]


def one_x(lake: Lake, old: Sequence[Any], deletes: Sequence[Delete]) -> Rewrite:
    """The rewrite that drops the first row with the key x, and keeps the second."""
    met: list[str] = []

    def keeps(row: dict[str, Any]) -> bool:
        met.append(row["key"])
        return row["key"] != "x" or met.count("x") > 1

    return compacted(lake, old, base_of(lake, [delete.applied() for delete in deletes]), keeps)


def test_a_newer_equality_delete_need_not_be_applied_and_applies_to_the_new_file(lake: Lake, duckdb: Any) -> None:
    publish(lake, "a", "gone")
    publish(lake, "b")
    rewrite = compacted(lake, live(lake))
    commit_deletes(lake, equality(lake, ["gone"]))
    assert len(commit(lake, rewrite).good) == 1
    assert seen(lake, duckdb) == ["a", "b"]


def test_a_newer_equality_delete_that_was_applied_may_have_been(lake: Lake, duckdb: Any) -> None:
    publish(lake, "a", "gone")
    publish(lake, "b")
    delete = equality(lake, ["gone"])
    commit_deletes(lake, delete)
    assert len(commit(lake, applying(lake, live(lake), [delete], "gone")).good) == 1
    assert seen(lake, duckdb) == ["a", "b"]


def test_an_older_equality_delete_is_no_obstacle_and_must_not_have_been_applied(lake: Lake, duckdb: Any) -> None:
    publish(lake, "x")
    delete = equality(lake, ["x"])
    commit_deletes(lake, delete)
    publish(lake, "x", "a")
    publish(lake, "b")
    old = live(lake)[1:]
    assert reasons(commit(lake, applying(lake, old, [delete], "x"))) == [DeletesNotApplied]
    assert len(commit(lake, compacted(lake, old)).good) == 1
    assert seen(lake, duckdb) == ["a", "b", "x"]


def test_an_equality_delete_with_the_newest_number_must_have_been_applied(lake: Lake) -> None:
    publish(lake, "x")
    publish(lake, "x", "a")
    old = live(lake)
    commit_deletes(lake, equality(lake, ["x"], number=old[1].sequence_number))
    assert reasons(commit(lake, compacted(lake, old))) == [DeletesNotApplied]


def test_an_equality_delete_holds_for_its_partition_or_without_one_for_all(tmp_path: Path) -> None:
    lake = Lake(tmp_path, check_files=False)
    publish(lake, "x")
    lake.clock.move(days=2)
    publish(lake, "x")
    old = live(lake)
    commit_deletes(lake, equality(lake, ["x"], old[0].file.partition))
    publish(lake, "b")
    later = live(lake)[1:]
    assert len(commit(lake, compacted(lake, later)).good) == 1


def test_an_equality_delete_of_an_unpartitioned_spec_holds_for_all(tmp_path: Path) -> None:
    lake = Lake(tmp_path, check_files=False)
    with lake.table().update_spec() as change:
        change.remove_field("timestamp_day")
    unpartitioned = lake.table().spec()
    with lake.table().update_spec() as change:
        change.add_field("timestamp", "day", "timestamp_day")
    lake.drain()
    publish(lake, "x")
    commit_deletes(lake, equality(lake, ["x"], spec=unpartitioned, partition=voids(unpartitioned)))
    publish(lake, "b")
    assert reasons(commit(lake, compacted(lake, live(lake)))) == [DeletesNotApplied]


def voids(spec: Any) -> tuple[None, ...]:
    return (None,) * len(spec.fields)


# rewrites that would bring rows back, take some, or show them twice, if a rule did not hold


def with_an_update_in_between(lake: Lake) -> Rewrite:
    """x, deleted, and written again: the new x lives."""
    publish(lake, "a", "x")
    delete = equality(lake, ["x"])
    commit_deletes(lake, delete)
    publish(lake, "x")
    return one_x(lake, live(lake), [delete])


def with_a_delete_afterwards(lake: Lake) -> Rewrite:
    publish(lake, "a", "gone")
    publish(lake, "b")
    rewrite = compacted(lake, live(lake))
    commit_deletes(lake, equality(lake, ["gone"]))
    return rewrite


def with_a_delete_not_applied(lake: Lake) -> Rewrite:
    publish(lake, "a", "x")
    commit_deletes(lake, equality(lake, ["x"]))
    publish(lake, "b")
    return compacted(lake, live(lake))


def with_a_position_delete_not_applied(lake: Lake) -> Rewrite:
    publish(lake, "a", "x")
    old = live(lake)
    commit_deletes(lake, positions(lake, {old[0].file.path: [1]}))
    return compacted(lake, old)


def with_a_file_that_retention_dropped(lake: Lake) -> Rewrite:
    publish(lake, "a")
    publish(lake, "b")
    old = live(lake)
    rewrite = compacted(lake, old)
    book, view = lake.book(), lake.view()
    book.ledger.drop(view, find(book.ledger, view, None, lambda _: True, lambda row, _: row.path == old[0].file.path))
    return rewrite


SCENES: dict[str, Callable[[Lake], Rewrite]] = {
    "an update in between": with_an_update_in_between,
    "a delete afterwards": with_a_delete_afterwards,
    "an equality delete not applied": with_a_delete_not_applied,
    "a position delete not applied": with_a_position_delete_not_applied,
}


@pytest.mark.parametrize("scene", SCENES)
def test_a_rewrite_changes_no_row(lake: Lake, duckdb: Any, scene: str) -> None:
    rewrite = SCENES[scene](lake)
    before = seen(lake, duckdb)
    commit(lake, rewrite)
    assert seen(lake, duckdb) == before


def test_a_rewrite_of_a_file_that_retention_dropped_is_rejected(lake: Lake) -> None:
    rewrite = with_a_file_that_retention_dropped(lake)
    assert reasons(commit(lake, rewrite)) == [ReplacedFilesChanged]
    assert lake.keys() == ["b"]


def test_the_engine_commits_no_rewrite_whose_files_it_does_not_take_out(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it was checked by somebody else: a replaced file that is gone would come back as a new one."""
    rewrite = with_a_file_that_retention_dropped(lake)
    monkeypatch.setattr(check_rewrites._Head, "check", lambda head, rewrite: None)
    with pytest.raises(AssertionError, match="do not lose"):
        commit(lake, rewrite)
    assert lake.keys() == ["b"]
