"""What every Store guarantees of a listing, whatever storage is behind it."""

from datetime import UTC, datetime, timedelta

import pytest

from bookkeeper.errors import PathRefused
from bookkeeper.stores.store import Store
from tests.support.stores import Opener, rounds
from tests.support.threads import meanwhile


def keys(store: Store, prefix: str = "") -> list[str]:
    return sorted(item.key for item in store.list(prefix))


def test_a_listing_shows_key_size_and_time_of_every_object(store: Store) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)
    store.create("a/x", b"1")
    store.upload("a/b/y", b"22")
    store.replace("z", b"333")
    found = {item.key: item for item in store.list("")}
    assert {key: item.size for key, item in found.items()} == {"a/x": 1, "a/b/y": 2, "z": 3}
    assert all(before <= item.modified <= datetime.now(UTC) + timedelta(seconds=2) for item in found.values())


@pytest.mark.parametrize("prefix", ["a", "a/"])
def test_a_listing_is_of_one_folder_with_or_without_its_slash(store: Store, prefix: str) -> None:
    for key in ("a/x", "a/b/y", "ab/x", "b/a/x", "c"):
        store.create(key, b"1")
    assert keys(store, prefix) == ["a/b/y", "a/x"]


@pytest.mark.parametrize("prefix", ["nowhere/", "object", "object/", "fol"])
def test_a_listing_of_no_folder_is_empty(store: Store, prefix: str) -> None:
    store.create("object", b"1")
    store.create("folder/x", b"1")
    assert keys(store, prefix) == []


def test_a_listing_while_things_change_shows_all_that_stays(stores: Opener) -> None:
    looks = rounds(stores, 40)
    stay = {f"f/{number % 7}/stays-{number}" for number in range(50)}
    for key in stay:
        stores().create(key, b"1")
    changing, looking = stores(), stores()

    def change(number: int) -> None:
        key = f"f/{number % 9}/comes-and-goes"
        changing.replace(key, b"1")
        changing.delete_many([key])

    def look() -> list[set[str]]:
        return [stay - set(keys(looking, "f/")) for _ in range(looks)]

    for lacking in meanwhile(change, [look, look]):
        assert lacking == [set()] * looks


def test_an_object_deleted_before_its_turn_does_not_stop_a_listing(store: Store) -> None:
    for number in range(20):
        store.create(f"f/{number}", b"1")
    listing = store.list("f/")
    next(listing)
    store.delete_many([f"f/{number}" for number in range(20)])
    assert len(list(listing)) < 20
    assert keys(store) == []


@pytest.mark.parametrize("prefix", ["../", "a/../../x/", "/x", "a//b/", "./"])
def test_a_listing_that_leaves_the_root_is_refused(store: Store, prefix: str) -> None:
    with pytest.raises(PathRefused):
        list(store.list(prefix))
