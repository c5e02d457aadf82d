"""Room for what is read at once: never more than there is, never nothing for want of what a blocked table holds."""

import random
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.txlog_folder import Found
from bookkeeper.tick.read_budget import FORGOTTEN, ReadBudget
from bookkeeper.tick.select import Limits, cut

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_a_tick_is_given_what_it_wants_or_half_of_what_is_free() -> None:
    room = ReadBudget(1000)
    with room.part(100, NOW) as little, room.part(10_000, NOW) as much, room.part(10_000, NOW) as rest:
        assert (little, much, rest) == (100, 450, 225)
    with room.part(10_000, NOW) as again:
        assert again == 500


def test_an_error_gives_the_part_back() -> None:
    room = ReadBudget(1000)
    with pytest.raises(KeyError), room.part(10_000, NOW):
        raise KeyError
    with room.part(10_000, NOW) as again:
        assert again == 500


def test_however_many_tables_want_how_much_all_parts_fit_and_one_always_gets_some() -> None:
    dice, room = random.Random(7), ReadBudget(2**20)
    for _ in range(50):
        with ExitStack() as open_parts:
            parts = [open_parts.enter_context(room.part(dice.randrange(2**22), NOW)) for _ in range(15)]
            assert sum(parts) <= 2**20 and all(parts)


def test_what_a_blocked_table_holds_is_given_to_others_in_the_end() -> None:
    room = ReadBudget(1000)
    with room.part(10_000, NOW), room.part(10_000, NOW + FORGOTTEN) as later:
        assert later == 500
    with room.part(10_000, NOW) as again:
        assert again == 500


def test_a_tick_reads_no_more_than_its_part_and_always_one() -> None:
    names = [TxlogName("w", new_incarnation(1, bytes(10)), number) for number in range(1, 6)]
    found = [Found(name, 100, NOW + timedelta(seconds=1)) for name in names]
    assert cut(found, Limits(9, 9, 9, reads=250)) == names[:2]
    assert cut(found, Limits(9, 9, 9, reads=0)) == names[:1]
