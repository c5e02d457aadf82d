"""A catalog or a txlog folder that was lost, with the table on each object store."""

from pathlib import Path

import pytest

from bookkeeper.catalogs.open import STORAGE
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from tests.stores.wires import ALL_OBJECTS
from tests.support.configured import Queue, new_queue, program
from tests.support.crew import Crew


@pytest.fixture(params=ALL_OBJECTS)
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Queue:
    """A queue with two commits on each object store."""
    made = new_queue(request.param, tmp_path)
    made.run("bookkeeper", "init")
    return made


def folder_of(queue: Queue) -> Store:
    return open_store(queue.folder, queue.settings.storage)


def test_a_lost_catalog_is_registered_again_and_never_made_anew(queue: Queue) -> None:
    keys = queue.generate("w1", files=1)
    queue.run("bookkeeper", "once")
    keys |= queue.generate("w2", files=1)
    catalog = queue.config.parent / "catalog"
    for file in catalog.iterdir():
        file.unlink()

    queue.run("bookkeeper", "status", code=4)
    queue.run("bookkeeper", "init", code=1)
    assert list(catalog.iterdir()) == []
    (row,) = queue.asked("recover-catalog", "--yes")
    assert (row["outcome"], row["marks.json"], row["rows"]) == ("registered", "the same", 50)

    queue.run("bookkeeper", "once")
    assert queue.keys() == dict.fromkeys(keys, 1)
    assert queue.asked("verify") == []


def test_a_catalog_that_is_nothing_but_storage_gets_back_a_table_it_has_lost(tmp_path: Path) -> None:
    queue = new_queue("s3", tmp_path, {"py-catalog-impl": STORAGE})
    queue.run("bookkeeper", "init")
    keys = queue.generate("w1", files=1)
    queue.run("bookkeeper", "once")
    warehouse = open_store(f"{queue.url}/warehouse", queue.settings.storage)
    warehouse.delete_many(["_catalog/demo/events.table.json"])

    queue.run("bookkeeper", "status", code=3)
    queue.run("bookkeeper", "init", code=1)
    (row,) = queue.asked("recover-catalog", "--yes")

    assert row["outcome"] == "registered"
    assert queue.keys() == dict.fromkeys(keys, 1)


def test_a_folder_that_is_gone_is_not_made_again_by_anything_that_runs(queue: Queue) -> None:
    queue.generate("w1", files=1)
    with Crew({"bookkeeper": program("bookkeeper", queue.config)}, queue.config.parent) as crew:
        crew.start("bookkeeper")
        store = folder_of(queue)
        crew.until(lambda: queue.keys() and not any(store.list("pending/")))
        kept = {item.key: store.read(item.key) for item in store.list("") if "lease" not in item.key}
        store.delete_many([item.key for item in store.list("") if "lease" not in item.key])  # Azure refuses that
        crew.until(lambda: "no card.json" in crew.log("bookkeeper").read_text())

        queue.run("bookkeeper", "once", code=3)
        queue.run("reaper", "once", code=3)
        queue.run("writer", "generate", "--files", "1", "--folder", queue.folder, "--quiet", code=1)
        left = {item.key for item in store.list("")}
        assert crew.stop("bookkeeper", 120) == 0
    # What a tick that had begun may still have written is no folder: nothing publishes or commits there.
    assert left <= {"lease", "marks.json", "clock/probe"}

    for key, data in kept.items():
        store.replace(key, data)
    keys = queue.generate("w2", files=1)
    queue.run("bookkeeper", "once")
    assert keys < set(queue.keys())
