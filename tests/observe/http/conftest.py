"""Fixtures of the pages' tests."""

from tests.tick.conftest import _no_power_cuts  # noqa: F401
