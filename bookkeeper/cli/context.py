"""
What the commands share: settings, one table's folder and ledger, the clock.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bookkeeper.console.options import load_settings, pick_table, tables_option

__all__ = ["Opened", "opened", "settings_of", "several_tables", "tables_option", "txlog_name", "utc_now"]

if TYPE_CHECKING:
    from bookkeeper.config.settings import Settings, Table
    from bookkeeper.contract.txlog_folder import Folder
    from bookkeeper.ledger.ledger import Ledger
    from bookkeeper.ledger.marks_publisher import MarksPublisher
    from bookkeeper.ledger.view import View


def utc_now() -> datetime:
    """
    The clock of every command.
    """
    return datetime.now(UTC)


def settings_of(config: str | None) -> "Settings":
    """
    The settings that --config or the environment names.
    """
    found: Settings = load_settings(config, os.environ)
    return found


def several_tables(settings: "Settings", names: Sequence[str]) -> "list[Table]":
    """
    The tables that --table names, all of them without it; raises ConfigInvalid.
    """
    from bookkeeper.errors import ConfigInvalid

    if not settings.tables:
        raise ConfigInvalid(f"{settings.source} has no [tables.NAME] section")
    return [pick_table(settings, name) for name in names] or list(settings.tables.values())


@dataclass(frozen=True)
class Opened:
    """One table: settings, folder and ledger."""

    settings: "Settings"
    table: "Table"
    folder: "Folder"
    ledger: "Ledger"

    @property
    def publisher(self) -> "MarksPublisher":
        """Commits to the table, and writes marks.json after it."""
        from bookkeeper.ledger.marks_publisher import MarksPublisher

        return MarksPublisher(self.ledger, self.folder, self.table.name)

    def view(self, accept_rollback: bool = False) -> "View":
        """The table now; raises Halt like the daemon."""
        from bookkeeper.ledger.load import load

        return load(self.ledger, self.folder, accept_rollback)[0]


def opened(config: str | None, name: str | None) -> Opened:
    """
    The table that --table names, or the only one.
    """
    from bookkeeper.catalogs.open import open_catalog
    from bookkeeper.contract.known_table import advising
    from bookkeeper.ledger.commit_clock import CommitClock
    from bookkeeper.ledger.ledger import Ledger
    from bookkeeper.serve.open import open_folder

    settings = settings_of(config)
    table: Table = pick_table(settings, name)
    with advising(settings.catalog, table):
        catalog = open_catalog(settings.catalog)
        folder = open_folder(catalog, table)
    # A command that commits stamps the table too, and its clock may be ahead like any other.
    ledger = Ledger(catalog, table.identifier, CommitClock(utc_now, table.name, folder))
    return Opened(settings, table, folder, ledger)


def txlog_name(text: str) -> Any:
    """
    The TxlogName in an argument, with or without a folder before it; raises NotPossible.
    """
    from bookkeeper.contract.names import TxlogName
    from bookkeeper.errors import NameMismatch, NotPossible

    try:
        return TxlogName.parse(text.rsplit("/", 1)[-1])
    except NameMismatch as exc:
        raise NotPossible(str(exc), hint="`bookkeeper pending` and `bookkeeper rejected` list the names.") from exc


def moment(ms: int) -> Any:
    """
    Milliseconds since 1970 as a time (UTC); as a text where no calendar has it, as of a txlog that is corrupt.
    """
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms after 1970"
