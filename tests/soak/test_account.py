"""
The account sees a planted loss and a planted double, wherever they are, and no other.
"""

from collections import Counter

import pytest

from tests.soak.account import Account, replayed
from tests.soak.journal import AT, DONE, TRY, Journal, Published, operations, published
from tests.soak.roles import changes

ROWS = {"plain-0": Published({0: 100, 1: 100, 2: 200}, unsure={3: 250}), "source-0": Published({0: 300})}
ALL = Counter([("plain-0", 0), ("plain-0", 1), ("plain-0", 2), ("source-0", 0)])
UNSURE, LOST, UNKNOWN = ("plain-0", 3), ("plain-0", 1), ("plain-0", 4)


def of_copies(found):
    account = Account()
    account.copies("copy", found, ROWS)
    return account.wrong


def of_live(found, kept=0, gone=0, until=10**9):
    account = Account()
    account.live(found, ROWS, kept, gone, until)
    return account.wrong


def of_state(rows):
    account = Account()
    account.state("state", rows, {1: "a", 2: "b"})
    return account.wrong


@pytest.mark.parametrize("account", [of_copies, of_live])
def test_rows_that_are_there_once_are_right_and_one_of_a_killed_publish_may_be_there(account):
    assert account(ALL) == account(ALL + Counter([UNSURE])) == []


@pytest.mark.parametrize("account", [of_copies, of_live])
def test_a_lost_row_a_double_one_and_one_of_no_writer_are_seen(account):
    (lost,) = account(ALL - Counter([LOST]))
    (double,) = account(ALL + Counter([LOST]))
    (killed,) = account(ALL + Counter({UNSURE: 2}))
    (unknown,) = account(ALL + Counter([UNKNOWN]))

    assert "missing: 1, such as ('plain-0', 1)" in lost
    assert "more than once: 1, such as ('plain-0', 1)" in double
    assert "more than once: 1" in killed
    assert "of no writer: 1" in unknown


def test_a_row_may_be_missing_once_it_is_past_retention_and_must_be_in_the_end():
    without = ALL - Counter([LOST])

    assert of_live(without, kept=101) == [] and of_live(without, kept=100) != []
    assert of_live(without, kept=0, until=99) == []
    assert of_live(ALL - Counter([LOST, ("plain-0", 0)]), kept=101, gone=101) == []
    (late,) = of_live(ALL, kept=101, gone=101)
    assert "should have dropped: 2" in late


def test_rows_of_one_output_that_the_other_does_not_have_are_seen():
    account = Account()
    account.same_outputs(ALL, ALL)
    assert not account.wrong
    account.same_outputs(ALL, ALL + Counter([UNSURE]))
    assert account.wrong


def test_of_a_keyed_table_a_lost_an_old_and_a_double_row_are_seen():
    assert of_state([(1, "a"), (2, "b")]) == []
    assert len(of_state([(1, "a")])) == 1
    assert len(of_state([(1, "a"), (2, "old")])) == 2
    assert len(of_state([(1, "a"), (2, "b"), (2, "b")])) == 1


def test_what_was_tried_and_not_done_is_unsure_and_sure_once_a_run_begins_behind_it(tmp_path):
    journal = Journal(tmp_path / "source-0")
    journal.say(AT, position=0)
    journal.say(TRY, first=0, last=1, ms=100)
    journal.say(DONE, first=0, last=1, ms=100, position=2)
    journal.say(TRY, first=2, last=3, ms=200)

    assert published(journal.path) == Published({0: 100, 1: 100}, {2: 200, 3: 200})
    assert journal.next() == 4
    journal.say(AT, position=4)
    assert published(journal.path) == Published({0: 100, 1: 100, 2: 200, 3: 200})


def test_of_two_tries_of_a_source_the_last_one_is_in_the_table(tmp_path):
    journal = Journal(tmp_path / "source-0")
    journal.say(TRY, first=0, last=2, ms=100)
    journal.say(AT, position=0)
    journal.say(TRY, first=0, last=0, ms=200)
    journal.say(DONE, first=0, last=0, ms=200, position=1)

    assert published(journal.path) == Published({0: 200}, {1: 100, 2: 100})


def test_a_keyed_table_is_what_its_published_operations_leave_in_their_order(tmp_path):
    (tmp_path / "journal").mkdir()
    journal = Journal(tmp_path / "journal" / "keyed-1")
    for number in range(300):
        journal.say(TRY, first=number, last=number, ms=0)
        journal.say(DONE, first=number, last=number, ms=0, position=number + 1)
    journal.say(TRY, first=300, last=300, ms=0)

    expected = {}
    for number in range(300):
        for key, value in changes(7, "keyed-1", number):
            expected[key] = value
            if value is None:
                del expected[key]
    assert operations(journal.path) == 300
    assert replayed(tmp_path, 7) == expected and len(expected) > 50
    journal.say(AT, position=301)
    assert operations(journal.path) == 301
