"""How many round trips a tick takes one after another on an object store, and how many requests: exactly."""

from pathlib import Path
from typing import Any

import pytest

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.discover.discovery import LOOK
from bookkeeper.discover.find_pending import PendingIndex
from bookkeeper.ledger import merge
from bookkeeper.ledger.commit_clock import CommitClock
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.stores.store import Store
from bookkeeper.tick.tick import Bookkeeper
from tests.discover.pending import Told
from tests.support.catalog_lake import Place, place
from tests.support.keyed import Step, Steps, keyed_lake
from tests.support.lake import Lake, Writes
from tests.support.round_trips import FarStore, Trips, far_catalog

SQL, REST, STORAGE = "sql", "rest", "storage"


class FarLake:
    """A lake whose storage and catalog are a round trip away, and a bookkeeper that has had its first tick."""

    def __init__(self, lake: Lake, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lake, self.trips = lake, Trips()
        catalog: Any = open_catalog(lake.catalog_settings)
        if kind == STORAGE:
            catalog.open_store = self.store
        monkeypatch.setattr("bookkeeper.catalogs.sql.open_store", lambda url, options: self.store(url))
        monkeypatch.setattr("bookkeeper.ledger.build_commit.together", self.trips.together)
        far = far_catalog(catalog, self.trips, swap=kind != STORAGE)
        folder = Folder(self.store(lake.made.folder))
        clock = CommitClock(lake.clock, lake.settings.name, folder)
        ledger = Ledger(far, lake.settings.identifier, clock, self.store)  # type: ignore[arg-type]
        self.book = Bookkeeper(lake.settings, folder, ledger, store=self.store)

    def store(self, url: str) -> Store:
        label = "folder" if url == self.lake.made.folder else url.rsplit("/", 1)[-1]
        return FarStore(self.lake.store(url), self.trips, label)  # type: ignore[return-value]

    def tick(self, **move: float) -> Trips:
        """One tick, after which nothing is under way; what it asked for, from its listing on."""
        self.trips.now, self.trips.requests = 0, []
        self.lake.tick(self.book, **move)
        self.book.inbox.consumed.wait()
        return self.trips


@pytest.fixture(params=[SQL, REST, STORAGE])
def far(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A REST catalog is told what to commit and writes the metadata itself: pyiceberg's SQL catalog stands for it."""
    if request.param != STORAGE:
        yield FarLake(Lake(tmp_path / "lake", stock=request.param == REST), request.param, monkeypatch)
        return
    with place("storage") as where:
        yield FarLake(stamped(where), STORAGE, monkeypatch)


def stamped(where: Place) -> Lake:
    """A lake in the storage catalog, on a disk with the test's clock."""
    lake = where.lake()
    lake.disk_clock = lake.clock
    return lake


def kind_of(far: FarLake) -> str:
    return {"FlatSqlCatalog": SQL, "StorageCatalog": STORAGE}.get(type(far.book.ledger.catalog._catalog).__name__, REST)


def visible(trips: Trips) -> int:
    """When the rows were in the table for every reader."""
    return max(trips.of("swap") + trips.of("version-hint"))


def published(far: FarLake, count: int) -> Writes:
    writer = Writes(far.lake)
    for number in range(count):
        writer.publish(f"k{number}")
    return writer


def test_five_txlogs_are_visible_after_four_round_trips_and_cost_seventeen_requests(far: FarLake) -> None:
    published(far, 1)
    far.tick()
    for _ in range(3):
        published(far, 5)
        trips = far.tick()
        assert visible(trips) == (5 if kind_of(far) == STORAGE else 4)
        assert trips.now == visible(trips) + 1, "only marks.json comes after it; nothing waits for the deletion"
        assert len(trips.requests) <= 17
    assert len(far.lake.keys()) == 16 and far.lake.pending() == []


def test_what_a_commit_writes_goes_beside_the_lookup_of_data_files_and_before_the_swap(far: FarLake) -> None:
    published(far, 1)
    far.tick()
    published(far, 2)
    trips = far.tick()
    flight = {*trips.of("heads"), *trips.of("create metadata/snap-"), *trips.of("-m0.avro")}
    if kind_of(far) == SQL:
        flight |= {*trips.of(".metadata.json")}
    assert flight == {3}
    assert trips.of("read_many folder/pending") == [2, 2]
    assert trips.of("marks.json") == [trips.now]
    assert not trips.of("read_versions folder/marks.json")


def test_a_merge_costs_one_round_trip_more_whatever_it_reads(far: FarLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "FAN", 4)
    for _ in range(3):
        published(far, 1)
        before = visible(far.tick())
    published(far, 1)
    trips = far.tick()
    assert far.lake.operations()[-2:] == ["append", "replace"]
    assert visible(trips) == before + 1
    assert len(trips.of("read_many metadata")) == 3, "its own manifest is not read back"


def test_an_idle_tick_is_two_requests(far: FarLake) -> None:
    published(far, 1)
    far.tick()
    assert [what for _, what in far.tick().requests] == ["list folder/pending/", "read_versions folder/marks.json"]


def test_a_reload_does_not_read_the_manifest_list_that_was_just_committed(far: FarLake) -> None:
    published(far, 1)
    far.tick()
    published(far, 1)
    trips = far.tick(seconds=60)
    assert not trips.of("read metadata/snap-")
    assert far.book.ledger.manifests(far.book.view) == far.book.ledger.manifests(far.lake.view())


def test_a_bad_data_file_costs_an_attempt_and_no_other_txlog_waits(far: FarLake) -> None:
    published(far, 1)
    far.tick()
    good, bad = Writes(far.lake, "good"), Writes(far.lake, "bad")
    good.publish("a")
    name, data = bad.encoded([bad.file(["b"])])
    far.lake.folder.publish(name, data)
    far.lake.store(far.lake.folder.card().data_path).delete_many([f"{bad.name.incarnation}-b.parquet"])
    trips = far.tick()
    assert far.lake.rejected() == {str(name): "FileMissing"}
    assert (far.lake.keys(), far.lake.pending()) == (["a", "k0"], [])
    assert len(trips.of("heads")) == 2, "what was looked up is not asked again"


def test_the_footers_of_delete_files_are_read_beside_the_lookup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A footer that is longer than what is read at first takes a round trip more."""
    far = FarLake(keyed_lake(tmp_path), SQL, monkeypatch)
    monkeypatch.setattr("bookkeeper.tick.intake.together", far.trips.together)
    far.tick()
    writers = [Steps(far.lake, f"w{number}") for number in range(3)]

    def upserted() -> Trips:
        for number, writer in enumerate(writers):
            writer.publish_steps(Step(upserts={number: "b"}))
        return far.tick()

    upserted()
    trips = upserted()
    assert len({*trips.of("read_ranges"), *trips.of("heads")}) == 1
    assert len(trips.of("read_ranges")) == 3, "one for each delete file, and none for data files"
    assert visible(trips) == 4
    monkeypatch.setattr("bookkeeper.tick.check_delete_files.END_BYTES", 64)
    assert visible(upserted()) == 5


def test_hinted_txlogs_are_visible_after_three_round_trips(far: FarLake) -> None:
    far.book.inbox.pending_index = PendingIndex(Told(LOOK), 1000)
    published(far, 1)
    far.tick()
    writer = Writes(far.lake)
    far.book.inbox.pending_index.discovery = Told(frozenset(writer.publish(f"h{number}") for number in range(5)))
    trips = far.tick()
    assert trips.of("read_versions folder/pending") == [1] * 5 and not trips.of("list ")
    assert visible(trips) == (4 if kind_of(far) == STORAGE else 3)


def test_a_reload_is_one_round_trip_of_two_requests_and_then_the_table(far: FarLake) -> None:
    published(far, 1)
    far.tick()
    far.tick(seconds=11)
    trips = far.tick(seconds=11)
    assert trips.of("read_versions folder/card.json,marks.json") == [2, 2] and trips.of("load") in ([3], [])
    assert not trips.of("read_versions folder/marks.json") and not trips.of("snap-")
    idle = 2
    assert len(trips.requests) <= idle + 2, "card.json, and one look at the catalog"
