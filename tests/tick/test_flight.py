"""
What a commit writes goes at once: any part of it may be done when a process ends, a store fails, or a put is late.

`together` is replaced by one that does a part of the tasks, in an order, and then ends the process or fails. The
tasks of an append are, in this order: look up its data files, its manifest, its manifest list, metadata.json.
"""

from collections.abc import Callable, Sequence
from itertools import combinations, permutations
from threading import Event, Thread
from typing import Any

import pytest

from bookkeeper.errors import CommitConflict, Retry, StorageUnavailable
from bookkeeper.ledger import build_commit as commits
from bookkeeper.ledger import merge
from bookkeeper.stores.store import Store
from tests.support.faults import BEFORE, Crash, Faults, Rule
from tests.support.lake import Lake, Writes

Task = Callable[[], object]
TASKS = 4
#: each part of the flight of one append, in each order: 65
ORDERS = [order for count in range(TASKS + 1) for order in permutations(range(TASKS), count)]


class Partly:
    """In the place of `together`: does the tasks with these numbers, in this order, and raises `error`, once."""

    def __init__(self, numbers: Sequence[int], error: BaseException) -> None:
        self.numbers, self.error = numbers, error
        #: what was not done: it may arrive later
        self.late: list[Task] = []
        self.tasks = 0

    def __call__(self, tasks: Sequence[Task], at_once: int) -> None:
        if self.tasks:
            for task in tasks:
                task()
            return
        self.tasks = len(tasks)
        for number in self.numbers:
            tasks[number]()
        self.late = [task for number, task in enumerate(tasks) if number not in self.numbers]
        raise self.error


def good(lake: Lake) -> list[str]:
    """The rows, when everything else about the table is as it should be."""
    assert (lake.wrong(), lake.pending()) == ([], [])
    return lake.keys()


def written(lake: Lake) -> set[str]:
    return {item.key for item in lake.store(lake.view().metadata_path).list("")}


@pytest.fixture
def before(lake: Lake, writer: Writes) -> Lake:
    """A lake with one commit, and two txlogs pending."""
    writer.publish("a")
    lake.tick()
    writer.publish("b")
    writer.publish("c")
    return lake


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "".join(map(str, order)) or "none")
def test_a_crash_with_any_part_of_the_writes_done_leaves_every_row_once(
    before: Lake, monkeypatch: pytest.MonkeyPatch, order: Sequence[int]
) -> None:
    names, partly = written(before), Partly(order, Crash())
    monkeypatch.setattr(commits, "together", partly)
    with pytest.raises(Crash):
        before.tick()
    assert partly.tasks == TASKS
    left = written(before) - names
    assert len(left) == len([number for number in order if number])  # the lookup writes nothing
    assert before.keys() == ["a"]
    before.drain()
    assert good(before) == ["a", "b", "c"]
    assert before.operations() == ["append", "append"]
    assert left <= written(before), "only the orphan sweep deletes what an attempt left"


@pytest.mark.parametrize("order", [part for count in range(TASKS) for part in combinations(range(TASKS), count)])
def test_a_put_that_arrives_after_its_attempt_was_given_up_changes_nothing(
    before: Lake, monkeypatch: pytest.MonkeyPatch, order: Sequence[int]
) -> None:
    """It fails, or it hangs past its deadline, and is done all the same: before the next attempt, or after it."""
    for late in (True, False):
        partly = Partly(order, StorageUnavailable("no answer"))
        monkeypatch.setattr(commits, "together", partly)
        book = before.book()
        with pytest.raises(StorageUnavailable):
            before.tick(book)
        if late:
            before.tick(book)
        for task in partly.late:
            task()
        before.tick(book)
        assert good(before)[:3] == ["a", "b", "c"]
        Writes(before, "more").publish("d")
    before.drain()
    assert good(before) == ["a", "b", "c", "d", "d"]


