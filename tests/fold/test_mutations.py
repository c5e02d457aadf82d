"""The random tables of test_random, with a rule of the fold broken on purpose: a row is lost, or one comes back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from bookkeeper.core.delete_scope import DeleteFile
from bookkeeper.fold import compute, select
from bookkeeper.fold import keys as deleted_keys
from tests.fold.test_random import test_a_fold_changes_no_row_of_the_state as a_fold

MUTATIONS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {}


def mutation(broken: Callable[[pytest.MonkeyPatch], None]) -> None:
    MUTATIONS[broken.__name__] = broken


class _Compute:
    """pyarrow.compute, with a function in the place of another."""

    def __init__(self, **other: Any) -> None:
        self.__dict__.update({name: getattr(pc, name) for name in dir(pc)} | other)


@mutation
def rows_of_the_deletes_own_number_die(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compute, "pc", _Compute(greater=pc.greater_equal))
    patch.setattr(DeleteFile, "largest_number", property(lambda self: self.sequence_number))


@mutation
def rows_of_any_number_die(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compute, "pc", _Compute(greater=lambda numbers, _: pc.greater(numbers, -1)))


@mutation
def the_predecessors_positions_are_not_included(patch: pytest.MonkeyPatch) -> None:
    given = compute.positions_of
    patch.setattr(compute, "positions_of", lambda *args: given(*args).slice(0, 0))


@mutation
def bound_deletes_hold_everywhere(patch: pytest.MonkeyPatch) -> None:
    given = select._GroupsOf.__call__

    def everywhere(self: Any, partition: Any, sequence: int) -> Any:
        given(self, partition, sequence)
        return tuple(group for group, most in self._newest.items() if most >= sequence)

    patch.setattr(select._GroupsOf, "__call__", everywhere)


@mutation
def the_first_column_is_the_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deleted_keys, "_pairs", lambda codes, column, values: codes.cast("int64"))


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    MUTATIONS[name](monkeypatch)
    for seed in range(6):
        try:
            a_fold(tmp_path / str(seed), seed)
        except AssertionError:
            return
    raise AssertionError(f"{name} is not found")
