"""Fixtures of the metrics' tests."""

from tests.tick.conftest import _no_power_cuts  # noqa: F401
