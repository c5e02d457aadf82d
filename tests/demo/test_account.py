"""
The account goes red for a row that is missing, double or was never published, and only then.
"""

from dataclasses import replace

import pytest

from demo.account import NO_WRITER, WriterAccount, account
from demo.evidence import Evidence
from tests.demo import observed as seen


def total(rows: list[WriterAccount], what: str) -> int:
    return sum(getattr(row, what) for row in rows)


def test_a_run_in_which_everything_arrived_once_is_even() -> None:
    assert account(seen.run()) == [WriterAccount("writer-1", 6, 6, 6, 0, 0), WriterAccount("writer-2", 6, 6, 6, 0, 0)]


def test_a_row_that_the_stream_lost_is_missing() -> None:
    run = seen.run()
    run.consumed[0].keys.remove("writer-1/1/2")
    assert account(run)[0] == WriterAccount("writer-1", 6, 6, 5, 1, 0)


def test_a_row_that_the_table_lost_is_missing_even_if_the_counts_agree() -> None:
    run = seen.run()
    run.committed[0].files[seen.path("writer-1", 1)][0] = "writer-1/1/1"
    run.consumed[0].keys[0] = "writer-1/1/1"
    assert account(run)[0] == WriterAccount("writer-1", 6, 6, 6, 1, 1)


def test_a_whole_txlog_that_never_arrived_is_missing() -> None:
    run = seen.run()
    run.published.append(seen.published("writer-2", 3))
    assert account(run)[1] == WriterAccount("writer-2", 9, 6, 6, 3, 0)


@pytest.mark.parametrize("what", ["committed", "consumed"])
def test_a_row_that_arrives_twice_is_double(what: str) -> None:
    run = seen.run()
    again = {"committed": seen.committed(3, ("writer-1", 1)), "consumed": seen.consumed(2, ("writer-1", 1))}[what]
    getattr(run, what).append(again)
    assert total(account(run), "double") == 3
    assert total(account(run), "missing") == 0


def test_a_row_that_a_writer_published_twice_is_double() -> None:
    run = seen.run()
    run.published.append(replace(seen.published("writer-1", 3), keys=seen.keys("writer-1", 1)))
    assert account(run)[0].double == 3


def test_a_row_that_no_writer_published_is_reported() -> None:
    run = seen.run()
    run.consumed[1].keys.append("writer-9/1/1")
    assert account(run)[-1] == WriterAccount(NO_WRITER, 0, 0, 1, 0, 0, 1)


def test_files_of_a_run_whose_txlog_was_never_published_are_reported() -> None:
    run = seen.run()
    run.committed[1] = replace(run.committed[1], files=run.committed[1].files | seen.files(("writer-1", 3)))
    assert account(run)[-1] == WriterAccount(NO_WRITER, 0, 3, 0, 0, 0, 3)


def unseen(run: Evidence, *names: tuple[str, int]) -> Evidence:
    hidden = {seen.txlog(*name) for name in names}
    return replace(run, published=[item for item in run.published if item.txlog not in hidden])


def test_a_txlog_that_only_the_close_log_knows_is_published() -> None:
    run = unseen(seen.run(), ("writer-1", 1))
    run.published.append(seen.published("writer-1", 1, logged=True))
    assert account(run) == account(seen.run())


def test_a_txlog_that_was_seen_and_logged_counts_once() -> None:
    run = seen.run()
    run.published.append(seen.published("writer-1", 1, logged=True))
    assert account(run) == account(seen.run())


def test_a_logged_txlog_that_never_arrived_is_missing() -> None:
    run = seen.run()
    run.published.append(seen.published("writer-1", 3, logged=True))
    assert account(run)[0] == WriterAccount("writer-1", 9, 6, 6, 3, 0)


@pytest.mark.parametrize("last", [True, False])
def test_a_row_that_the_writer_says_it_published_but_no_data_file_holds_is_missing(last: bool) -> None:
    run = seen.run()
    item = seen.published("writer-1", 1, logged=True)
    run.published.insert(len(run.published) if last else 0, replace(item, keys=[*item.keys, "writer-1/1/3"]))
    assert account(run)[0] == WriterAccount("writer-1", 7, 6, 6, 1, 0)


def test_the_last_txlog_of_a_killed_run_counts_as_published_though_it_was_not_seen() -> None:
    run = unseen(seen.run(), ("writer-1", 2))
    assert account(run) == account(seen.run())


def test_the_only_txlog_of_a_killed_run_counts_as_published_though_it_was_not_seen() -> None:
    run = unseen(seen.run(), ("writer-1", 1), ("writer-1", 2))
    run.committed[1] = replace(run.committed[1], txlogs=[seen.txlog("writer-2", 2)], files=seen.files(("writer-2", 2)))
    run.consumed[1] = seen.consumed(1, ("writer-2", 2))
    assert [row.exact for row in account(run)] == [True, True]
    assert account(run)[0].published == 3


def test_an_unseen_txlog_before_known_ones_of_its_run_was_never_published() -> None:
    run = unseen(seen.run(), ("writer-1", 1))
    assert account(run)[-1].unpublished == 3


def test_of_one_run_at_most_one_txlog_is_believed_unseen() -> None:
    run = unseen(seen.run(), ("writer-1", 1), ("writer-1", 2))
    assert account(run)[-1].unpublished == 3
