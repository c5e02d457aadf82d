"""The whole queue on each object store: init, writers, bookkeeper, reaper and the commands that look."""

import json
import time
from pathlib import Path

import pytest

from bookkeeper.catalogs.open import STORAGE
from bookkeeper.errors import StorageUnavailable
from bookkeeper.stores.open import open_store
from tests.servers import postgres, rest_catalog
from tests.servers.needed import needed
from tests.servers.objects import bucket, s3
from tests.servers.shared import place, wanted
from tests.stores.wires import ALL_OBJECTS, OBJECTS
from tests.support.configured import Queue, new_queue, program, queue_with
from tests.support.crew import Crew


@pytest.fixture(params=ALL_OBJECTS)
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Queue:
    """An empty queue on each object store."""
    return new_queue(request.param, tmp_path)


def test_rows_go_in_once_and_every_command_works(queue: Queue) -> None:
    assert "namespace, table, folder, marks" in queue.run("bookkeeper", "init")
    keys = queue.generate("w1", files=3) | queue.generate("w2", files=2)
    assert len(queue.asked("pending")) == 5
    (turn,) = queue.asked("once")
    assert (turn["txlogs"], turn["rows"]) == (5, 250)
    keys |= queue.generate("w3", files=1)
    assert queue.asked("once")[0]["rows"] == 50
    assert queue.keys() == dict.fromkeys(keys, 1)
    assert queue.asked("pending") == []
    queue.run("bookkeeper", "status")
    assert sorted(queue.run("bookkeeper", "tail", "--exit", "--columns", "key").split()) == sorted(keys)
    assert "nothing is wrong" in queue.run("bookkeeper", "verify") or queue.asked("verify") == []
    time.sleep(1.1)  # the youngest snapshot that expires is a second old
    queue.run("reaper", "once", "--release-brake", "--json")
    assert queue.keys() == dict.fromkeys(keys, 1)
    _no_secret_in(queue)


def test_a_bookkeeper_that_is_killed_is_followed_and_no_row_is_lost_or_double(tmp_path: Path) -> None:
    queue = new_queue("azurite", tmp_path)
    queue.run("bookkeeper", "init")
    keys = queue.generate("w1", files=2)
    with Crew({"bookkeeper": program("bookkeeper", queue.config)}, tmp_path) as crew:
        crew.start("bookkeeper")
        crew.until(lambda: queue.keys() == dict.fromkeys(keys, 1))
        keys |= queue.generate("w2", files=4)
        crew.kill("bookkeeper")
        crew.start("bookkeeper")
        crew.until(lambda: queue.keys() == dict.fromkeys(keys, 1) and not queue.asked("pending"))
        assert crew.stop("bookkeeper", 120) == 0
    assert queue.asked("verify") == []
    _no_secret_in(queue)


def _no_secret_in(queue: Queue) -> None:
    """Neither what lies in the storage nor what was logged holds a secret."""
    from tests.support.stores import content, open_at

    if queue.url.startswith("gs:"):
        return  # its server asks for none
    properties = wanted("azurite" if queue.url.startswith("abfss") else "s3").properties
    secrets = [value for key, value in properties.items() if "secret" in key or "connection-string" in key]
    secrets += [part.partition("=")[2] for text in secrets for part in text.split(";") if part.startswith("AccountKey")]
    told = b"".join(content(open_at(queue.url)).values())
    log = queue.config.with_name("bookkeeper.log")
    told += log.read_bytes() if log.exists() else b""
    assert secrets
    assert not [secret for secret in secrets if secret.encode() in told]


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_postgres_catalog_beside_an_object_store(kind: str, tmp_path: Path) -> None:
    with needed("postgres"), postgres() as server:
        queue = new_queue(kind, tmp_path, dict(server.properties))
        queue.run("bookkeeper", "init")
        keys = queue.generate("w1", files=2)
        assert queue.asked("once")[0]["rows"] == 100
        assert queue.keys() == dict.fromkeys(keys, 1)
        assert queue.asked("verify") == []


def test_nothing_but_storage_and_a_reaper_on_it(tmp_path: Path) -> None:
    queue = new_queue("s3", tmp_path, {"py-catalog-impl": STORAGE})
    queue.run("bookkeeper", "init")
    keys = set[str]()
    for number in range(14):
        keys |= queue.generate(f"w{number}", files=1, records=3)
        queue.asked("once")
    time.sleep(1.1)  # the youngest snapshot that expires is a second old
    queue.run("reaper", "once", "--release-brake", "--json")
    assert queue.keys() == dict.fromkeys(keys, 1)
    keys |= queue.generate("last", files=1, records=3)
    queue.asked("once")
    assert queue.keys() == dict.fromkeys(keys, 1)
    assert queue.asked("verify") == []


def test_a_rest_catalog_beside_an_object_store(tmp_path: Path) -> None:
    url, storage = f"{place('s3')}/warehouse", dict(wanted("s3").properties)
    with needed("rest"), rest_catalog(url, storage) as server:
        queue = new_queue("s3", tmp_path, {**server.properties, "warehouse": url})
        queue.run("bookkeeper", "init")
        keys = queue.generate("w1", files=2)
        assert queue.asked("once")[0]["rows"] == 100
        keys |= queue.generate("w2", files=1)
        assert queue.asked("once")[0]["rows"] == 50
        assert queue.keys() == dict.fromkeys(keys, 1)
        assert queue.asked("verify") == []


@pytest.mark.parametrize(("table", "folder"), [("azurite", "s3"), ("s3", "azurite")])
def test_table_and_folder_on_two_storages_are_each_reached_with_their_own_keys(
    table: str, folder: str, tmp_path: Path
) -> None:
    _used(new_queue(table, tmp_path, folder_on=folder))


def test_table_and_folder_in_two_buckets_are_each_reached_by_a_user_of_their_own(tmp_path: Path) -> None:
    with needed("s3"), s3(users=("tabler", "folder")) as server:
        lake, queue = bucket(server, "lake", "tabler"), bucket(server, "queue", "folder")
        keys = {**server.properties, "s3.access-key-id": "tabler", "s3.secret-access-key": "tabler-secret"}
        keys |= {"s3.bucket.queue.access-key-id": "folder", "s3.bucket.queue.secret-access-key": "folder-secret"}
        keys |= {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{lake}/warehouse"}
        _used(queue_with(keys, queue, tmp_path))
        # Code that takes one for the other is refused, so the flow shows that none does.
        for url, user in ((lake, "folder"), (queue, "tabler")):
            given = {**server.properties, "s3.access-key-id": user, "s3.secret-access-key": f"{user}-secret"}
            with pytest.raises(StorageUnavailable, match="403"):
                list(open_store(url, given).list(""))


def _used(queue: Queue) -> None:
    """Writers, bookkeeper and reaper do their work on it."""
    queue.run("bookkeeper", "init")
    keys = set[str]()
    for number in range(3):
        keys |= queue.generate(f"w{number}", files=1)
        assert queue.asked("once")[0]["rows"] == 50
    time.sleep(1.1)  # the youngest snapshot that expires is a second old
    (done,) = json.loads(queue.run("reaper", "once", "--release-brake", "--json"))
    assert done["snapshots"] == 2
    assert queue.keys() == dict.fromkeys(keys, 1)
    assert queue.asked("verify") == []
