"""
Random tables and folds between: the state by the spec's rule is the same before and after each fold.

Rows, keys of one or two columns with nulls, numbers, partitions, two specs and an unpartitioned one, position deletes
of any scope; data and deletes that come between plan and commit; rewrites and removed files between them, too.
"""

import random
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import FoldOutdated
from bookkeeper.format.entries import DATA, EQUALITY_DELETES, POSITION_DELETES
from tests.histories.decoded import local
from tests.support.folds import (
    ID,
    NAME,
    Put,
    committed,
    data,
    fold,
    keys,
    lake_of,
    live,
    paths,
    planned,
    positions,
    put,
    state,
)
from tests.support.lake import Lake

SEEDS = range(6)


class Chance:
    """Random files for one table, and what they refer to."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake, self.of = lake, random.Random(seed)
        with lake.table().update_spec() as change:
            change.remove_field("region")
        self.void = lake.table().spec().spec_id
        with lake.table().update_spec() as change:
            change.add_field("id", "bucket[2]", "half")
        self.bucket = lake.table().spec().spec_id

    def place(self) -> tuple[tuple[Any, ...], int]:
        """A partition and its spec."""
        region = self.of.choice(["a", "a", "a", "a", "b", None])
        void = (None,) * len(self.lake.table().specs()[self.void].fields)
        several = (*void, self.of.choice([0, 1]))[-len(self.lake.table().specs()[self.bucket].fields) :]
        return self.of.choice([*[((region,), 0)] * 6, (void, self.void), (several, self.bucket)])

    def row(self) -> dict[str, Any]:
        number = self.of.choice([*range(3), None])
        return {"id": number, "name": self.of.choice(["x", "y", None]), "region": None}

    def number(self) -> int | None:
        """None, or a number that is smaller."""
        last = self.lake.view().metadata.last_sequence_number
        return self.of.choice([None, self.of.randint(max(0, last - 3), last + 1)])

    def some(self) -> Put:
        place, spec_id = self.place()
        kind = self.of.choice([DATA, DATA, EQUALITY_DELETES, EQUALITY_DELETES, POSITION_DELETES])
        files = live(self.lake, DATA)
        if kind == POSITION_DELETES and files:
            chosen = self.of.sample(files, min(len(files), self.of.choice([1, 1, 2])))
            at = {
                item.file["file_path"]: self.of.sample(range(item.file["record_count"]), 1)
                for item in chosen
                if item.scope == chosen[0].scope
            }
            partition = tuple(chosen[0].file["partition"].values())
            one = len(at) == 1 and self.of.random() < 0.7
            return positions(self.lake, at, partition, chosen[0].spec_id, self.number(), one)
        some = [self.row() for _ in range(self.of.randint(1, 4))]
        if kind == EQUALITY_DELETES:
            ids = self.of.choice([(ID,), (ID,), (ID,), (ID, NAME), (NAME,)])
            return keys(self.lake, some, ids, place, spec_id, self.number())
        return data(self.lake, some, place, spec_id, self.number())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fold_changes_no_row_of_the_state(tmp_path: Path, seed: int) -> None:
    lake = lake_of(tmp_path, "region")
    chance, folded, refused = Chance(lake, seed), 0, 0
    for _ in range(3):
        for _ in range(3):
            put(lake, *[chance.some() for _ in range(chance.of.randint(1, 5))])
        computed, between = planned(lake), chance.of.random() < 0.4
        if between:
            put(lake, *[chance.some() for _ in range(chance.of.randint(1, 2))])
        before = state(lake)
        if computed.plan is None:
            assert not live(lake, EQUALITY_DELETES) or between or computed.left
            continue
        old = {item.file["file_path"] for item in live(lake, EQUALITY_DELETES)}
        try:
            committed(lake, computed)
        except FoldOutdated:
            assert between
            refused += 1
            assert state(lake) == before
            continue
        folded += 1
        assert state(lake) == before
        # Only what came between is left.
        assert {item.file["file_path"] for item in live(lake, EQUALITY_DELETES)}.isdisjoint(old) or between
        lake.clock.move(seconds=1)
    assert folded + refused


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fold_beside_delete_files_that_cannot_be_read_changes_no_row(tmp_path: Path, seed: int) -> None:
    lake = lake_of(tmp_path, "region")
    chance = Chance(lake, seed)
    for _ in range(3):
        for _ in range(3):
            put(lake, *[chance.some() for _ in range(chance.of.randint(1, 5))])
        before, deletes = state(lake), sorted(paths(live(lake, EQUALITY_DELETES)))
        odd = {path: local(path).read_bytes() for path in deletes if chance.of.random() < 0.4}
        for path, whole in odd.items():
            local(path).write_bytes(chance.of.randbytes(len(whole)))
        computed = planned(lake)
        if computed.plan is not None:
            committed(lake, computed)
        for path, whole in odd.items():
            local(path).write_bytes(whole)
        assert state(lake) == before
        assert computed.left.keys() == paths(live(lake, EQUALITY_DELETES)) <= odd.keys()
        lake.clock.move(seconds=1)
    fold(lake)
    assert (state(lake), live(lake, EQUALITY_DELETES)) == (before, [])
