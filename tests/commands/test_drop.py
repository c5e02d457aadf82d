"""`bookkeeper drop`: what keeps a table, what goes in which order, and what a crash at each step leaves."""

import os
from pathlib import Path

import pytest
from pyiceberg.exceptions import ForbiddenError, NoSuchNamespaceError, TooManyRequestsError

from bookkeeper.commands.drop import drop, droppable
from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.errors import CatalogUnavailable, NotPossible, WrongFolder
from bookkeeper.stores.locations import local_path
from tests.support.crashing_store import CrashingStore, survived
from tests.support.lake import Lake, Saved, Writes


def left(lake: Lake) -> list[str]:
    return sorted(item.key for item in lake.folder.store.list(""))


def there(lake: Lake) -> bool:
    return bool(lake.catalog.table_exists(lake.settings.identifier))


def test_an_empty_table_goes_with_its_folder_and_can_be_made_anew(lake: Lake) -> None:
    found = droppable(lake.catalog, lake.settings, lake.store)
    assert found.against == []
    drop(lake.catalog, found)
    assert (there(lake), left(lake)) == (False, [])
    assert Path(found.entry.metadata_location.removeprefix("file://")).exists()  # type: ignore[union-attr]
    with pytest.raises(NotPossible, match="there is no table"):
        droppable(lake.catalog, lake.settings, lake.store)
    made = initialise(lake.catalog, lake.settings, schema_for(lake.settings), lake.store)
    assert "table" in made.made


def a_row(lake: Lake) -> None:
    Writes(lake).publish("a")
    lake.tick()


def a_pending_txlog(lake: Lake) -> None:
    Writes(lake).publish("a")


def a_rejected_txlog(lake: Lake) -> None:
    writer = Writes(lake)
    file = writer.file(["late"])
    os.unlink(file.path.removeprefix("file://"))
    lake.folder.publish(*writer.encoded([file]))
    lake.drain()


def a_consumer(lake: Lake) -> None:
    lake.put("consumers/nightly.json", b"{}")


@pytest.mark.parametrize("so", [a_row, a_pending_txlog, a_rejected_txlog, a_consumer])
def test_a_table_in_use_is_kept_unless_it_is_forced(lake: Lake, so: object) -> None:
    so(lake)  # type: ignore[operator]
    before = left(lake)
    found = droppable(lake.catalog, lake.settings, lake.store)
    assert len(found.against) == 1
    with pytest.raises(NotPossible, match=f"is kept: {found.against[0]}"):
        drop(lake.catalog, found)
    assert there(lake) and left(lake) == before
    drop(lake.catalog, found, force=True)
    assert (there(lake), left(lake)) == (False, [])


def test_rows_that_came_after_the_look_keep_it(lake: Lake) -> None:
    found = droppable(lake.catalog, lake.settings, lake.store)
    a_row(lake)
    with pytest.raises(NotPossible, match="changed meanwhile"):
        drop(lake.catalog, found)
    assert there(lake) and lake.keys() == ["a"]


def test_a_txlog_that_came_while_the_entry_was_dropped_keeps_the_folder(lake: Lake) -> None:
    found = droppable(lake.catalog, lake.settings, lake.store)
    a_pending_txlog(lake)
    with pytest.raises(NotPossible, match="1 txlogs were published while"):
        drop(lake.catalog, found)
    assert len(lake.pending()) == 1 and "card.json" in left(lake)


def test_the_folder_of_another_table_stays(lake: Lake) -> None:
    lake.catalog.drop_table(lake.settings.identifier)
    lake.catalog.create_table(lake.settings.identifier, schema_for(lake.settings), location=lake.made.location)
    before = left(lake)
    with pytest.raises(WrongFolder):
        droppable(lake.catalog, lake.settings, lake.store)
    assert left(lake) == before


