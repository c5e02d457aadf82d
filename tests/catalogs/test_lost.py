"""A catalog that was lost, moved or exchanged: nothing makes an empty one, nothing is committed into the old file."""

import gzip
import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetPropertiesUpdate, SetSnapshotRefUpdate

from bookkeeper.catalogs import commit as catalogs
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.catalogs.storage import ENTRY_EVERY
from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.commands.recover_catalog import MOST_BYTES, Recovery, recover, recoverable
from bookkeeper.config.settings import Catalog
from bookkeeper.contract.known_table import KnownTable, advising, known_table
from bookkeeper.errors import (
    CatalogMissing,
    CommitUnknown,
    HistoryChanged,
    NotPossible,
    TableMissing,
    WrongFolder,
)
from bookkeeper.serve.open import open_folder
from bookkeeper.stores.open import stores_with
from tests.support.catalog_lake import CatalogLake, Place
from tests.support.lake import Lake, Writes
from tests.support.slots import Slot, offsets_of
from tests.tick.test_history import change


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def writer(lake: Lake) -> Writes:
    return Writes(lake)


def file_of(lake: Lake) -> Path:
    return lake.root / "catalog.db"


def lose(lake: Lake) -> None:
    lake.catalog.engine.dispose()  # type: ignore[attr-defined]
    for file in lake.root.glob("catalog.db*"):
        file.unlink()


def known(lake: Lake) -> KnownTable:
    found = known_table(lake.catalog_settings.properties, lake.settings)
    assert found is not None
    return found


def found(lake: Lake, catalog: Any = None, wanted: str | None = None) -> Recovery:
    return recoverable(known(lake), lake.settings, catalog, stores_with({}), wanted)


def metadata(lake: Lake) -> list[Path]:
    return sorted((lake.root / "demo/events/metadata").glob("*.metadata.json"))


def edited(source: Path, name: str, **changes: Any) -> Path:
    """A metadata file beside `source` that says something else."""
    data = json.loads(source.read_text()) | {key.replace("_", "-"): value for key, value in changes.items()}
    made = source.with_name(name)
    made.write_text(json.dumps(data))
    return made


def test_opening_makes_no_catalog(lake: Lake) -> None:
    lose(lake)

    with pytest.raises(CatalogMissing, match="is not there"):
        open_catalog(lake.catalog_settings)

    assert not file_of(lake).exists()


def test_opening_an_empty_file_makes_no_tables_in_it_and_says_that_the_table_is_missing(lake: Lake) -> None:
    lose(lake)
    file_of(lake).touch()

    with pytest.raises(TableMissing, match="the catalog is empty"):
        lake.book()
        lake.tick()

    with closing(sqlite3.connect(file_of(lake))) as there:
        assert there.execute("select count(*) from sqlite_master").fetchone() == (0,)


def test_a_path_with_strange_characters_is_the_path_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "la ke%20#1" / "cata log.db"
    settings = Catalog("lake", {"type": "sql", "uri": f"sqlite:///{path}", "warehouse": f"file://{tmp_path}"})

    open_catalog(settings, create=True).create_namespace("a")

    assert path.exists() and open_catalog(settings).list_namespaces() == [("a",)]


@pytest.mark.parametrize("moved", [True, False], ids=["moved", "deleted"])
def test_a_daemon_whose_catalog_has_gone_commits_nothing_and_goes_on_when_it_is_back(
    lake: Lake, writer: Writes, moved: bool
) -> None:
    writer.publish("a")
    book = lake.book()
    lake.tick(book)
    lake.catalog.engine.dispose()  # type: ignore[attr-defined]
    away = lake.root / "away.db"
    with closing(sqlite3.connect(file_of(lake))) as there, closing(sqlite3.connect(away)) as copy:
        there.backup(copy)
    if moved:
        os.replace(file_of(lake), away)
    else:
        file_of(lake).unlink()
    writer.publish("b")

    for _ in range(3):
        with pytest.raises(CatalogMissing):
            lake.tick(book)
    assert len(lake.pending()) == 1 and not file_of(lake).exists()

    os.replace(away, file_of(lake))
    lake.tick(book)
    assert (lake.keys(), lake.pending()) == (["a", "b"], [])


