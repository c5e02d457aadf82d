"""Tests of the tests: a protocol that is broken on purpose is found; all of them: `tests.simulation.mutations`."""

import pytest

from tests.simulation.mutations import MUTATIONS, ticks_to_find

#: found within a few dozen ticks, and what is said then
CHEAP = {
    "marks in a commit after that of the files": "the marks do not say so",
    "the swap before its files are durable": "is not there",
    "delete before the commit": "is deleted, and it is not in the table",
    "the summary counts a file too many": "added-data-files",
    "the total of records is off by one": "total-records",
    "the next sequence counts as in": "",
    "files of a keyed txlog inherit their numbers": "the list says that numbers begin at",
    "a data file may be named by any txlog": "files are live twice",
    "the journal after the commit": "no journal names their files",
}


@pytest.mark.parametrize("name", CHEAP)
def test_a_protocol_that_is_broken_is_found(name: str) -> None:
    ticks, wrong = ticks_to_find(MUTATIONS[name], seed=1, most=400)
    assert ticks is not None
    assert CHEAP[name] in wrong
