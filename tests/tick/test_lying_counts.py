"""Counts that no file can hold: what they are refused by, and how a table goes on that holds some already."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bookkeeper.commands.verify import ERROR, verify
from bookkeeper.config.settings import Retention
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import MOST_BYTES, MOST_ENTRIES
from bookkeeper.format.entries import DataFile
from bookkeeper.format.skim.expressions import MOST_COUNT
from bookkeeper.ledger import merge
from bookkeeper.ledger.build_commit import CommitAttempt
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.txlog_groups import TxlogGroup
from tests.support.lake import Lake, Writes

LARGEST = 2**63 - 1
HOUR = timedelta(hours=1)


def commit_unchecked(lake: Lake, *files: DataFile) -> None:
    """One commit of these files as a version without bounds made it."""
    writer = Writes(lake, "liar")
    name, data = writer.encoded(list(files))
    lake.folder.publish(name, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bookkeeper.tick.intake.check", lambda txlog, rules, now: None)
        patch.setattr("bookkeeper.tick.plan_batch._Planner._check_totals", lambda planner, txlog: None)
        assert lake.tick(lake.book(check_files=False)).commit.files == len(files)


@pytest.fixture
def lied(lake: Lake) -> Lake:
    """A table that holds 2^63 - 1 rows in one file, beside three honest ones."""
    commit_unchecked(lake, Writes(lake).file(["lie"], lake.clock.now - 3 * HOUR, record_count=LARGEST))
    return lake


def commit(lake: Lake, many: int, book: Any = None, at: Any = None) -> list[str]:
    """So many commits of one row each."""
    book, writer = book or lake.book(), Writes(lake)
    for number in range(many):
        writer.publish(f"{writer.name.incarnation}-{number}", at=at)
        assert lake.tick(book).commit.txlogs == 1
    return writer.keys


def total(lake: Lake, key: str) -> int:
    return int(lake.table().current_snapshot().summary.additional_properties[key])


def test_honest_files_with_the_most_rows_a_byte_get_in(lake: Lake) -> None:
    """pyarrow with pages as large as it makes them: 2^26 nulls a page."""
    writer, rows = Writes(lake), 2**27
    path = Path(lake.folder.card().data_path.removeprefix("file://"), f"{writer.name.incarnation}.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    given = {"data_page_size": 2**30, "write_batch_size": 2**26, "max_rows_per_page": 2**31 - 1, "compression": "zstd"}
    pq.write_table(pa.table({"value": pa.nulls(rows, pa.int32())}), path, row_group_size=2**26, **given)
    size = path.stat().st_size
    assert rows > 100_000 * size
    counts = dict.fromkeys((1, 2, 3), rows)
    file = writer.file(["a"], path=f"file://{path}", record_count=rows, size_bytes=size)
    name, data = writer.encoded([replace(file, value_counts=counts, null_value_counts=counts)])
    lake.folder.publish(name, data)
    assert lake.tick().commit.rows == rows


def test_the_largest_file_that_is_taken_can_be_named_as_often_as_a_txlog_may() -> None:
    assert MOST_ENTRIES * max(MOST_BYTES, MOST_COUNT) <= LARGEST


@pytest.mark.parametrize("records", [1, 2**41 - 1])
def test_statistics_are_refused_by_the_same_bound_whichever_way_they_are_read(lake: Lake, records: int) -> None:
    """Records of a kind are skimmed from the third on; what was decoded in full before must not be judged otherwise."""
    writer = Writes(lake)
    for number in range(6):
        file = writer.file([f"{number}"])
        name, data = writer.encoded([replace(file, value_counts=dict.fromkeys((1, 2, 3), records + number % 2))])
        lake.folder.publish(name, data)
    result = lake.tick()
    expected = 6 if records == 1 else 3
    assert (result.commit.txlogs, len(result.rejected)) == (expected, 6 - expected)


def test_three_txlogs_whose_rows_no_sum_holds_are_refused_and_the_good_one_gets_in(lake: Lake, writer: Writes) -> None:
    names = []
    for number in range(3):
        liar = Writes(lake, f"liar-{number}")
        name, data = liar.encoded([liar.file([f"lie-{number}"], record_count=2**62)])
        lake.folder.publish(name, data)
        names.append(str(name))
    writer.publish("a")
    result = lake.tick()
    assert (lake.keys(), sorted(result.rejected), result.waiting) == (["a"], names, 0)
    assert "records" in lake.folder.reason(names[0])["reason"]


@pytest.mark.parametrize("key, most", [("record_count", 2**41), ("size_bytes", 2**46)])
def test_a_txlog_that_the_tables_totals_cannot_hold_is_refused_and_smaller_ones_get_in(
    lake: Lake, writer: Writes, monkeypatch: pytest.MonkeyPatch, key: str, most: int
) -> None:
    lied = [Writes(lake).file([f"{n}"], **{"size_bytes": 2**46 - 1, key: 2**62 - most}) for n in range(2)]
    commit_unchecked(lake, *lied)
    liar = Writes(lake, "liar-2")
    # Two files together are more than the largest honest one.
    files = [liar.file([f"x{n}"], **{"size_bytes": 2**45, key: most - 1}) for n in range(4)]
    name, data = liar.encoded(files)
    lake.folder.publish(name, data)
    writer.publish("a")
    result = lake.tick(lake.book(check_files=False))
    assert (result.commit.txlogs, result.rejected) == (1, [str(name)])
    assert "the table" in lake.folder.reason(name)["reason"]


def test_a_batch_holds_no_more_rows_than_a_sum_can(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookkeeper.tick.plan_batch.LARGEST", 5)
    for number in range(3):
        Writes(lake, f"w{number}").publish("a", "b")
    book = lake.book()
    results = [lake.tick(book) for _ in range(3)]
    assert [result.commit and result.commit.txlogs for result in results] == [2, 1, None]


def test_a_table_that_holds_such_an_entry_goes_on_and_merges(lied: Lake) -> None:
    book = lied.book()
    keys = commit(lied, 2 * merge.FAN, book)
    assert "replace" in lied.operations()
    assert lied.keys() == sorted(["lie", *keys])
    assert total(lied, "total-records") == LARGEST
    assert total(lied, "total-data-files") == 1 + len(keys)


def test_a_table_that_holds_many_of_them_goes_on_and_merges(lake: Lake) -> None:
    for number in range(merge.FAN + 2):
        lie = Writes(lake).file([f"{number}"], record_count=LARGEST, size_bytes=LARGEST)
        commit_unchecked(lake, lie)
    keys = commit(lake, 3)
    assert "replace" in lake.operations()
    assert lake.table().scan(selected_fields=("key",)).to_arrow().num_rows == merge.FAN + 2 + len(keys)
    assert [total(lake, key) for key in ("total-records", "total-files-size")] == [LARGEST, LARGEST]


def test_totals_are_exact_again_once_retention_has_dropped_such_an_entry(lied: Lake) -> None:
    commit(lied, merge.FAN + 1)
    book = lied.book(retention=Retention(keep=2 * HOUR))
    assert lied.tick(book).dropped_files == 1
    keys = commit(lied, 1, book)
    assert (total(lied, "total-records"), len(lied.keys())) == (merge.FAN + 2, merge.FAN + 1 + len(keys))


def test_bytes_that_no_sum_holds_let_retention_by_size_drop_nothing(lake: Lake) -> None:
    keys = commit(lake, 3)
    commit_unchecked(lake, *[Writes(lake).file([f"{n}"], size_bytes=LARGEST) for n in range(2)])
    book = lake.book(retention=Retention(keep_bytes=1), check_files=False)
    assert lake.tick(book).dropped_files == 0
    commit(lake, 1, book)
    assert set(keys) <= set(lake.keys())


def test_verify_names_such_an_entry(lied: Lake) -> None:
    found = verify(lied.audit())
    assert [(item.severity, item.where.rsplit("/")[-1]) for item in found] == [
        (ERROR, lied.table().inspect.files()["file_path"].to_pylist()[0].rsplit("/")[-1])
    ]
    assert f"{LARGEST} records" in found[0].what


# What no bound foresaw: a defect of the engine for one txlog, or for two together.


def breaks(monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    """Making the records of a share fails when its txlogs are `wrong`."""
    right = TxlogGroup.records

    def records(share: TxlogGroup, header: Any) -> Any:
        if wrong([txlog.name for txlog in share.txlogs]):
            raise OverflowError("int too big to convert")
        return right(share, header)

    monkeypatch.setattr(TxlogGroup, "records", records)


def test_a_txlog_that_the_engine_fails_on_is_held_and_the_others_get_in(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    names = [Writes(lake, f"w{number}").publish(f"{number}") for number in range(5)]
    bad = {names[1], names[3]}
    breaks(monkeypatch, lambda given: bad & set(given))
    book = lake.book()
    result = lake.tick(book)
    assert (lake.keys(), set(result.held), result.rejected) == (["0", "2", "4"], bad, [])
    tried = count_appends(monkeypatch)
    Writes(lake, "w7").publish("7")
    result = lake.tick(book)
    assert (lake.keys(), set(result.held), len(tried)) == (["0", "2", "4", "7"], bad, 1)
    assert [record.action for record in caplog.records if record.levelname == "WARNING"] == ["hold", "hold"]
    assert "int too big" in caplog.records[0].cause


def count_appends(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[TxlogName]]:
    tried, right = [], Ledger.append

    def append(self: Ledger, seen: Any, txlogs: Any, *more: Any) -> Any:
        tried.append([txlog.name for txlog in txlogs])
        return right(self, seen, txlogs, *more)

    monkeypatch.setattr(Ledger, "append", append)
    return tried


def test_of_two_txlogs_that_the_engine_fails_on_together_one_gets_in(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [Writes(lake, f"w{number}").publish(f"{number}") for number in range(5)]
    breaks(monkeypatch, {names[1], names[3]}.issubset)
    result = lake.tick()
    assert (lake.keys(), result.held) == (["0", "1", "2", "4"], [names[3]])


def test_what_follows_a_txlog_that_the_engine_fails_on_waits(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, other = Writes(lake, "a"), Writes(lake, "b")
    names = [writer.publish("1"), writer.publish("2"), other.publish("3")]
    breaks(monkeypatch, lambda given: names[0] in given)
    assert (lake.tick().held, lake.keys()) == ([names[0]], ["3"])
    monkeypatch.undo()
    lake.tick()
    assert lake.keys() == ["1", "2", "3"]


def test_a_failure_that_no_txlog_explains_is_the_ticks(lake: Lake, writer: Writes, monkeypatch: Any) -> None:
    writer.publish("a")
    monkeypatch.setattr(CommitAttempt, "send", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lake.tick()
    monkeypatch.undo()
    lake.tick()
    assert (lake.keys(), lake.rejected()) == (["a"], {})


def test_a_merge_that_fails_stops_no_append(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise OverflowError("int too big to convert")

    monkeypatch.setattr(merge, "merge", broken)
    keys = commit(lake, merge.FAN + 3)
    assert lake.keys() == sorted(keys)
    assert "replace" not in lake.operations()
