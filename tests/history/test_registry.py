"""
The registry of consumers: what is registered is found again, and what cannot be read is not forgotten.
"""

import os
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import ConfigInvalid, NotPossible, StorageUnavailable
from bookkeeper.history.registry import COMMAND, CONFIG, JOB, Registry, name_for, reader, spark
from bookkeeper.stores.open import open_store
from tests.support.lake import Clock, TimedStore

NOW = datetime(2050, 1, 1, tzinfo=UTC)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(open_store(str(tmp_path)))


def test_what_is_added_is_found_again_as_it_was(registry: Registry) -> None:
    query = spark("nightly", "s3://lake/cp", NOW, source=2, available_now=True, by=JOB)
    other = reader("export", 4711, NOW, timedelta(hours=2))
    registry.add(query)
    registry.add(other)
    assert registry.all() == [other, query]
    assert not other.lapsed(NOW) and other.lapsed(NOW + timedelta(hours=2))


def test_a_query_that_begins_with_a_snapshot_says_which_and_is_found_by_name(registry: Registry) -> None:
    query = replace(spark("nightly", "s3://lake/cp", NOW, by=JOB), begins_with=4711, renewed=NOW)
    registry.add(query)
    assert registry.find("nightly") == query == registry.all()[0]
    assert registry.find("other") is None


def test_adding_again_renews_and_removing_forgets(registry: Registry) -> None:
    registry.add(reader("export", 1, NOW, timedelta(hours=1)))
    registry.add(reader("export", 2, NOW, timedelta(hours=1)))
    assert [consumer.snapshot for consumer in registry.all()] == [2]
    registry.remove("export")
    assert registry.all() == []
    with pytest.raises(NotPossible, match="export"):
        registry.remove("export")


@pytest.mark.parametrize(
    ("behind", "lasts"),
    [
        (timedelta(minutes=25), timedelta(minutes=20)),
        (timedelta(0), timedelta(minutes=20)),
        (timedelta(minutes=-5), timedelta(minutes=25)),
    ],
)
def test_a_reader_has_its_time_to_live_also_where_its_clock_is_behind(
    tmp_path: Path, behind: timedelta, lasts: timedelta
) -> None:
    store = TimedStore(str(tmp_path), Clock(NOW))
    Registry(store).add(reader("job", 1, NOW - behind, timedelta(minutes=20)))
    (found,) = Registry(store).all()
    assert not found.lapsed(NOW + lasts - timedelta(seconds=1)) and found.lapsed(NOW + lasts)


def test_a_record_from_a_disk_whose_clock_shows_no_time_is_read_as_it_says(tmp_path: Path) -> None:
    store = TimedStore(str(tmp_path), Clock(NOW.replace(year=9990)))
    record = replace(reader("job", 1, NOW, timedelta(0)), until=NOW.replace(year=8999))
    Registry(store).add(record)
    assert Registry(store).all() == [record]


