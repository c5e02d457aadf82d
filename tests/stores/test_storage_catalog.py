"""The catalog that is nothing but storage, where it differs from others: races, stale committers, dropped tables."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate
from pyiceberg.types import NestedField, StringType

from bookkeeper.catalogs.commit import commit, load_table
from bookkeeper.catalogs.open import STORAGE, open_catalog
from bookkeeper.catalogs.storage import ENTRY_EVERY, StorageCatalog
from bookkeeper.catalogs.versions import HINT, Versions, name, number
from bookkeeper.config.settings import Catalog
from bookkeeper.errors import CatalogUnavailable, CommitConflict, CommitUnknown, StorageUnavailable
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from tests.servers.shared import place, wanted
from tests.support.crashing_store import POINTS, Crash, CrashingStore
from tests.support.crew import Crew
from tests.support.wrapped import Around, WrappedStore

RACERS = 8
#: commits of each racer; RACE=25 makes it two hundred in all on each
EACH = {"local": 25, "s3": 5, "azurite": 5, "gcs": 5}
SCHEMA = Schema(NestedField(1, "key", StringType(), required=False))


def properties(kind: str, path: Path) -> dict[str, str]:
    """The configuration of a catalog in a place of its own."""
    if kind == "local":
        return {"py-catalog-impl": STORAGE, "warehouse": f"file://{path}/warehouse"}
    return {**wanted(kind).properties, "py-catalog-impl": STORAGE, "warehouse": place(kind)}


def opened(given: Mapping[str, str]) -> Any:
    """The catalog with a namespace."""
    catalog = open_catalog(Catalog("lake", given), create=True)
    catalog.create_namespace_if_not_exists("demo")
    return catalog


def set_property(table: Table, key: str) -> Any:
    """One commit."""
    guard = AssertTableUUID(uuid=table.metadata.table_uuid)
    return commit(table, (guard,), (SetPropertiesUpdate(updates={key: "in"}),))


def test_a_tables_location_may_be_a_link_and_its_metadata_folder_may_not(tmp_path: Path) -> None:
    given = properties("local", tmp_path)
    opened(given).create_table("demo.t", SCHEMA)
    place = tmp_path / "warehouse" / "demo" / "t"
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    catalog = opened(given)
    set_property(load_table(catalog, "demo.t"), "one")
    set_property(load_table(opened(given), "demo.t"), "two")
    held = load_table(catalog, "demo.t")
    (place / "metadata").rename(tmp_path / "metadata")
    (place / "metadata").symlink_to(tmp_path / "metadata")
    before = sorted(os.listdir(tmp_path / "metadata"))
    with pytest.raises(CatalogUnavailable, match="metadata is a symbolic link") as refused:
        load_table(opened(given), "demo.t")
    assert "mount" in refused.value.hint
    with pytest.raises(CommitUnknown, match="metadata is a symbolic link"):
        set_property(held, "three")
    assert sorted(os.listdir(tmp_path / "metadata")) == before
    (place / "metadata").unlink()
    (tmp_path / "metadata").rename(place / "metadata")
    assert {"one", "two"} <= load_table(opened(given), "demo.t").metadata.properties.keys()


@pytest.fixture
def catalog(tmp_path: Path) -> StorageCatalog:
    """A catalog on local disk."""
    made: StorageCatalog = opened(properties("local", tmp_path))
    return made


@pytest.fixture
def versions(catalog: StorageCatalog) -> Versions:
    """The versions of demo.t, which is made here."""
    catalog.create_table("demo.t", SCHEMA)
    return Versions(open_store(catalog.warehouse), "demo/t/metadata")


@pytest.mark.parametrize("kind", EACH)
def test_eight_processes_race_for_hundreds_of_commits_and_none_is_lost_or_doubled(kind: str, tmp_path: Path) -> None:
    given, each = properties(kind, tmp_path), int(os.environ.get("RACE") or EACH[kind])
    catalog = opened(given)
    catalog.create_table("demo.race", SCHEMA)
    racer = [sys.executable, "-m", "tests.stores.racer"]
    with Crew({str(number): [*racer, str(number), str(each)] for number in range(RACERS)}, tmp_path) as crew:
        racing = [crew.start(name, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for name in crew.commands]
        for process in racing:
            process.stdin.write(json.dumps(given).encode())
            process.stdin.close()
        refused = [int(process.stdout.read().split()[-1]) for process in racing]
        assert [crew.wait(name) for name in crew.commands] == [0] * RACERS
    table = load_table(catalog, "demo.race")
    wished = {f"racer.{racer}.{index}" for racer in range(RACERS) for index in range(each)}
    assert {key for key in table.metadata.properties if key.startswith("racer.")} == wished
    assert number(table.metadata_location) == 1 + RACERS * each
    assert sum(refused) > 0, "no two ever raced"


def test_a_commit_on_an_older_version_is_refused(catalog: StorageCatalog, versions: Versions) -> None:
    stale = catalog.load_table("demo.t")
    set_property(catalog.load_table("demo.t"), "first")
    with pytest.raises(CommitFailedException):
        catalog.commit_table(stale, (), (SetPropertiesUpdate(updates={"second": "in"}),))
    assert "second" not in catalog.load_table("demo.t").metadata.properties


def test_a_stale_committer_that_makes_a_deleted_version_anew_is_not_told_that_it_counts(
    catalog: StorageCatalog, versions: Versions
) -> None:
    stale = catalog.load_table("demo.t")
    for index in range(5):
        set_property(catalog.load_table("demo.t"), f"p{index}")
    versions.store.delete_many([f"demo/t/metadata/{name(version)}" for version in (1, 2, 3)])
    with pytest.raises(CommitUnknown):
        set_property(stale, "late")
    now = catalog.load_table("demo.t")
    assert "late" not in now.metadata.properties
    assert number(now.metadata_location) == 6
    set_property(now, "next")
    assert "next" in catalog.load_table("demo.t").metadata.properties


def test_a_commit_whose_hint_was_never_written_counts_and_the_next_load_moves_the_hint(
    catalog: StorageCatalog, versions: Versions
) -> None:
    set_property(catalog.load_table("demo.t"), "p")
    hint = f"demo/t/metadata/{HINT}"
    versions.store.replace(hint, b"1")
    assert number(catalog.load_table("demo.t").metadata_location) == 2
    assert versions.store.read(hint) == b"2"


def test_the_hint_never_goes_back(catalog: StorageCatalog, versions: Versions) -> None:
    for index in range(3):
        set_property(catalog.load_table("demo.t"), f"p{index}")
    assert versions._raise_hint(2) == 4
    assert versions.store.read(f"demo/t/metadata/{HINT}") == b"4"


def test_versions_that_many_have_made_without_a_hint_are_all_found(catalog: StorageCatalog, versions: Versions) -> None:
    for index in range(12):
        set_property(catalog.load_table("demo.t"), f"p{index}")
    versions.store.replace(f"demo/t/metadata/{HINT}", b"2")
    assert number(catalog.load_table("demo.t").metadata_location) == 13


def test_a_storage_that_does_not_answer_hides_no_version(catalog: StorageCatalog, versions: Versions) -> None:
    set_property(catalog.load_table("demo.t"), "p")

    class Silent(CrashingStore):
        def __getattr__(self, wanted: str) -> Any:
            call = super().__getattr__(wanted)
            if wanted != "read_many":
                return call
            return lambda keys: {**call(keys), keys[-1]: StorageUnavailable("no answer")}

    with pytest.raises(StorageUnavailable):
        Versions(Silent(versions.store), "demo/t/metadata").newest()  # type: ignore[arg-type]


def test_a_load_after_which_nothing_changed_reads_no_metadata_again(
    catalog: StorageCatalog, versions: Versions
) -> None:
    calls = list[str]()
    counting = counting_calls(catalog, calls)
    set_property(counting.load_table("demo.t"), "p")
    calls.clear()
    assert "p" in counting.load_table("demo.t").metadata.properties
    assert calls == ["read_many"]


def test_what_others_did_is_seen_by_the_next_load(catalog: StorageCatalog, versions: Versions) -> None:
    others = StorageCatalog("lake", **catalog.properties)
    hint = f"demo/t/metadata/{HINT}"
    for index in range(3):
        set_property(catalog.load_table("demo.t"), f"ours{index}")
        before = versions.store.read(hint)
        set_property(others.load_table("demo.t"), f"theirs{index}")
        if index == 1:  # they died before they moved the hint
            versions.store.replace(hint, before)
        now = catalog.load_table("demo.t")
        assert number(now.metadata_location) == 3 + 2 * index
        assert f"theirs{index}" in now.metadata.properties
    others.drop_table("demo.t")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("demo.t")
    made = others.create_table("demo.t", SCHEMA)
    assert catalog.load_table("demo.t").metadata.table_uuid == made.metadata.table_uuid


def loaded_for_commit(catalog: StorageCatalog) -> int:
    """The version that a bookkeeper's reload finds."""
    return number(catalog.load_for_commit("demo.t").metadata_location)


