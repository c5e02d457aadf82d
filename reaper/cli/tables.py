"""
The tables that a command works on, one after the other, and their catalog.
"""

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bookkeeper.console import output
from bookkeeper.console.errors import exit_code
from bookkeeper.console.options import load_settings, pick_table
from bookkeeper.errors import BookkeeperError, ConfigInvalid

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from bookkeeper.config.settings import Settings, Table

Row = dict[str, Any]


class LazyCatalog:
    """A catalog that is opened at its first use: when it is down at start, the next use tries again."""

    def __init__(self, settings: "Settings") -> None:
        self._settings, self.source = settings, settings.source
        self._catalog: Catalog | None = None

    def get(self) -> "Catalog":
        """Opens it, or gives it; raises Retry."""
        from bookkeeper.catalogs.open import open_catalog

        self._catalog = self._catalog or open_catalog(self._settings.catalog)
        return self._catalog


def utc_now() -> datetime:
    """
    This machine's clock.
    """
    return datetime.now(UTC)


def chosen_tables(config: str | None, names: Sequence[str]) -> "tuple[Settings, list[Table]]":
    """
    The settings, and the tables of these names, or all. Raises ConfigInvalid.
    """
    from bookkeeper.config.load import apart

    settings: Settings = load_settings(config, os.environ)
    if not settings.tables:
        raise ConfigInvalid(f"{settings.source} has no [tables.NAME] section")
    return settings, apart([pick_table(settings, name) for name in names] or list(settings.tables.values()))


def each(tables: "Sequence[Table]", act: "Callable[[Table], Row]") -> tuple[list[Row], int]:
    """
    What `act` gives for each table, or its error's name, which it says; and the worst exit code.
    """
    rows, worst = [], 0
    for table in tables:
        try:
            rows.append({"table": table.name, "outcome": "done", **act(table)})
        except BookkeeperError as exc:
            # The other tables are reaped all the same; the error is written beside their rows.
            rows.append({"table": table.name, "outcome": type(exc).__name__})
            output.say(f"error: {table.name}: {exc}" + (f"\nhint: {exc.hint}" if exc.hint else ""))
            worst = max(worst, exit_code(exc))
    return rows, worst
