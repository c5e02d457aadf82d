"""The generated load: seeded, and every row names its writer."""

import zlib
from datetime import timedelta

from tests.support.desk import START, Desk, only
from writers.generate import Load, publish_file


def test_equal_loads_give_equal_rows() -> None:
    load = Load("w1", "run", records=100, value_bytes=50, seed=7)
    assert load.rows(0, 100, START).equals(load.rows(0, 100, START))
    assert not load.rows(0, 100, START).equals(Load("w1", "run", 100, 50, seed=8).rows(0, 100, START))


def test_keys_name_writer_run_and_number() -> None:
    rows = Load("w1", "r7", records=3, value_bytes=4).rows(5, 2, START)
    assert rows["key"].to_pylist() == ["w1/r7/000000000005", "w1/r7/000000000006"]
    assert rows["timestamp"].to_pylist() == [START, START]


def test_values_are_letters_that_compress_about_as_the_articles() -> None:
    values = Load("w1", "r", records=200, value_bytes=1700).rows(0, 200, START)["value"].to_pylist()
    assert {len(value) for value in values} == {1700}
    assert set(b"".join(values)) <= set(b"abcdefghijklmnopqrstuvwxyz ")
    text = b"".join(values)
    assert 1.5 < len(text) / len(zlib.compress(text)) < 1.9


def test_empty_values_are_possible() -> None:
    assert Load("w1", "r", records=2, value_bytes=0).rows(0, 2, START)["value"].to_pylist() == [b"", b""]


def test_a_large_file_comes_in_pieces() -> None:
    load = Load("w1", "r", records=5, value_bytes=16 * 2**20)
    assert [piece.num_rows for piece in load.file(0, START)] == [2, 2, 1]


def test_a_published_file_is_one_txlog_and_one_line_of_the_close_log(desk: Desk) -> None:
    load = Load("w1", "r", records=10, value_bytes=5)
    with desk.writer() as writer:
        publish_file(writer, load, 0, desk.clock)
        desk.clock.move(seconds=1)
        line = publish_file(writer, load, 1, desk.clock)
    second = desk.txlogs()[1]
    milliseconds = (START + timedelta(seconds=1)).timestamp() * 1000
    assert line == {
        "name": str(second.name),
        "rows": 10,
        "first": 10,
        "last": 19,
        "closed_ms": milliseconds,
        "published_ms": milliseconds,
    }
    assert [row["key"] for row in desk.rows(second.files)] == [f"w1/r/{number:012d}" for number in range(10, 20)]
    assert only(second.files).record_count == 10
