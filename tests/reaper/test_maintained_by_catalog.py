"""
Tables that a service of the catalog maintains: the reaper expires snapshots and deletes no file, whatever crashes, and
what the service takes away meanwhile halts nothing.
"""

import os
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.update import RemoveSnapshotsUpdate

from bookkeeper.commands.init import initialise
from bookkeeper.commands.verify import verify
from bookkeeper.config.compaction import OFF, PROPERTY
from bookkeeper.config.load import parse
from bookkeeper.config.maintained import maintained
from bookkeeper.config.settings import Reaper, Service, Table
from bookkeeper.contract.txlog_folder import folder_url
from bookkeeper.errors import ConfigInvalid, Halt, NotPossible, Reject, Retry, TableUnusable
from bookkeeper.history.main_history import is_ours
from bookkeeper.tick.tick import Bookkeeper
from reaper import run
from reaper.expiry import journal as journals
from reaper.run import orphans_of, outlook, reap, sweep_orphans
from tests.support.compactor import live, published
from tests.support.enumerated import crash_points, crashed, recorded
from tests.support.faults import Faults, FaultyCatalog
from tests.support.keyed import KEYED
from tests.support.lake import Lake, Writes, append_by_others

SERVICE = {"maintained_by": "catalog", "service": Service()}
EAGER = Reaper(older_than=timedelta(seconds=1), retain_last=1, orphans_every=timedelta(hours=1))


def lake_of(root: Path, **more: Any) -> Lake:
    """A queue whose folder lies beside its table."""
    return Lake(root, folder=f"{root}/folder", reaper=EAGER, **{**SERVICE, **more})


def files(lake: Lake) -> set[str]:
    """Every file of the table that its service might delete."""
    place = lake.table().metadata.location.removeprefix("file://")
    return {os.path.join(where, name) for where, _, names in os.walk(place) for name in names}


def filled(lake: Lake, ticks: int = 5) -> list[str]:
    """A commit each; of the first two, one file replaces both."""
    book, writes = lake.book(), Writes(lake)
    for number in range(ticks):
        writes.publish(f"k{number}")
        lake.tick(book)
    published(lake, live(lake)[:2])
    lake.tick(lake.book(), seconds=6)
    writes.publish("last")
    lake.tick(lake.book())
    lake.clock.move(minutes=1)
    return writes.keys


def reaped(lake: Lake, faults: Faults | None = None, **more: Any) -> Any:
    stores = lake.faulty(faults) if faults else lake.store
    catalog: Any = FaultyCatalog(lake.catalog, faults) if faults else lake.catalog
    settings = replace(lake.settings, **more)
    return reap(catalog, settings, lake.clock.now, open_store=stores, release_brake=True)


def service_expires(lake: Lake) -> None:
    """All snapshots but the head go, as a service removes them that knows nothing of us."""
    metadata = lake.table().metadata
    old = [item.snapshot_id for item in metadata.snapshots if item.snapshot_id != metadata.current_snapshot_id]
    lake.catalog.commit_table(lake.table(), (), (RemoveSnapshotsUpdate(snapshot_ids=old),))