def test_an_old_copy_put_in_its_place_under_a_running_daemon_is_used_and_halts(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    book = lake.book()
    lake.tick(book)
    old = lake.root / "old.db"
    with closing(sqlite3.connect(file_of(lake))) as there, closing(sqlite3.connect(old)) as copy:
        there.backup(copy)
    writer.publish("b")
    lake.tick(book)
    lake.catalog.engine.dispose()  # type: ignore[attr-defined]
    os.replace(old, file_of(lake))
    for log in lake.root.glob("catalog.db-*"):
        log.unlink()  # what stands in it would make the old copy new again
    writer.publish("c")

    with pytest.raises(HistoryChanged, match=r"marks\.json knows a later one") as halted:
        lake.tick(book)
    assert "recover-catalog" in halted.value.hint and len(lake.pending()) == 1

    there_now = lake.catalog
    recover(there_now, lake.settings, found(lake, there_now))
    lake.tick()
    assert (lake.keys(), lake.pending()) == (["a", "b", "c"], [])


def test_a_commit_during_which_the_file_goes_away_counts_as_unknown_and_keeps_its_txlogs(
    lake: Lake, writer: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = lake.book()
    writer.publish("a")
    swap, seen = type(book.ledger.catalog)._swap, list[str]()

    def then_moved(self: Any, *how: Any) -> None:
        swap(self, *how)
        os.replace(file_of(lake), lake.root / "away.db")
        seen.append("moved")

    monkeypatch.setattr(type(book.ledger.catalog), "_swap", then_moved)
    with pytest.raises(CatalogMissing):
        lake.tick(book)
    monkeypatch.undo()

    assert seen and len(lake.pending()) == 1  # what was committed into a file that was moved away is not settled
    os.replace(lake.root / "away.db", file_of(lake))
    lake.tick(book)
    assert (lake.keys(), lake.pending()) == (["a"], [])


def test_the_commit_itself_says_that_its_outcome_is_unknown(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.table()
    monkeypatch.setattr(type(lake.catalog), "commit_table", lambda *_: file_of(lake).unlink())

    with pytest.raises(CommitUnknown, match="is not there"):
        catalogs.commit(table, (), (SetPropertiesUpdate(updates={"a": "b"}),))


def test_init_refuses_to_make_a_table_that_a_folder_knows_and_leaves_nothing(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    lake.catalog.drop_table("demo.events")

    with pytest.raises(NotPossible, match="a new table would take its place") as refused:
        initialise(lake.catalog, lake.settings, schema_for(lake.settings))

    assert "recover-catalog --table events" in refused.value.hint
    assert not lake.catalog.table_exists("demo.events")


def test_a_folder_that_has_lost_its_card_too_still_keeps_init_from_making_a_new_table(
    lake: Lake, writer: Writes
) -> None:
    writer.publish("a")
    lake.tick()
    lake.catalog.drop_table("demo.events")
    (lake.root / "demo/events/_bookkeeper/card.json").unlink()

    with pytest.raises(NotPossible, match=r"marks\.json of table .* and no card\.json"):
        initialise(lake.catalog, lake.settings, schema_for(lake.settings))

    assert not lake.catalog.table_exists("demo.events")


def test_advice_to_make_a_table_is_given_only_where_no_folder_knows_it(lake: Lake, tmp_path: Path) -> None:
    lose(lake)
    with pytest.raises(CatalogMissing) as lost, advising(lake.catalog_settings, lake.settings):
        open_catalog(lake.catalog_settings)
    assert "recover-catalog" in lost.value.hint and "init" not in lost.value.hint

    catalog = open_catalog(lake.catalog_settings, create=True)
    with pytest.raises(TableMissing) as missing, advising(lake.catalog_settings, lake.settings):
        open_folder(catalog, lake.settings)
    assert "recover-catalog" in missing.value.hint and "init" not in missing.value.hint

    (lake.root / "demo/events/_bookkeeper/card.json").write_bytes(b"{")
    with pytest.raises(TableMissing) as torn, advising(lake.catalog_settings, lake.settings):
        open_folder(catalog, lake.settings)
    assert "do not make a new table" in torn.value.hint

    (lake.root / "demo/events/_bookkeeper").rename(tmp_path / "away")
    with pytest.raises(TableMissing) as new, advising(lake.catalog_settings, lake.settings):
        open_folder(catalog, lake.settings)
    assert "`bookkeeper init`" in new.value.hint


def test_a_running_bookkeeper_whose_table_is_missing_advises_to_recover_it(lake: Lake, writer: Writes) -> None:
    book = lake.book()
    lake.tick(book)
    lake.catalog.drop_table("demo.events")
    writer.publish("a")

    with pytest.raises(TableMissing) as missing:
        lake.tick(book, seconds=11)

    assert "recover-catalog" in missing.value.hint and "init" not in missing.value.hint


def test_a_lost_catalog_is_registered_again_with_all_rows(lake: Lake, writer: Writes) -> None:
    for key in "ab":
        writer.publish(key)
        lake.tick()
    newest = lake.table().metadata_location
    writer.publish("c")
    lose(lake)

    recovery = found(lake)
    assert recovery.newest.location == newest and not file_of(lake).exists()  # looking makes nothing
    lake.catalog = open_catalog(lake.catalog_settings, create=True)
    recover(lake.catalog, lake.settings, recovery)
    lake.tick()

    assert (lake.keys(), lake.pending()) == (["a", "b", "c"], [])
    assert not found(lake, lake.catalog).needed


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "rest", "storage"])
def test_every_catalog_gets_back_a_table_it_has_lost(kind: str, request: pytest.FixtureRequest) -> None:
    place: Place = request.getfixturevalue(kind)
    lake: CatalogLake = place.lake()
    writer = Writes(lake)
    writer.publish("a")
    lake.tick()
    if kind == "storage":
        for entry in Path(lake.root / "warehouse/_catalog/demo").glob(f"{lake.settings.name}.table.json"):
            entry.unlink()
    else:
        lake.catalog.drop_table(lake.settings.identifier)
    with pytest.raises((TableMissing, NoSuchTableError)):
        for _ in range(ENTRY_EVERY):  # the storage-only catalog looks at its entry now and then
            lake.tick()

    recover(lake.catalog, lake.settings, recoverable(known(lake), lake.settings, lake.catalog, stores_with({})))
    writer.publish("b")
    lake.tick()

    assert lake.keys() == ["a", "b"] and lake.wrong() == []


def test_metadata_that_lies_elsewhere_is_found_by_an_old_entry_and_else_named_by_a_person(
    lake: Lake, writer: Writes
) -> None:
    writer.publish("a")
    lake.tick()
    elsewhere = f"file://{lake.root}/elsewhere"
    change(lake, SetPropertiesUpdate(updates={"write.metadata.path": elsewhere}))
    old = lake.table().metadata_location
    writer.publish("b")
    lake.tick()
    newest = lake.table().metadata_location
    assert newest.startswith(elsewhere)

    lake.catalog.repoint(lake.table(), old)  # as an old copy of the catalog says
    assert found(lake, lake.catalog).newest.location == newest
    lose(lake)
    with pytest.raises(NotPossible) as refused:
        found(lake)
    assert "write.metadata.path" in refused.value.hint
    recovery = found(lake, wanted=newest)
    lake.catalog = open_catalog(lake.catalog_settings, create=True)
    recover(lake.catalog, lake.settings, recovery)
    lake.tick()

    assert lake.keys() == ["a", "b"]


@pytest.mark.parametrize("name", ["demo.renamed", "other.events"])
def test_a_table_that_was_renamed_gets_no_second_name_and_goes_on_under_its_new_one(
    lake: Lake, writer: Writes, name: str
) -> None:
    writer.publish("a")
    lake.tick()
    lake.catalog.create_namespace_if_not_exists(name.partition(".")[0])
    lake.catalog.rename_table("demo.events", name)

    with pytest.raises(NotPossible, match=f"as {name}") as refused:
        found(lake, lake.catalog)
    assert f'identifier = "{name}"' in refused.value.hint

    lake.settings = replace(lake.settings, identifier=name)
    writer.publish("b")
    lake.tick()
    assert (lake.keys(), lake.pending()) == (["a", "b"], [])


def test_a_slot_goes_on_from_its_offsets_after_its_catalog_was_lost(lake: Lake) -> None:
    slot = Slot(lake)
    slot.reaches("a", p0="7", p1="3")
    lake.tick()
    slot.reaches("b", p1="4")
    lake.tick()
    lake.folder.store.delete_many(["marks.json"])  # the offsets are in the metadata file, too
    waiting = slot.reaches("c", p0="8")
    lose(lake)
    recovery = found(lake)
    lake.catalog = open_catalog(lake.catalog_settings, create=True)
    recover(lake.catalog, lake.settings, recovery)
    assert offsets_of(lake) == {"p0": "7", "p1": "4"} and str(waiting) in map(str, lake.pending())
    lake.drain()
    slot.reaches("d", p1="5")
    lake.drain()
    assert (lake.keys(), offsets_of(lake), lake.rejected()) == (["a", "b", "c", "d"], {"p0": "8", "p1": "5"}, {})


def test_the_newest_is_known_by_what_is_in_it_and_not_by_its_name_or_time(lake: Lake, writer: Writes) -> None:
    for key in "abc":
        writer.publish(key)
        lake.tick()
    newest, old = Path(lake.table().metadata_location.removeprefix("file://")), metadata(lake)[1]
    high = old.with_name("99999-00000000-0000-0000-0000-000000000000.metadata.json")
    high.write_bytes(old.read_bytes())
    low = newest.rename(newest.with_name("00000-ffffffff-0000-0000-0000-000000000000.metadata.json"))
    os.utime(high)
    lose(lake)

    recovery = found(lake)

    assert recovery.newest.name == low.name
    assert "older than marks.json" in recovery.passed[high.name]


def test_a_packed_metadata_file_is_read_too(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    newest = Path(lake.table().metadata_location.removeprefix("file://"))
    packed = newest.with_name(newest.name.replace(".metadata", ".gz.metadata"))
    packed.write_bytes(gzip.compress(newest.read_bytes()))
    newest.unlink()
    lose(lake)

    assert found(lake).newest.name == packed.name


def test_it_is_refused_when_marks_json_knows_a_later_commit_than_any_metadata(lake: Lake, writer: Writes) -> None:
    for key in "ab":
        writer.publish(key)
        lake.tick()
    Path(lake.table().metadata_location.removeprefix("file://")).unlink()
    lose(lake)

    with pytest.raises(NotPossible, match=r"no metadata file in .* will do; .* sequence number 2") as refused:
        found(lake)

    assert "older one rows that were committed would be lost" in refused.value.hint


def hostile(name: str, newest: Path) -> None:
    """One bad metadata file, numbered beyond all others."""
    bad = newest.with_name("88888-00000000-0000-0000-0000-000000000000.metadata.json")
    data = json.loads(newest.read_text())
    if name == "another table":
        edited(newest, bad.name, table_uuid="00000000-0000-0000-0000-000000000000")
    elif name == "another place":
        edited(newest, bad.name, location="file:///etc")
    elif name == "huge":
        with bad.open("wb") as file:
            file.truncate(MOST_BYTES + 1)
    elif name == "deep":
        bad.write_text("[" * 1_000_000)
    elif name == "bomb":
        bad = newest.with_name("88888-00000000-0000-0000-0000-000000000000.gz.metadata.json")
        bad.write_bytes(gzip.compress(b" " * (MOST_BYTES + 1000)))
    elif name == "v1":
        edited(newest, bad.name, format_version=1)
    elif name == "another folder":
        marks = json.loads(data["properties"]["bookkeeper.marks"]) | {"folder": "x"}
        edited(newest, bad.name, properties={"bookkeeper.marks": json.dumps(marks)})
    else:
        edited(newest, bad.name, properties={})


@pytest.mark.parametrize(
    "name", ["another table", "another place", "huge", "deep", "bomb", "v1", "another folder", "no marks"]
)
def test_a_hostile_metadata_file_is_passed_over_with_a_reason(lake: Lake, writer: Writes, name: str) -> None:
    writer.publish("a")
    lake.tick()
    newest = Path(lake.table().metadata_location.removeprefix("file://"))
    hostile(name, newest)
    lose(lake)

    recovery = found(lake)

    assert recovery.newest.name == newest.name
    assert [key for key in recovery.passed if key.startswith("88888")]


def test_the_card_of_another_table_is_not_taken(lake: Lake, writer: Writes) -> None:
    card = lake.root / "demo/events/_bookkeeper/card.json"
    card.write_text(re.sub("demo.events", "demo.others", card.read_text()))

    with pytest.raises(WrongFolder, match=r"belongs to demo\.others"):
        found(lake)


def fork(lake: Lake, writer: Writes) -> tuple[str, str]:
    """Two metadata files that both follow the last commit of ours; one of them was never committed."""
    from tests.support.lake import append_by_others

    writer.publish("a")
    lake.tick()
    before = lake.table().metadata_location
    append_by_others(lake, Writes(lake, "x").file(["x"]))
    first = lake.table().metadata_location
    lake.catalog.repoint(lake.table(), before)  # type: ignore[attr-defined]
    append_by_others(lake, Writes(lake, "y").file(["y"]))
    return first.rpartition("/")[2], lake.table().metadata_location.rpartition("/")[2]


def test_of_two_that_do_not_follow_each_other_a_person_names_one(lake: Lake, writer: Writes) -> None:
    one, other = fork(lake, writer)
    lose(lake)

    with pytest.raises(NotPossible, match="attempts that were refused") as refused:
        found(lake)
    assert one in str(refused.value) and other in str(refused.value) and "--metadata" in refused.value.hint

    assert found(lake, wanted=one).newest.name == one


def test_an_attempt_that_was_refused_before_the_last_commit_is_not_taken(lake: Lake, writer: Writes) -> None:
    one, _ = fork(lake, writer)
    writer.publish("b")
    lake.tick()
    newest = lake.table().metadata_location
    lose(lake)

    recovery = found(lake)

    assert recovery.newest.location == newest and one not in recovery.newest.location


def test_what_others_committed_after_our_last_commit_is_not_lost(lake: Lake, writer: Writes) -> None:
    from tests.support.lake import append_by_others

    writer.publish("a")
    lake.tick()
    append_by_others(lake, Writes(lake, "x").file(["x"]))
    newest = lake.table().metadata_location
    lose(lake)

    assert found(lake).newest.location == newest


def test_another_table_that_holds_rows_is_never_replaced_but_an_empty_one_is(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    newest = lake.table().metadata_location
    lake.catalog.drop_table("demo.events")
    schema = schema_for(lake.settings)
    place = f"file://{lake.root}/demo/events"
    empty = lake.catalog.create_table("demo.events", schema, location=place)  # what `init` used to do

    recovery = found(lake, lake.catalog)
    assert recovery.there is not None and str(recovery.there.metadata.table_uuid) == str(empty.metadata.table_uuid)
    recover(lake.catalog, lake.settings, recovery)
    assert lake.table().metadata_location == newest and lake.keys() == ["a"]

    rows = lake.table().scan().to_arrow()
    lake.catalog.drop_table("demo.events")
    other = lake.catalog.create_table("demo.events", schema, location=f"file://{lake.root}/demo/elsewhere")
    other.append(rows)
    with pytest.raises(NotPossible, match=r"another table under this name.*with 1 snapshots"):
        found(lake, lake.catalog)


def test_a_table_that_was_rolled_back_is_recovered_as_it_is_and_halts(lake: Lake, writer: Writes) -> None:
    for key in "ab":
        writer.publish(key)
        lake.tick()
    first = lake.table().metadata.snapshots[0].snapshot_id
    change(lake, SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=first))
    newest = lake.table().metadata_location
    lose(lake)

    recovery = found(lake)
    assert recovery.newest.location == newest
    lake.catalog = open_catalog(lake.catalog_settings, create=True)
    recover(lake.catalog, lake.settings, recovery)
    with pytest.raises(HistoryChanged):
        lake.tick()


def test_a_catalog_in_memory_is_no_file(tmp_path: Path) -> None:
    settings = Catalog("lake", {"type": "sql", "uri": "sqlite:///:memory:", "warehouse": f"file://{tmp_path}"})

    catalog = open_catalog(settings, create=True)

    catalog.create_namespace("a")
    assert catalog.list_namespaces() == [("a",)]


def test_a_catalog_that_is_opened_twice_to_be_made_keeps_its_locks(tmp_path: Path) -> None:
    """Else the next process that closes it deletes the write-ahead log: then each use was a `disk I/O error`."""
    settings = Catalog("lake", {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/wh"})
    first = open_catalog(settings, create=True)
    first.create_namespace("demo")
    second = open_catalog(settings, create=True)
    another = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('select 1 from iceberg_tables'); db.close()"
    )
    subprocess.run([sys.executable, "-c", another, f"{tmp_path}/catalog.db"], check=True, timeout=60)
    assert (tmp_path / "catalog.db-wal").exists()
    second.create_namespace("more")
    assert sorted(first.list_namespaces()) == [("demo",), ("more",)]
