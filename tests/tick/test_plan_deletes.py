"""The plan of txlogs with delete files: limits, paths, and deletes that are bound to partitions."""

import pytest

from bookkeeper.contract.txlog import DeleteEntries, Txlog
from bookkeeper.format import manifest
from bookkeeper.format.entries import ADDED, EQUALITY_DELETES, DataFile, Entry
from bookkeeper.tick.plan_batch import CheckedTxlogs
from bookkeeper.tick.select import Limits
from tests.support.plans import HEADER, good, name, names, planned, sequences, txlog


def deleting(number: int, *paths: str, spec: int = 0, size: int = 1) -> Txlog:
    """A txlog with one data file, and a delete file at each of these paths."""
    made = txlog(name(number))
    entries = [
        Entry(ADDED, None, 1, None, EQUALITY_DELETES, (1,), None, DataFile(path, "PARQUET", (), 1, size))
        for path in paths
    ]
    body = manifest.decode(manifest.encode({**HEADER, "content": b"deletes"}, entries), 2**24)
    made.deletes = DeleteEntries(spec, (), body, (1,) * len(paths), ((1,),) * len(paths))
    made.span = 2
    return made


@pytest.mark.parametrize(
    ("limits", "expected"),
    [(Limits(4, 100, 100), [1, 2]), (Limits(3, 100, 100), [1]), (Limits(100, 25, 100), [1, 2]), (Limits(1, 1, 1), [1])],
    ids=["files", "one file too many", "bytes", "one always"],
)
def test_delete_files_count_in_the_limits_of_a_commit(limits: Limits, expected: list[int]) -> None:
    items = [deleting(number, f"file:///t/d{number}", size=10) for number in (1, 2, 3)]
    assert sequences(planned(names(1, 2, 3), CheckedTxlogs(good(*items)), limits=limits)) == expected


@pytest.mark.parametrize(
    ("spec", "live", "held"), [(7, {0, 7}, True), (7, {7}, True), (7, set(), True), (0, {0, 7}, False)]
)
def test_deletes_of_a_partition_wait_while_rows_of_another_spec_are_live(spec: int, live: set[int], held: bool) -> None:
    """The data file of the txlog itself has spec 0."""
    made = deleting(1, "file:///t/d", spec=spec)
    known = CheckedTxlogs(good(made), live_specs=lambda: live, partitioned=frozenset({7}))
    batch = planned(names(1), known)
    assert ([*batch.held] == names(1)) is held
    assert not batch.rejected


def test_deletes_of_a_partition_go_in_where_all_live_rows_have_its_spec() -> None:
    made = deleting(1, "file:///t/d", spec=7)
    made.spec_id = 7
    known = CheckedTxlogs(good(made), live_specs=lambda: {7}, partitioned=frozenset({7}))
    assert planned(names(1), known).names == names(1)


def test_the_specs_of_live_rows_are_asked_for_once_however_many_txlogs_ask() -> None:
    """After a commit of others each answer reads the manifest list."""
    asked = list[int]()
    items = [deleting(number, f"file:///t/d{number}", spec=7) for number in (1, 2, 3)]
    for item in items:
        item.spec_id = 7

    def live_specs() -> set[int]:
        asked.append(1)
        return {7}

    known = CheckedTxlogs(good(*items), live_specs=live_specs, partitioned=frozenset({7}))
    assert planned(names(1, 2, 3), known).names == names(1, 2, 3)
    assert len(asked) == 1
