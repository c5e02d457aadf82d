"""Writers with nothing but the keys that a catalog hands out: they go on across renewals, and commit nothing."""

import json
import logging
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.table.update import SetPropertiesUpdate

from benchmarks.support.lake import written
from bookkeeper.catalogs.open import STORAGE, open_catalog
from bookkeeper.config.load import load
from bookkeeper.config.settings import Catalog
from bookkeeper.contract.card import loads
from bookkeeper.errors import ConfigInvalid, NotPossible, StorageUnavailable
from bookkeeper.stores import handed_out
from bookkeeper.stores.open import stores_with
from spark_jobs.batch_write import BatchJob, Target, begin
from tests.servers.catalog_over import CatalogOver, catalog_over
from tests.servers.handing_out import Desk, Now, StorageProxy
from tests.servers.needed import needed
from tests.servers.objects import bucket, s3
from tests.servers.proxy import Reply, proxy
from tests.support.governed import LATER, GovernedLake, Lakehouse
from tests.support.logs import logging_put_back
from writers import Writer, reach, stores_of_catalog
from writers.cli import main
from writers.reach import Reach
from writers.runtime import Runtime
from writers.timing import pause

ROW = {"timestamp": "2026-01-31T12:00:00Z", "key": "a", "value": "b"}
ROWS = pa.table({"timestamp": pa.array([datetime(2026, 1, 31, tzinfo=UTC)] * 2), "key": ["a", "b"]})
_NUMBERS = count(1)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of an S3 server with a bucket for tables and one for txlog folders."""
    with needed("s3"), s3() as storage:
        bucket(storage, "lake")
        bucket(storage, "queue")
        yield storage.port


@pytest.fixture
def house(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lakehouse]:
    """A lake that is governed; the clock by which keys end stands until the test moves it."""
    now = Now(datetime.now(UTC).timestamp())
    monkeypatch.setattr(handed_out, "time", now)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    warehouse, desk = f"s3://lake/w{next(_NUMBERS)}", Desk(now)
    keys = {"s3.access-key-id": "test", "s3.secret-access-key": "testtest"}
    with proxy(port, StorageProxy) as second:
        second.desk = desk  # type: ignore[attr-defined]
        reach = {"s3.endpoint": second.uri, "s3.region": "us-east-1"}
        direct = {**reach, "s3.endpoint": f"http://127.0.0.1:{port}"}  # the catalog's own way
        inner = Catalog("inner", {"py-catalog-impl": STORAGE, "warehouse": warehouse, **direct, **keys})
        monkeypatch.setattr("tests.support.lake.open_store", stores_with({**reach, **keys}))
        with catalog_over(lambda: open_catalog(inner, create=True), desk) as first:
            properties = {"type": "rest", "uri": first.uri, "warehouse": "lake", **reach}
            yield Lakehouse(Catalog("lake", properties), {**reach, **keys}, first, desk, "s3://queue", "s3://lake")


def queue_keys() -> dict[str, str]:
    """Those of the bucket of txlog folders, in a configuration."""
    return {"s3.bucket.queue.access-key-id": "test", "s3.bucket.queue.secret-access-key": "testtest"}


def governed(house: Lakehouse, **settings: Any) -> GovernedLake:
    """A table with its txlog folder below its location."""
    return house.lake(**{"folder": None, "credentials": "catalog", **settings})


def writer(house: Lakehouse, lake: GovernedLake, name: str = "w") -> Writer:
    """A run of a writer that the catalog gives keys to, and nothing waits."""
    stores = stores_of_catalog(house.catalog.properties, lake.settings.identifier)
    return Writer.open(lake.made.folder, name, stores=stores, wait=lambda _: True)


def row(key: str) -> dict[str, Any]:
    return {"timestamp": datetime(2026, 1, 31, tzinfo=UTC), "key": key}


def test_a_writer_goes_on_across_renewals_and_only_loads_the_table(house: Lakehouse) -> None:
    lake = governed(house)
    begun, keys = len(house.first.seen), list[str]()
    used = len(house.desk.used)
    with writer(house, lake) as run:
        for turn in range(5):
            run.write(row(f"a{turn}"))
            house.desk.now.seconds += LATER
            run.publish()
            keys.append(f"a{turn}")
    asked = [(request.method, request.path.partition("?")[0]) for request in house.first.seen[begun:]]
    assert {method for method, _ in asked} == {"GET"} and len(asked) <= 8
    assert "test" not in {key for key, _ in house.desk.used[used:]}
    assert house.desk.refused == [] == house.desk.expired
    assert lake.product().tick(lake.clock.now).commit.txlogs == 5
    assert lake.keys() == keys


def configured(house: Lakehouse, path: Path, more: Mapping[str, str], *tables: dict[str, Any]) -> Path:
    """A writer's configuration."""
    sections = {f"tables.{table.pop('name', 'events')}": table for table in tables}
    catalog = {"name": house.catalog.name, **house.catalog.properties}
    return written(path / "writer.toml", {"catalog": catalog, "storage": more, **sections})


