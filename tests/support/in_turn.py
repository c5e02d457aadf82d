"""
What a writer does at once, one after another: so that each operation has a number, and any part of them can be done.
"""

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

Order = Callable[[int], Sequence[int]]


def in_turn(order: Order = range) -> Callable[[Sequence[Callable[[], Any]]], list[Any]]:
    """
    An `at_once` for a Writer, in the order that `order` gives for so many acts. A crash ends it there; after an error
    the others are done, as they would be in threads.
    """

    def at_once(acts: Sequence[Callable[[], Any]]) -> list[Any]:
        results: list[Any] = [None] * len(acts)
        errors: dict[int, Exception] = {}
        for index in order(len(acts)):
            try:
                results[index] = acts[index]()
            except Exception as error:  # noqa: BLE001 - raised below
                errors[index] = error
        if errors:
            raise errors[min(errors)]
        return results

    return at_once


def orders(most: int) -> list[Order]:
    """
    Orders of up to `most` acts, so that each part of them is done before the others in one of the orders.
    """
    return [
        lambda count, wanted=wanted: [index for index in wanted if index < count]  # type: ignore[misc]
        for wanted in permutations(range(most))
    ]
