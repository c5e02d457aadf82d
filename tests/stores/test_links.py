"""A store on a local disk follows no symbolic link below its root: not to read, list or delete, and not to write."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import AlreadyExists, BookkeeperError, Missing, NotAFile, StorageUnavailable
from bookkeeper.leases.lease import lease_on
from bookkeeper.stores import beneath
from bookkeeper.stores.beneath import Open, walk
from bookkeeper.stores.local import LocalStore
from bookkeeper.stores.local_roots import kept, of_table
from bookkeeper.stores.store import Head, Range
from tests.stores.test_beneath import by_kernel, swap
from tests.stores.test_untrusted import NOW

#: the link, where it leads to from there, and a file behind it
LINKS = [
    ("data/x", "../../other", "data/x/deep/er/f"),
    ("data/day=1/x", "../../../other/deep", "data/day=1/x/er/f"),
    ("data/day=1/hour=2/x", "../../../../other/deep/er", "data/day=1/hour=2/x/f"),
    ("data/m", "../metadata", "data/m/f"),
    ("data/day=1/up", "..", "data/day=1/up/f"),
    ("data/here", ".", "data/here/f"),
    ("data/file", "../../other/f", "data/file"),
    ("data/own", "f", "data/own"),
]


@pytest.fixture(params=["kernel", "walk"])
def opened(request: pytest.FixtureRequest) -> Open:
    return walk if request.param == "walk" else by_kernel()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table's location, with files of its own, beside another table's folder."""
    for place in ("table/data/day=1/hour=2", "table/metadata", "other/deep/er"):
        (tmp_path / place).mkdir(parents=True)
    for path in ("table/data/f", "table/metadata/f", "other/f", "other/deep/f", "other/deep/er/f"):
        (tmp_path / path).write_text(path)
    return tmp_path / "table"


@pytest.fixture
def store(root: Path, opened: Open) -> LocalStore:
    return LocalStore(str(root), opened)


def files(root: Path) -> dict[str, str]:
    """Every file that is no link, here and in the other folder."""
    found = [path for path in root.parent.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(root.parent)): path.read_text() for path in found if path.name != ".lock"}


READS: dict[str, Callable[[LocalStore, str], Any]] = {
    "read": lambda store, key: store.read(key),
    "read with a bound": lambda store, key: store.read(key, 100),
    "read_tagged": lambda store, key: store.read_tagged(key, 100),
    "read_many": lambda store, key: store.read_many([key, "data/f"], 100)[key],
    "read_ranges": lambda store, key: store.read_ranges([Range(key, 0, 4)])[Range(key, 0, 4)],
    "read_versions": lambda store, key: store.read_versions({key: ""})[key],
    "size": lambda store, key: store.size(key),
    "sizes": lambda store, key: store.sizes([key])[key],
    "heads": lambda store, key: store.heads([key])[key],
    "modified": lambda store, key: store.modified(key),
}


def outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except BookkeeperError as error:
        return error


@pytest.mark.parametrize("act", READS)
@pytest.mark.parametrize(("link", "target", "key"), LINKS)
def test_nothing_is_read_through_a_link_and_the_link_is_named(
    root: Path, store: LocalStore, link: str, target: str, key: str, act: str
) -> None:
    (root / link).symlink_to(target)
    error = outcome(lambda: READS[act](store, key))
    assert isinstance(error, NotAFile), error
    assert f"{root}/{link} is" in str(error) or f"{root}/{link} is no regular file" in str(error)
    assert store.read_many([key, "data/f"])["data/f"] == b"table/data/f"


@pytest.mark.parametrize(("link", "target", "key"), LINKS)
def test_nothing_is_deleted_or_listed_behind_a_link(
    root: Path, store: LocalStore, link: str, target: str, key: str
) -> None:
    (root / link).symlink_to(target)
    before = files(root)
    (root / "data" / "goes").write_text("1")
    assert store.delete_many([key, "data/goes", "data/gone", f"{link}/f"]) == (4 if key == link else 2)
    assert files(root) == before
    listed = {item.key for item in store.list("")}
    assert listed - {link} == {"data/f", "metadata/f"}
    assert (root / link).is_symlink() == (key != link)