def test_a_reload_for_commits_is_one_small_read_and_sees_what_others_have_done(
    catalog: StorageCatalog, versions: Versions
) -> None:
    calls, others = list[str](), StorageCatalog("lake", **catalog.properties)
    counting = counting_calls(catalog, calls)
    set_property(counting.load_table("demo.t"), "p")
    calls.clear()
    assert loaded_for_commit(counting) == 2 and calls == ["read_many"]
    for version in (3, 4):
        set_property(others.load_table("demo.t"), f"theirs{version}")
        assert loaded_for_commit(counting) == version == loaded_for_commit(counting)
    others.drop_table("demo.t")
    with pytest.raises(NoSuchTableError):
        counting.load_for_commit("demo.t")
    made = others.create_table("demo.t", SCHEMA)
    assert counting.load_for_commit("demo.t").metadata.table_uuid == made.metadata.table_uuid


def test_a_version_whose_committer_died_before_the_hint_refuses_our_commit_and_is_found_then(
    catalog: StorageCatalog, versions: Versions
) -> None:
    others, hint = StorageCatalog("lake", **catalog.properties), f"demo/t/metadata/{HINT}"
    ours = catalog.load_for_commit("demo.t")
    before = versions.store.read(hint)
    set_property(others.load_table("demo.t"), "theirs")
    versions.store.replace(hint, before)
    assert loaded_for_commit(catalog) == 1
    with pytest.raises(CommitConflict):
        set_property(ours, "ours")
    assert "theirs" in catalog.load_for_commit("demo.t").metadata.properties
    assert versions.store.read(hint) == b"2"


