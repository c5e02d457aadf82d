"""
A real queue for the writers' tests: SQLite catalog, `init`, the real bookkeeper.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.config.settings import Settings, Table
from bookkeeper.serve.open import open_bookkeeper
from tests.support.pyiceberg_files import sqlite_catalog
from writers import Writer


class Queue:
    """One table with its folder, and a bookkeeper that remembers nothing between two ticks."""

    def __init__(self, root: Path, schema: Schema | None = None, catalog: str = "lake", **table: Any) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.settings_of_table = Table(name="events", identifier="demo.events", **table)
        self.settings = Settings(sqlite_catalog(root, catalog), tables={"events": self.settings_of_table})
        self.catalog = open_catalog(self.settings.catalog, create=True)
        self.made = initialise(self.catalog, self.settings_of_table, schema or schema_for(self.settings_of_table))

    @contextmanager
    def writer(self, name: str = "w1") -> Iterator[Writer]:
        with Writer.open(self.made.folder, name) as writer:
            yield writer

    def tick(self) -> Any:
        return open_bookkeeper(self.settings, self.settings_of_table, self.now).tick(self.now())

    def now(self) -> datetime:
        return datetime.now(UTC)

    def table(self) -> IcebergTable:
        return self.catalog.load_table("demo.events")
