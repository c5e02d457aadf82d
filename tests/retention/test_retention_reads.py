"""What retention reads: manifests that can hold a file that goes, and none of them twice."""

from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.contract.txlog import decode
from bookkeeper.ledger.merge import FAN
from bookkeeper.retention.scan import warm_cache
from bookkeeper.tick import retain
from tests.retention.test_retention import HOUR, LOOSE, kept
from tests.support.faults import Faults
from tests.support.lake import Writes


def read_manifests(faults: Faults) -> int:
    return sum(operation.startswith("read metadata/") and "/snap-" not in operation for operation in faults.seen)


def test_manifests_that_cannot_match_are_not_decoded_again(tmp_path: Path, faults: Faults) -> None:
    lake = kept(tmp_path, LOOSE, keep=timedelta(days=1))
    writer = Writes(lake)
    book = lake.book(faults)
    for number in range(5):
        writer.publish(f"a{number}")
        lake.tick(book, minutes=2)
    before = read_manifests(faults)
    for _ in range(10):
        lake.tick(book, minutes=2)
    assert (before, read_manifests(faults)) == (1, 1)  # of the first commit; what the next ones add is remembered
    lake.tick(book, days=1)
    assert lake.keys() == []
    assert read_manifests(faults) == 1 + 5


def test_what_is_remembered_of_a_commit_is_what_reading_its_manifests_says(tmp_path: Path, faults: Faults) -> None:
    lake = kept(tmp_path, LOOSE, keep=timedelta(days=1))
    one, two, book = Writes(lake), Writes(lake, "w2"), lake.book(faults)
    for number in range(3):  # the later one has the older rows, so the smallest bound is not the last
        one.publish(f"a{number}")
        two.publish(f"b{number}", at=lake.clock.now - timedelta(hours=9 * number))
        lake.tick(book, minutes=2)
    assert read_manifests(faults) == 1
    view, column = lake.view(), book.ledger.cache.column
    paths = [manifest.manifest_path for manifest in book.ledger.manifests(view)]
    remembered = [book.ledger.cache.manifest(path) for path in paths]
    other = lake.book().ledger
    assert column is not None and warm_cache(other, view, column, lambda _: True, 1000)
    assert remembered == [other.cache.manifest(path) for path in paths] and len(paths) == 3
    assert other.use_column(None).manifest(paths[0]) is None


def test_a_txlog_that_was_decoded_for_another_column_tells_nothing_of_its_manifest(tmp_path: Path) -> None:
    lake = kept(tmp_path, LOOSE, keep=timedelta(days=1))
    writer, book = Writes(lake), lake.book()
    writer.publish("a")
    lake.tick(book, minutes=2)
    name, data = writer.encoded([writer.file(["b"])])
    ledger, view = book.ledger, lake.view()
    for column in (None, 2):
        txlog = decode(name, data, 2**20, column)
        after = ledger.append(view, [txlog], view.marks)
        assert ledger.cache.manifest(ledger.manifests(after)[0].manifest_path) is None
        view = after


def test_after_a_start_only_manifests_of_days_past_the_cutoff_are_read(tmp_path: Path, faults: Faults) -> None:
    lake = kept(tmp_path, keep=timedelta(days=2))
    writer, book = Writes(lake), lake.book()
    for number in range(4):
        writer.publish(f"a{number}")
        lake.tick(book, hours=22)
    lake.drain()
    assert lake.keys() == ["a2", "a3"]
    lake.tick(lake.book(faults), hours=2)
    assert read_manifests(faults) <= 2


def test_a_merged_manifest_and_what_is_left_of_one_are_not_read_again(tmp_path: Path, faults: Faults) -> None:
    lake = kept(tmp_path, LOOSE, keep=timedelta(days=1), every=timedelta(0))
    writer, book = Writes(lake), lake.book(faults)
    for number in range(FAN):
        writer.publish(f"a{number}")
        lake.tick(book, minutes=2)
    assert lake.operations()[-1] == "replace"
    read = read_manifests(faults)
    assert read == 1 + FAN - 1  # the first by retention, and by the merge all but what its own commit writes
    assert lake.tick(book, days=1, minutes=-FAN, seconds=30).dropped_files in range(1, FAN)
    assert read_manifests(faults) == read + 1
    assert lake.tick(book, seconds=1).dropped_files == 0
    assert read_manifests(faults) == read + 1


def started_anew(tmp_path: Path, faults: Faults, most: int, monkeypatch: pytest.MonkeyPatch, brake: float) -> Any:
    """A bookkeeper that knows none of five manifests, all but one of which are past retention, and its lake."""
    monkeypatch.setattr(retain, "READ_AT_ONCE", most)
    lake = kept(tmp_path, LOOSE, keep=timedelta(days=1), brake=brake)
    writer, first = Writes(lake), lake.book()
    for number in range(4):
        writer.publish(f"a{number}")
        lake.tick(first)
    lake.clock.move(days=2)
    writer.publish("new")
    return lake, writer, lake.book(faults)


def test_after_a_start_manifests_are_read_over_many_ticks_and_rows_do_not_wait(
    tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, writer, book = started_anew(tmp_path, faults, 1, monkeypatch, brake=1.0)
    results, read = [], [0]
    while not results or not results[-1].dropped_files:
        results.append(lake.tick(book, seconds=1))
        read.append(read_manifests(faults))
        assert results[-1].commit is not None
        writer.publish(f"b{len(results)}")
    # More than one each time, or a busy table would never come to its end; those that lose a file are read once more.
    assert [after - before for before, after in pairwise(read)] == [1, 2, 2 + 4]
    assert [result.dropped_files for result in results] == [0, 0, 4]
    assert lake.keys() == ["b1", "b2", "new"]


def test_the_brake_weighs_also_what_was_not_read_at_first(
    tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, _, book = started_anew(tmp_path, faults, 1, monkeypatch, brake=0.5)
    for _ in range(8):
        assert lake.tick(book, seconds=1).dropped_files == 0
    assert "4 of 5 live files" in book.duties.retention.held_back


def test_retention_is_looked_at_only_as_often_as_it_is_told(tmp_path: Path, faults: Faults) -> None:
    lake = kept(tmp_path, keep=HOUR, every=timedelta(minutes=10))
    writer = Writes(lake)
    book = lake.book(faults)
    lake.tick(book)
    writer.publish("old", at=lake.clock.now - 2 * HOUR)
    lake.tick(book, minutes=9)
    assert lake.keys() == ["old"]
    lake.tick(book, minutes=1)
    assert lake.keys() == []
