"""The tick: what is published gets in once, in order, whatever else happens."""

from contextlib import suppress
from datetime import timedelta

from bookkeeper.errors import StorageUnavailable
from tests.support.faults import AFTER, BEFORE, Faults
from tests.support.lake import Lake, Writes


def test_a_published_txlog_is_committed_and_discarded(lake: Lake, writer: Writes) -> None:
    writer.publish("a", "b")
    result = lake.tick()
    assert lake.keys() == ["a", "b"]
    assert (result.commit.txlogs, result.commit.files, result.commit.rows) == (1, 1, 2)
    assert (result.pending, result.waiting) == (1, 0)
    assert lake.pending() == []


def test_all_pending_txlogs_of_all_writers_go_in_as_one_append(lake: Lake) -> None:
    writers = [Writes(lake, f"w{number}") for number in range(5)]
    for number in range(3):
        for writer in writers:
            writer.publish(f"{writer.name.writer}-{number}")
    lake.tick()
    assert lake.operations() == ["append"]
    assert lake.keys() == sorted(key for writer in writers for key in writer.keys)


def test_a_tick_with_nothing_pending_makes_no_snapshot(lake: Lake) -> None:
    lake.tick()
    assert lake.operations() == []


def test_the_summary_names_the_txlogs_of_a_snapshot(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    writer.publish("b")
    lake.tick()
    said = lake.table().current_snapshot().summary.additional_properties
    assert said["bookkeeper.txlogs"] == f"w1.{writer.name.incarnation}:1-2"
    assert (said["added-data-files"], said["bookkeeper.txlog-count"]) == ("2", "2")


def test_a_storage_error_while_reading_n_never_lets_n_plus_1_pass(lake: Lake, writer: Writes, faults: Faults) -> None:
    other = Writes(lake, "w2")
    writer.publish("a")
    second = writer.publish("b")
    writer.publish("c")
    other.publish("x")
    faults.on(f"read folder/pending/{second}", BEFORE, StorageUnavailable)
    book = lake.book(faults)
    result = lake.tick(book)
    assert lake.keys() == ["a", "x"]
    assert (result.waiting, type(result.trouble)) == (2, StorageUnavailable)
    assert lake.rejected() == {}
    faults.clear()
    lake.tick(book)
    assert lake.keys() == ["a", "b", "c", "x"]


def test_a_data_file_that_cannot_be_looked_up_makes_its_incarnation_wait(
    lake: Lake, writer: Writes, faults: Faults
) -> None:
    writer.publish("a")
    writer.publish("b")
    Writes(lake, "w2").publish("x")
    faults.on(f"{writer.name.incarnation}-0000000001-a.parquet", BEFORE, StorageUnavailable)
    book = lake.book(faults)
    lake.tick(book)
    assert (lake.keys(), lake.rejected()) == (["x"], {})
    faults.clear()
    lake.tick(book)
    assert lake.keys() == ["a", "b", "x"]


def test_a_missing_name_that_cannot_be_looked_up_makes_only_its_incarnation_wait(
    lake: Lake, writer: Writes, faults: Faults
) -> None:
    gone = writer.publish("a")
    writer.publish("b")
    Writes(lake, "w2").publish("x")
    lake.folder.delete([gone])
    faults.on(f"size folder/pending/{gone}", BEFORE, StorageUnavailable)
    result = lake.tick(lake.book(faults))
    assert lake.keys() == ["x"]
    assert type(result.trouble) is StorageUnavailable


def test_limits_are_reached_in_turns_and_everything_gets_in(lake: Lake, writer: Writes) -> None:
    for key in "abcde":
        writer.publish(key)
    book = lake.book(max_files=2)
    seen = []
    for _ in range(3):
        lake.tick(book)
        seen.append(lake.keys())
    assert seen == [["a", "b"], ["a", "b", "c", "d"], ["a", "b", "c", "d", "e"]]


def test_bytes_are_limited_too_but_one_txlog_always_gets_in(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    writer.publish("b")
    book = lake.book(max_bytes=1)
    assert [lake.tick(book).commit.txlogs for _ in range(2)] == [1, 1]


def test_the_cut_of_max_txlogs_takes_the_oldest_first(lake: Lake) -> None:
    quiet, busy = Writes(lake, "zz"), Writes(lake, "aa")
    for number in range(3):
        busy.publish(f"b{number}")
        lake.clock.move(seconds=1)
    quiet.publish("q")
    lake.clock.move(seconds=1)
    busy.publish("b3")
    book = lake.book(max_txlogs=2)
    lake.tick(book)
    lake.tick(book)
    assert lake.keys() == ["b0", "b1", "b2", "q"]


def test_txlogs_that_cannot_go_on_do_not_take_the_places_of_others(lake: Lake, faults: Faults) -> None:
    stuck, other = Writes(lake, "aa"), Writes(lake, "bb")
    for number in range(4):
        stuck.publish(f"s{number}")
    lake.clock.move(seconds=1)
    other.publish("x")
    faults.on("read folder/pending/aa.", BEFORE, StorageUnavailable)
    book = lake.book(faults, max_txlogs=2)
    lake.tick(book)
    lake.tick(book)
    assert lake.keys() == ["x"]
    faults.clear()
    for _ in range(3):
        lake.tick(book)
    assert lake.keys() == ["s0", "s1", "s2", "s3", "x"]


def test_the_window_lets_txlogs_gather(lake: Lake, writer: Writes) -> None:
    book = lake.book(window=timedelta(seconds=10))
    writer.publish("a")
    assert lake.tick(book, seconds=5).waiting == 1
    writer.publish("b")
    assert lake.operations() == []
    lake.tick(book, seconds=5)
    assert (lake.keys(), lake.operations()) == (["a", "b"], ["append"])


def test_the_window_ends_early_when_max_txlogs_are_pending(lake: Lake, writer: Writes) -> None:
    book = lake.book(window=timedelta(hours=1), max_txlogs=2)
    writer.publish("a")
    writer.publish("b")
    lake.tick(book)
    assert lake.keys() == ["a", "b"]


def test_a_storage_clock_that_is_ahead_does_not_make_txlogs_wait(lake: Lake, writer: Writes) -> None:
    lake.clock.move(minutes=4)
    writer.publish("a")
    lake.clock.move(minutes=-4)
    lake.tick()
    assert lake.keys() == ["a"]


def test_consumed_txlogs_that_cannot_be_deleted_stop_nothing(lake: Lake, writer: Writes, faults: Faults) -> None:
    faults.on("delete folder/pending/", BEFORE, StorageUnavailable)
    book = lake.book(faults)
    for key in "ab":
        writer.publish(key)
        lake.tick(book)
    assert (lake.keys(), len(lake.pending())) == (["a", "b"], 2)
    faults.clear()
    lake.tick(book)
    assert (lake.keys(), lake.pending(), lake.operations()) == (["a", "b"], [], ["append", "append"])


def test_nothing_is_deleted_before_marks_json_says_that_it_is_in(lake: Lake, writer: Writes, faults: Faults) -> None:
    name = writer.publish("a")
    faults.on("replace folder/marks.json", BEFORE, StorageUnavailable)
    book = lake.book(faults)
    for _ in range(3):
        with suppress(StorageUnavailable):
            lake.tick(book)
    assert lake.keys() == ["a"]
    assert lake.pending() == [str(name)]


def test_a_lost_reply_does_not_delete_before_marks_json_either(lake: Lake, writer: Writes, faults: Faults) -> None:
    writer.publish("a")
    faults.on("commit_table", AFTER, TimeoutError, times=1)
    lake.tick(lake.book(faults))
    order = [operation.split("/")[1] for operation in faults.seen if operation.split()[0] in ("replace", "delete")]
    assert (lake.keys(), lake.pending()) == (["a"], [])
    assert order.index("marks.json") < order.index("pending")
