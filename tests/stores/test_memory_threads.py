"""The store in memory, used by several threads at once, as a writer does."""

import threading
import uuid

import pytest

from bookkeeper.errors import Missing
from bookkeeper.stores import memory
from bookkeeper.stores.memory import MemoryStore


def test_an_upload_waits_for_a_listing_because_fsspec_fails_when_objects_are_added_meanwhile() -> None:
    store = MemoryStore(f"memory://{uuid.uuid4()}", {})
    upload = threading.Thread(target=store.upload, args=("a", b"1"))
    with memory._MEMORY:  # as `list` holds it
        upload.start()
        upload.join(0.2)
        with pytest.raises(Missing):
            store.read("a")
    upload.join()
    assert [item.key for item in store.list("")] == ["a"]