def test_the_folder_of_a_table_that_was_renamed_stays(lake: Lake) -> None:
    a_row(lake)
    before = left(lake)
    lake.catalog.rename_table(lake.settings.identifier, "demo.renamed")
    with pytest.raises(NotPossible, match=r"as demo\.renamed"):
        droppable(lake.catalog, lake.settings, lake.store)
    assert left(lake) == before


@pytest.mark.parametrize(
    "error", [TooManyRequestsError("slow down"), TimeoutError("no answer"), ConnectionError("reset")]
)
def test_a_catalog_that_is_busy_does_not_hide_that_the_table_was_renamed(lake: Lake, monkeypatch, error) -> None:
    a_row(lake)
    lake.catalog.rename_table(lake.settings.identifier, "demo.renamed")
    load = lake.catalog.load_table

    def busy(name: str) -> object:
        if name == "demo.renamed":
            raise error
        return load(name)

    monkeypatch.setattr(lake.catalog, "load_table", busy)
    with pytest.raises(CatalogUnavailable, match=r"load table demo\.renamed"):
        droppable(lake.catalog, lake.settings, lake.store)


def test_namespaces_that_may_not_be_listed_or_go_meanwhile_hide_no_other(lake: Lake, monkeypatch) -> None:
    a_row(lake)
    lake.catalog.create_namespace("there")
    lake.catalog.rename_table(lake.settings.identifier, "there.renamed")
    tables = lake.catalog.list_tables
    errors = {("a",): ForbiddenError("not yours"), ("b",): NoSuchNamespaceError("dropped")}

    def listed(namespace: tuple[str, ...]) -> object:
        if namespace in errors:
            raise errors[namespace]
        return tables(namespace)

    monkeypatch.setattr(lake.catalog, "list_namespaces", lambda: [*errors, ("demo",), ("there",)])
    monkeypatch.setattr(lake.catalog, "list_tables", listed)
    with pytest.raises(NotPossible, match=r"as there\.renamed"):
        droppable(lake.catalog, lake.settings, lake.store)


def test_other_tables_and_namespaces_that_are_broken_stop_nothing(lake: Lake, monkeypatch) -> None:
    lake.catalog.create_table("demo.broken", schema_for(lake.settings))
    Path(local_path(lake.catalog.load_table("demo.broken").metadata_location)).unlink()
    lake.catalog.drop_table(lake.settings.identifier)

    def refused() -> object:
        raise ForbiddenError("only your own namespace")

    monkeypatch.setattr(lake.catalog, "list_namespaces", refused)
    assert droppable(lake.catalog, lake.settings, lake.store).entry is None


def test_an_entry_without_a_folder_goes_only_by_force(lake: Lake) -> None:
    lake.folder.store.delete_many(left(lake))
    found = droppable(lake.catalog, lake.settings, lake.store)
    with pytest.raises(NotPossible, match="another program may have made it"):
        drop(lake.catalog, found)
    drop(lake.catalog, found, force=True)
    assert not there(lake)


def test_after_a_crash_at_any_step_it_is_known_or_gone_and_dropping_again_does_the_rest(lake: Lake) -> None:
    a_row(lake)
    a_pending_txlog(lake)
    saved, states = Saved(lake), set()

    def dropped(store: CrashingStore) -> None:
        found = droppable(lake.catalog, lake.settings, lambda url: store)  # type: ignore[arg-type,return-value]
        drop(lake.catalog, found, force=True)

    point, through = 0, False
    while not through:
        saved.restore()
        through = survived(lake.folder.store, dropped, point)
        keys = left(lake)
        states.add((there(lake), "marks.json" in keys, "card.json" in keys))
        if keys:
            # No other table takes its place: either it is there, or its folder knows it.
            assert "card.json" in keys
            found = droppable(lake.catalog, lake.settings, lake.store)
            drop(lake.catalog, found, force=True)
        assert (there(lake), left(lake)) == (False, [])
        point += 1
    assert states == {(True, True, True), (False, True, True), (False, False, True), (False, False, False)}
