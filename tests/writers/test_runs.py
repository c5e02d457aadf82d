"""Several runs of one writer's name, with the real bookkeeper: at once, paused, woken too late."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from bookkeeper.commands.discard import discard, outlook
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import Fenced
from bookkeeper.stores.open import open_store
from tests.support.writer_queue import Queue
from writers.writer import Writer


@pytest.fixture(autouse=True)
def _in_time() -> None:
    CLOCK.late = timedelta(0)


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(tmp_path / "queue")


def keys(queue: Queue) -> list[str]:
    return sorted(queue.table().scan(selected_fields=("key",)).to_arrow()["key"].to_pylist())


def folder(queue: Queue) -> Folder:
    return Folder(open_store(queue.made.folder))


class Ahead:
    """The time, two seconds later at each publish: a writer looks at the folder once a second."""

    late = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.late


CLOCK = Ahead()


def started(queue: Queue) -> Writer:
    return Writer.open(queue.made.folder, "source", clock=CLOCK)


def takes(writer: Writer, *found: str) -> None:
    at = pa.array([datetime.now(UTC)] * len(found), pa.timestamp("us", "UTC"))
    writer.write(pa.table({"timestamp": at, "key": list(found)}))


def copies(writer: Writer, upto: int) -> None:
    """Reads its source from where it is, one row a number, and publishes it."""
    first = int(writer.position or 0) + 1
    takes(writer, *(f"{number:03d}" for number in range(first, upto + 1)))
    CLOCK.late += timedelta(seconds=2)
    writer.publish(position=b"%d" % upto)


def test_two_live_runs_without_positions_both_get_all_their_rows_in(queue: Queue) -> None:
    one, two = started(queue), started(queue)
    for number in range(4):
        for name, writer in (("one", one), ("two", two)):
            takes(writer, f"{name}-{number}")
            writer.publish()
        if number % 2:
            queue.tick()
    assert keys(queue) == sorted(f"{name}-{number}" for name in ("one", "two") for number in range(4))


def test_of_two_live_runs_with_positions_one_is_fenced_and_the_source_is_copied_once(queue: Queue) -> None:
    one, two = started(queue), started(queue)
    copies(one, 3)
    copies(two, 5)  # from the start, too: it knows no better
    queue.tick()
    with pytest.raises(Fenced):
        copies(two, 7)
    copies(one, 6)
    queue.tick()
    again = started(queue)
    assert again.position == b"6"
    copies(again, 9)
    queue.tick()
    assert keys(queue) == [f"{number:03d}" for number in range(1, 10)]


@pytest.mark.parametrize("committed", [False, True])
def test_a_run_that_wakes_after_its_successor_has_gone_on_doubles_nothing(queue: Queue, committed: bool) -> None:
    paused = started(queue)
    copies(paused, 2)
    queue.tick()
    takes(paused, "003", "004")  # falls asleep with these in its hands
    successor = started(queue)
    copies(successor, 6)
    if committed:
        queue.tick()
    paused.publish(position=b"4")
    queue.tick()
    with pytest.raises(Fenced):
        copies(paused, 8)
    again = started(queue)
    copies(again, 8)
    queue.tick()
    assert keys(queue) == [f"{number:03d}" for number in range(1, 9)]


def test_a_run_without_positions_that_wakes_late_adds_rows_of_its_own_and_no_others(queue: Queue) -> None:
    paused = started(queue)
    takes(paused, "a")
    successor = started(queue)
    takes(successor, "b")
    successor.publish()
    queue.tick()
    paused.publish()
    queue.tick()
    assert keys(queue) == ["a", "b"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_run_does_not_take_for_committed_what_was_given_up(queue: Queue, restarted: bool) -> None:
    """A source that deletes what is in would else lose it: the marks pass over a txlog that `discard` was given for."""
    writer = started(queue)
    copies(writer, 2)
    writer = started(queue) if restarted else writer
    for path in Path(queue.made.folder.removeprefix("file://")).parent.rglob("data/**/*.parquet"):
        path.unlink()
    queue.tick()
    (name,) = [item.name for item in queue.folder.rejected()]
    queue.folder.discard_rejected([name])
    ledger = queue.book().ledger
    view, given = outlook(queue.folder, ledger, name)
    discard(queue.folder, ledger, view, given, queue.clock.now)
    CLOCK.late += timedelta(seconds=2)
    with pytest.raises(Fenced, match="was given up"):
        writer.look()
    with pytest.raises(Fenced, match="was given up"):
        writer.look()
    again = started(queue)
    copies(again, 2)
    queue.tick()
    CLOCK.late += timedelta(seconds=2)
    again.look()
    assert again.all_committed and keys(queue) == ["001", "002"]


def test_a_pending_txlog_that_is_deleted_is_read_again_by_the_source(queue: Queue) -> None:
    writer = started(queue)
    copies(writer, 2)
    queue.tick()
    copies(writer, 4)
    [gone] = folder(queue).pending()
    copies(writer, 6)
    folder(queue).delete([gone.name])
    queue.tick()
    with pytest.raises(Fenced):
        copies(writer, 8)
    again = started(queue)
    assert again.position == b"2"
    copies(again, 8)
    queue.tick()
    assert keys(queue) == [f"{number:03d}" for number in range(1, 9)]


def test_a_put_that_is_applied_again_after_its_txlog_was_consumed_is_recognised(queue: Queue) -> None:
    writer = started(queue)
    copies(writer, 2)
    [sent] = folder(queue).pending()
    data = folder(queue).read([sent.name])[sent.name]
    queue.tick()
    copies(writer, 4)
    assert isinstance(data, bytes)
    open_store(queue.made.folder).create(f"pending/{sent.name}", data)  # a proxy that held it back
    later = started(queue)
    assert later.position == b"4"
    queue.tick()
    assert (keys(queue), folder(queue).pending(), folder(queue).rejected()) == (["001", "002", "003", "004"], [], [])


def test_a_reject_in_the_middle_of_a_chain_is_read_again_from_there(queue: Queue) -> None:
    writer = started(queue)
    copies(writer, 2)
    [bad] = folder(queue).pending()
    copies(writer, 4)
    path = f"pending/{bad.name}"
    open_store(queue.made.folder).replace(path, open_store(queue.made.folder).read(path)[:-1])
    queue.tick()
    assert len(folder(queue).rejected()) == 2
    with pytest.raises(Fenced):
        copies(writer, 6)
    again = started(queue)
    assert again.position is None
    copies(again, 6)
    queue.tick()
    assert keys(queue) == [f"{number:03d}" for number in range(1, 7)]
