"""A data file belongs to one txlog, by its name: no other can name it, and so get it deleted."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.config.settings import Reaper, Retention
from bookkeeper.contract.card import dumps, loads
from bookkeeper.contract.file_names import LOOSE, STRICT, check_names, owner_of
from bookkeeper.contract.names import TxlogName
from bookkeeper.errors import DuplicatePath, FileNameRefused
from bookkeeper.format.entries import DataFile
from reaper.run import reap
from tests.support.lake import Lake, Writes

ONE, TWO = "01a1fdf4-2b80-7001-8203-040506070809", "01a1fdf4-2b80-7001-8203-0405060708aa"
NAME = TxlogName("a", ONE, 7)
OWN = f"a-{ONE}-0000000007-00001.parquet"


def names(*segments: str, name: TxlogName = NAME, strict: bool = True) -> str | None:
    return check_names(name, [f"s3://lake/data/{segment}" for segment in segments], strict)


@pytest.mark.parametrize("strict", [True, False])
def test_its_own_names_are_taken(strict: bool) -> None:
    assert names(OWN, f"a-{ONE}-0000000007-00002-deletes.parquet", f"day=1/a-{ONE}-0000000007-x", strict=strict) is None


@pytest.mark.parametrize(
    "segment",
    [
        f"b-{ONE}-0000000007-00001.parquet",
        f"a-{TWO}-0000000007-00001.parquet",
        # It begins like a file of this txlog, and is one of a writer with a longer name.
        f"a-{ONE}-0000000007-{TWO}-0000000001-00001.parquet",
        f"a-{ONE}-0000000007-b-{ONE}-0000000001-00001.parquet",
        f"b-{TWO}-0000000001-{ONE}.parquet",
        # Nothing behind the other one's prefix: the shortest name that begins like a file of this txlog.
        f"a-{ONE}-0000000007-{TWO}-0000000001-",
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_names_of_other_txlogs_are_refused(segment: str, strict: bool) -> None:
    with pytest.raises(FileNameRefused, match="belongs to txlog"):
        names(OWN, segment, strict=strict)


@pytest.mark.parametrize(
    "segment",
    [
        f"{ONE}-00001.parquet",
        f"a-{ONE}-0000000006-00001.parquet",
        f"a-{ONE}-0000000008-1.parquet",
        f"A-{ONE}-0000000007-1.parquet",
        f"part.{ONE}.parquet",
        f"a-{ONE}-7.parquet",
        ONE,
    ],
)
def test_other_names_with_the_incarnation_are_taken_where_names_are_loose(segment: str) -> None:
    assert names(OWN, segment, strict=False) == f"s3://lake/data/{segment}"
    with pytest.raises(FileNameRefused, match=f"must begin with a-{ONE}-0000000007-|belongs to txlog a.{ONE}"):
        names(OWN, segment)


@pytest.mark.parametrize("segment", ["a.parquet", f"{TWO}.parquet", f"f{ONE}.parquet", f"{ONE}0.parquet", f"{ONE}/x"])
def test_names_without_the_incarnation_are_refused(segment: str) -> None:
    with pytest.raises(FileNameRefused, match=f"must hold the incarnation {ONE}"):
        names(segment, strict=False)


def test_a_writer_whose_name_looks_like_a_prefix_names_its_own_files() -> None:
    long = TxlogName(f"a-{ONE}-0000000007", TWO, 1)
    segment = f"{long.writer}-{TWO}-0000000001-00001.parquet"
    assert owner_of(segment) == tuple(long)
    assert names(segment, name=long) is None
    with pytest.raises(FileNameRefused, match="belongs to txlog"):
        names(segment)


def test_two_names_that_differ_by_case_are_one() -> None:
    with pytest.raises(DuplicatePath, match="named twice"):
        names(OWN, OWN.replace("parquet", "PARQUET"))
    with pytest.raises(DuplicatePath, match="named twice"):
        names(f"x/{OWN}", f"y/{OWN}")


# -- attacks


def own_file(writer: Writes, key: str, ahead: int = 1) -> DataFile:
    """A file that is called after the writer's next txlog, or after a later one."""
    return writer.file([key], sequence=writer.name.sequence + ahead)


def publish(writer: Writes, file: DataFile, **envelope: Any) -> str:
    name, data = writer.encoded([file], **envelope)
    writer.lake.folder.publish(name, data)
    return str(name)


def forged(file: DataFile) -> DataFile:
    """The same file with bounds of long ago, so that retention drops its entry."""
    old = {1: (0).to_bytes(8, "little")}
    return replace(file, lower_bounds={**file.lower_bounds, **old}, upper_bounds={**file.upper_bounds, **old})


