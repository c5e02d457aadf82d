"""
A commit in two parts: what can be written beforehand, beside the manifests, and the compare-and-swap itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate

from bookkeeper.catalogs.metadata_json import apply_updates


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """
    `swap` is sent once, and only after all `writes` are done: what it makes current must be durable.

    A write that fails, or a crash before the swap, leaves files that nothing names; the orphan sweep deletes them.
    """

    writes: Sequence[Callable[[], None]]
    swap: Callable[[], CommitTableResponse]

    def commit(self) -> CommitTableResponse:
        """Both parts, one after the other."""
        for write in self.writes:
            write()
        return self.swap()


class CommitsInTwoParts(ABC):
    """
    The commits of our own catalogs, each on top of the table as the caller loaded it.

    They raise CommitFailedException when that is not current, CommitStateUnknownException when only a later load can
    tell what happened.
    """

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commits at once."""
        return self.prepare_commit(table, requirements, updates).commit()

    def prepare_commit(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> PreparedCommit:
        """What `commit_table` does, before anything is written or sent; raises CommitFailedException."""
        for requirement in requirements:
            requirement.validate(table.metadata)
        return self._prepared(table, apply_updates(table.metadata, updates, table.metadata_location))

    def replace_metadata(self, table: Table, metadata: TableMetadata) -> CommitTableResponse:
        """Replaces the table's metadata, at once."""
        return self._prepared(table, metadata).commit()

    @abstractmethod
    def _prepared(self, table: Table, metadata: TableMetadata) -> PreparedCommit: ...
