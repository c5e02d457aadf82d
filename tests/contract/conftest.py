"""Fixtures that these tests share with others."""

from tests.support.fixtures import first, folder, store, stores

__all__ = ["first", "folder", "store", "stores"]