@pytest.fixture
def strict(tmp_path: Path) -> Lake:
    """A table as `init` makes it, whose old rows retention drops."""
    keep = Retention(keep=timedelta(days=1), brake=1.0)
    return Lake(tmp_path / "lake", file_names=None, partition_by=(), retention=keep)


def after_retention_and_expiry(lake: Lake) -> list[str]:
    """The keys in the table, once retention dropped what looks old and the reaper deleted what nothing needs."""
    book = lake.book()
    for _ in range(3):
        lake.tick(book, hours=1)
    eager = replace(lake.settings, reaper=Reaper(older_than=timedelta(0), retain_last=1))
    reap(lake.catalog, eager, lake.clock.now, open_store=lake.store)
    return lake.keys()


def test_a_table_that_is_new_is_strict_and_its_card_says_so(strict: Lake) -> None:
    assert strict.folder.card().file_names == STRICT
    strict.tick()
    assert strict.folder.card().file_names == STRICT


@pytest.mark.parametrize("when", ["beside", "after", "after a restart", "before"])
@pytest.mark.parametrize("forger", ["victim", "other"])
def test_a_file_of_another_txlog_is_refused_and_no_row_is_lost(strict: Lake, when: str, forger: str) -> None:
    """With forged bounds retention dropped the second entry, and the reaper deleted the live file."""
    victim, book = Writes(strict, "victim"), strict.book()
    other = victim if forger == "victim" else Writes(strict, "other")
    publish(writer := Writes(strict, "good"), own_file(writer, "good"))
    file = own_file(victim, "a", ahead=2 if when == "before" and other is victim else 1)
    if when == "before":
        bad = publish(other, forged(file))
        publish(victim, file)
    else:
        publish(victim, file)
        if when != "beside":
            strict.tick(book)
        bad = publish(other, forged(file))
    strict.tick(strict.book() if when == "after a restart" else book)
    assert strict.rejected() == {bad: "FileNameRefused"}
    assert after_retention_and_expiry(strict) == ["a", "good"]


def test_a_back_dated_txlog_that_names_the_file_of_a_pending_one_is_refused(strict: Lake) -> None:
    victim, other = Writes(strict, "victim"), Writes(strict, "a-writer-that-comes-first")
    file = own_file(victim, "a")
    created = int((strict.clock.now - timedelta(hours=1)).timestamp() * 1000)
    bad = publish(other, forged(file), created_ms=created)
    publish(victim, file)
    strict.tick()
    assert strict.rejected() == {bad: "FileNameRefused"}
    assert after_retention_and_expiry(strict) == ["a"]


def test_a_loose_table_takes_other_names_of_the_run_and_says_so(tmp_path: Path, caplog: Any) -> None:
    lake = Lake(tmp_path / "lake")
    book, writer = lake.book(), Writes(lake, "old")
    commits = []
    for key in "ab":
        publish(writer, writer.file([key]))
        commits.append(lake.tick(book).commit)
    publish(ours := Writes(lake, "ours"), own_file(ours, "c"))
    commits.append(lake.tick(book).commit)
    assert [commit.loose_names for commit in commits] == [1, 1, 0]
    assert lake.keys() == ["a", "b", "c"]
    (warning,) = [record for record in caplog.records if record.__dict__.get("action") == "file-names"]
    assert "old" in warning.__dict__["txlog"] and "file-names" in warning.__dict__["hint"]


def test_a_table_turns_strict_by_a_setting_and_back(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    assert lake.folder.card().file_names == LOOSE
    name = publish(old := Writes(lake, "old"), old.file(["a"]))
    lake.tick(lake.book(file_names=STRICT))
    assert lake.folder.card().file_names == STRICT
    assert lake.rejected() == {str(name): "FileNameRefused"}
    name = publish(old := Writes(lake, "old"), old.file(["b"]))
    lake.tick(lake.book(file_names=None))
    assert list(lake.rejected().values()) == ["FileNameRefused"] * 2
    publish(old := Writes(lake, "old"), old.file(["c"]))
    lake.tick(lake.book(file_names=LOOSE))
    assert lake.keys() == ["c"]


def test_a_card_of_the_last_release_is_loose_and_stays_so(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", file_names=None)
    lake.folder.write_card(replace(lake.folder.card(), file_names=""))
    assert b"file-names" not in Path(lake.made.folder.removeprefix("file://"), "card.json").read_bytes()
    publish(old := Writes(lake, "old"), old.file(["a"]))
    lake.tick()
    assert (lake.keys(), lake.folder.card().file_names) == (["a"], "")


def test_a_card_with_a_key_of_a_later_version_is_read(strict: Lake) -> None:
    """As versions before `file-names` read this one's; what they do not know they leave out where they write it."""
    card = json.loads(dumps(strict.folder.card()))
    assert loads(json.dumps(card | {"of-a-later-version": "strict"}).encode()) == strict.folder.card()