@pytest.fixture
def merging(lake: Lake, writer: Writes, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake whose next commit merges manifests: two more writes, the merged manifest and its list."""
    monkeypatch.setattr(merge, "FAN", 2)
    writer.publish("a")
    lake.tick()
    writer.publish("b")
    return lake


@pytest.mark.parametrize("part", [part for count in range(7) for part in combinations(range(6), count)], ids=str)
def test_a_crash_with_any_part_of_an_append_and_a_merge_done_leaves_every_row_once(
    merging: Lake, monkeypatch: pytest.MonkeyPatch, part: Sequence[int]
) -> None:
    partly = Partly(part, Crash())
    monkeypatch.setattr(commits, "together", partly)
    with pytest.raises(Crash):
        merging.tick()
    assert partly.tasks == 6
    merging.drain()
    assert good(merging) == ["a", "b"]
    assert merging.operations() == ["append", "append", "replace"]


@pytest.mark.parametrize("what", ["-r0.avro", "the list"])
def test_a_merge_that_cannot_be_written_keeps_no_append_from_its_commit(
    merging: Lake, faults: Faults, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    lists = list[str]()

    def is_the_merges(_: int, operation: str) -> bool:
        lists.extend([operation] if "create metadata/snap-" in operation else [])
        return len(lists) == 2 and lists[-1] == operation if what == "the list" else what in operation

    faults.rules.append(Rule(is_the_merges, BEFORE, StorageUnavailable, times=1))
    book = merging.book(faults)
    assert merging.tick(book).commit.txlogs == 1
    assert merging.operations() == ["append", "append"]
    assert good(merging) == ["a", "b"]
    assert [record.levelname for record in caplog.records if getattr(record, "action", "") == "merge"] == ["WARNING"]
    Writes(merging, "w2").publish("c")
    merging.tick(book)
    assert merging.operations() == ["append", "append", "append", "replace"]
    assert good(merging) == ["a", "b", "c"]


class Slow:
    """A far store on which writes of some objects wait until they are released."""

    at_once = 8

    def __init__(self, store: Store, slow: str, log: list[str]) -> None:
        self.store, self.slow, self.log, self.url = store, slow, log, store.url
        self.reached, self.released = Event(), Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def create(self, key: str, data: bytes) -> None:
        if self.slow in key:
            self.reached.set()
            assert self.released.wait(60)
        self.store.create(key, data)
        self.log.append(key)


@pytest.mark.parametrize("slow", ["-m0.avro", "snap-"])
def test_the_swap_is_not_sent_before_all_of_the_writes_are_durable(before: Lake, faults: Faults, slow: str) -> None:
    log = list[str]()
    faults.between("commit_table", lambda: log.append("swap"))
    book = before.book(faults)
    metadata = Slow(before.store(before.view().metadata_path), slow, log)
    book.ledger.open_store = lambda url: metadata  # type: ignore[assignment,return-value]
    ticking = Thread(target=book.tick, args=(before.clock.move(seconds=1),), daemon=True)
    ticking.start()
    assert metadata.reached.wait(60)
    ticking.join(0.2)
    assert "swap" not in log and before.keys() == ["a"]
    metadata.released.set()
    ticking.join(60)
    assert log[-1] == "swap" and len(log) == 3
    assert good(before) == ["a", "b", "c"]


def test_an_attempt_that_waited_too_long_for_its_writes_sends_no_swap(before: Lake, faults: Faults) -> None:
    faults.between("create metadata/snap-", lambda: before.clock.move(minutes=11))
    book = before.book(faults)
    before.tick(book)
    lists = sum(operation.startswith("create metadata/snap-") for operation in faults.seen)
    assert (lists, faults.seen.count("commit_table")) == (2, 1), "the second attempt's"
    assert good(before) == ["a", "b", "c"]


@pytest.mark.parametrize("error", [StorageUnavailable, CommitConflict])
def test_an_error_of_the_writes_sends_no_swap(before: Lake, faults: Faults, error: type[Retry]) -> None:
    faults.on("create metadata.json", BEFORE, error, times=1)
    book = before.book(faults)
    if error is StorageUnavailable:
        with pytest.raises(StorageUnavailable):
            before.tick(book)
        assert "commit_table" not in faults.seen
    before.tick(book)
    assert faults.seen.count("commit_table") == 1
    assert good(before) == ["a", "b", "c"]


def test_a_data_file_that_is_missing_ends_the_attempt_also_when_all_else_is_written(
    lake: Lake, writer: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lookup is answered last."""
    writer.publish("a")
    bad = Writes(lake, "bad")
    name, data = bad.encoded([bad.file(["x"])])
    lake.folder.publish(name, data)
    lake.store(lake.folder.card().data_path).delete_many([f"{bad.name.incarnation}-x.parquet"])
    names = written(lake)

    def lookup_last(tasks: Sequence[Task], at_once: int) -> None:
        for task in (*tasks[1:], tasks[0]):
            task()

    monkeypatch.setattr(commits, "together", lookup_last)
    result = lake.tick()
    assert (result.commit.txlogs, result.rejected) == (1, [str(name)])
    assert (good(lake), lake.rejected()) == (["a"], {str(name): "FileMissing"})
    assert len(written(lake) - names) == 6, "the refused attempt leaves as much as the commit"
