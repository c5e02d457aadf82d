"""
Walks over three tables, and what the first that ends badly says; usable without pytest.
"""

import os
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from bookkeeper.format import records
from bookkeeper.ledger import merge
from tests.histories.random_walk import OF_COMPACTORS, walk
from tests.histories.world import SPECS, World
from tests.servers import scratch

STEPS = 60


def complaints(rewrites: bool) -> list[str]:
    """
    The complaints of the first walk that ends badly; each has merges, retention and widened columns.
    """
    without = () if rewrites else OF_COMPACTORS
    with ExitStack() as stack:
        root = Path(stack.enter_context(TemporaryDirectory(dir=scratch())))
        # As in conftest.py: merges of merges, and blocks of some records each.
        stack.enter_context(mock.patch.object(merge, "FAN", 2))
        stack.enter_context(mock.patch.object(records, "BLOCK_BYTES", 700))
        stack.enter_context(mock.patch.object(os, "fsync"))
        for seed, spec in enumerate(("by value", "by day", "by price")):
            world = World(root / spec / "lake", SPECS[spec], seed)
            try:
                for _ in walk(world, seed, STEPS, without):
                    if found := world.complaints():
                        return found
            except Exception as error:  # noqa: BLE001 - what is broken may also break off
                return [f"undecodable: {error!r}"]
    return []
