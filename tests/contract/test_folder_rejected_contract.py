"""What the txlog folder guarantees on every backend: a txlog in rejected/ is never lost, and finds its way back."""

from datetime import UTC, datetime
from functools import partial

import pytest

from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import AlreadyExists, Missing, NameMismatch, TxlogCorrupt
from tests.support.crashing_store import POINTS, survived
from tests.support.stores import Opener, content
from tests.support.threads import at_once

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
WHY = TxlogCorrupt("cut short: 16 bytes expected at byte 400 of 400")


def test_a_rejected_txlog_is_moved_with_its_reason(folder: Folder, first: TxlogName) -> None:
    folder.publish(first, b"bad")
    folder.reject(first, WHY, NOW)
    assert folder.pending() == []
    assert [item.name for item in folder.rejected()] == [first]
    assert folder.store.read(f"rejected/{first}") == b"bad"
    assert folder.reason(first) == {
        "error": "TxlogCorrupt",
        "reason": "cut short: 16 bytes expected at byte 400 of 400",
        "hint": "The writer must write these rows again: new data files, and a txlog under a new sequence.",
        "rejected-at": "2026-11-21T12:00:00+00:00",
    }


def test_rejecting_what_is_not_pending_says_missing(folder: Folder, first: TxlogName) -> None:
    with pytest.raises(Missing):
        folder.reject(first, WHY, NOW)
    assert content(folder.store) == {}


def test_one_that_dies_anywhere_while_rejecting_loses_nothing_and_can_be_finished(
    stores: Opener, first: TxlogName
) -> None:
    for fatal in range(POINTS):
        name, store = first.at(fatal + 1), stores()
        Folder(store).publish(name, b"bad")
        through = survived(store, lambda crashing, name=name: Folder(crashing).reject(name, WHY, NOW), fatal)
        kept = [data for place in ("pending", "rejected") if (data := content(store).get(f"{place}/{name}"))]
        assert kept, f"lost at point {fatal}"
        assert set(kept) == {b"bad"}
        if f"pending/{name}" not in content(store):
            # Durable in rejected/, with its reason, before it leaves pending/.
            assert content(store)[f"rejected/{name}"] == b"bad"
            assert Folder(store).reason(name)["error"] == "TxlogCorrupt"
        else:
            Folder(store).reject(name, WHY, NOW)
        assert f"pending/{name}" not in content(store)
        if through:
            return
    pytest.fail("never got through")


def test_two_that_reject_at_once_lose_nothing(stores: Opener, first: TxlogName) -> None:
    for sequence in range(1, 30):
        name = first.at(sequence)
        Folder(stores()).publish(name, b"bad")
        outcomes = at_once([partial(Folder(stores()).reject, name, WHY, NOW) for _ in range(2)])
        assert all(outcome is None or isinstance(outcome, Missing) for outcome in outcomes), outcomes
        assert stores().read(f"rejected/{name}") == b"bad"
    assert Folder(stores()).pending() == []


def test_rejecting_a_second_txlog_of_that_name_keeps_both(folder: Folder, first: TxlogName) -> None:
    for data in (b"one", b"two", b"two"):
        folder.publish(first, data)
        folder.reject(first, WHY, NOW)
    kept = {key: data for key, data in content(folder.store).items() if not key.endswith(".reason.json")}
    assert sorted(kept.values()) == [b"one", b"two"]
    assert all(key.startswith(f"rejected/{first}") for key in kept)


@pytest.mark.parametrize(
    "key",
    ["x.txlog.avro", "a folder/x.txlog.avro", "ünï😀.txlog.avro", "x" * 243 + ".txlog.avro", "ü" * 121 + ".txlog.avro"],
)
def test_a_foreign_file_is_rejected_whatever_its_name(folder: Folder, key: str) -> None:
    # A name that cannot be moved would stop every tick.
    folder.store.upload(f"pending/{key}", b"bad")
    (found,) = folder.look()[1]
    folder.reject(found, NameMismatch("not named like a txlog"), NOW)
    assert folder.look()[1] == []
    kept = [data for name, data in content(folder.store).items() if not name.endswith(".reason.json")]
    assert kept == [b"bad"]


def test_strangers_with_long_names_that_begin_alike_are_kept_apart(folder: Folder) -> None:
    for tail in "ab":
        folder.store.upload(f"pending/{'x' * 240}{tail}.txlog.avro", tail.encode())
    for key in folder.look()[1]:
        folder.reject(key, NameMismatch("not named like a txlog"), NOW)
    kept = [data for name, data in content(folder.store).items() if not name.endswith(".reason.json")]
    assert sorted(kept) == [b"a", b"b"]


def test_replay_gives_it_back_under_its_own_name_and_keeps_the_copy(folder: Folder, first: TxlogName) -> None:
    folder.publish(first, b"mended")
    folder.reject(first, WHY, NOW)
    folder.replay(first)
    folder.replay(first)
    assert [item.name for item in folder.pending()] == [first]
    assert [item.name for item in folder.rejected()] == [first]
    assert folder.store.read(f"pending/{first}") == b"mended"


def test_replay_never_replaces_what_is_pending(folder: Folder, first: TxlogName) -> None:
    folder.publish(first, b"one")
    folder.reject(first, WHY, NOW)
    folder.publish(first, b"two")
    with pytest.raises(AlreadyExists):
        folder.replay(first)
    assert folder.store.read(f"pending/{first}") == b"two"


def test_replay_of_what_is_not_rejected_says_missing(folder: Folder, first: TxlogName) -> None:
    with pytest.raises(Missing):
        folder.replay(first)


def test_discarding_removes_a_rejected_txlog_and_its_reason(folder: Folder, first: TxlogName) -> None:
    for name in (first, first.at(2)):
        folder.publish(name, b"bad")
        folder.reject(name, WHY, NOW)
    assert folder.discard_rejected([first]) == 1
    assert sorted(content(folder.store)) == [f"rejected/{first.at(2)}", f"rejected/{first.at(2)}.reason.json"]


def test_a_discard_that_dies_anywhere_leaves_no_txlog_without_its_reason(stores: Opener, first: TxlogName) -> None:
    for fatal in range(POINTS):
        name, store = first.at(fatal + 1), stores()
        Folder(store).publish(name, b"bad")
        Folder(store).reject(name, WHY, NOW)
        through = survived(store, lambda crashing, name=name: Folder(crashing).discard_rejected([name]), fatal)
        left = content(store)
        assert f"rejected/{name}" not in left or f"rejected/{name}.reason.json" in left
        if through:
            return
    pytest.fail("never got through")


@pytest.mark.parametrize("text", [b"", b"not json", b"[]", b'"x"', b"[" * 100_000, b"\xff\xfe"])
def test_a_reason_that_is_not_readable_is_no_reason(folder: Folder, first: TxlogName, text: bytes) -> None:
    folder.store.create(f"rejected/{first}.reason.json", text)
    assert folder.reason(first) == {}


def test_a_reason_that_was_not_written_is_empty(folder: Folder, first: TxlogName) -> None:
    assert folder.reason(first) == {}


def test_deleting_passes_over_what_another_deleted(folder: Folder, first: TxlogName) -> None:
    folder.publish(first, b"1")
    assert folder.delete([first, first.at(2)]) == 2
    assert folder.pending() == []
