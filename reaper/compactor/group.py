"""
What one rewrite replaces: live data files of one partition of one spec.
"""

from dataclasses import dataclass
from typing import Any

from bookkeeper.contract.rewrite import ReplacedFile
from bookkeeper.errors import BookkeeperError


class CannotRewrite(BookkeeperError):
    """These files cannot be rewritten here: they stay as they are. `path`: the one file that this is about."""

    hint = "Nothing is lost. Spark's engine reads more formats and applies deletes."

    def __init__(self, message: str = "", path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


@dataclass(frozen=True, slots=True)
class Group:
    """Live files to become few, oldest first. `partition` has a value per field of the spec, as their entries have."""

    spec_id: int
    partition: tuple[Any, ...]
    files: tuple[ReplacedFile, ...]
    #: why they are rewritten now, for people: "16 files of one size", "the partition is quiet"
    reason: str
    #: the last rewrite of a partition that grows no more: its rows are sorted, where the table has a sort order
    last: bool = False

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum(item.file.size_bytes for item in self.files)
