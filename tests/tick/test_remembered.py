"""What a bookkeeper remembers only to save work is bounded, for all tables of a process together."""

from pathlib import Path

from bookkeeper.tick.tick import Bookkeeper
from tests.support.lake import Lake, Writes


def test_with_many_tables_each_remembers_fewer_paths_and_none_too_few(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    ledger = lake.book().ledger
    remembered = [
        Bookkeeper(lake.settings, lake.folder, ledger, tables=tables).most_recent for tables in (1, 5, 50, 999)
    ]
    assert remembered == [20_000, 4_000, 400, 200]


def test_of_more_paths_than_it_remembers_it_forgets_the_oldest(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    writer, book = Writes(lake), lake.book()
    book.most_recent = 2
    for key in "abc":
        writer.publish(key)
        lake.tick(book)
    assert [path.rpartition("-")[2] for path in book.recent] == ["b.parquet", "c.parquet"]
