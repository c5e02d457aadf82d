"""Two runs of one consumer: what the earlier one can still do, by where the place is kept."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest

from bookkeeper.consumers import DuckDBPlace, FolderPlace, ParquetPlace, SqlitePlace
from bookkeeper.consumers.consumer import Batch
from bookkeeper.consumers.place_keepers import SqlPlace
from bookkeeper.errors import ConsumerFenced, NotPossible
from bookkeeper.history.registry import key_of
from bookkeeper.stores.local import LocalStore
from tests.consumers.consumers import NAME, Output, ParquetOutput, SqliteOutput, commit, keys, opened, take
from tests.support.lake import Lake, Writes

Connect = Callable[[], Any]


@pytest.fixture(params=["sqlite", "duckdb", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    """Makes the places of several runs, on one output."""
    connections: list[Any] = []

    def made() -> Any:
        if request.param == "folder":
            return FolderPlace()
        if request.param == "sqlite":
            connections.append(sqlite3.connect(tmp_path / "output.db"))
            return SqlitePlace(connections[-1])
        connections.append(duckdb.connect(tmp_path / "output.duckdb"))
        return DuckDBPlace(connections[-1])

    yield made
    for connection in connections:
        connection.close()


@contextmanager
def transaction(keeper: Any) -> Iterator[None]:
    """In the database of the place, if it is in one."""
    if not isinstance(keeper, SqlPlace):
        yield
        return
    keeper._connection.execute("BEGIN")
    try:
        yield
    except BaseException:
        keeper._connection.rollback()
        raise
    keeper._connection.commit()


def test_a_run_is_fenced_once_another_has_opened_also_before_that_moves_the_place(
    lake: Lake, writer: Writes, place: Connect
) -> None:
    commit(lake, writer, "ab")
    keeper = place()
    with opened(lake, keeper) as first:
        batch = next(first.batches(follow=False))
        with opened(lake, place()) as second:
            assert second.place == first.place
            with pytest.raises(ConsumerFenced), transaction(keeper):
                first.commit(batch)
            assert second.place == first.place, "it can begin with these rows"


def test_of_two_runs_the_later_one_has_the_greater_epoch_and_its_batches_carry_it(
    lake: Lake, writer: Writes, place: Connect
) -> None:
    commit(lake, writer, "a")
    found = []
    for _ in range(4):
        keeper = place()
        with opened(lake, keeper) as consumer:
            found.append(next(consumer.batches(follow=False)).epoch)
            assert found[-1] == keeper.epoch
    assert found == sorted(set(found)) and found[0] > 0 and found[-1] < 2**63


def test_two_runs_that_open_at_one_moment_have_different_epochs(lake: Lake) -> None:
    places = [FolderPlace(), FolderPlace()]
    runs = [opened(lake, each) for each in places]
    assert places[0].epoch != places[1].epoch
    for run in runs:
        run.close()


def test_an_epoch_of_an_earlier_release_is_followed_by_a_greater_one_and_an_odd_one_is_refused(lake: Lake) -> None:
    opened(lake, FolderPlace()).close()
    record = json.loads(lake.folder.store.read(key_of(NAME)))
    for epoch in (2**56 - 1, 7):  # seven random bytes
        lake.put(key_of(NAME), json.dumps({**record, "epoch": epoch}).encode())
        keeper = FolderPlace()
        with opened(lake, keeper):
            assert epoch < keeper.epoch < 2**63
    for epoch in (2**62, -1, 10**400):
        lake.put(key_of(NAME), json.dumps({**record, "epoch": epoch}).encode())
        with pytest.raises(NotPossible):
            opened(lake, FolderPlace())


def test_a_run_whose_place_is_in_the_folder_hands_out_nothing_once_another_has_taken_over(
    lake: Lake, writer: Writes
) -> None:
    commit(lake, writer, "abc")
    with opened(lake, FolderPlace(), rows=1) as first:
        batches = first.batches(follow=False)
        first.commit(next(batches))
        with opened(lake, FolderPlace(), rows=1) as second:
            lake.clock.move(seconds=2)  # the first one was stopped for that long
            with pytest.raises(ConsumerFenced, match="another run"):
                next(batches)
            assert take(second) == ["b", "c"]


def test_a_run_that_goes_on_without_a_pause_asks_the_folder_for_no_batch(
    lake: Lake, writer: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(lake, writer, "abcdef")
    asked = []
    monkeypatch.setattr(FolderPlace, "check", lambda keeper, consumer: asked.append(consumer))
    with opened(lake, FolderPlace(), rows=1) as consumer:
        assert take(consumer) == [*"abcdef"]
    assert asked == []


def test_a_record_that_was_removed_fences_a_run(lake: Lake, writer: Writes) -> None:
    commit(lake, writer, "abc")
    with opened(lake, FolderPlace(), rows=1) as consumer:
        lake.folder.store.delete_many([key_of(NAME)])
        lake.clock.move(seconds=2)
        with pytest.raises(ConsumerFenced):
            next(consumer.batches(follow=False))


class Sink:
    """Output by the key of its batch; `compares`: what comes with a smaller epoch than is there is refused."""

    def __init__(self, compares: bool) -> None:
        self.compares = compares
        self.held: dict[str, tuple[int, list[str]]] = {}

    def put(self, batch: Batch) -> None:
        if self.compares and self.held.get(batch.key, (0, []))[0] > batch.epoch:
            raise ConsumerFenced("a later run has written this")
        self.held[batch.key] = batch.epoch, keys(batch)

    def rows(self) -> list[str]:
        return sorted(key for _, rows in self.held.values() for key in rows)


@pytest.mark.parametrize("compares", [True, False])
@pytest.mark.parametrize(("early", "late"), [(4, 2), (2, 4)])
def test_output_by_key_of_an_earlier_run_replaces_none_of_a_later_one_where_epochs_are_compared(
    lake: Lake, writer: Writes, compares: bool, early: int, late: int
) -> None:
    """The earlier run has its rows in hand, is stopped, and writes them after the later one, whose batches differ."""
    commit(lake, writer, "abcdef")
    sink = Sink(compares)
    with opened(lake, FolderPlace(), rows=early) as first:
        batch = next(first.batches(follow=False))
        with opened(lake, FolderPlace(), rows=late) as second:
            for later in second.batches(follow=False):
                sink.put(later)
                second.commit(later)
        with pytest.raises(ConsumerFenced):
            sink.put(batch)
            first.commit(batch)
    assert (sink.rows() == [*"abcdef"]) is compares


def test_of_two_runs_whose_place_is_in_files_the_first_to_write_goes_on(
    lake: Lake, writer: Writes, tmp_path: Path
) -> None:
    commit(lake, writer, "ab")
    (tmp_path / "files").mkdir()
    runs = [opened(lake, ParquetPlace(LocalStore(str(tmp_path / "files")))) for _ in range(2)]
    batches: list[Any] = [next(run.batches(follow=False)) for run in runs]
    assert {batch.epoch for batch in batches} == {0}
    runs[0].commit(batches[0], batches[0].table.select(["key"]))
    with pytest.raises(ConsumerFenced):
        runs[1].commit(batches[1], batches[1].table.select(["key"]))
    for run in runs:
        run.close()


@pytest.fixture(params=["sqlite", "parquet"])
def beside(request: pytest.FixtureRequest, tmp_path: Path) -> Output:
    """An output with its place; the record in the txlog folder follows it."""
    return {"sqlite": SqliteOutput, "parquet": ParquetOutput}[request.param](tmp_path / "output")


def registered(lake: Lake) -> str:
    """The place in the record of the consumer: what the reaper keeps for it."""
    found: str = json.loads(lake.folder.store.read(key_of(NAME)))["place"]
    return found


def test_a_run_that_another_has_overtaken_does_not_set_the_record_back(
    lake: Lake, writer: Writes, beside: Output
) -> None:
    commit(lake, writer, "a")
    with beside.run(lake) as first:
        first.take()
        commit(lake, writer, "b")
        beside.take(lake)
        place = registered(lake)
        lake.clock.move(minutes=1)
        with suppress(ConsumerFenced):
            first.take()
        assert registered(lake) == place


def test_nor_does_one_that_stood_still_before_it_wrote_the_record(
    lake: Lake, writer: Writes, beside: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(lake, writer, "a")
    with beside.run(lake) as first:
        first.take()
        durable, places = first.consumer._keeper.durable, list[str]()

        def late(consumer: str) -> str | None:
            text = durable(consumer)
            if not places:
                places.append("")
                commit(lake, writer, "b")
                beside.take(lake)
                places.append(registered(lake))
            return text

        monkeypatch.setattr(first.consumer._keeper, "durable", late)
        commit(lake, writer, "c")
        lake.clock.move(minutes=1)
        with suppress(ConsumerFenced):
            first.take()
        assert places[1] == registered(lake)
