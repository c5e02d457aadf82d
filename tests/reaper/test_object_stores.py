"""
A run on object stores: lists and manifests are read together, files go in a few requests, and a crash in the middle of
a batch is finished.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.support.synthetic import TABLE, Queue, file_name, moment, schema
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Reaper, Retention
from bookkeeper.retention.apply import apply_retention
from bookkeeper.stores.open import stores_with
from bookkeeper.stores.store import Store
from reaper.run import reap
from tests.servers.shared import place, wanted
from tests.support.lake import Lake
from tests.support.pyiceberg_files import sqlite_catalog
from tests.support.reaper_faults import SOME, Crash, Faults

FILES, COMMITS, KEPT = 3, 12, 2


def now() -> datetime:
    return datetime.now(UTC)


def churned(root: Path, kind: str) -> Queue:
    """A table whose every append is followed by a retention delete of the one before the last."""
    catalog = sqlite_catalog(root, **{**wanted(kind).properties, "warehouse": place(kind)})
    settings: dict[str, Any] = {"name": "t", "identifier": TABLE, "partition_by": (), "check_files": False}
    settings["retention"] = Retention(keep=timedelta(0), brake=1.0)
    lake = Lake(root, catalog=catalog, schema=schema(3), file_names=None, **settings)
    queue = Queue(root, lake.settings, catalog, lake.folder)
    book, data = queue.book(), lake.store(queue.card.data_path)
    for turn in range(COMMITS):
        for number in range(queue.files, queue.files + FILES):
            data.upload(file_name(queue.run.at(queue.run.sequence + 1), number), b"1")
        for name, content in queue.txlogs(1, FILES, now()):
            queue.folder.publish(name, content)
        book.tick(now())
        if turn >= KEPT:
            cutoff = moment((turn - KEPT + 1) * FILES)
            apply_retention(book.ledger, lake.view(), lake.settings.retention, cutoff)
            book.loaded.forget()  # another made that commit
    return queue


def data_files(queue: Queue, opened: Any) -> set[str]:
    store: Store = stores_with(opened.properties)(queue.card.data_path)
    return {item.key for item in store.list("")}


@pytest.mark.parametrize("kind", ["s3", "azurite"])
def test_a_run_that_dies_in_a_batch_is_finished_by_the_next(kind: str, tmp_path: Path) -> None:
    queue = churned(tmp_path, kind)
    opened = open_catalog(queue.catalog)
    settings = replace(queue.settings, reaper=Reaper(older_than=timedelta(0), retain_last=1))
    faults = Faults()

    def stores(url: str) -> Any:
        return faults.store(stores_with(opened.properties)(url))

    faults.before("delete_many", lambda: setattr(faults, "_crash", (len(faults.calls) - 1, f"{SOME}1")))
    with pytest.raises(Crash):
        reap(opened, settings, now() + timedelta(seconds=2), open_store=stores)
    left = data_files(queue, opened)
    assert (KEPT + 1) * FILES < len(left) < COMMITS * FILES
    assert faults.calls.count("read_many") < 15

    done = reap(opened, settings, now() + timedelta(seconds=2), open_store=stores_with(opened.properties))
    assert done.snapshots > COMMITS
    # What the snapshot that stays has deleted goes with it.
    there, table = data_files(queue, opened), opened.load_table(TABLE)
    live = {file["file_path"].rpartition("/")[2] for file in table.inspect.files().to_pylist()}
    assert len(there) == (KEPT + 1) * FILES and len(live) == KEPT * FILES and live < there
    assert len(table.metadata.snapshots) == 2  # the newest append, and that
