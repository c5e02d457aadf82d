"""What a run of a slot believes of its chain."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from bookkeeper.errors import Fenced
from writers.http.chain import Chain


class Run:
    """A writer whose marks are as in `marks`, one after the other; a look finds that all its txlogs are in them."""

    name, all_committed = "door-00", False

    def __init__(self, marks: Sequence[str]) -> None:
        self.offsets: Mapping[str, str] = {"p": "2"}
        self._marks = [*marks]

    def committed_offsets(self) -> Mapping[str, str]:
        return {"p": self._marks.pop(0)}

    def look(self) -> None:
        self.all_committed = True


def looks(*marks: str) -> None:
    run: Any = Run(marks)
    chain = Chain(run)
    chain.look(chain.committed())


def test_a_txlog_that_the_marks_passed_over_is_not_in_the_table() -> None:
    with pytest.raises(Fenced, match="not there any more"):
        looks("1", "1", "1")


def test_marks_that_come_while_it_looks_are_read_again() -> None:
    looks("1", "1", "2")
    looks("1", "2")