def test_the_configuration_names_consumers_too_and_has_the_last_word(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    Registry(store).add(spark("live", "/old", NOW, by=COMMAND))
    registry = Registry(store, [{"name": "live", "checkpoint": "/new"}, {"checkpoint": "/cp/Daily Sums"}])
    assert [(item.name, item.checkpoint, item.by) for item in registry.all()] == [
        (name_for("/cp/Daily Sums"), "/cp/Daily Sums", CONFIG),
        ("live", "/new", CONFIG),
    ]
    with pytest.raises(NotPossible, match="configuration"):
        registry.remove("live")
    with pytest.raises(NotPossible, match="configuration"):
        registry.add(spark("live", "/other", NOW, by=COMMAND))


@pytest.mark.parametrize(
    "item", [{"name": "x"}, {"checkpoint": "/a", "nosuch": 1}, {"checkpoint": "/a", "source": "0"}, {"checkpoint": 3}]
)
def test_a_configuration_that_is_wrong_is_refused(tmp_path: Path, item: dict[str, object]) -> None:
    with pytest.raises(ConfigInvalid):
        Registry(open_store(str(tmp_path)), [item])


READER = b'{"version":1,"snapshot":5,"until":"%s"}'
BROKEN = [
    b"",
    b"{",
    b"[]",
    b"{}",
    b'{"version":2}',
    b'{"version":1}',
    b'{"version":1,"snapshot":5}',
    b"\xff",
    b"[" * 60_000,
]
BROKEN += [READER % until for until in (b"0001-01-01T00:00:00+14:00", b"9999-12-31T23:59:59-14:00")]
BROKEN += [b'{"version":1,"checkpoint":"/cp","source":"../../else"}']
BROKEN += [rb'{"version":1,"checkpoint":"/cp/\ud800"}', rb'{"version":1,"checkpoint":"/cp","\udfff":1}']
BEGINS = b'{"version":1,"checkpoint":"/cp","begins-with":%s,"renewed":%s}'
BROKEN += [BEGINS % (b'"5"', b"null"), BEGINS % (b"true", b"null"), BEGINS % (b"5", b"7")]
BROKEN += [BEGINS % (b"5", b'"2026-01-31T12:00:00"'), BEGINS % (b"5", b'"9999-12-31T23:59:59-14:00"')]


@pytest.mark.parametrize("data", BROKEN)
def test_a_record_that_cannot_be_read_is_a_broken_consumer(tmp_path: Path, data: bytes) -> None:
    store = open_store(str(tmp_path))
    store.replace("consumers/strange.json", data)
    (found,) = Registry(store).all()
    assert found.name == "strange" and found.broken


def test_names_are_checked(registry: Registry) -> None:
    with pytest.raises(ConfigInvalid):
        spark("../card", "/cp", NOW, by=COMMAND)
    with pytest.raises(ConfigInvalid):
        registry.remove("../card")


def test_two_folders_of_one_name_get_two_names() -> None:
    assert name_for("s3://a/cp") != name_for("s3://b/cp")
    assert name_for("s3://a/cp/") == name_for("s3://a/cp")


def test_a_folder_that_does_not_answer_is_no_empty_registry(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable):
        Registry(open_store(f"{tmp_path}/unmounted")).all()


def test_a_record_that_is_too_large_or_no_file_is_an_unreadable_consumer(tmp_path: Path) -> None:
    (tmp_path / "consumers").mkdir()
    with (tmp_path / "consumers" / "huge.json").open("wb") as file:
        file.truncate(2**40)
    (tmp_path / "consumers" / "link.json").symlink_to(__file__)
    registry = Registry(open_store(str(tmp_path)))
    registry.add(reader("export", 1, NOW, timedelta(hours=1)))
    found = {consumer.name: consumer.broken for consumer in registry.all()}
    huge = registry.find("huge")
    assert huge is not None and huge.broken == found["huge"]
    assert found.pop("export") == ""
    assert all("its record is not read" in why for why in found.values()) and found.keys() == {"huge", "link"}


def test_an_object_whose_name_is_no_key_costs_no_other() -> None:
    folder = open_store(f"memory://{uuid.uuid4()}")
    registry = Registry(folder)
    registry.add(spark("nightly", "s3://lake/cp", NOW, by=JOB))
    memory: Any = folder
    memory.fs.pipe_file(f"{memory.root}/consumers//copy.json", b"{}")
    assert len([*folder.list("consumers/")]) == 2
    assert [consumer.name for consumer in registry.all()] == ["nightly"]


def test_records_that_others_have_named_are_removed_by_that_name_and_cost_no_metrics(tmp_path: Path) -> None:
    registry = Registry(open_store(str(tmp_path)))
    registry.add(spark("nightly", "s3://lake/cp", NOW, by=JOB))
    (tmp_path / "consumers" / "._Nightly copy.json").write_bytes(b"{}")
    (tmp_path / "consumers" / os.fsdecode(b"\xff.json")).write_bytes(b"{}")
    names = [consumer.name for consumer in registry.all()]
    assert names == ["._Nightly copy", "nightly"] and "".join(names).encode()
    registry.remove("._Nightly copy")
    assert [consumer.name for consumer in registry.all()] == ["nightly"]