def lines(config: Path, *words: str, code: int = 0) -> str:
    """What `writer lines` says of one row from stdin."""
    given = ["lines", "--config", str(config), "--name", "w", "--log-level", "debug", "--log-format", "json", *words]
    file = config.parent / "in.ndjson"
    file.write_text(f"{json.dumps(ROW)}\n")
    with logging_put_back():
        done = CliRunner().invoke(main, [*given, str(file)])
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def test_a_command_needs_no_folder_and_says_no_secret(
    house: Lakehouse, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    lake = governed(house)
    table = {"identifier": lake.settings.identifier, "credentials": "catalog"}
    said = lines(configured(house, tmp_path, {}, table))
    said += caplog.text + repr([vars(record) for record in caplog.records])
    assert not [secret for secret in house.desk.secrets() if secret in said]
    assert lake.product().tick(lake.clock.now).commit.rows == 1
    assert house.desk.refused == []


@pytest.mark.parametrize("more", [queue_keys(), {"s3.bucket.queue.region": "us-east-1"}])
def test_a_folder_elsewhere_has_the_keys_of_its_bucket(
    house: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    if len(more) == 1:  # the environment has them
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testtest")
    lake = reaching_queue(house).lake(credentials="catalog")
    table = {key: getattr(lake.settings, key) for key in ("identifier", "folder", "credentials")}
    used = len(house.desk.used)
    lines(configured(house, tmp_path, more, table))
    assert {path.split("/")[1].partition("?")[0] for key, path in house.desk.used[used:] if key == "test"} == {"queue"}
    assert {path.split("/")[1].partition("?")[0] for key, path in house.desk.used[used:] if key != "test"} == {"lake"}
    assert lake.product().tick(lake.clock.now).commit.rows == 1


def reaching_queue(house: Lakehouse) -> Lakehouse:
    """The same house, for a product that has keys of the txlog folders' bucket."""
    return replace(house, catalog=replace(house.catalog, properties={**house.catalog.properties, **queue_keys()}))


def test_a_folder_without_keys_is_refused(house: Lakehouse, tmp_path: Path) -> None:
    lake = reaching_queue(house).lake()
    table = {"identifier": lake.settings.identifier, "folder": lake.settings.folder, "credentials": "catalog"}
    said = lines(configured(house, tmp_path, {}, table), code=1)
    assert "s3://queue/" in said and "hands out no keys for it" in said and "s3.bucket.NAME" in said
    assert house.desk.refused == []


def test_what_hands_out_no_keys_is_refused(house: Lakehouse) -> None:
    lake = governed(house)
    house.desk.hands_out = False
    with pytest.raises(NotPossible, match=r"hands out no keys for s3://lake/.*/data with demo") as refused:
        writer(house, lake)
    assert "vended credentials" in refused.value.hint
    with pytest.raises(NotPossible, match=r"demo\.none"):
        stores_of_catalog(house.catalog.properties, "demo.none")
    with pytest.raises(ConfigInvalid, match="only a REST catalog"):
        stores_of_catalog({"type": "sql", "uri": "sqlite:////nowhere/x.db"}, "demo.events")


def test_a_catalog_that_is_away_stops_a_writer_once_its_keys_have_ended(
    house: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = governed(house)
    run = writer(house, lake)
    run.write(row("a"))
    run.publish()
    down = Reply(503, [("Content-Type", "application/json")], b"{}")
    with monkeypatch.context() as away:
        away.setattr(CatalogOver, "answer", lambda self, request: down)
        house.desk.now.seconds += LATER
        run.write(row("b"))
        run.publish()
        house.desk.now.seconds += LATER
        run.write(row("c"))
        with pytest.raises(StorageUnavailable, match="have ended"):
            run.publish()
        with pytest.raises(StorageUnavailable, match=r"no keys of demo\.\w+ from the catalog.*503"):
            stores_of_catalog({**house.catalog.properties, "other": "1"}, lake.settings.identifier)
    house.desk.now.seconds += 2
    run.publish()
    assert lake.product().tick(lake.clock.now).commit.txlogs == 3
    assert lake.keys() == ["a", "b", "c"] and house.desk.refused == [] == house.desk.expired


def test_only_tables_that_say_so_are_loaded(house: Lakehouse, tmp_path: Path) -> None:
    lake, other = reaching_queue(house).lake(), governed(house)
    tables = (
        {"name": "logs", "identifier": lake.settings.identifier, "folder": lake.settings.folder},
        {"name": "events", "identifier": other.settings.identifier, "credentials": "catalog"},
    )
    begun = len(house.first.seen)
    own = {key: value for key, value in house.own.items() if key.startswith("s3.") and "endpoint" not in key}
    lines(configured(house, tmp_path, own, *tables), "--table", "logs")
    assert len(house.first.seen) == begun
    assert lake.product().tick(lake.clock.now).commit.rows == 1
    # The default place, said itself.
    lines(configured(house, tmp_path, {}, dict(tables[1])), "--folder", other.made.folder)
    assert other.product().tick(other.clock.now).commit.rows == 1


def test_a_data_path_that_moves_is_asked_for_anew(house: Lakehouse) -> None:
    lake = governed(house)
    stores = stores_of_catalog(house.catalog.properties, lake.settings.identifier)
    place = "s3://lake/elsewhere"
    with pytest.raises(ConfigInvalid, match="hands out no keys"):
        stores(place)
    house.desk.more[lake.settings.identifier] = [place]
    lake.catalog.commit_table(lake.table(), (), (SetPropertiesUpdate(updates={"write.data.path": place}),))
    book = lake.product()
    book.tick(lake.clock.now)
    assert loads(lake.folder.store.read("card.json")).data_path == place
    with writer(house, lake) as run:
        run.write(row("a"))
    assert book.tick(lake.clock.now).commit.rows == 1 and house.desk.refused == []


def test_its_stores_can_be_pickled(house: Lakehouse, tmp_path: Path) -> None:
    lake = governed(house)
    table = {"identifier": lake.settings.identifier, "credentials": "catalog"}
    reach = Reach(load(str(configured(house, tmp_path, {}, table)), {}))
    assert reach.location(reach.settings.tables["events"]) == lake.made.location
    again = pickle.loads(pickle.dumps(reach))
    assert again(lake.made.folder).read("card.json")


def test_a_writer_without_the_option_imports_no_catalog() -> None:
    code = "import sys, writers.cli, writers.txlog_folders; from writers import Writer; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "writers.reach" in loaded
    assert not {name for name in loaded if name.startswith(("bookkeeper.catalogs", "pyiceberg.catalog.rest"))}


@pytest.mark.parametrize("way", ["configuration", "table"])
def test_a_job_on_spark_writes_in_its_tasks_with_keys_of_the_catalog(
    house: Lakehouse, tmp_path: Path, way: str
) -> None:
    """Begun, written, committed by processes that share a pickle, each after the keys of the last one have ended."""
    lake = governed(house)
    table = {"identifier": lake.settings.identifier, "credentials": "catalog"}
    stores: Any = Reach(load(str(configured(house, tmp_path, {}, table)), {}))
    if way == "table":
        stores = stores_of_catalog(house.catalog.properties, lake.settings.identifier)
    used, book = len(house.desk.used), lake.product()
    runtime = Runtime(stores, wait=lambda _: book.tick(lake.clock.now))
    job = begin(Target(lake.made.folder, runtime, "job", "1"), ROWS.schema)
    task = elsewhere(replace(job, target=replace(job.target, runtime=replace(runtime, wait=pause))), house)
    result = task.write(ROWS.to_batches())
    house.desk.now.seconds += 2 * LATER
    assert job.commit([result]) == 2 and lake.keys() == ["a", "b"]
    assert house.desk.refused == [] == house.desk.expired
    assert "test" not in {key for key, _ in house.desk.used[used:]}


def elsewhere(job: BatchJob, house: Lakehouse) -> BatchJob:
    """What another process makes of it: nothing was loaded there, and the keys of this one have ended."""
    sent = pickle.dumps(job)
    assert not [text for text in house.desk.secrets() if text.encode() in sent]
    reach._LOADED.clear()
    house.desk.now.seconds += 2 * LATER
    made: BatchJob = pickle.loads(sent)
    return made