@pytest.mark.parametrize("act", ["create", "replace", "upload"])
@pytest.mark.parametrize(("link", "target", "key"), LINKS)
def test_no_write_goes_through_a_link(
    root: Path, store: LocalStore, link: str, target: str, key: str, act: str
) -> None:
    (root / link).symlink_to(target)
    before = files(root)
    for written in (f"{link}/new/g", key):
        error = outcome(partial(getattr(store, act), written, b"changed"))
        through = written != link or act == "upload"
        assert isinstance(error, StorageUnavailable if through else AlreadyExists | str), error
        assert not through or (f"{root}/{link} is a symbolic link" in str(error) and "mount" in error.hint)
    after = files(root)
    assert {name: after[name] for name in before} == before
    # Replacing a link puts a file in its place.
    assert after.keys() - before.keys() == ({f"table/{link}"} if act == "replace" and key == link else set())


@pytest.mark.parametrize(("link", "target", "key"), LINKS)
def test_nothing_is_moved_through_a_link(root: Path, store: LocalStore, link: str, target: str, key: str) -> None:
    (root / link).symlink_to(target)
    before = files(root)
    if key != link:
        assert isinstance(outcome(lambda: store.move(key, "data/new")), NotAFile)
    error = outcome(lambda: store.move("data/f", f"{link}/g"))
    assert isinstance(error, StorageUnavailable) and f"{root}/{link} is a symbolic link" in str(error)
    assert files(root) == before


def test_a_link_to_a_file_is_listed_as_itself_and_deleted_as_itself(root: Path, store: LocalStore) -> None:
    (root.parent / "other" / "large").write_bytes(bytes(5000))
    (root / "data" / "large").symlink_to("../../other/large")
    os.utime(root / "data" / "large", (1000, 1000), follow_symlinks=False)
    listed = {item.key: item for item in store.list("data")}
    assert listed["data/large"].size == len("../../other/large")
    assert listed["data/large"].modified.timestamp() == 1000
    store.delete_many(["data/large"])
    assert not (root / "data" / "large").is_symlink() and (root.parent / "other" / "large").exists()


def test_a_folder_that_cannot_be_listed_without_a_link_is_trouble_and_not_empty(root: Path, store: LocalStore) -> None:
    (root / "linked").symlink_to("data")
    for prefix in ("linked", "linked/", "linked/day=1/"):
        with pytest.raises(StorageUnavailable, match="linked is a symbolic link") as refused:
            list(store.list(prefix))
        assert "docs/stores.md" in refused.value.hint


def test_a_link_that_takes_a_folders_place_during_a_listing_is_passed_over(root: Path, store: LocalStore) -> None:
    listing = store.list("data/")
    assert next(listing).key == "data/f"
    swap(root / "data" / "day=1", root.parent / "other")
    assert [item.key for item in listing] == []


