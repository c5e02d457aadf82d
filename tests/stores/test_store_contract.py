"""What every Store guarantees, whatever storage is behind it (docstrings of bookkeeper.stores.store.Store)."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pyarrow as pa
import pytest

from bookkeeper.errors import (
    AlreadyExists,
    Changed,
    Missing,
    NotPossible,
    PathRefused,
    StorageUnavailable,
    TooLarge,
)
from bookkeeper.stores.store import Head, ObjectVersion, Part, Range, Store, check_deletes_by_tag, key_in
from tests.support.stores import Opener, open_at, rounds
from tests.support.threads import at_once, meanwhile

ESCAPES = ["../x", "a/../../x", "a/../b", "/x", "//x", "a//b", "./a", "a/.", "a/", "", ".", "..", "a\0b"]
ROUNDS = 100
THREADS = 6


def keys(store: Store, prefix: str = "") -> list[str]:
    return sorted(item.key for item in store.list(prefix))


def test_what_was_created_is_read_back(store: Store) -> None:
    store.create("a/b/c.bin", b"\x00\xff" * 1000)
    assert store.read("a/b/c.bin") == b"\x00\xff" * 1000
    assert store.size("a/b/c.bin") == 2000


def test_an_empty_object_is_an_object(store: Store) -> None:
    store.create("empty", b"")
    assert (store.read("empty"), store.size("empty"), keys(store)) == (b"", 0, ["empty"])


def test_another_handle_on_the_same_place_sees_it_at_once(stores: Opener) -> None:
    stores().create("a", b"1")
    assert stores().read("a") == b"1"


def test_creating_what_is_there_fails_and_leaves_it_as_it_is(store: Store) -> None:
    store.create("a", b"first")
    with pytest.raises(AlreadyExists):
        store.create("a", b"second")
    assert store.read("a") == b"first"
    assert keys(store) == ["a"]


def test_of_many_that_create_at_once_exactly_one_wins(stores: Opener) -> None:
    handles = [stores() for _ in range(THREADS)]
    for number in range(rounds(stores, ROUNDS)):
        key = f"race/{number}"
        acts = [partial(handle.create, key, f"{index}".encode()) for index, handle in enumerate(handles)]
        outcomes = at_once(acts)
        won = [index for index, outcome in enumerate(outcomes) if outcome is None]
        assert len(won) == 1
        assert all(isinstance(outcome, AlreadyExists) for outcome in outcomes if outcome is not None)
        assert handles[0].read(key) == f"{won[0]}".encode()
    assert len(keys(handles[0])) == rounds(stores, ROUNDS)


def test_a_deleted_key_may_be_created_again(store: Store) -> None:
    store.create("a", b"1")
    store.delete_many(["a"])
    store.create("a", b"2")
    assert store.read("a") == b"2"


def test_replace_makes_or_replaces(store: Store) -> None:
    store.replace("a/b", b"one")
    store.replace("a/b", b"other")
    assert store.read("a/b") == b"other"


def test_replace_with_the_tag_of_what_is_there_replaces_it(store: Store) -> None:
    store.create("a", b"1")
    _, tag = store.read_tagged("a")
    store.replace("a", b"2", if_match=tag)
    assert store.read("a") == b"2"


def test_replace_returns_the_tag_of_what_it_wrote(store: Store) -> None:
    tag = store.replace("a", b"1")
    assert tag == store.read_tagged("a")[1]
    tag = store.replace("a", b"2", if_match=tag)
    assert (b"2", tag) == store.read_tagged("a")
    store.replace("a", b"3", if_match=tag)
    with pytest.raises(Changed):
        store.replace("a", b"4", if_match=tag)
    assert store.read("a") == b"3"


def test_replace_with_the_tag_of_another_version_changes_nothing(store: Store) -> None:
    store.create("a", b"1")
    _, tag = store.read_tagged("a")
    store.replace("a", b"2")
    with pytest.raises(Changed):
        store.replace("a", b"3", if_match=tag)
    assert store.read("a") == b"2"


def test_replace_with_an_empty_tag_means_not_there_yet(store: Store) -> None:
    store.replace("a", b"1", if_match="")
    with pytest.raises(Changed):
        store.replace("a", b"2", if_match="")
    assert store.read("a") == b"1"


def test_replace_with_a_tag_does_not_bring_back_what_was_deleted(store: Store) -> None:
    store.create("a", b"1")
    _, tag = store.read_tagged("a")
    store.delete_many(["a"])
    with pytest.raises(Changed):
        store.replace("a", b"2", if_match=tag)
    assert keys(store) == []


def test_a_counter_that_many_increment_by_tag_loses_nothing(stores: Opener) -> None:
    stores().create("counter", b"0")
    each = rounds(stores, 20)

    def increment(store: Store) -> int:
        lost = done = 0
        while done < each:
            data, tag = store.read_tagged("counter")
            try:
                store.replace("counter", str(int(data) + 1).encode(), if_match=tag)
                done += 1
            except Changed:
                lost += 1
        return lost

    outcomes = at_once([partial(increment, stores()) for _ in range(THREADS)])
    assert all(isinstance(outcome, int) for outcome in outcomes), outcomes
    assert stores().read("counter") == str(each * THREADS).encode()


def test_a_reader_sees_the_old_object_or_the_new_one_and_nothing_between(stores: Opener) -> None:
    versions = [bytes([letter]) * (1 + letter * 997) for letter in b"abcdef"]
    stores().create("a", versions[0])
    writing, reading, least = stores(), stores(), rounds(stores, 300)

    def write(number: int) -> None:
        writing.replace("a", versions[number % len(versions)])

    def read() -> set[bytes]:
        seen = set()
        for turn in range(100 * least):
            seen.add(reading.read("a"))
            if turn >= least and len(seen) > 1:
                break
        return seen

    for seen in meanwhile(write, [read, read]):
        assert seen <= set(versions)
        assert len(seen) > 1, "nothing was replaced meanwhile"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, pa.py_buffer])
def test_upload_takes_any_buffer(store: Store, kind: type) -> None:
    store.upload("data/day=1/x.parquet", kind(b"PAR1" * 500_000))
    assert store.read("data/day=1/x.parquet") == b"PAR1" * 500_000


@pytest.mark.parametrize("act", ["read", "read_tagged", "size", "modified"])
@pytest.mark.parametrize("key", ["a", "nowhere/a", "folder", "object/below"])
def test_what_is_not_there_is_missing(store: Store, act: str, key: str) -> None:
    # A folder is no object, and there is nothing below an object.
    store.create("folder/x", b"1")
    store.create("object", b"1")
    with pytest.raises(Missing):
        getattr(store, act)(key)


def test_the_storage_says_when_an_object_was_written(store: Store) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)
    store.create("a", b"1")
    assert before <= store.modified("a") <= datetime.now(UTC) + timedelta(seconds=2)


def test_a_name_too_long_for_the_storage_is_missing(store: Store) -> None:
    with pytest.raises(Missing):
        store.size("x" * 3000)


@pytest.mark.parametrize("act", ["create", "replace", "upload"])
@pytest.mark.parametrize("key", ["folder", "object/below"])
def test_a_write_where_no_object_can_be_is_never_said_to_be_there_already(store: Store, act: str, key: str) -> None:
    # Object stores can, disks cannot: but no caller may take the answer for its own bytes.
    store.create("folder/x", b"1")
    store.create("object", b"1")
    try:
        getattr(store, act)(key, b"2")
    except StorageUnavailable:
        assert keys(store) == ["folder/x", "object"]
    else:
        assert store.read(key) == b"2"


@pytest.mark.parametrize("key", ESCAPES)
@pytest.mark.parametrize("act", ["read", "read_tagged", "size", "create", "replace", "upload"])
def test_a_key_that_leaves_the_root_is_refused(store: Store, act: str, key: str) -> None:
    arguments = (key, b"x") if act in ("create", "replace", "upload") else (key,)
    with pytest.raises(PathRefused):
        getattr(store, act)(*arguments)
    assert keys(store) == []


@pytest.mark.parametrize("key", ESCAPES)
def test_a_key_that_leaves_the_root_is_refused_among_many(store: Store, key: str) -> None:
    store.create("a", b"1")
    for act in (store.read_many, store.sizes, store.heads, store.delete_many):
        with pytest.raises(PathRefused):
            act([key, "a"])
    assert keys(store) == ["a"]


def test_read_many_and_sizes_answer_for_each_key(store: Store) -> None:
    store.create("a", b"1")
    store.create("b/c", b"22")
    read = store.read_many(["a", "gone", "b/c", "b"])
    sizes = store.sizes(["gone", "b/c", "a", "a/b"])
    assert {key: data for key, data in read.items() if isinstance(data, bytes)} == {"a": b"1", "b/c": b"22"}
    assert [isinstance(read[key], Missing) for key in ("gone", "b")] == [True, True]
    assert {key: size for key, size in sizes.items() if isinstance(size, int)} == {"b/c": 2, "a": 1}
    assert [isinstance(sizes[key], Missing) for key in ("gone", "a/b")] == [True, True]


def test_heads_answer_for_each_key_with_size_and_first_bytes(store: Store) -> None:
    contents = {"a": b"PAR1" * 1000, "b/c": b"Obj\x01", "short": b"OR", "empty": b""}
    for key, data in contents.items():
        store.create(key, data)
    heads = store.heads(["gone", *contents, "b", "a/b"])
    assert {key: head for key, head in heads.items() if isinstance(head, Head)} == {
        key: Head(len(data), data[:4]) for key, data in contents.items()
    }
    assert [isinstance(heads[key], Missing) for key in ("gone", "b", "a/b")] == [True] * 3


def test_ranges_are_answered_each_with_the_size_and_what_there_is_of_them(store: Store) -> None:
    data = bytes(range(256)) * 1000
    store.upload("a", data)
    store.create("empty", b"")
    inside = [Range("a", begin, end) for begin, end in ((0, 4), (4, 5), (1000, 200_000), (255_992, 256_000))]
    beyond = [Range("a", 255_000, 300_000), Range("a", 256_000, 256_001), Range("a", 900_000, 900_009)]
    found = store.read_ranges([*inside, *beyond, Range("empty", 0, 8)])
    for wanted in (*inside, *beyond):
        assert found[wanted] == Part(len(data), data[wanted.begin : wanted.end])
    assert found[Range("empty", 0, 8)] == Part(0, b"")
    gone = [Range(key, 0, 4) for key in ("gone", "b", "a/b")]
    assert [isinstance(error, Missing) for error in store.read_ranges(gone).values()] == [True] * 3


def test_a_range_of_a_key_that_leaves_the_root_is_refused(store: Store) -> None:
    with pytest.raises(PathRefused):
        store.read_ranges([Range("../a", 0, 4)])


def test_read_many_sizes_and_heads_of_nothing_are_empty(store: Store) -> None:
    acts = (store.read_many, store.sizes, store.heads, store.read_ranges)
    assert [dict(act([])) for act in acts] == [{}] * 4


def test_deleting_passes_over_what_is_not_there(store: Store) -> None:
    for key in ("a", "b/c", "stays"):
        store.create(key, b"1")
    given = ["a", "gone", "b/c", "nowhere/at/all", "a/below", "b/c"]
    assert store.delete_many(iter(given)) == len(given)
    assert keys(store) == ["stays"]


def test_many_that_delete_the_same_at_once_all_succeed(stores: Opener) -> None:
    names = [f"a/{number}" for number in range(50)]
    for name in names:
        stores().create(name, b"1")
    assert at_once([partial(stores().delete_many, names) for _ in range(4)]) == [50] * 4
    assert keys(stores()) == []


def test_the_version_with_the_tag_is_deleted_and_no_other(store: Store) -> None:
    store.create("a/b", b"1")
    _, old = store.read_tagged("a/b")
    new = store.replace("a/b", b"22")
    with pytest.raises(Changed):
        store.delete_if("a/b", old)
    assert store.read("a/b") == b"22"
    store.delete_if("a/b", new)
    assert [key for key in keys(store) if not key.startswith(".")] == []


def test_deleting_by_tag_passes_over_what_is_not_there(store: Store) -> None:
    tag = store.replace("a", b"1")
    for key in ("gone", "nowhere/at/all", "a/below", "x" * 3000):
        store.delete_if(key, tag)
    assert store.read("a") == b"1"
    with pytest.raises(PathRefused):
        store.delete_if("../a", tag)


def test_a_storage_that_deletes_by_tag_is_known_and_its_probe_leaves_nothing(store: Store) -> None:
    check_deletes_by_tag(store, "probe")
    assert keys(store) == []


def test_a_storage_that_ignores_the_tag_of_a_delete_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(store), "delete_if", lambda self, key, tag: self.delete_many([key]))
    with pytest.raises(NotPossible, match="ignores the condition of a delete"):
        check_deletes_by_tag(store, "probe")


def test_what_is_replaced_while_it_is_deleted_by_its_tag_is_never_lost(stores: Opener) -> None:
    writing, deleting = stores(), stores()
    for number in range(rounds(stores, ROUNDS)):
        key = f"race/{number}"
        tag = writing.replace(key, b"old")
        replaced, _ = at_once([partial(writing.replace, key, b"newer"), partial(deleting.delete_if, key, tag)])
        assert isinstance(replaced, str)
        assert writing.read(key) == b"newer"


def test_a_location_below_the_store_has_a_key(store: Store) -> None:
    store.create("data/x.parquet", b"1")
    assert store.read(key_in(store, f"{store.url}/data/x.parquet")) == b"1"


@pytest.mark.parametrize("tail", ["", "/", "2/x", "/../x", "/a/../../x", "/%2e%2e/x"])
def test_a_location_outside_of_the_store_has_none(store: Store, tail: str) -> None:
    with pytest.raises(PathRefused):
        key_in(store, f"{store.url}{tail}")


def test_a_store_inside_of_a_store_sees_the_same_objects(store: Store) -> None:
    store.create("table/data/x", b"1")
    inner = open_at(f"{store.url}/table")
    assert keys(inner) == ["data/x"]
    inner.create("data/y", b"2")
    assert store.read("table/data/y") == b"2"


def test_a_bounded_read_takes_what_is_as_large_as_it_may_be(store: Store) -> None:
    store.create("a", b"12345")
    store.create("empty", b"")
    assert store.read("a", 5) == b"12345"
    assert store.read_tagged("a", 5) == store.read_tagged("a")
    assert store.read_many(["a", "empty"], 5) == {"a": b"12345", "empty": b""}
    assert store.read("empty", 0) == b""


def test_a_bounded_read_refuses_what_is_larger_and_hides_no_other(store: Store) -> None:
    store.create("large", bytes(2**20))
    store.create("a", b"1234")
    for act in (store.read, store.read_tagged):
        with pytest.raises(TooLarge, match="at most 1000 "):
            act("large", 1000)
        with pytest.raises(Missing):
            act("gone", 1000)
    read = store.read_many(["large", "a", "gone"], 1000)
    assert [type(outcome) for outcome in read.values()] == [TooLarge, bytes, Missing]
    each = store.read_many(["large", "a"], {"large": 2**20, "a": 3})
    assert [type(outcome) for outcome in each.values()] == [bytes, TooLarge]


def test_what_is_too_large_to_be_read_is_replaced_by_its_tag_unless_it_changed(store: Store) -> None:
    store.create("a", bytes(2**20))
    with pytest.raises(TooLarge) as refused:
        store.read_tagged("a", 10)
    store.replace("a", b"small", if_match=refused.value.tag)
    assert store.read("a") == b"small"
    with pytest.raises(Changed):
        store.replace("a", b"again", if_match=refused.value.tag)


def test_a_version_that_is_known_is_not_read_again_until_it_changes(stores: Opener) -> None:
    writing, reading = stores(), stores()
    writing.create("a", b"one")
    first = reading.read_versions({"a": ""})["a"]
    assert isinstance(first, ObjectVersion) and (first.data, first.tag) == writing.read_tagged("a")
    for reader in (reading, stores()):
        assert reader.read_versions({"a": first.tag}) == {"a": None}
    writing.replace("a", b"two")
    second = reading.read_versions({"a": first.tag}, 3)["a"]
    assert isinstance(second, ObjectVersion) and (second.data, second.tag != first.tag) == (b"two", True)
    assert reading.read_versions({"a": second.tag}) == {"a": None}
    writing.replace("a", b"3", if_match=second.tag)
    assert reading.read_versions({"a": second.tag})["a"].data == b"3"  # type: ignore[union-attr]


def test_an_older_version_that_is_put_back_is_not_taken_for_the_newer_one(store: Store) -> None:
    store.create("a", b"old")
    store.replace("a", b"new")
    known = store.read_tagged("a")[1]
    store.replace("a", b"old")
    assert store.read_versions({"a": known})["a"].data == b"old"  # type: ignore[union-attr]


def test_a_version_that_is_known_is_missing_once_it_was_deleted(store: Store) -> None:
    store.create("a", b"1")
    store.create("empty", b"")
    known = {key: store.read_tagged(key)[1] for key in ("a", "empty")}
    assert store.read_versions(known, 10) == {"a": None, "empty": None}
    store.delete_many(["a"])
    answers = store.read_versions(known, 10)
    assert isinstance(answers["a"], Missing) and answers["empty"] is None


def test_each_of_many_versions_has_its_own_answer_and_bound(store: Store) -> None:
    store.create("large", bytes(2**20))
    store.create("a", b"1234")
    store.create("empty", b"")
    known = {"large": "", "a": "", "gone": "", "empty": "", "b" * 2000: "", "a/below": ""}
    answers = store.read_versions(known, {**dict.fromkeys(known, 1000), "empty": 0})
    kinds = [TooLarge, ObjectVersion, Missing, ObjectVersion, Missing, Missing]
    assert [type(answer) for answer in answers.values()] == kinds
    assert answers["empty"].data == b""  # type: ignore[union-attr]
    with pytest.raises(PathRefused):
        store.read_versions({"../x": ""})


def test_a_version_is_dated_by_the_clock_of_the_storage(store: Store) -> None:
    store.create("a", b"1")
    found = store.read_versions({"a": ""})["a"]
    assert isinstance(found, ObjectVersion)
    # Some answers are exact to the second only.
    assert found.modified is None or abs(found.modified - store.modified("a")) < timedelta(seconds=1)
    assert found.modified is not None or store.url.startswith("gs:")


def test_an_object_that_is_moved_has_the_other_name_only(store: Store) -> None:
    store.create("pending/a", b"1" * 2**20)
    store.move("pending/a", "rejected/it/a")
    assert keys(store) == ["rejected/it/a"]
    assert store.read("rejected/it/a") == b"1" * 2**20


def test_moving_never_replaces_and_says_what_is_missing(store: Store) -> None:
    store.create("a", b"1")
    store.create("b", b"2")
    with pytest.raises(AlreadyExists):
        store.move("a", "b")
    with pytest.raises(Missing):
        store.move("gone", "c")
    assert (store.read("a"), store.read("b"), keys(store)) == (b"1", b"2", ["a", "b"])
