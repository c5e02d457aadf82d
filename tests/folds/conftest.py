"""Fixtures of the fold's tests: nothing waits for the disk."""

from tests.tick.conftest import _no_power_cuts  # noqa: F401
