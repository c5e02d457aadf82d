"""What the txlog folder guarantees on every backend: where it may be, what is pending, publishing."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from bookkeeper.config.settings import Table
from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.txlog_folder import REJECTED, Folder, folder_url
from bookkeeper.errors import AlreadyExists, ConfigInvalid, Missing, StorageUnavailable
from bookkeeper.stores.local import LocalStore
from bookkeeper.stores.store import Store
from tests.support.cards import card
from tests.support.crashing_store import POINTS, Crash, CrashingStore, survived
from tests.support.stores import Opener, content, rounds
from tests.support.threads import at_once

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def names(number: int) -> Iterator[TxlogName]:
    """
    Names of two writers, two runs each, in no order.
    """
    for sequence in range(number, 0, -1):
        for writer in ("b-2", "a_1"):
            for start in (2, 1):
                yield TxlogName(writer, new_incarnation(1000 * start, bytes(10)), sequence)


def test_pending_is_ordered_by_writer_then_run_then_sequence(folder: Folder) -> None:
    published = list(names(12))
    for name in published:
        folder.publish(name, b"x")
    found = [item.name for item in folder.pending()]
    assert found == sorted(published)
    assert [name.sequence for name in found[:12]] == list(range(1, 13))


def test_pending_tells_size_and_time(folder: Folder, first: TxlogName) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)
    folder.publish(first, b"12345")
    (found,) = folder.pending()
    assert (found.name, found.size) == (first, 5)
    assert before <= found.modified <= datetime.now(UTC) + timedelta(seconds=2)


def test_an_empty_folder_has_nothing_pending_and_nothing_rejected(folder: Folder) -> None:
    assert (folder.pending(), folder.rejected(), folder.look()[1]) == ([], [], [])


def test_what_is_not_named_like_a_txlog_is_not_pending(folder: Folder, first: TxlogName) -> None:
    for key in (f"{first}.tmp", f"{first}.0a1b.tmp", "notes.txt", f"sub/{first}", str(first).upper()):
        folder.store.create(f"pending/{key}", b"x")
    assert folder.pending() == []


def test_strangers_are_what_ends_like_a_txlog_and_is_not_named_like_one(folder: Folder, first: TxlogName) -> None:
    folder.publish(first, b"x")
    strange = ["x.txlog.avro", f"sub/{first}", str(first).replace("w1.", "W1."), str(first).replace("0001.", "0000.")]
    for key in (*strange, f"{first}.tmp", "notes.txt"):
        folder.store.create(f"pending/{key}", b"x")
    assert sorted(folder.look()[1]) == sorted(strange)


def test_reading_answers_for_each_name(folder: Folder, first: TxlogName) -> None:
    folder.publish(first, b"1")
    read = folder.read([first, first.at(2)])
    assert read[first] == b"1"
    assert isinstance(read[first.at(2)], Missing)


def test_exists_is_a_definite_answer(folder: Folder, first: TxlogName) -> None:
    assert not folder.exists(first)
    folder.publish(first, b"1")
    assert folder.exists(first)
    assert not folder.exists(first, REJECTED)


def test_a_published_txlog_is_pending_with_its_bytes(folder: Folder, first: TxlogName) -> None:
    folder.publish(first, b"txlog")
    assert content(folder.store) == {f"pending/{first}": b"txlog"}


def test_publishing_the_same_bytes_again_is_success(folder: Folder, first: TxlogName) -> None:
    folder.publish(first, b"txlog")
    folder.publish(first, b"txlog")
    assert content(folder.store) == {f"pending/{first}": b"txlog"}


def test_publishing_other_bytes_under_a_taken_name_is_refused(folder: Folder, first: TxlogName) -> None:
    folder.publish(first, b"txlog")
    with pytest.raises(AlreadyExists):
        folder.publish(first, b"other")
    assert content(folder.store) == {f"pending/{first}": b"txlog"}


def test_a_put_that_reached_the_storage_though_it_failed_is_found_again(store: Store, first: TxlogName) -> None:
    lossy = CrashingStore(store, lost={"create": StorageUnavailable("reply lost")})
    with pytest.raises(StorageUnavailable):
        Folder(lossy).publish(first, b"txlog")
    Folder(store).publish(first, b"txlog")
    assert content(store) == {f"pending/{first}": b"txlog"}


def test_a_client_that_says_its_own_put_was_there_before_is_believed(store: Store, first: TxlogName) -> None:
    # What adlfs and s3fs do when they repeat a put whose reply was lost.
    repeating = CrashingStore(store, lost={"create": AlreadyExists("it is there")})
    Folder(repeating).publish(first, b"txlog")
    assert content(store) == {f"pending/{first}": b"txlog"}


def test_of_many_that_publish_under_one_name_only_those_with_the_winning_bytes_succeed(
    stores: Opener, first: TxlogName
) -> None:
    for sequence in range(1, rounds(stores, 40)):
        name = first.at(sequence)
        acts = [partial(Folder(stores()).publish, name, data) for data in (b"one", b"one", b"two", b"two")]
        outcomes = at_once(acts)
        there = stores().read(f"pending/{name}")
        succeeded = [outcome is None for outcome in outcomes]
        assert succeeded == ([True, True, False, False] if there == b"one" else [False, False, True, True])
        assert all(isinstance(outcome, AlreadyExists) for outcome in outcomes if outcome is not None)


def test_a_publisher_that_dies_anywhere_has_published_all_or_nothing(store: Store, first: TxlogName) -> None:
    for fatal in range(POINTS):
        name = first.at(fatal + 1)
        through = survived(store, lambda crashing, name=name: Folder(crashing).publish(name, b"txlog"), fatal)
        assert content(store).get(f"pending/{name}", b"txlog") == b"txlog"
        if through:
            assert Folder(store).exists(name)
            return
        Folder(store).publish(name, b"txlog")
        assert store.read(f"pending/{name}") == b"txlog"
    pytest.fail("never got through")


def test_the_storages_clock_is_compared_with_ours(folder: Folder) -> None:
    now = datetime.now(UTC)
    assert abs(folder.clock_skew(now)) < timedelta(seconds=30)
    assert timedelta(hours=1) < folder.clock_skew(now - timedelta(hours=2)) < timedelta(hours=3)


def test_what_else_lies_beside_the_clocks_probe_says_no_time(tmp_path: Path) -> None:
    """As the rest of a write that was cut off while the machine's clock was ahead, or a copy with its times."""
    stray, now = tmp_path / "clock" / "probe.tmp", datetime.now(UTC)
    stray.parent.mkdir()
    stray.touch()
    later = (now + timedelta(days=365)).timestamp()
    os.utime(stray, (later, later))
    assert abs(Folder(LocalStore(str(tmp_path))).clock_skew(now)) < timedelta(seconds=30)