def test_snapshots_expire_and_no_file_goes(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    keys = filled(lake)
    orphan = f"{lake.table().metadata.location.removeprefix('file://')}/data/orphan.parquet"
    Path(orphan).write_bytes(b"PAR1")
    before = files(lake)
    planned = outlook(lake.catalog, lake.settings, lake.clock.now, open_store=lake.store)
    assert planned.files.sizes() == {} and planned.orphans == ()
    for _ in range(3):
        done = reaped(lake)
        lake.clock.move(days=5)
        assert (done.data_files, done.manifests, done.metadata_files, done.orphans, done.bytes) == (0, 0, 0, 0, 0)
    assert before <= files(lake) and len(lake.table().metadata.snapshots) <= 3
    assert lake.keys() == sorted(keys) and journals.read(lake.folder.store) is None


def test_without_that_setting_the_same_run_deletes_files(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    filled(lake)
    assert reaped(lake, maintained_by="reaper").data_files == 2


def test_a_run_that_is_killed_anywhere_deletes_nothing_and_the_next_one_ends_it(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake")
    keys, saved = filled(lake), lake.saved()
    there = files(lake)
    points = list(crash_points(recorded(lambda faults: reaped(lake, faults))))
    assert len(points) > 10
    for point in points:
        saved.restore()
        crashed(lambda faults: reaped(lake, faults), point)
        lake.clock.move(minutes=2)
        reaped(lake)
        assert there <= files(lake) and journals.read(lake.folder.store) is None, point
        assert len(lake.table().metadata.snapshots) <= 3 and lake.keys() == sorted(keys), point


def test_a_journal_of_a_run_that_still_deleted_is_dropped_and_its_files_stay(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake")
    filled(lake)
    saved, there = lake.saved(), files(lake)
    left = 0
    for point in crash_points(recorded(lambda faults: reaped(lake, faults, maintained_by="reaper"))):
        saved.restore()
        crashed(lambda faults: reaped(lake, faults, maintained_by="reaper"), point)
        journal, now = journals.read(lake.folder.store), files(lake)
        if journal is None or now != there or not journal.files.data:
            continue
        lake.clock.move(minutes=2)
        reaped(lake)
        assert there <= files(lake) and journals.read(lake.folder.store) is None, point
        left += 1
    assert left >= 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_service_that_expires_beside_a_run_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    lake = lake_of(tmp_path)
    keys, there, rightly = filled(lake), files(lake), run.expire

    def expire(*given: Any) -> Any:
        if when == "before":
            service_expires(lake)
        done = rightly(*given)
        if when == "after":
            service_expires(lake)
        return done

    monkeypatch.setattr(run, "expire", expire)
    with suppress(Retry):
        reaped(lake)
    monkeypatch.undo()
    lake.clock.move(minutes=2)
    reaped(lake)
    Writes(lake).publish("later")
    assert lake.tick(lake.book()).commit.txlogs == 1
    assert there <= files(lake) and journals.read(lake.folder.store) is None
    assert lake.keys() == sorted([*keys, "later"])


def test_orphans_are_listed_and_never_swept(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    filled(lake)
    with pytest.raises(NotPossible, match="catalog's service"):
        sweep_orphans(lake.catalog, lake.settings, lake.clock.now, open_store=lake.store)
    assert orphans_of(lake.catalog, lake.settings, lake.clock.now, open_store=lake.store) == ()


def test_the_marks_are_anchored_anew_when_a_service_has_committed_and_its_expiry_halts_nothing(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    filled(lake)
    theirs = Writes(lake, "theirs")
    append_by_others(lake, theirs.file(["foreign"]))
    lake.tick(lake.book(), minutes=11)
    head = lake.table().metadata.current_snapshot()
    assert head is not None and is_ours(head) and lake.view().marks.snapshot == head.snapshot_id
    service_expires(lake)
    for _ in range(3):
        append_by_others(lake, theirs.file(["again"]))
        lake.tick(lake.book(), minutes=11)
        service_expires(lake)
    Writes(lake).publish("after")
    assert lake.tick(lake.book()).commit.txlogs == 1


@pytest.mark.parametrize(
    "given, what",
    [
        ({"folder": None}, "needs `folder`"),
        ({"reaper": Reaper(engine="spark")}, "deletes files"),
        ({"compaction": replace(Table().compaction, engine="own")}, "beside the compaction"),
        ({"key": ("id",)}, "keys beside the compaction"),
    ],
)
def test_what_cannot_be_beside_such_a_service_is_refused(given: dict[str, Any], what: str) -> None:
    table = Table(name="t", **{"folder": "s3://queue/t", **SERVICE, **given})
    with pytest.raises(ConfigInvalid, match=what) as refused:
        maintained(table)
    assert refused.value.hint and maintained(replace(table, maintained_by="reaper")).folder == table.folder


def test_ages_stay_within_those_of_the_service() -> None:
    service = Service(orphan_age=timedelta(days=3), snapshot_age=timedelta(hours=12))
    found = maintained(Table(folder="s3://queue/t", maintained_by="catalog", service=service))
    assert (found.orphan_age, found.reaper.max_hold) == (timedelta(hours=36), timedelta(hours=12))
    assert found.compaction.engine == OFF and maintained(found) == found
    shorter = replace(found, orphan_age=timedelta(hours=2), marks_renew=timedelta(days=1))
    assert maintained(shorter).orphan_age == timedelta(hours=2)
    assert maintained(shorter).marks_renew == timedelta(minutes=1)


@pytest.mark.parametrize("place", ["s3://lake/t", "s3://lake/t/_bookkeeper", "s3a://lake/t/_x/y"])
def test_a_folder_below_the_table_is_refused(place: str) -> None:
    with pytest.raises(ConfigInvalid, match="service deletes"):
        folder_url(Table(folder=place, **SERVICE), "s3://lake/t")
    with pytest.raises(ConfigInvalid, match="service deletes"):
        folder_url(Table(**SERVICE), "s3://lake/t")
    assert folder_url(Table(folder="s3://lake/tx", **SERVICE), "s3://lake/t") == "s3://lake/tx"


def test_a_table_with_keys_is_refused_by_init_daemon_and_reaper_while_the_service_compacts(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, **KEYED, service=Service(compacts=False))
    book = lake.book()
    lake.tick(book)
    compacted = replace(lake.settings, service=Service())
    with pytest.raises(TableUnusable, match="keys beside"):
        Bookkeeper(compacted, lake.folder, book.ledger).tick(lake.clock.now)
    with pytest.raises(Halt, match="keys beside"):
        reap(lake.catalog, compacted, lake.clock.now, open_store=lake.store)
    with pytest.raises(TableUnusable, match="keys beside"):
        initialise(lake.catalog, replace(compacted, key=()), lake.table().schema(), lake.store)


def test_init_asks_for_no_compaction_of_ours(tmp_path: Path) -> None:
    assert lake_of(tmp_path).table().metadata.properties[PROPERTY] == OFF


def test_verify_says_the_mode_and_which_txlogs_lose_their_files_soon(tmp_path: Path) -> None:
    lake = lake_of(tmp_path)
    names = [Writes(lake).publish("a"), Writes(lake).publish("b")]
    lake.folder.reject(names[0], Reject("no good"), lake.clock.now)
    lake.clock.move(hours=35)
    said = verify(lake.audit())
    assert [item.what[:46] for item in said if item.where == lake.settings.identifier] == [
        "the catalog's service maintains the table: it "
    ]
    assert not [item for item in said if "its files may go" in item.what]
    lake.clock.move(hours=2)
    assert {item.where for item in verify(lake.audit()) if "its files may go" in item.what} == {
        str(name) for name in names
    }


def test_dead_letters_are_maintained_as_their_table_is() -> None:
    text = """
        [tables.events]
        folder = "s3://queue/e"
        maintained-by = "catalog"
        dead-letters = true
        [tables.events.service]
        orphan-age = "2d"
        compacts = {}
    """
    letters = parse(text.format("false"), {}).tables["events__rejected"]
    assert (letters.maintained_by, letters.orphan_age) == ("catalog", timedelta(days=1))
    with pytest.raises(ConfigInvalid, match="events__rejected: keys beside"):
        parse(text.format("true"), {})
