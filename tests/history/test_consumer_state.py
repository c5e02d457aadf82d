"""
Where a consumer stands on main, what it holds, and how far it is behind.
"""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata

from bookkeeper.config.settings import Reaper
from bookkeeper.consumers.lag import Lag, lag
from bookkeeper.history import consumer_state as states
from bookkeeper.history.consumer_state import ConsumerState, evaluate, hold_limit, read_all
from bookkeeper.history.main_history import MainHistory
from bookkeeper.history.registry import COMMAND, Registry, reader, spark
from bookkeeper.stores.open import open_store
from tests.support.checkpoints import BEGINNING, Query, offset
from tests.support.table_metadata import line, minute, ref, snapshot, table

HOLD = Reaper(max_hold=timedelta(minutes=100), max_hold_snapshots=50)
BUSY = {
    "added-data-files": "5",
    "added-records": "25000",
    "added-files-size": "3000000",
    "changed-partition-count": "1",
    "bookkeeper.txlogs": "writer-1.01a202ed-f767-7000-8000-000000000001:12345-12349",
    "bookkeeper.txlog-count": "5",
    "total-data-files": "432000",
    "total-records": "2160000000",
    "total-files-size": "259200000000",
    "total-delete-files": "0",
    "total-position-deletes": "0",
    "total-equality-deletes": "0",
}
COUNTS = {"added-data-files": "3", "added-records": "30", "added-files-size": "3000", "total-data-files": "9"}


class Table:
    """Metadata, and a query on it that a test moves."""

    def __init__(self, root: Path) -> None:
        self.registry = Registry(open_store(str(root)))
        self.query = Query(root / "cp")
        self.metadata = table(*line(9))

    def register(self, **how: Any) -> "Table":
        self.registry.add(spark("q", self.query.url, minute(0), by=COMMAND, **how))
        return self

    def begin(self, begins_with: int, renewed: float = 5) -> None:
        """Registers it as one that reads this snapshot in a batch first."""
        query = spark("q", self.query.url, minute(0), by=COMMAND)
        self.registry.add(replace(query, begins_with=begins_with, renewed=minute(renewed)))

    def consumer(self, at: float = 10, settings: Reaper = HOLD) -> ConsumerState:
        (found,) = evaluate(read_all(self.registry, open_store), self.metadata, settings, minute(at))
        return found