def test_what_any_load_has_found_no_later_reload_for_commits_misses(
    catalog: StorageCatalog, versions: Versions
) -> None:
    others, hint = StorageCatalog("lake", **catalog.properties), f"demo/t/metadata/{HINT}"
    catalog.load_for_commit("demo.t")
    before = versions.store.read(hint)
    set_property(others.load_table("demo.t"), "theirs")
    versions.store.replace(hint, before)
    third = StorageCatalog("lake", **catalog.properties)
    assert number(third.load_table("demo.t").metadata_location) == 2 == loaded_for_commit(catalog)


def test_a_table_whose_entry_was_lost_and_that_was_registered_elsewhere_is_found_after_a_few_reloads(
    catalog: StorageCatalog, versions: Versions
) -> None:
    old = catalog.load_for_commit("demo.t").metadata.table_uuid
    versions.store.delete_many(["_catalog/demo/t.table.json"])
    made = StorageCatalog("lake", **catalog.properties).create_table("demo.t", SCHEMA)
    found = [catalog.load_for_commit("demo.t").metadata.table_uuid for _ in range(ENTRY_EVERY)]
    assert found[0] == old and found[-1] == made.metadata.table_uuid != old


def test_a_commit_that_follows_ours_is_two_requests(catalog: StorageCatalog, versions: Versions) -> None:
    calls = list[str]()
    counting = counting_calls(catalog, calls)
    for index in range(3):
        table = counting.load_table("demo.t")
        calls.clear()
        set_property(table, f"p{index}")
        assert calls == ["create", "replace"]
    assert versions.store.read(f"demo/t/metadata/{HINT}") == b"4"


def counting_calls(catalog: StorageCatalog, calls: list[str]) -> StorageCatalog:
    """The same catalog in another process, which notes its calls of stores."""

    def opened(url: str) -> Any:
        store = CrashingStore(open_store(url))
        store.calls = calls
        return store

    return StorageCatalog("lake", opened, **catalog.properties)


def test_a_table_that_is_dropped_and_made_again_never_meets_its_old_versions(
    catalog: StorageCatalog, versions: Versions
) -> None:
    old = catalog.load_table("demo.t")
    catalog.drop_table("demo.t")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("demo.t")
    with pytest.raises(NoSuchTableError):
        catalog.drop_table("demo.t")
    assert catalog.list_tables("demo") == []
    again = catalog.create_table("demo.t", SCHEMA)
    assert again.metadata.location != old.metadata.location
    with pytest.raises(CommitUnknown):
        set_property(old, "to the old one")
    assert "to the old one" not in catalog.load_table("demo.t").metadata.properties
    assert catalog.list_tables("demo") == [("demo", "t")]


