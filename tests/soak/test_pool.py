"""The soak of a pool of processes, small: it kills, and its account sees what is wrong."""

from pathlib import Path

import pytest

from tests.soak import pool


@pytest.mark.slow
def test_a_pool_that_is_killed_and_a_driver_that_is_killed_lose_and_double_no_row(tmp_path: Path) -> None:
    found = pool.run(tmp_path, rows=300_000, processes=2, kills=1, driver_kills=1, seed=3)
    assert found["killed"] >= 1
    wrong = {name: found[name] for name in ("missing", "double", "foreign")}
    assert (wrong, found["rows"], found["commits"]) == ({"missing": 0, "double": 0, "foreign": 0}, 300_000, 1)


def test_the_account_sees_rows_that_are_missing_and_double(tmp_path: Path) -> None:
    queue = pool.Queue(tmp_path, schema=pool.SCHEMA, partition_by=())
    with queue.writer("pool") as writer:
        task = writer.task()
        writer.take([pool.write_part(task, 0, 10), pool.write_part(task, 0, 4)])
        writer.publish()
    queue.tick()
    found = pool.account(queue, 12)
    assert (found["missing"], found["double"], found["foreign"]) == (2, 4, 0)
