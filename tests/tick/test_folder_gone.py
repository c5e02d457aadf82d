"""A txlog folder that was moved away or deleted: no running process makes it again, only `init` does."""

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.config.settings import Daemon, Settings
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import StorageUnavailable, WrongFolder
from bookkeeper.leases.lease import lease_on
from bookkeeper.serve.loop import TableLoop, tick_once
from bookkeeper.serve.open import open_bookkeeper
from bookkeeper.stores.open import open_store
from reaper.run import reap
from tests.support.cards import card
from tests.support.lake import Lake, Writes

DAEMON = Daemon(every=timedelta(seconds=1), backoff_most=timedelta(seconds=1))


def place(lake: Lake) -> Path:
    return Path(lake.made.folder.removeprefix("file://"))


def slot_of(lake: Lake) -> TableLoop:
    settings = Settings(lake.catalog_settings, DAEMON, tables={"events": lake.settings})
    return TableLoop("events", lambda: open_bookkeeper(settings, lake.settings, lake.clock))


def tick_slot(lake: Lake, slot: TableLoop, seconds: int = 11) -> object:
    return tick_once(slot, DAEMON, lake.clock.move(seconds=seconds))


@pytest.mark.parametrize("moved", [True, False], ids=["moved", "deleted"])
def test_a_running_bookkeeper_says_that_it_is_gone_and_goes_on_when_it_is_back(
    lake: Lake, writer: Writes, moved: bool
) -> None:
    slot = slot_of(lake)
    writer.publish("a")
    assert tick_slot(lake, slot) is not None
    writer.publish("b")
    path, away = place(lake), place(lake).with_name("away")
    shutil.copytree(path, away)
    shutil.rmtree(path)

    for _ in range(4):
        assert tick_slot(lake, slot) is None
    assert not path.exists()
    assert isinstance(slot.error, StorageUnavailable) and "is not there" in str(slot.error)
    assert "Put it back" in slot.error.hint and "pending" in slot.error.hint

    if moved:
        away.rename(path)
    else:
        assert initialise(lake.catalog, lake.settings, schema_for(lake.settings)).made == ("folder",)
    tick_slot(lake, slot)
    tick_slot(lake, slot)
    assert lake.keys() == (["a", "b"] if moved else ["a"])


def test_a_bookkeeper_that_starts_without_the_folder_makes_none(lake: Lake) -> None:
    shutil.rmtree(place(lake))
    slot = slot_of(lake)

    for _ in range(3):
        assert tick_slot(lake, slot) is None

    assert not place(lake).exists() and isinstance(slot.error, StorageUnavailable)


def test_where_folders_are_only_names_one_without_a_card_is_none_and_nothing_is_written_there(lake: Lake) -> None:
    for file in place(lake).rglob("*"):
        file.unlink()
    slot = slot_of(lake)

    for _ in range(3):
        assert tick_slot(lake, slot) is None

    assert isinstance(slot.error, WrongFolder) and "no card.json" in str(slot.error)
    assert list(place(lake).rglob("*")) == []


def test_a_reaper_makes_none(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    shutil.rmtree(place(lake))

    with pytest.raises(StorageUnavailable, match="is not there"):
        reap(lake.catalog, lake.settings, lake.clock.now)

    assert not place(lake).exists()


def test_a_reaper_takes_no_directory_without_a_card_for_it(lake: Lake, writer: Writes) -> None:
    """As where the disk of the folder is not mounted: what is pending and the consumers are not seen there."""
    writer.publish("a")
    lake.tick()
    shutil.rmtree(place(lake))
    place(lake).mkdir()

    with pytest.raises(WrongFolder, match=r"no card\.json"):
        reap(lake.catalog, lake.settings, lake.clock.now)

    assert list(place(lake).rglob("*")) == []


def test_a_bookkeeper_with_the_folder_of_another_table_halts_and_does_not_stand_by(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    own = slot_of(lake)
    tick_slot(lake, own)
    lake.catalog.create_table("demo.other", lake.table().schema())
    lost = replace(lake.settings, name="other", identifier="demo.other", folder=lake.made.folder)
    settings = Settings(lake.catalog_settings, DAEMON, tables={"other": lost})
    other = TableLoop("other", lambda: open_bookkeeper(settings, lost, lake.clock))

    tick_slot(lake, other)

    assert (own.standby, own.error, own.ticks) == (False, None, 1)
    assert (other.standby, type(other.error)) == (False, WrongFolder)
    assert str(lake.table().metadata.table_uuid) in str(other.error)


def test_a_reaper_takes_no_folder_of_another_table_for_it(lake: Lake, writer: Writes) -> None:
    """Where the reaper's `folder` names another table that has no marks.json yet."""
    writer.publish("a")
    lake.tick()
    shutil.rmtree(place(lake))
    place(lake).mkdir()
    Folder(lake.folder.store).write_card(card(table="demo.other"))
    before = sorted(place(lake).rglob("*"))

    with pytest.raises(WrongFolder, match=r"demo\.other"):
        reap(lake.catalog, lake.settings, lake.clock.now)

    assert sorted(place(lake).rglob("*")) == before


@pytest.mark.parametrize("name", ["lease", "reaper/lease"])
def test_a_lease_on_a_folder_that_vanishes_makes_none(tmp_path: Path, lake: Lake, name: str) -> None:
    root = tmp_path / "folder"
    root.mkdir()
    lease = lease_on(open_store(str(root)), name, "me")
    root.rename(tmp_path / "away")

    for _ in range(2):
        with pytest.raises(StorageUnavailable, match="is not there"):
            lease.hold(lake.clock.now)

    assert not root.exists()


@pytest.mark.parametrize("act", ["publish", "marks", "clock", "reject", "card"])
def test_no_way_to_write_into_it_makes_it(lake: Lake, writer: Writes, act: str) -> None:
    name, data = writer.encoded([writer.file(["a"])])
    view, card = lake.view(), lake.folder.card()
    folder = Folder(open_store(lake.made.folder))
    shutil.rmtree(place(lake))
    ways = {
        "publish": lambda: folder.publish(name, data),
        "marks": lambda: folder.publish_marks(view.marks_copy),
        "clock": lambda: folder.clock_skew(lake.clock.now),
        "reject": lambda: folder.reject(name, WrongFolder("x"), lake.clock.now),
        "card": lambda: folder.write_card(card),
    }

    with pytest.raises(StorageUnavailable):
        ways[act]()

    assert not place(lake).exists()