def test_the_clocks_probe_is_no_txlog(folder: Folder) -> None:
    folder.clock_skew(NOW)
    assert (folder.pending(), folder.rejected(), folder.look()[1]) == ([], [], [])


def test_a_crash_is_nothing_that_the_folder_catches(store: Store, first: TxlogName) -> None:
    for act in (
        lambda crashing: Folder(crashing).marks(),
        lambda crashing: Folder(crashing).write_card(card()),
        lambda crashing: Folder(crashing).exists(first),
    ):
        with pytest.raises(Crash):
            act(CrashingStore(store, fatal=0))


@pytest.mark.parametrize(
    ("folder", "place"),
    [
        (None, "s3://b/t/_bookkeeper"),
        ("s3://b/t/_queue", "s3://b/t/_queue"),
        ("s3://b/t/_queue/deep", "s3://b/t/_queue/deep"),
        ("s3a://b/t/_queue/", "s3a://b/t/_queue/"),
        ("s3://b/elsewhere", "s3://b/elsewhere"),
        ("s3://b/t2", "s3://b/t2"),
        ("s3://b", "s3://b"),
        ("/disk/queue", "/disk/queue"),
    ],
)
def test_the_folder_may_be_anywhere_that_iceberg_does_not_sweep(folder: str | None, place: str) -> None:
    assert folder_url(Table(folder=folder), "s3://b/t") == place


@pytest.mark.parametrize("folder", ["s3://b/t", "s3://b/t/", "s3://b/t/queue", "s3a://b/t/queue/_x", "s3://b/t/data"])
def test_a_folder_that_remove_orphan_files_would_delete_is_refused(folder: str) -> None:
    with pytest.raises(ConfigInvalid, match="lies in the table's location"):
        folder_url(Table(folder=folder), "s3://b/t/")