@pytest.fixture
def there(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_a_query_needs_its_own_snapshot_and_all_after_it(there: Table) -> None:
    there.register().query.begin(offset(1)).done(offset(4, 1))
    found = there.consumer()
    assert (found.state, found.first, found.at_risk) == (states.LIVE, 3, False)


def test_planned_and_committed_the_older_one_counts(there: Table) -> None:
    there.register().query.begin(offset(1)).done(offset(4)).plan(offset(6))
    assert there.consumer().first == 3
    there.query.commit().plan(offset(2))
    assert there.consumer().first == 1


def test_an_available_now_query_needs_its_first_offset_too_and_is_said_to_grow(there: Table) -> None:
    there.register(available_now=True).query.begin(offset(2)).done(offset(7))
    found = there.consumer()
    assert (found.first, found.bound_to_grow) == (1, True)
    there.query.begin(offset(BEGINNING, -1))
    found = there.consumer()
    assert (found.first, found.bound_to_grow) == (6, False)


def test_a_first_offset_that_is_expired_is_to_mend_and_the_rest_is_held(there: Table) -> None:
    there.register(available_now=True).query.begin(offset(99)).done(offset(7))
    found = there.consumer()
    assert (found.state, found.first) == (states.TO_MEND, 6)


def test_consumers_with_unknown_needs_need_everything(there: Table) -> None:
    there.register()
    assert (there.consumer().state, there.consumer().first) == (states.NEW, 0)
    there.query.done("nonsense")
    assert (there.consumer().state, there.consumer().first) == (states.UNREADABLE, 0)
    there.query.done(offset(BEGINNING, -1))
    assert (there.consumer().state, there.consumer().first) == (states.LIVE, 0)
    there.metadata = table(*line(6), snapshot(7, 3), head=6, aside=ref(7))
    there.query.done(offset(7))
    assert (there.consumer().state, there.consumer().first) == (states.ASIDE, 0)


def test_an_unreadable_record_needs_everything(there: Table, tmp_path: Path) -> None:
    open_store(str(tmp_path)).replace("consumers/x.json", b"{")
    assert (there.consumer().state, there.consumer().first) == (states.UNREADABLE, 0)


def test_a_consumer_on_an_expired_snapshot_is_cut_off_and_holds_nothing(there: Table) -> None:
    there.register().query.done(offset(4711))
    assert (there.consumer().state, there.consumer().first) == (states.CUT_OFF, None)


def test_a_reader_holds_its_snapshot_until_its_time_is_over(there: Table) -> None:
    there.registry.add(reader("export", 5, minute(0), timedelta(minutes=30)))
    assert (there.consumer(29).state, there.consumer(29).first) == (states.LIVE, 4)
    assert (there.consumer(30).state, there.consumer(30).first) == (states.LAPSED, None)


def test_a_consumer_at_the_end_of_a_quiet_table_is_not_at_risk(there: Table) -> None:
    there.metadata = table(*line(9, "delete", "replace", "replace"))
    there.register().query.done(offset(6, 1))
    assert there.consumer(100_000).used == 0.0


def test_max_hold_in_time_is_used_up_by_the_age_of_what_is_unread(there: Table) -> None:
    there.register().query.done(offset(4))
    assert there.consumer(5 + 50).used == pytest.approx(0.5)
    assert not there.consumer(5 + 79).at_risk and there.consumer(5 + 80).at_risk
    assert there.consumer(5 + 120).used == pytest.approx(1.2)


def test_max_hold_in_snapshots_is_used_up_by_their_number(there: Table) -> None:
    there.register().query.done(offset(1))
    few = Reaper(max_hold=timedelta(days=9), max_hold_snapshots=10)
    assert there.consumer(10, few).used == pytest.approx(0.8)


def test_a_query_that_reads_a_snapshot_in_a_batch_first_needs_it_until_it_has_an_offset(there: Table) -> None:
    there.begin(5)
    found = there.consumer()
    assert (found.state, found.first) == (states.BEGINNING, 4)
    there.query.begin(offset(5, 1))
    assert (there.consumer().state, there.consumer().first) == (states.LIVE, 4)
    there.query.done(offset(8, 1))
    assert there.consumer().first == 7
    there.query = Query(there.query.root.with_name("new"))
    there.begin(4711)
    assert (there.consumer().state, there.consumer().first) == (states.CUT_OFF, None)
    there.metadata = table(*line(6), snapshot(7, 3), head=6, aside=ref(7))
    there.begin(7)
    assert (there.consumer().state, there.consumer().first) == (states.ASIDE, 0)


def test_max_hold_in_time_counts_from_the_last_renewal_of_the_batch(there: Table) -> None:
    there.begin(4, renewed=200)
    assert there.consumer(200).used == pytest.approx(0.1), "of the snapshots"
    assert there.consumer(250).used == pytest.approx(0.5)
    there.query.begin(offset(4, 1))
    assert there.consumer(280).at_risk and there.consumer(320).used == pytest.approx(1.2)
    history = MainHistory(there.metadata)
    assert hold_limit(history, HOLD, minute(300), minute(200)) == 0
    assert hold_limit(history, HOLD, minute(301), minute(200)) == hold_limit(history, HOLD, minute(301)) == 8
    # No record buys time by a renewal that has not come yet, and none in snapshots or bytes.
    there.begin(4, renewed=5000)
    assert there.consumer(5 + 120).used == pytest.approx(1.2)
    few = Reaper(max_hold=timedelta(days=9), max_hold_snapshots=3)
    assert hold_limit(history, few, minute(10), minute(10)) == 5


@pytest.mark.parametrize(("at", "most", "place"), [(10, 50, 0), (10, 3, 5), (105, 50, 3), (1000, 50, 8), (10, 8, 0)])
def test_nothing_is_held_beyond_max_hold(at: float, most: int, place: int) -> None:
    settings = Reaper(max_hold=timedelta(minutes=100), max_hold_snapshots=most)
    assert hold_limit(MainHistory(table(*line(9))), settings, minute(at)) == place


def counted_table(*operations: str) -> TableMetadata:
    kinds = operations or ("append",) * 4
    return table(*(snapshot(n, n - 1 or None, kind, **COUNTS) for n, kind in enumerate(kinds, 1)))


def lag_at(there: Table, *offsets: str, at: float = 10) -> Lag | None:
    there.register().query.begin(offset(1)).done(*offsets)
    files = [(10, 1000), (11, 1100), (9, 900)]
    return lag(there.consumer(at), there.metadata, lambda snapshot: files, minute(at))


def test_lag_counts_what_appends_added_after_the_offset(there: Table) -> None:
    there.metadata = counted_table("append", "append", "replace", "delete", "append")
    assert lag_at(there, offset(1, 3)) == Lag(2, 6, 60, 6000, timedelta(minutes=8))


def test_a_consumer_at_the_end_has_no_lag_however_old_the_table(there: Table) -> None:
    there.metadata = counted_table("append", "append", "replace", "delete")
    assert lag_at(there, offset(2, 3), at=9999) == Lag()


def test_the_rest_of_a_half_read_snapshot_counts_exactly(there: Table) -> None:
    there.metadata = counted_table("append", "append")
    assert lag_at(there, offset(2, 1)) == Lag(1, 2, 20, 2000, timedelta(minutes=8))


@pytest.mark.parametrize(("at", "files", "rows"), [((1, 3), 3, 30), ((2, 0), 3, 30), ((2, 2), 1, 9), ((2, 3), 0, 0)])
def test_an_append_whose_summary_counts_no_files_is_counted_by_its_manifests(
    there: Table, at: tuple[int, int], files: int, rows: int
) -> None:
    there.metadata = table(snapshot(1, None, **COUNTS), snapshot(2, 1))
    found = lag_at(there, offset(*at))
    assert found is not None
    assert (found.snapshots, found.files, found.rows) == (min(files, 1), files, rows)


def test_an_offset_at_the_start_of_a_snapshot_has_all_of_it_before_it(there: Table) -> None:
    there.metadata = counted_table("append", "append")
    assert lag_at(there, offset(2, 0)) == Lag(1, 3, 30, 3000, timedelta(minutes=8))


def test_a_consumer_at_the_beginning_is_behind_by_everything(there: Table) -> None:
    there.metadata = counted_table()
    assert lag_at(there, offset(BEGINNING, -1)) == Lag(4, 12, 120, 12000, timedelta(minutes=9))


def test_a_query_that_reads_a_snapshot_in_a_batch_first_is_behind_by_all_its_rows_and_what_follows(
    there: Table,
) -> None:
    live = {"total-records": "700", "total-files-size": "70000"}
    rest = snapshot(2, 1, **{**COUNTS, **live})
    there.metadata = table(snapshot(1, None, **COUNTS), rest, snapshot(3, 2, **COUNTS))
    there.begin(2)
    found = lag(there.consumer(), there.metadata, lambda snapshot: [], minute(10))
    assert found == Lag(2, 9 + 3, 700 + 30, 70_000 + 3000, timedelta(minutes=8))


def test_the_lag_of_a_query_that_is_cut_off_is_at_least_what_the_kept_snapshots_added(there: Table) -> None:
    there.metadata = counted_table("append", "delete", "append")
    assert lag_at(there, offset(4711)) == Lag(2, 6, 60, 6000, timedelta(minutes=9))


def test_the_lag_of_a_consumer_that_is_unreadable_is_unknown(there: Table) -> None:
    there.register().query.done("nonsense")
    assert lag(there.consumer(), there.metadata, lambda snapshot: [], minute(10)) is None


def test_an_empty_table_holds_nothing_for_any_consumer(there: Table) -> None:
    there.metadata = table()
    there.register()
    assert there.consumer().used == 0.0
    assert hold_limit(MainHistory(there.metadata), HOLD, minute(10)) == 0


def test_max_hold_in_bytes_is_used_up_by_what_snapshots_take_of_metadata_json(there: Table) -> None:
    first = 8 * 10**18
    small = [snapshot(n, None, **BUSY) for n in range(1, 401)]
    ids = [{"snapshot_id": first + n, "parent_snapshot_id": first + n - 1} for n in range(1, 401)]
    made = [item.model_copy(update=known) for item, known in zip(small, ids, strict=True)]
    there.metadata = table(*made)
    there.register().query.done(offset(first + 1))
    settings = Reaper(max_hold=timedelta(days=99), max_hold_bytes=200_000)
    now = minute(400)
    (found,) = evaluate(read_all(there.registry, open_store), there.metadata, settings, now)
    log_entry = len('{"snapshot-id":8000000000000000001,"timestamp-ms":1795345482526},')
    real = [len(item.model_dump_json(by_alias=True)) + 1 + log_entry for item in made]
    assert found.used == pytest.approx(sum(real[1:]) / 200_000, rel=0.05)
    place = hold_limit(MainHistory(there.metadata), settings, now)
    assert sum(real[place + 1 :]) == pytest.approx(200_000, rel=0.05)
    assert hold_limit(MainHistory(there.metadata), Reaper(max_hold=timedelta(days=99)), now) == 0


def test_by_default_no_consumer_makes_metadata_json_one_that_readers_refuse(there: Table) -> None:
    """A commit a second: held up to the cut-off, an hour after the notice."""
    there.metadata = table(*(snapshot(n, n - 1 or None, **BUSY) for n in range(1, 8001)))
    settings, line_of = Reaper(max_hold=timedelta(days=99)), MainHistory(there.metadata)
    each = line_of.bytes_after[0] / 7999
    noticed = states.AT_RISK * settings.max_hold_bytes + 3600 * each
    assert max(noticed, settings.max_hold_bytes) < 4.5e6
    assert 7999 - hold_limit(line_of, settings, minute(8000)) == pytest.approx(settings.max_hold_bytes / each, abs=2)
