"""Fixtures of the pages' tests."""

from tests.daemon.conftest import _no_power_cuts  # noqa: F401