def test_a_dropped_table_whose_files_are_gone_leaves_its_directory_unused(
    catalog: StorageCatalog, versions: Versions
) -> None:
    old = catalog.load_table("demo.t").metadata.location
    catalog.drop_table("demo.t")
    versions.store.delete_many([f"demo/t/metadata/{name(1)}"])
    assert catalog.create_table("demo.t", SCHEMA).metadata.location != old


def read_only(name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Around the store of one who may only read."""
    if not name.startswith(("read", "list", "size")):
        raise StorageUnavailable(f"{name} is not allowed")
    return act(*given, **named)


def hints_stay(name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Around a store that has no room to replace an object."""
    if name == "replace":
        raise StorageUnavailable("no space left")
    return act(*given, **named)


def through(around: Around, catalog: StorageCatalog) -> StorageCatalog:
    """The same catalog in another process, with `around` its stores."""

    def opened(url: str) -> Any:
        return WrappedStore(open_store(url), around)

    return StorageCatalog("lake", opened, **catalog.properties)


def test_a_reader_without_the_right_to_write_sees_a_version_whose_committer_died_before_the_hint(
    catalog: StorageCatalog, versions: Versions
) -> None:
    hint = f"demo/t/metadata/{HINT}"
    set_property(catalog.load_table("demo.t"), "p")
    versions.store.replace(hint, b"1")
    reader = through(read_only, catalog)
    for _ in range(2):
        assert "p" in load_table(reader, "demo.t").metadata.properties
    assert versions.store.read(hint) == b"1"
    with pytest.raises(CatalogUnavailable):
        load_table(reader, "demo.t", for_commit=True)
    set_property(catalog.load_table("demo.t"), "next")
    assert "next" in load_table(reader, "demo.t").metadata.properties


def test_a_hint_that_cannot_be_moved_stays_at_most_one_version_behind(
    catalog: StorageCatalog, versions: Versions
) -> None:
    full = through(hints_stay, catalog)
    for _ in range(3):
        with pytest.raises(CommitUnknown, match="no space left"):
            set_property(load_table(full, "demo.t"), "p")
    assert number(load_table(full, "demo.t").metadata_location) == 2
    assert versions.store.read(f"demo/t/metadata/{HINT}") == b"1"
    set_property(load_table(catalog, "demo.t"), "next")
    assert {"p", "next"} <= load_table(full, "demo.t").metadata.properties.keys()


def test_a_name_is_taken_once(catalog: StorageCatalog, versions: Versions) -> None:
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("demo.t", SCHEMA)
    assert catalog.load_table("demo.t").metadata.location == f"{catalog.warehouse}/demo/t"


@pytest.mark.parametrize("act", ["create", "commit", "drop"])
def test_one_that_dies_anywhere_leaves_a_table_that_goes_on(act: str, tmp_path: Path) -> None:
    for fatal in range(POINTS):
        path = tmp_path / str(fatal)
        path.mkdir()
        catalog = opened(properties("local", path))
        if act != "create":
            catalog.create_table("demo.t", SCHEMA)
        through = _survived(catalog, act, fatal)
        _goes_on(catalog, act, through)
        if through:
            return
    pytest.fail("never got through")


def _survived(catalog: StorageCatalog, act: str, fatal: int) -> bool:
    crashing: list[CrashingStore] = []

    def open_crashing(url: str) -> Store:
        # One count for all stores that it opens.
        if not crashing:
            crashing.append(CrashingStore(open_store(catalog.warehouse), fatal))
        assert url == catalog.warehouse
        return crashing[0]  # type: ignore[return-value]

    dying = StorageCatalog("lake", open_crashing, **catalog.properties)
    try:
        if act == "create":
            dying.create_table("demo.t", SCHEMA)
        elif act == "drop":
            dying.drop_table("demo.t")
        else:
            dying.commit_table(catalog.load_table("demo.t"), (), (SetPropertiesUpdate(updates={"p": "in"}),))
    except Crash:
        return False
    return True


def _goes_on(catalog: StorageCatalog, act: str, through: bool) -> None:
    """Whatever is left, another process can make the table, commit to it and drop it."""
    if through:
        assert catalog.table_exists("demo.t") == (act != "drop")
    if not catalog.table_exists("demo.t"):
        catalog.create_table("demo.t", SCHEMA)
    before = number(catalog.load_table("demo.t").metadata_location)
    set_property(catalog.load_table("demo.t"), "after")
    now = catalog.load_table("demo.t")
    assert now.metadata.properties["after"] == "in"
    assert number(now.metadata_location) == before + 1
    catalog.drop_table("demo.t")
    assert not catalog.table_exists("demo.t")
