"""Fixtures that these tests share with those of consumers."""

from tests.consumers.conftest import lake, writer

__all__ = ["lake", "writer"]
