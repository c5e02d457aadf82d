"""A few thousand mutated txlogs; `make chaos` judges a hundred thousand. And the fuzz itself: it sees what is wrong."""

from typing import Any

import pytest

from bookkeeper.contract import txlog
from tests.chaos import fuzz
from tests.chaos.fuzzing import reader
from tests.chaos.fuzzing.corpus import MOST, seeds
from tests.chaos.pool import run_all
from tests.chaos.tally import Budget, FaultClass, Tally


def judged(inputs: int, seed: int = 1) -> Tally:
    """The tally of so many inputs, judged in a process of its own."""
    item = FaultClass("fuzz", lambda seed, budget: fuzz.fuzz(inputs, seed, budget))
    (result,) = run_all([item], seed, Budget(), cores=1, limit_seconds=120)
    return result.tally


def test_mutated_txlogs_are_taken_as_valid_or_refused_with_a_reason() -> None:
    done = judged(3000)
    assert not done.red, done.wrong
    taken, refused = (int(word.replace(",", "")) for word in done.note.split() if word[0].isdigit())
    assert taken > 300 and refused > 2000


def test_the_second_reader_reads_every_golden_txlog_as_ours_does() -> None:
    for seed in seeds():
        theirs = [fuzz._theirs(item) for item in [*reader.entries(seed.data), *reader.deletes(seed.data)]]
        found = txlog.decode(seed.name, seed.data, MOST)
        removing = found.deletes.entries if found.deletes is not None else ()
        assert theirs == [fuzz._ours(entry) for entry in (*found.entries, *removing)]


def spins() -> None:
    while True:
        pass


def test_a_crash_a_hang_and_a_huge_allocation_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = fuzz.decode

    def broken(how: Any) -> Any:
        return lambda name, data, most: decode(name, data, most) if data in golden else how()

    golden = {item.data for item in seeds()}
    monkeypatch.setattr(fuzz, "MOST_SECONDS", 1.0)
    for how, word in (
        (lambda: {}["x"], "KeyError"),
        (spins, "Hang"),
        (lambda: bytes(2**30), "MemoryError"),
    ):
        monkeypatch.setattr(fuzz, "decode", broken(how))
        done = judged(3)
        assert done.red and word in done.wrong[0]
