"""Fixtures of the metrics' tests."""

from tests.daemon.conftest import _no_power_cuts  # noqa: F401
