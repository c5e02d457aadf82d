"""
The journal, the clock and the lease of the folder.
"""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import Retry, StorageUnavailable
from bookkeeper.stores.open import open_store
from reaper.clock import ClockDiffers
from reaper.expiry import journal as journals
from reaper.expiry.journal import Journal, JournalUnreadable
from reaper.files.expired import Files
from tests.support.reaper_lake import ReaperLake

SOME = Journal("uuid", "2030-01-01", 7, {"main": 3}, (1, 2, 3), (1, 2), Files(data={"file:///t/a": 5}))
sizes = st.dictionaries(st.text(), st.integers(0), max_size=3)
ids = st.lists(st.integers(), max_size=4).map(tuple)


@given(st.builds(Journal, st.text(), st.text(), st.integers(), sizes, ids, ids, st.builds(Files, sizes, sizes)))
def test_a_journal_reads_back_as_it_was_written(journal: Journal) -> None:
    assert journals.loads(journals.dumps(journal)) == journal


@pytest.mark.parametrize("data", [b"", b"nonsense", b"[]", b"{}", b'{"version": 2}'])
def test_a_journal_that_cannot_be_read_halts_the_table(lake: ReaperLake, data: bytes) -> None:
    for _ in range(4):
        lake.append()
    path = lake.folder_path / "reaper" / "journal.json"
    path.parent.mkdir()
    path.write_bytes(data)
    with pytest.raises(JournalUnreadable):
        lake.reap()
    assert len(lake.history()) == 4


def test_a_second_journal_is_refused_and_only_the_own_one_dropped() -> None:
    store = open_store("memory://journal-test")
    journals.write(store, SOME)
    with pytest.raises(Retry):
        journals.write(store, SOME)
    journals.drop(store, replace(SOME, planned_at="later"))
    assert journals.read(store) == SOME
    journals.drop(store, SOME)
    assert journals.read(store) is None


def test_a_clock_that_differs_from_the_storages_stops_the_run(lake: ReaperLake) -> None:
    for _ in range(4):
        lake.append()
    now = lake.now + timedelta(hours=1)
    for ahead in (timedelta(minutes=6), timedelta(minutes=-6)):
        with pytest.raises(ClockDiffers):
            lake.reap(now=now, open_store=lake.stores(now + ahead))
    assert len(lake.history()) == 4
    assert lake.reap(now=now, open_store=lake.stores(now + timedelta(minutes=4))).snapshots == 2


def test_a_folder_that_is_not_there_stops_the_run(lake: ReaperLake) -> None:
    for _ in range(4):
        lake.append()
    lake.folder_path.rename(lake.folder_path.with_name("_unmounted"))
    with pytest.raises(StorageUnavailable):
        lake.reap(open_store=open_store)
    with pytest.raises(StorageUnavailable):
        lake.outlook()
    assert len(lake.history()) == 4


def test_a_journal_that_is_too_large_to_be_one_halts_the_table_unread(lake: ReaperLake) -> None:
    path = lake.folder_path / "reaper" / "journal.json"
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(JournalUnreadable, match=r"journal\.json is not read: .* at most"):
        lake.reap()
