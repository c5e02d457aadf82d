"""What is made of an object that never changes is made once, and never taken for that of another object."""

import gc

import pytest

from bookkeeper.format import remembered as module
from bookkeeper.format.remembered import remembered


class Thing:
    """Not hashable, and equal to every other one."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


def test_it_is_made_once_for_the_same_objects_and_anew_for_equal_ones() -> None:
    calls = list[tuple[Thing, ...]]()

    @remembered
    def make(*given: Thing) -> object:
        calls.append(given)
        return object()

    one, two = Thing(), Thing()
    assert make(one) is make(one)
    assert make(one, two) is make(one, two)
    assert len({id(made) for made in (make(one), make(two), make(one, two), make(two, one))}) == 4
    assert len(calls) == 4


def test_an_object_at_the_address_of_one_that_is_gone_is_another_one() -> None:
    number = 0

    @remembered
    def make(given: Thing) -> int:
        return number

    for number in range(3 * module._ENTRIES):
        assert make(Thing()) == number
        gc.collect(0)


def test_it_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ENTRIES", 2)
    calls = list[Thing]()

    @remembered
    def make(given: Thing) -> int:
        calls.append(given)
        return len(calls)

    things = [Thing() for _ in range(5)]
    assert [make(item) for item in things] == [1, 2, 3, 4, 5]
    assert make(things[4]) == 5
    assert make(things[0]) == 6


def test_what_is_given_by_name_is_not_remembered() -> None:
    @remembered
    def make(first: int, second: int) -> int:
        return first - second

    assert make(first=3, second=1) == 2
    assert make(second=3, first=1) == -2
