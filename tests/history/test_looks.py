"""One storage that hangs costs only what it holds: looks have a deadline, and are not begun again while they hang."""

import threading
from concurrent.futures import wait
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import StorageUnavailable
from bookkeeper.history import looks as looks_module
from bookkeeper.history.consumer_state import read_all
from bookkeeper.history.looks import Looks
from bookkeeper.history.registry import COMMAND, Registry, spark
from bookkeeper.stores.open import open_store
from tests.support.checkpoints import Query, offset
from tests.support.table_metadata import minute

SOON = timedelta(seconds=0.2)


class Hanging:
    """Storages that answer once they are released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.asked: list[str] = []

    def look(self, name: str) -> str:
        self.asked.append(name)
        if name.startswith("hang"):
            self.released.wait(30)
        return name.upper()


@pytest.fixture
def hanging() -> Any:
    storage = Hanging()
    yield storage
    storage.released.set()


def test_what_answers_is_read_and_what_hangs_is_said(hanging: Hanging) -> None:
    found = Looks(SOON).at_all(["hang", "a", "b"], hanging.look)
    assert (found["a"], found["b"]) == ("A", "B")
    assert isinstance(found["hang"], StorageUnavailable) and "no answer within 0.2 s" in str(found["hang"])


def test_what_hangs_is_not_asked_again_until_it_has_ended(hanging: Hanging) -> None:
    looks = Looks(SOON)
    for _ in range(3):
        assert isinstance(looks.at_all(["hang", "a"], hanging.look)["hang"], StorageUnavailable)
    assert hanging.asked.count("hang") == 1
    hanging.released.set()
    wait(looks._late.values(), 60)
    assert looks.at_all(["hang"], hanging.look) == {"hang": "HANG"}
    assert looks.hanging == set()


def test_no_more_threads_hang_than_look_at_once(hanging: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks_module, "AT_ONCE", 3)
    looks = Looks(SOON)
    for number in range(4):
        found = looks.at_all([f"hang-{number}-{index}" for index in range(5)], hanging.look)
        assert all(isinstance(answer, StorageUnavailable) for answer in found.values())
    assert len(hanging.asked) == 3


def test_more_than_look_at_once_are_all_looked_at(hanging: Hanging) -> None:
    names = [f"n{number}" for number in range(100)]
    assert Looks().at_all(names, hanging.look) == {name: name.upper() for name in names}


def test_a_defect_is_raised_in_the_calling_thread() -> None:
    def fails(name: str) -> str:
        raise KeyError(name)

    with pytest.raises(KeyError):
        Looks().at_all(["a"], fails)


def test_a_checkpoint_that_hangs_makes_its_consumer_unreadable_and_no_other(tmp_path: Path, hanging: Hanging) -> None:
    registry, query = Registry(open_store(str(tmp_path))), Query(tmp_path / "cp")
    query.begin(offset(1)).done(offset(4))
    registry.add(spark("good", query.url, minute(0), by=COMMAND))
    registry.add(spark("stuck", f"file://{tmp_path}/hangs", minute(0), by=COMMAND))

    def opened(url: str) -> Any:
        if url.endswith("hangs"):
            hanging.look("hang")
        return open_store(url)

    found = {read.consumer.name: read for read in read_all(registry, opened, Looks(SOON))}
    assert found["good"].checkpoint is not None and found["good"].trouble == ""
    assert found["stuck"].trouble == f"file://{tmp_path}/hangs: no answer within 0.2 s"
    assert found["stuck"].checkpoint is None and found["stuck"].offsets == ()
