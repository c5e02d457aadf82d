"""Files that several processes write for one txlog, on each object store."""

import pickle
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from bookkeeper.stores.open import stores_with
from tests.stores.wires import OBJECTS
from tests.support.configured import Queue, new_queue
from writers import Task, Writer


def written(queue: Queue, task: bytes, *keys: str) -> bytes:
    """The result of a task that was sent to another process."""
    found: Task = pickle.loads(task)
    with found.open(stores=stores_with(queue.settings.catalog.properties)) as files:
        files.write(pa.table({"key": [*keys], "timestamp": [datetime(2026, 1, 1, tzinfo=UTC)] * len(keys)}))
    return files.result


@pytest.mark.parametrize("kind", OBJECTS)
def test_files_of_tasks_are_in_the_table_once_and_discarded_ones_are_gone(kind: str, tmp_path: Path) -> None:
    queue = new_queue(kind, tmp_path)
    queue.run("bookkeeper", "init")
    stores = stores_with(queue.settings.catalog.properties)
    with Writer.open(queue.folder, "pool", stores=stores) as writer:
        task = pickle.dumps(writer.task())
        assert writer.take([written(queue, task, "a", "b"), written(queue, task, "c")]) == 3
        writer.publish()
        task = pickle.dumps(writer.task())
        assert writer.discard([written(queue, task, "d")]) == 1
        data = stores(writer.card.data_path)
    queue.asked("once")
    assert queue.keys() == Counter("abc")
    assert len([item for item in data.list("") if item.key.endswith(".parquet")]) == 2
