"""Fixtures that these tests share with those of the tick."""

from tests.tick.conftest import _no_power_cuts, either, faults, lake, writer

__all__ = ["_no_power_cuts", "either", "faults", "lake", "writer"]