@pytest.mark.parametrize("when", [1, 2])
def test_a_link_that_takes_a_folders_place_during_a_call_leads_nowhere(root: Path, when: int) -> None:
    """Before the first file of the folder is opened, and between two of them."""
    for name in "gh":
        (root / "data" / "day=1" / name).write_text(name)
        (root.parent / "other" / name).write_text("secret")
    calls = 0

    def opened(*given: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == when:
            swap(root / "data" / "day=1", root.parent / "other")
        return beneath.best()(*given)

    found = LocalStore(str(root), opened).read_many(["data/day=1/g", "data/day=1/h"])
    assert [type(answer) for answer in found.values()] == ([NotAFile] * 2 if when == 1 else [bytes, NotAFile])
    assert b"secret" not in found.values()


def test_what_is_open_stays_what_it_was_when_a_link_takes_its_place(root: Path, opened: Open) -> None:
    for name in "ghi":
        (root / "data" / "day=1" / name).write_text(name)
        (root.parent / "other" / name).write_text("secret")
    given = ["data/day=1/g", "data/day=1/h", "data/day=1/i"]

    class Bounds(dict[str, int]):
        def __getitem__(self, key: str) -> int:
            if key == given[2]:
                swap(root / "data" / "day=1", root.parent / "other")
            return 100

    found = LocalStore(str(root), opened).read_many(given, Bounds())
    assert [*found.values()] == [b"g", b"h", b"i"]


def test_a_delete_between_two_of_which_a_link_appears_stays_in_its_folder(root: Path, store: LocalStore) -> None:
    for place in (root / "data" / "day=1", root.parent / "other"):
        for name in "gh":
            (place / name).write_text(name)

    def keys() -> Any:
        yield "data/day=1/g"
        swap(root / "data" / "day=1", root.parent / "other")
        yield "data/day=1/h"

    store.delete_many(keys())
    assert (root.parent / "other" / "g").exists() and (root.parent / "other" / "h").exists()
    assert not (root / "data" / "away" / "h").exists()


# -- the root


def test_the_root_may_be_a_link_and_be_reached_through_links(root: Path, opened: Open, tmp_path: Path) -> None:
    (tmp_path / "lakes").symlink_to(tmp_path)
    (tmp_path / "moved").symlink_to("lakes/table")
    (root / "data" / "x").symlink_to("../../other")
    for place in (tmp_path / "moved", tmp_path / "lakes" / "table"):
        store = LocalStore(str(place), opened)
        store.create("data/day=9/new", b"1")
        store.replace("data/day=9/new", b"2")
        store.upload("data/day=9/up", b"3")
        store.move("data/day=9/up", "data/day=9/moved")
        assert store.read("data/f") == b"table/data/f"
        assert {item.key for item in store.list("")} >= {"data/f", "data/day=9/new", "data/day=9/moved"}
        assert isinstance(store.read_many(["data/x/f"])["data/x/f"], NotAFile)
        store.delete_many(["data/day=9/new", "data/day=9/moved", "data/x/f"])
    assert files(root).keys() >= {"other/f"} and "table/data/day=9/new" not in files(root)


def test_a_disk_that_is_mounted_below_the_root_is_read(opened: Open) -> None:
    if not os.path.ismount("/proc"):
        pytest.skip("needs a disk that is mounted below a directory")
    assert LocalStore("/", opened).read("proc/version")


@pytest.mark.parametrize("place", ["pending", "rejected", "reaper"])
def test_a_folder_of_a_txlog_folder_that_is_a_link_is_trouble_and_condemns_nothing(
    root: Path, store: LocalStore, place: str
) -> None:
    """A person has moved it to another disk: no txlog in it is at fault."""
    folder = kept(store)
    (root / place).symlink_to("data")
    for act in (*READS.values(), lambda store, key: store.delete_many([key])):
        error = outcome(partial(act, folder, f"{place}/f"))
        assert isinstance(error, StorageUnavailable) and f"{root}/{place} is a symbolic link" in str(error)
    assert isinstance(outcome(lambda: folder.read("data/f", 100)), bytes)
    (root / "data" / "link").symlink_to("f")
    assert isinstance(outcome(lambda: folder.read("data/link", 100)), NotAFile)


def test_a_lease_is_not_taken_through_a_link(root: Path, store: LocalStore) -> None:
    (root / "reaper").symlink_to("../other")
    (root.parent / "other" / "lease").write_text("precious")
    with pytest.raises(StorageUnavailable, match="reaper is a symbolic link"):
        lease_on(store, "reaper/lease", "us").hold(NOW)
    assert (root.parent / "other" / "lease").read_text() == "precious"
    (root / "reaper").unlink()
    lease = lease_on(store, "reaper/lease", "us")
    assert lease.hold(NOW) and lease.hold(NOW)
    lease.release()


# -- a table


@pytest.mark.parametrize("write", [False, True])
def test_a_data_folder_that_is_a_link_is_trouble_of_the_table_and_of_no_file(
    root: Path, store: LocalStore, write: bool
) -> None:
    (root / "data").rename(root.parent / "elsewhere")
    (root / "data").symlink_to("../elsewhere")
    table = of_table(store, f"file://{root}", f"file://{root}/data", f"file://{root}/metadata")
    acts: list[Callable[[], Any]] = [partial(act, table, "data/f") for act in READS.values()]
    acts.append(lambda: table.delete_many(["data/f"]))
    if write:
        acts = [lambda: table.create("data/g", b"1"), lambda: table.upload("data/g", b"1")]
    for act in acts:
        error = outcome(act)
        assert isinstance(error, StorageUnavailable) and "mount" in error.hint
        assert str(error).startswith(f"{root}/data is a symbolic link, and none is followed below {root}")
    assert table.read("metadata/f") == b"table/metadata/f"
    assert "elsewhere/g" not in files(root)
    (root / "data").unlink()
    (root.parent / "elsewhere").rename(root / "data")
    assert table.read("data/f") == b"table/data/f"


def test_a_link_below_the_data_folder_is_trouble_of_its_file_alone(root: Path, store: LocalStore) -> None:
    (root / "data" / "x").symlink_to("../../other")
    table = of_table(store, f"file://{root}", f"file://{root}/data")
    assert [type(found) for found in table.heads(["data/x/f", "data/f"]).values()] == [NotAFile, Head]
    assert table.delete_many(["data/x/f"]) == 0 and "other/f" in files(root)


def test_a_store_that_begins_below_the_location_is_not_reached_through_a_link(root: Path, opened: Open) -> None:
    metadata = of_table(LocalStore(f"{root}/metadata", opened), str(root))
    assert metadata.read("f") == b"table/metadata/f"
    (root / "metadata").rename(root.parent / "elsewhere")
    (root / "metadata").symlink_to("../elsewhere")
    for act in (
        lambda: metadata.read("f"),
        lambda: metadata.create("g", b"1"),
        lambda: metadata.replace("f", b"1"),
        lambda: metadata.delete_many(["f"]),
        lambda: list(metadata.list("")),
    ):
        error = outcome(act)
        assert isinstance(error, StorageUnavailable) and f"{root}/metadata is a symbolic link" in str(error)
    assert files(root)["elsewhere/f"] == "table/metadata/f"


def test_folders_between_the_location_and_the_root_are_made_as_they_are_needed(tmp_path: Path, opened: Open) -> None:
    store = of_table(LocalStore(f"{tmp_path}/table/deep/metadata", opened), f"{tmp_path}/table")
    store.create("f", b"1")
    assert (tmp_path / "table" / "deep" / "metadata" / "f").read_bytes() == b"1"


def test_of_a_store_that_begins_above_it_only_the_table_is_strict(root: Path, opened: Open, tmp_path: Path) -> None:
    """A warehouse: where its tables lie is the business of whoever made it."""
    (tmp_path / "warehouse").mkdir()
    (tmp_path / "warehouse" / "t").symlink_to("../table")
    place = f"{tmp_path}/warehouse/t"
    table = of_table(LocalStore(f"{tmp_path}/warehouse", opened), place, f"{place}/metadata")
    assert table.read("t/metadata/f") == b"table/metadata/f"
    table.create("t/metadata/new/g", b"1")
    table.create("index/h", b"1")
    assert {item.key for item in table.list("t/metadata")} == {"t/metadata/f", "t/metadata/new/g"}
    (root / "data" / "m").symlink_to("../metadata")
    assert isinstance(outcome(lambda: table.read("t/data/m/f")), NotAFile)
    (root / "metadata").rename(root / "was")
    (root / "metadata").symlink_to("was")
    assert isinstance(outcome(lambda: table.read("t/metadata/f")), StorageUnavailable)


def test_a_data_path_elsewhere_may_be_a_link(root: Path, opened: Open, tmp_path: Path) -> None:
    (tmp_path / "disk").symlink_to("other")
    store = of_table(LocalStore(f"{tmp_path}/disk", opened), str(root), f"{tmp_path}/disk")
    assert store.read("f") == b"other/f"
    (tmp_path / "other" / "x").symlink_to("deep")
    assert isinstance(outcome(lambda: store.read("x/f")), NotAFile)


def test_what_is_missing_beside_links_is_missing(store: LocalStore) -> None:
    for act in READS.values():
        assert isinstance(outcome(partial(act, store, "data/day=1/gone")), Missing)
