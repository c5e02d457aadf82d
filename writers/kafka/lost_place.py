"""
The place of a partition is not there any more: expired, gone back or cut off. Where it is read on, if at all. Pure.
"""

from typing import NamedTuple


class LostPlace(NamedTuple):
    """What is lost, as a sentence, and the word for `--go-on` that loses no more than that."""

    what: str
    go_on: str


def lost_place(at: int, low: int, high: int, cause: str) -> LostPlace:
    """
    A partition that was read up to offset `at`, of which Kafka has `low` to before `high` now; `cause` in its words.
    """
    if at < low:
        return LostPlace(f"{low - at} offsets, {at} to {low - 1}, are expired and were not read", "earliest")
    if at > high:
        return LostPlace(f"its offsets went back: it was read up to {at} and ends at {high}", "latest")
    return LostPlace(f"it was cut below {at}: {cause}", "latest")


def may_go_on(at: int, low: int, high: int, offset: int | None) -> bool:
    """
    Whether a partition whose place `at` is lost goes on at `offset`, which `--go-on` has given (None: it has not).
    """
    return offset is not None and low <= offset <= high and offset != at
